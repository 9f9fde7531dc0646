"""Which replicas and deployments reference a cache, and what was reported to each of them.

They register; the cache reports to each only what is new to it.
"""

from temporalio import workflow

from api_types.digests import report_digest
from api_types.messages.caches import CacheChanged, CacheUse
from api_types.messages.delivery import EntityRef, SignalRequest
from api_types.messages.signals import CacheUserSignals, ModelDeploymentSignals, ModelReplicaSignals
from workflows.entity.calls.querying import query_each
from workflows.entity.calls.sending import broadcast, send_all
from workflows.entity.context import EntityContext
from workflows.entity.registering.registrations import ENDED_KEPT
from workflows.model_cache.claims import assigned_replicas, mounting_replicas, next_assignments
from workflows.model_cache.reports import deployment_report, replica_report
from workflows.model_cache.state import CacheState, User

# In histories of before a deletion does not wait for those that were told to mount a claim and have not said that they do.
ASSIGNED_PATCH = "assigned-claims-are-in-use"


class Users:
    """Keeps the users of a cache and reports to them."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state

    def register(self, message: CacheUse) -> None:
        """Record what references this cache and what its pods mount, or that it no longer does. A late registration changes nothing."""
        known = self.state.users.get(message.uid)
        if message.sequence < (known.sequence if known else self.state.former_users.get(message.uid, 0)):
            return
        if message.used:
            self._keep(message)
        else:
            self.state.users.pop(message.uid, None)
            self.state.reported.pop(message.workflow_id, None)
            former = {**self.state.former_users, message.uid: message.sequence}
            self.state.former_users = dict(list(former.items())[-ENDED_KEPT:])
        self.context.mark_changed()

    def _keep(self, message: CacheUse) -> None:
        known = self.state.users.get(message.uid)
        # Another uid under the same workflow id is gone, or this one would not run.
        self.state.users = {uid: user for uid, user in self.state.users.items() if user.workflow_id != message.workflow_id}
        self.state.users[message.uid] = User(
            workflow_id=message.workflow_id,
            cluster=message.cluster,
            deployment=message.deployment,
            claims=message.claims,
            assigned_claim=known.assigned_claim if known else (message.claims[-1] if message.claims else ""),
            sequence=message.sequence,
        )
        if known is None or message.report_missing:
            # A replica whose workflow was started again has the same uid, and lost its report.
            self.state.reported.pop(message.workflow_id, None)

    async def announce(self) -> None:
        """Report to the namespace that this cache exists now: an object that waits for it could not register before."""
        created = CacheUserSignals.CACHE_CHANGED.broadcast(
            CacheChanged(cache=self.context.name), ModelDeploymentSignals, ModelReplicaSignals, namespace=self.context.namespace
        )
        await broadcast(created, "report to this namespace that the cache exists")

    async def report(self) -> None:
        """Assign claims and report to every user what is new to it; one that does not run any more is dropped."""
        for uid, claim in next_assignments(self.state.users, self.state.stagings, deleting=self.state.deleting):
            self.state.users[uid].assigned_claim = claim
        requests = self._new_reports()
        if not requests:
            return
        self.state.sequence = self.context.next_number(self.state.sequence)
        for request in requests.values():
            request.payload["sequence"] = self.state.sequence
        missing = await send_all(list(requests.values()), f"report to {len(requests)} users of this cache")
        for uid, request in requests.items():
            if request.workflow_id in missing:
                self._drop(uid, request.workflow_id)

    def _new_reports(self) -> dict[str, SignalRequest]:
        """Give the messages that differ from the last ones, by uid of the user, and remember them."""
        requests: dict[str, SignalRequest] = {}
        for uid, user in sorted(self.state.users.items()):
            request = self._report_to(user)
            digest = report_digest(request.payload)
            if self.state.reported.get(user.workflow_id) != digest:
                self.state.reported[user.workflow_id] = digest
                requests[uid] = request
        return requests

    def _report_to(self, user: User) -> SignalRequest:
        if user.cluster:
            report = replica_report(self.context.name, self.state, user)
            return ModelReplicaSignals.CACHE_REPORT.request(EntityRef(user.workflow_id), report)
        return CacheUserSignals.CACHE_CHANGED.request(EntityRef(user.workflow_id), deployment_report(self.context.name, self.state))

    async def drop_terminated(self) -> None:
        """Query the replicas whether they still run: one that was terminated could not unregister."""
        replicas = {user.workflow_id: uid for uid, user in self.state.users.items() if user.cluster}
        if not replicas:
            return
        queried = await query_each(replicas, "account", f"query {len(replicas)} replicas whether they still use this cache")
        for workflow_id, uid in replicas.items():
            gone = (queried.answers.get(workflow_id) or {}).get("gone", False)
            if gone or (workflow_id not in queried.answers and workflow_id not in queried.unresponsive):
                self._drop(uid, workflow_id)

    def mounting(self) -> list[str]:
        """Name the replicas whose pods mount a claim of this cache, or may mount one soon."""
        mounting, assigned = mounting_replicas(self.state.users.values()), assigned_replicas(self.state.users.values())
        further = [name for name in assigned if name not in mounting]
        return sorted([*mounting, *further]) if further and workflow.patched(ASSIGNED_PATCH) else mounting

    def release_all(self) -> None:
        """Treat all claims as unused: nothing mounts them any more, or the deletion was forced."""
        for user in self.state.users.values():
            user.claims, user.assigned_claim = [], ""

    async def report_gone(self) -> None:
        """Report to every user that the cache does not exist any more."""
        gone = CacheChanged(
            cache=self.context.name, uid=self.state.uid, sequence=self.context.next_number(self.state.sequence), present=False
        )
        users = [EntityRef[CacheUserSignals](workflow_id) for workflow_id in sorted(user.workflow_id for user in self.state.users.values())]
        if users:
            await send_all([CacheUserSignals.CACHE_CHANGED.request(user, gone) for user in users], "report to users that the cache is gone")

    def _drop(self, uid: str, workflow_id: str) -> None:
        self.state.users.pop(uid, None)
        self.state.reported.pop(workflow_id, None)
        self.context.requeue()
