"""How all that a cluster has at its cloud is deleted: against the graph, then leftovers (spec/provisioning.md 9.2, D6 to D12).

All objects that there may be are deleted, not only those that are known to be there: what was being created when the deletion was ordered
may be there without that being known.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from temporalio import workflow

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
from workflows.cloud_cluster import graph
from workflows.cloud_cluster.account import ordered_account
from workflows.cloud_cluster.calls import AUDIT, LAST_LOOK, PLAN, SWEEP, Calls, executing, options_of
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.converge import Converge
from workflows.cloud_cluster.entries import Entries
from workflows.cloud_cluster.failures import CREDENTIALS, DEPENDENCY, delay_after, may_pass
from workflows.cloud_cluster.state import Entry
from workflows.entity.calls.activity_options import remote
from workflows.entity.failures import NO_FAILURE, Failure

# In histories of before, what was asked for during an audit waited for the next one.
_AGAIN_PATCH = "audit-asked-again"
# Between an audit that found something and the next one: longer each time, once the rounds are over in which most things go.
_AUDIT_PAUSE = timedelta(seconds=30)
_AUDIT_PAUSE_MAX = timedelta(minutes=15)
_DOUBLED_MAX = 5


class Teardown:
    """Deletes everything."""

    def __init__(self, context: CloudContext, calls: Calls, entries: Entries, converge: Converge) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls
        self._entries = entries
        self._converge = converge
        self._listing = False

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
            self._go_without_plan()
            return False
        for each in state.plan.objects:
            state.inventory.setdefault(each.key, Entry(object=each))
        for entry in state.inventory.values():
            self._entries.clear(entry)
            entry.phase, entry.held = "Deleting", False
        state.looked_up = True
        return True

    def _go_without_plan(self) -> None:
        """Where no plan can be made, delete what has the marks of the cluster: it may need rights that only a creation needs."""
        state = self._state
        if state.order is None or not state.plan_failure.type or may_pass(state.plan_failure):
            return
        account = ordered_account(self._context.cluster, self._context.uid, state.order, state.account)
        if account is None:
            return
        text = f"no plan can be made, so what has the marks of the cluster is deleted: {state.plan_failure.message}"
        self._context.record("Warning", state.plan_failure.type, text)
        state.account, state.plan, state.planned = account, CloudPlan(account=account), state.order.sequence
        state.plan_failure, state.plan_retry_at = NO_FAILURE, ""
        self._context.requeue()

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
            said = f"{entry.title}: {result.message}"
            self._context.record("Warning", "NotOwned", said)
            self._state.not_owned = [*(each for each in self._state.not_owned if each != said), said]
            entry.left = True
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
        keys, emptied = list(state.inventory), bool(state.deletion and state.deletion.emptied)
        order = AuditCloud(account=state.account, cloud_cluster=cloud_cluster, known=state.known, keys=keys, sweep=sweep, emptied=emptied)
        options = remote(SWEEP, self._summary)
        messages = self._converge.messages

        def audited(found: CloudAudit) -> None:
            self._audited(found)
            self._audit_again(messages)

        def failed(failure: Failure) -> None:
            self._audit_failed(failure)
            self._audit_again(messages)

        self._calls.start(AUDIT, executing(CloudActivities.audit_cloud, order, options), audited, failed)

    def _audit_again(self, messages: int) -> None:
        """Look for leftovers again without a pause if that was asked for while it was done: what was in the way may have gone since."""
        if self._converge.messages != messages and workflow.patched(_AGAIN_PATCH):
            self._state.audit_at = ""
            self._context.requeue()

    @property
    def _summary(self) -> str:
        return f"look for what is left of {self._context.cluster}"

    def _audited(self, found: CloudAudit) -> None:
        state = self._state
        for each in found.swept:
            self._context.record("Normal", "LeftoverDeleted", f"{shown(each)}: {each.evidence}")
        state.audit_failure, state.leftovers, state.more_leftovers = NO_FAILURE, found.leftovers, found.more
        if any(not entry.gone for entry in state.inventory.values()):
            # It was for an object that could not be deleted: what was swept may have held it. The rounds begin when all are gone.
            state.audits = 0
            for entry in graph.failing(state):
                entry.retry_at = "" if found.swept else entry.retry_at
            return
        state.audits += 1
        for each in found.leftovers:
            left = state.inventory.get(each.key)
            if each.ours and left is not None:
                left.phase = "Deleting"
        rounds = state.plan.audit_rounds if state.plan else 1
        late = 0 if found.swept else max(0, state.audits - rounds + 1)
        state.audit_at = self._context.later(min(_AUDIT_PAUSE_MAX, _AUDIT_PAUSE * 2 ** min(late, _DOUBLED_MAX)))
        if state.audits == rounds and (ours := [each for each in found.leftovers if each.ours]):
            self._context.record("Warning", "LeftoversFound", f"after {rounds} rounds: {'; '.join(map(shown, ours))}")

    def _audit_failed(self, failure: Failure) -> None:
        if failure.type == CREDENTIALS:
            self._converge.pause(failure)
            return
        failure = Failure(failure.type, f"leftovers could not be looked for: {failure.message}")
        if failure != self._state.audit_failure:
            self._context.record("Warning", failure.type, failure.message)
        self._state.audit_failure = failure
        self._state.audit_at = self._context.later(max(_AUDIT_PAUSE, delay_after(failure, self._state.plan)))

    def stays(self) -> list[str]:
        """List what stays at the cloud when everything of the cluster is gone, because it is not of the cluster."""
        state = self._state
        more = [f"and {state.more_leftovers} more"] if state.more_leftovers else []
        return [*state.not_owned, *(f"{shown(each)}: {each.evidence}" for each in state.leftovers if not each.ours), *more]

    # --- what is given up ---------------------------------------------------------------------------------------------------------

    async def given_up(self) -> list[str] | None:
        """List everything that may be left; None while the cloud is asked, which is done once and not for long."""
        state = self._state
        order = state.order or (state.deletion.order if state.deletion else None)
        account = state.account or (ordered_account(self._context.cluster, self._context.uid, order, None) if order else None)
        if not state.listed and not self._listing:
            await self._calls.stop_all()
            self._listing = True
            state.leftovers = []
            if account is not None:
                ask = AuditCloud(account=account, cloud_cluster=state.plan.cloud_cluster if state.plan else "", known=state.known)
                call = executing(CloudActivities.audit_cloud, ask, remote(LAST_LOOK, self._summary))
                self._calls.start(AUDIT, call, self._listed, self._not_listed)
                return None
        if self._calls.running(AUDIT):
            return None
        found = {each.key: each for each in state.leftovers if each.key}
        others = [each for each in state.leftovers if each.key not in state.inventory]
        return [*inventory_lines(list(state.inventory.values()), found), *map(shown, others)]

    def _listed(self, found: CloudAudit) -> None:
        self._state.listed, self._state.leftovers = True, found.leftovers

    def _not_listed(self, failure: Failure) -> None:
        self._state.listed = True
        self._context.record("Warning", failure.type, f"the cloud could not be asked what is left: {failure.message}")

    def _wait_for_times(self) -> None:
        now = self._context.now()
        for entry in self._state.inventory.values():
            if entry.retry_at and datetime.fromisoformat(entry.retry_at) > now:
                self._context.requeue_at(datetime.fromisoformat(entry.retry_at))


def shown(each: Leftover) -> str:
    """Name something that is left, with its link at the cloud."""
    return f"{each.kind} {each.id}{f' ({each.link})' if each.link else ''}"


def inventory_lines(entries: list[Entry], found: Mapping[str, Leftover]) -> list[str]:
    """List what may be left of an inventory: what was worked on, or was `found` at the cloud, with its link there."""
    lines = []
    for entry in entries:
        there = found.get(entry.object.key)
        if there is not None or (entry.tried and not entry.gone):
            link = f"({there.link})" if there is not None and there.link else ""
            lines.append(" ".join(filter(None, (entry.title, entry.facts.get("id"), link))))
    return lines
