"""The replicas and deployments that use a cache, and the reports to them.

Users register themselves. The cache sends a report to a user when it has changed.
"""

from api_types.digests import report_digest
from api_types.messages.caches import CacheChanged, CacheUse
from api_types.messages.delivery import EntityRef, SignalRequest
from api_types.messages.signals import (
    CacheUserSignals,
    ModelDeploymentSignals,
    ModelReplicaSignals,
)
from workflows.entity.calls.querying import query_each
from workflows.entity.calls.sending import broadcast, send_all
from workflows.entity.context import EntityContext
from workflows.entity.registering.registrations import ENDED_KEPT
from workflows.model_cache.claims import (
    assigned_replicas,
    mounting_replicas,
    next_assignments,
)
from workflows.model_cache.reports import deployment_report, replica_report
from workflows.model_cache.state import CacheState, CacheUser


class Users:
    """Stores the users of a cache and reports to them."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state

    def register(self, message: CacheUse) -> None:
        """Record a user with the claims that its pods mount, or the end of the use.

        A late registration changes nothing.
        """
        known = self.state.users.get(message.uid)
        former = self.state.former_users.get(message.uid, 0)
        if message.sequence < (known.sequence if known else former):
            return
        if message.used:
            self._keep(message)
        else:
            self.state.users.pop(message.uid, None)
            self.state.reported.pop(message.workflow_id, None)
            ended = {**self.state.former_users, message.uid: message.sequence}
            self.state.former_users = dict(list(ended.items())[-ENDED_KEPT:])
        self.context.mark_changed()

    def _keep(self, message: CacheUse) -> None:
        known = self.state.users.get(message.uid)
        # An earlier user with this workflow ID and another uid no longer exists, or
        # this one could not run.
        self.state.users = {
            uid: user
            for uid, user in self.state.users.items()
            if user.workflow_id != message.workflow_id
        }
        mounted = message.claims[-1] if message.claims else ""
        self.state.users[message.uid] = CacheUser(
            workflow_id=message.workflow_id,
            cluster=message.cluster,
            deployment=message.deployment,
            claims=message.claims,
            assigned_claim=known.assigned_claim if known else mounted,
            sequence=message.sequence,
        )
        if known is None or message.report_missing:
            # A replica whose workflow was restarted has the same uid, but lost its
            # report.
            self.state.reported.pop(message.workflow_id, None)

    async def announce(self) -> None:
        """Announce this cache to its namespace.

        Objects that wait for the cache could not register before.
        """
        created = CacheUserSignals.CACHE_CHANGED.broadcast(
            CacheChanged(cache=self.context.name),
            ModelDeploymentSignals,
            ModelReplicaSignals,
            namespace=self.context.namespace,
        )
        await broadcast(created, "report to this namespace that the cache exists")

    async def report(self) -> None:
        """Assign claims and send each user its changed report.

        Drop users that have ended.
        """
        for uid, claim in next_assignments(
            self.state.users, self.state.stagings, deleting=self.state.deleting
        ):
            self.state.users[uid].assigned_claim = claim
        requests = self._new_reports()
        if not requests:
            return
        self.state.sequence = self.context.next_number(self.state.sequence)
        for request in requests.values():
            request.payload["sequence"] = self.state.sequence
        missing = await send_all(
            list(requests.values()), f"report to {len(requests)} users of this cache"
        )
        for uid, request in requests.items():
            if request.workflow_id in missing:
                self._drop(uid, request.workflow_id)

    def _new_reports(self) -> dict[str, SignalRequest]:
        """Return the changed messages by user uid, and remember them as sent."""
        requests: dict[str, SignalRequest] = {}
        for uid, user in sorted(self.state.users.items()):
            request = self._report_to(user)
            digest = report_digest(request.payload)
            if self.state.reported.get(user.workflow_id) != digest:
                self.state.reported[user.workflow_id] = digest
                requests[uid] = request
        return requests

    def _report_to(self, user: CacheUser) -> SignalRequest:
        if user.cluster:
            report = replica_report(self.context.name, self.state, user)
            return ModelReplicaSignals.CACHE_REPORT.request(
                EntityRef(user.workflow_id), report
            )
        return CacheUserSignals.CACHE_CHANGED.request(
            EntityRef(user.workflow_id),
            deployment_report(self.context.name, self.state),
        )

    async def drop_terminated(self) -> None:
        """Query the replicas, and drop those that have ended.

        A replica that was terminated could not unregister.
        """
        replicas = {
            user.workflow_id: uid
            for uid, user in self.state.users.items()
            if user.cluster
        }
        if not replicas:
            return
        queried = await query_each(
            replicas,
            "account",
            f"query {len(replicas)} replicas whether they still use this cache",
        )
        for workflow_id, uid in replicas.items():
            gone = (queried.answers.get(workflow_id) or {}).get("gone", False)
            exists = (
                workflow_id in queried.answers or workflow_id in queried.unresponsive
            )
            if gone or not exists:
                self._drop(uid, workflow_id)

    def mounting(self) -> list[str]:
        """Return the replicas whose pods mount a claim of this cache or may do so soon."""
        users = self.state.users.values()
        return sorted({*mounting_replicas(users), *assigned_replicas(users)})

    def release_all(self) -> None:
        """Treat all claims as unused, because the cache is being removed."""
        for user in self.state.users.values():
            user.claims, user.assigned_claim = [], ""

    async def report_gone(self) -> None:
        """Report to every user that the cache is gone."""
        gone = CacheChanged(
            cache=self.context.name,
            uid=self.state.uid,
            sequence=self.context.next_number(self.state.sequence),
            present=False,
        )
        workflow_ids = sorted(user.workflow_id for user in self.state.users.values())
        users = [EntityRef[CacheUserSignals](each) for each in workflow_ids]
        if users:
            await send_all(
                [CacheUserSignals.CACHE_CHANGED.request(user, gone) for user in users],
                "report to users that the cache is gone",
            )

    def _drop(self, uid: str, workflow_id: str) -> None:
        self.state.users.pop(uid, None)
        self.state.reported.pop(workflow_id, None)
        self.context.requeue()
