"""How all that a cluster has at its cloud is deleted: against the graph, then leftovers (spec/provisioning.md 9.2, D6 to D12).

All objects that there may be are deleted, not only those that are known to be there: what was being created when the deletion was ordered
may be there without that being known.
"""

from datetime import datetime, timedelta

from activities.clouds.activities import CloudActivities
from api_types.messages.clouds import (
    CLUSTER_KEY,
    HELM_RELEASE,
    AuditCloud,
    CloudAudit,
    CloudObjectResult,
    Leftover,
)
from workflows.cloud_cluster import graph
from workflows.cloud_cluster.calls import AUDIT, PLAN, SWEEP, Calls, executing, options_of
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.converge import Converge
from workflows.cloud_cluster.entries import Entries
from workflows.cloud_cluster.failures import CREDENTIALS, DEPENDENCY
from workflows.cloud_cluster.state import Entry
from workflows.entity.calls.activity_options import remote
from workflows.entity.failures import Failure

# Between an audit that found something and the next one.
_AUDIT_PAUSE = timedelta(seconds=30)
_LATER_AUDIT = timedelta(minutes=15)


class Teardown:
    """Deletes everything."""

    def __init__(self, context: CloudContext, calls: Calls, entries: Entries, converge: Converge) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls
        self._entries = entries
        self._converge = converge

    async def update(self) -> bool:
        """Begin all deletions that may begin now; True when nothing is left."""
        state = self._state
        if not state.inventory and (state.deletion is None or state.deletion.order is None):
            # No object was ever ordered.
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
        self._wait_for_times()
        if any(not entry.gone for entry in state.inventory.values()):
            return False
        return self._audit()

    async def _look_up(self) -> bool:
        """Have everything in the inventory that there may be. What is being created is stopped first: it may create no more."""
        state = self._state
        if any(key != PLAN for key in self._calls.keys):
            await self._calls.stop_all()
        if state.plan is None:
            self._converge.update_plan()
            return False
        for each in state.plan.objects:
            state.inventory.setdefault(each.key, Entry(object=each))
        for entry in state.inventory.values():
            self._entries.clear(entry)
            entry.phase, entry.held = "Deleting", False
        state.looked_up = True
        return True

    def _delete(self, entry: Entry) -> None:
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
        self._calls.start(key, call, deleted, lambda failure: self._failed(key, failure))

    def _deleted(self, key: str, result: CloudObjectResult) -> None:
        entry = self._state.inventory[key]
        self._entries.clear(entry)
        if result.message:
            self._context.record("Warning", "NotOwned", f"{entry.title}: {result.message}")
        else:
            self._context.record("Normal", "CloudObjectDeleted", entry.title)
        entry.phase = "Absent"

    def _failed(self, key: str, failure: Failure) -> None:
        entry = self._state.inventory[key]
        if graph.is_in_cluster(entry):
            self._context.record("Warning", failure.type, f"{entry.title} goes with its cluster: {failure.message}")
            self._entries.clear(entry)
            entry.phase = "Absent"
            return
        self._converge.object_failed(key, failure)
        entry.phase = "Deleting"
        if failure.type == DEPENDENCY:
            if key == CLUSTER_KEY:
                self._state.deleted_pools = True
            self._start_audit(sweep=True)

    # --- what is left -------------------------------------------------------------------------------------------------------------

    def _audit(self) -> bool:
        state = self._state
        if self._calls.running(AUDIT):
            return False
        if state.audits and not any(each.ours for each in state.leftovers):
            for other in state.leftovers:
                self._context.record("Warning", "NotOwned", f"{shown(other)} stays: {other.evidence}")
            return True
        if self._context.is_due(state.audit_at):
            self._start_audit(sweep=state.audits > 0)
        return False

    def _start_audit(self, *, sweep: bool) -> None:
        state = self._state
        if state.account is None or self._calls.running(AUDIT):
            return
        cloud_cluster = state.plan.cloud_cluster if state.plan else ""
        order = AuditCloud(account=state.account, cloud_cluster=cloud_cluster, known=state.known, sweep=sweep)
        options = remote(SWEEP, f"look for what is left of {self._context.cluster}")
        self._calls.start(AUDIT, executing(CloudActivities.audit_cloud, order, options), self._audited, self._audit_failed)

    def _audited(self, found: CloudAudit) -> None:
        state = self._state
        for each in found.swept:
            self._context.record("Normal", "LeftoverDeleted", f"{shown(each)}: {each.evidence}")
        if any(not entry.gone for entry in state.inventory.values()):
            # It was for an object that could not be deleted: what was swept may have held it.
            for entry in graph.failing(state):
                entry.retry_at = "" if found.swept else entry.retry_at
            return
        state.audits += 1
        state.leftovers = found.leftovers
        for each in found.leftovers:
            left = state.inventory.get(each.key)
            if each.ours and left is not None:
                left.phase = "Deleting"
        rounds = state.plan.audit_rounds if state.plan else 1
        state.audit_at = self._context.later(_AUDIT_PAUSE if state.audits < rounds else _LATER_AUDIT)
        if state.audits == rounds and (ours := [each for each in found.leftovers if each.ours]):
            self._context.record("Warning", "LeftoversFound", f"after {rounds} rounds: {'; '.join(map(shown, ours))}")

    def _audit_failed(self, failure: Failure) -> None:
        if failure.type == CREDENTIALS:
            self._converge.pause(failure)
            return
        self._context.record("Warning", failure.type, f"leftovers could not be looked for: {failure.message}")
        self._state.audit_at = self._context.later(_AUDIT_PAUSE)

    def _wait_for_times(self) -> None:
        now = self._context.now()
        for entry in self._state.inventory.values():
            if entry.retry_at and datetime.fromisoformat(entry.retry_at) > now:
                self._context.requeue_at(datetime.fromisoformat(entry.retry_at))


def shown(each: Leftover) -> str:
    """Name something that is left, with its link at the cloud."""
    return f"{each.kind} {each.id}{f' ({each.link})' if each.link else ''}"


def inventory_lines(entries: list[Entry]) -> list[str]:
    """List what may be left of an inventory."""
    return [" ".join(filter(None, (entry.title, entry.facts.get("id")))) for entry in entries if not entry.gone and entry.tried]
