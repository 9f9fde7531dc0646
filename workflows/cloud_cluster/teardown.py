"""Delete everything that a cluster has at its cloud: first the graph, then leftovers.

All objects that may exist are deleted, not only those that are known to exist. An
object whose creation was running when the deletion was ordered may exist without a
trace in the state.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from activities.clouds.activities import CloudActivities
from api_types.messages.clouds import (
    CLUSTER_KEY,
    HELM_RELEASE,
    AuditCloud,
    CloudAudit,
    CloudObjectResult,
    CloudPlan,
    Leftover,
)
from workflows.cloud_cluster import deletion, graph
from workflows.cloud_cluster.account import ordered_account
from workflows.cloud_cluster.calls import (
    AUDIT,
    LAST_LOOK,
    PLAN,
    SWEEP,
    Calls,
    executing,
    options_of,
)
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.converge import Converge
from workflows.cloud_cluster.deletion import shown
from workflows.cloud_cluster.entries import Inventory
from workflows.cloud_cluster.failures import (
    DEPENDENCY,
    MARK_MISSING,
    delay_after,
    may_pass,
    pauses,
)
from workflows.cloud_cluster.state import InventoryEntry
from workflows.entity.calls.activity_options import remote
from workflows.entity.failures import NO_FAILURE, Failure

# A deletion that runs for longer may be blocked by objects of others. The cloud's refusal
# is final only after some minutes, because the objects may be disappearing.
_BLOCKED_AFTER = timedelta(seconds=30)
_BLOCKERS_PAUSE = timedelta(minutes=1)
# The pause between two audits that find leftovers. Most leftovers disappear within the
# plan's rounds. After those, the pause doubles each time up to the maximum.
_AUDIT_PAUSE = timedelta(seconds=30)
_AUDIT_PAUSE_MAX = timedelta(minutes=15)
_DOUBLED_MAX = 5
# A create call may reach the cloud after its activity has ended: a worker that was killed,
# or lost its connection to Temporal, had sent it or still repeats it. Clients of AWS wait
# longest: three attempts, each with 10 s to connect and 60 s to read. The last search
# begins later than that.
_CREATE_CALL = timedelta(minutes=4)


class Teardown:
    """Deletes all objects of a cluster."""

    def __init__(
        self,
        context: CloudContext,
        calls: Calls,
        entries: Inventory,
        converge: Converge,
    ) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls
        self._entries = entries
        self._converge = converge
        self._listing = False

    async def update(self) -> bool:
        """Start all deletions that may start now. Return True when nothing is left."""
        state = self._state
        if not state.inventory and (
            state.deletion is None or state.deletion.order is None
        ):
            await self._calls.stop_all()
            return True
        if not state.looked_up and not await self._look_up():
            return False
        if state.paused.type:
            self._converge.update_plan()
            return False
        graph.note_cluster_gone(state)
        for entry in graph.to_delete(state, self._calls.keys, self._context.now()):
            self._delete(entry)
        self._look_for_blockers()
        self._wait_for_times()
        if any(not entry.gone for entry in state.inventory.values()):
            return False
        return self._audit()

    async def _look_up(self) -> bool:
        """Add every object that may exist to the inventory.

        Return True when that is done. Running creations are stopped first, so that they
        create nothing more.
        """
        state = self._state
        if any(key != PLAN for key in self._calls.keys):
            was_creating = any(key in state.inventory for key in self._calls.keys)
            await self._calls.stop_all()
            if was_creating:
                state.created_until = self._context.later(_CREATE_CALL)
        if state.plan is None:
            self._converge.update_plan()
            self._go_without_plan()
            return False
        for each in state.plan.objects:
            state.inventory.setdefault(each.key, InventoryEntry(object=each))
        for entry in state.inventory.values():
            # Problems of an object that is deleted now need nobody.
            entry.health, entry.message = None, ""
            self._entries.forget_trouble(entry)
            entry.phase, entry.held = "Deleting", False
        state.looked_up = True
        return True

    def _go_without_plan(self) -> None:
        """Continue without a plan if making one fails permanently.

        Making a plan may need permissions that a deletion does not need. Without a
        plan, the audit deletes all objects that carry the labels or tags of the
        cluster.
        """
        state = self._state
        if (
            state.order is None
            or not state.plan_failure.type
            or may_pass(state.plan_failure)
        ):
            return
        account = ordered_account(
            self._context.cluster, self._context.uid, state.order, state.account
        )
        if account is None:
            return
        text = (
            "no plan can be made, so all objects with the labels or tags of the "
            f"cluster are deleted: {state.plan_failure.message}"
        )
        self._context.record("Warning", state.plan_failure.type, text)
        state.account = account
        state.plan, state.planned = CloudPlan(account=account), state.order.sequence
        state.plan_failure, state.plan_retry_at = NO_FAILURE, ""
        self._context.requeue()

    def _delete(self, entry: InventoryEntry) -> None:
        key = entry.object.key
        skip = bool(self._state.deletion and self._state.deletion.skip_cluster)
        if entry.object.kind == HELM_RELEASE and (skip or not self._state.usable):
            entry.phase = "Absent"
            self._context.requeue()
            return
        entry.since = entry.since or self._context.now().isoformat()
        order = self._converge.order(entry).model_copy(update={"again": True})
        options = options_of(entry.object, "delete", entry.epoch, whole=True)

        def deleted(result: CloudObjectResult) -> None:
            self._deleted(key, result)

        call = executing(CloudActivities.delete_cloud_object, order, options)
        self._calls.start(
            key, call, deleted, lambda failure: self._failed(key, failure)
        )

    def _deleted(self, key: str, result: CloudObjectResult) -> None:
        entry = self._state.inventory[key]
        self._entries.forget_trouble(entry)
        named = f"{entry.title}: "
        # An earlier attempt may have left the object, before its mark was restored.
        self._state.not_owned = [
            each for each in self._state.not_owned if not each.startswith(named)
        ]
        entry.left = False
        if result.message and graph.goes_with_cluster(entry):
            self._goes_with_cluster(entry, result.message)
        elif result.message:
            said = f"{named}{result.message}"
            self._context.record("Warning", "NotOwned", said)
            self._state.not_owned.append(said)
            entry.left = True
        else:
            self._context.record("Normal", "CloudObjectDeleted", entry.title)
        entry.phase = "Absent"

    def _failed(self, key: str, failure: Failure) -> None:
        entry = self._state.inventory[key]
        is_unmarked = failure.type == MARK_MISSING and graph.goes_with_cluster(entry)
        if graph.is_in_cluster(entry) or is_unmarked:
            self._goes_with_cluster(entry, failure.message)
            self._entries.forget_trouble(entry)
            entry.phase = "Absent"
            return
        self._converge.object_failed(key, failure)
        entry.phase = "Deleting"
        if failure.type == DEPENDENCY:
            if key == CLUSTER_KEY:
                self._state.deleted_pools = True
            self._start_audit(sweep=True)

    def _goes_with_cluster(self, entry: InventoryEntry, why: str) -> None:
        text = f"{entry.title} is deleted with its cluster: {why}"
        self._context.record("Normal", "DeletedWithCluster", text)

    # Leftovers

    def _look_for_blockers(self) -> None:
        """Search for objects that block a running deletion, if one takes long.

        Before the control plane is gone, its controllers still use what they created, so
        nothing is deleted.
        """
        state = self._state
        since = [
            entry.since
            for key, entry in state.inventory.items()
            if entry.since and self._calls.running(key)
        ]
        if not since:
            return
        began = datetime.fromisoformat(min(since))
        due = max((began + _BLOCKED_AFTER).isoformat(), state.blockers_at)
        if self._context.is_due(due) and not self._calls.running(AUDIT):
            waited = self._context.now() - began
            state.blockers_at = self._context.later(max(_BLOCKERS_PAUSE, waited / 2))
            self._context.is_due(state.blockers_at)
            self._start_audit(sweep=graph.is_cluster_gone(state))

    def _audit(self) -> bool:
        state = self._state
        if self._calls.running(AUDIT):
            return False
        if state.audits and not any(each.ours for each in state.leftovers):
            for other in state.leftovers:
                self._context.record(
                    "Warning", "NotOwned", f"{shown(other)} stays: {other.evidence}"
                )
            return True
        if self._context.is_due(max(state.audit_at, state.created_until)):
            self._start_audit(sweep=state.audits > 0)
        return False

    def _start_audit(self, *, sweep: bool) -> None:
        state = self._state
        if state.account is None or self._calls.running(AUDIT):
            return
        cloud_cluster = state.plan.cloud_cluster if state.plan else ""
        order = AuditCloud(
            account=state.account,
            cloud_cluster=cloud_cluster,
            known=state.known,
            keys=list(state.inventory),
            sweep=sweep,
            emptied=bool(state.deletion and state.deletion.emptied),
        )
        options = remote(SWEEP, self._summary)
        messages = self._converge.messages
        # Only an audit that began after the last deletion proves that nothing is left.
        is_last = all(entry.gone for entry in state.inventory.values())
        gone = [key for key, entry in state.inventory.items() if entry.gone]

        def audited(found: CloudAudit) -> None:
            self._back(found, gone)
            self._audited(found, is_last=is_last)
            self._audit_again(messages)

        def failed(failure: Failure) -> None:
            self._audit_failed(failure)
            self._audit_again(messages)

        self._calls.start(
            AUDIT,
            executing(CloudActivities.audit_cloud, order, options),
            audited,
            failed,
        )

    def _audit_again(self, messages: int) -> None:
        """Make the next audit due at once if a message arrived during the last one.

        The cause of the leftovers may be gone since then.
        """
        if self._converge.messages != messages:
            self._state.audit_at = ""
            self._context.requeue()

    @property
    def _summary(self) -> str:
        return f"search for leftovers of {self._context.cluster}"

    def _back(self, found: CloudAudit, gone: Collection[str]) -> None:
        """Delete the objects again that the cloud lists although they were `gone`."""
        for each in found.leftovers:
            if each.ours and each.key in gone:
                self._state.inventory[each.key].phase = "Deleting"

    def _audited(self, found: CloudAudit, *, is_last: bool) -> None:
        state = self._state
        for each in found.swept:
            self._context.record(
                "Normal", "LeftoverDeleted", f"{shown(each)}: {each.evidence}"
            )
        state.audit_failure, state.leftovers, state.more_leftovers = (
            NO_FAILURE,
            found.leftovers,
            found.more,
        )
        blocked = any(map(deletion.blocks, found.leftovers))
        state.blocked_since = state.blocked_since or self._context.later(timedelta())
        if not blocked:
            state.blocked_since = ""
        if not is_last:
            # The audit was started for an object that could not be deleted. If it
            # deleted leftovers that used the object, retry the object now. The rounds
            # count from the time at which all objects are gone.
            state.audits = 0
            for entry in graph.failing(state):
                entry.retry_at = "" if found.swept else entry.retry_at
            return
        state.audits += 1
        rounds = state.plan.audit_rounds if state.plan else 1
        late = 0 if found.swept else max(0, state.audits - rounds + 1)
        state.audit_at = self._context.later(
            min(_AUDIT_PAUSE_MAX, _AUDIT_PAUSE * 2 ** min(late, _DOUBLED_MAX))
        )
        ours = [shown(each) for each in found.leftovers if each.ours]
        if state.audits == rounds and ours:
            self._context.record(
                "Warning",
                "LeftoversFound",
                f"left at the cloud after {rounds} audits: {'; '.join(ours)}",
            )

    def _audit_failed(self, failure: Failure) -> None:
        if pauses(failure):
            self._converge.pause(failure)
            return
        failure = Failure(
            failure.type, f"cannot search for leftovers: {failure.message}"
        )
        if failure != self._state.audit_failure:
            self._context.record("Warning", failure.type, failure.message)
        self._state.audit_failure = failure
        self._state.audit_at = self._context.later(
            max(_AUDIT_PAUSE, delay_after(failure, self._state.plan))
        )

    def stays(self) -> list[str]:
        """List the objects that stay because they do not belong to the cluster."""
        state = self._state
        more = [f"and {state.more_leftovers} more"] if state.more_leftovers else []
        others = [each for each in state.leftovers if not each.ours]
        listed = [f"{shown(each)}: {each.evidence}" for each in others]
        return [*state.not_owned, *listed, *more]

    # Abandoned clusters

    async def given_up(self) -> list[str] | None:
        """List everything that may be left, or return None while the audit is running.

        There is only one audit, with a short timeout.
        """
        state = self._state
        order = state.order or (state.deletion.order if state.deletion else None)
        account = state.account
        if account is None and order is not None:
            account = ordered_account(
                self._context.cluster, self._context.uid, order, None
            )
        if not state.listed and not self._listing:
            await self._calls.stop_all()
            self._listing = True
            state.leftovers = []
            if account is not None:
                ask = AuditCloud(
                    account=account,
                    cloud_cluster=state.plan.cloud_cluster if state.plan else "",
                    known=state.known,
                )
                call = executing(
                    CloudActivities.audit_cloud, ask, remote(LAST_LOOK, self._summary)
                )
                self._calls.start(AUDIT, call, self._listed, self._not_listed)
                return None
        if self._calls.running(AUDIT):
            return None
        found = {each.key: each for each in state.leftovers if each.key}
        others = [each for each in state.leftovers if each.key not in state.inventory]
        return [
            *inventory_lines(list(state.inventory.values()), found),
            *map(shown, others),
        ]

    def _listed(self, found: CloudAudit) -> None:
        self._state.listed, self._state.leftovers = True, found.leftovers

    def _not_listed(self, failure: Failure) -> None:
        self._state.listed = True
        self._context.record(
            "Warning",
            failure.type,
            f"cannot list the remaining cloud objects: {failure.message}",
        )

    def _wait_for_times(self) -> None:
        now = self._context.now()
        for entry in self._state.inventory.values():
            if entry.retry_at and datetime.fromisoformat(entry.retry_at) > now:
                self._context.requeue_at(datetime.fromisoformat(entry.retry_at))


def inventory_lines(
    entries: list[InventoryEntry], found: Mapping[str, Leftover]
) -> list[str]:
    """List the entries that may be left: those worked on or `found` at the cloud."""
    lines = []
    for entry in entries:
        there = found.get(entry.object.key)
        if there is not None or (entry.tried and not entry.gone):
            link = f"({there.link})" if there is not None and there.link else ""
            lines.append(
                " ".join(filter(None, (entry.title, entry.facts.get("id"), link)))
            )
    return lines
