"""How a cluster at a cloud becomes as it is wanted, and is kept so: a plan, the walk along its graph, looks at what there is."""

from datetime import datetime, timedelta

from temporalio import workflow

from activities.clouds.activities import CloudActivities
from api_types.messages.clouds import (
    CLUSTER_KEY,
    CONNECTION,
    CloudObject,
    CloudObjectOrder,
    CloudObjectResult,
    CloudObserved,
    CloudPlan,
    ObserveCloud,
    PlanCloud,
)
from workflows.cloud_cluster import graph
from workflows.cloud_cluster.account import ordered_account
from workflows.cloud_cluster.calls import OBSERVE, PLAN, WHOLE, Calls, executing, options_of
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.entries import Entries
from workflows.cloud_cluster.failures import CREDENTIALS, REFUSED, delay_after
from workflows.cloud_cluster.state import Entry
from workflows.entity.calls.activity_options import remote
from workflows.entity.failures import NO_FAILURE, Failure

# Of the time between two looks: many clusters would else be looked at together.
_JITTER = 0.2


class Converge:
    """Makes what is wanted."""

    def __init__(self, context: CloudContext, calls: Calls, entries: Entries) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls
        self._entries = entries
        self.messages = 0
        """How often something was said that may change what comes of asking the cloud."""
        # The keys whose last work made something, and deleted nothing.
        self._making: dict[str, bool] = {}

    def update(self) -> None:
        """Begin all work that may begin now."""
        self.update_plan()
        if self._state.plan is None or self._state.paused.type:
            return
        for each in graph.to_ensure(self._state, self._calls.keys, self._context.now()):
            self._work_on(each)
        for entry in graph.to_remove(self._state, self._calls.keys, self._context.now()):
            self._delete(entry.object)
        self._stop_unwanted()
        self._look()
        # Last: what was just found to be removed has its time too.
        self._wait_for_times()

    # --- the plan -----------------------------------------------------------------------------------------------------------------

    def update_plan(self) -> None:
        """Make a plan for the newest order, or again after a while; while everything is paused, to see whether the credential works."""
        state = self._state
        if state.order is None or self._calls.running(PLAN):
            return
        if state.paused.type:
            due = self._context.is_due(state.paused_until)
        elif state.plan_failure.type:
            due = self._context.is_due(state.plan_retry_at)
        else:
            # What was refused may be offered meanwhile, and a cluster of which nothing is there is not looked at.
            due = state.planned != state.order.sequence or (bool(state.plan_retry_at) and self._context.is_due(state.plan_retry_at))
        if due:
            self._plan()

    def _plan(self) -> None:
        state, order = self._state, self._state.order
        account = None
        if order is not None:
            account = ordered_account(self._context.cluster, self._context.uid, order, state.account)
        if order is None or account is None:
            state.plan_failure = Failure("Unsupported", "the manifest names no cloud that clusters are created at")
            state.plan_retry_at = self._context.later(delay_after(state.plan_failure, state.plan))
            return
        sequence, messages = order.sequence, self.messages
        asked = PlanCloud(account=account, manifest=order.manifest, classes=state.classes, known=state.known)
        options = remote(WHOLE, f"plan what {self._context.cluster} needs at {account.provider}")
        call = executing(CloudActivities.plan_cloud, asked, options)
        self._calls.start(
            PLAN, call, lambda plan: self._planned(plan, sequence, messages), lambda failure: self._plan_failed(failure, messages)
        )

    def plan_again(self) -> None:
        """Make a plan without a wait: something was said that may change what comes of it, maybe while one is being made."""
        self.messages += 1
        self._state.paused_until, self._state.plan_retry_at = "", ""
        self._state.planned = 0
        self._context.requeue()

    def _planned(self, plan: CloudPlan, sequence: int, messages: int) -> None:
        state = self._state
        state.account, state.planned = plan.account, sequence if messages == self.messages else 0
        state.plan_failure, state.plan_retry_at = NO_FAILURE, ""
        self._resume()
        for problem in plan.warnings:
            if state.plan is None or problem not in state.plan.warnings:
                self._context.record("Warning", problem.reason, ": ".join(filter(None, (problem.at, problem.text))))
        if any(problem.reason == REFUSED for problem in plan.refused):
            state.plan_retry_at = self._context.later(delay_after(Failure(REFUSED, ""), plan))
            plan = plan.model_copy(update={"objects": self._beside_refused(plan)})
        self._take_over(plan)
        for each in plan.objects:
            entry = state.inventory.get(each.key)
            if entry is None:
                continue
            if self._calls.running(each.key):
                if each.key in self._making and entry.object.digest != each.digest:
                    # It would be waited for as it is not wanted any more, for capacity maybe for hours.
                    self._calls.stop(each.key)
                continue
            if entry.object.digest != each.digest and not entry.held:
                # It is another work now, or what it was before.
                self._entries.clear(entry)
            # What it needs may have changed without its digest.
            entry.object = each
        state.plan = plan
        if not state.drift_at:
            self._schedule_look()

    def _take_over(self, plan: CloudPlan) -> None:
        """Note what was ready before the state was lost: it is not repaired by deleting it, and no control plane is made anew.

        What was removed by then, and was still there, is deleted as if it were removed now: no plan names it.
        """
        order = self._state.order
        if self._state.inventory or order is None or not plan.objects:
            return
        for each in plan.objects:
            if order.was_ready or (order.was_usable and (each.key == CLUSTER_KEY or each.kind == CONNECTION)):
                self._state.inventory[each.key] = Entry(object=each, was_ready=True)
        wanted, now = {each.key for each in plan.objects}, self._context.now().isoformat()
        for each in order.removed or ():
            if each.key not in wanted:
                self._state.inventory[each.key] = Entry(object=each, phase="Ready", was_ready=True, tried=True, removed_since=now)

    def _beside_refused(self, plan: CloudPlan) -> list[CloudObject]:
        """Give what is wanted beside what is refused, which stays as it is: pools that are, or everything."""
        before = self._state.plan.objects if self._state.plan else []
        refused = {problem.at for problem in plan.refused if problem.reason == REFUSED}
        if not plan.objects or "" in refused:
            return before
        wanted = {each.key for each in plan.objects}
        return [*plan.objects, *(each for each in before if each.key not in wanted and f"pool {each.pool}" in refused)]

    def _plan_failed(self, failure: Failure, messages: int) -> None:
        state = self._state
        if messages != self.messages:
            # It failed at what is not wanted any more, or may have been fixed since: another one follows at once.
            return
        if failure.type == CREDENTIALS:
            self.pause(failure)
            return
        # The credential was taken, or it is not known whether it is: then the next call says so.
        self._resume()
        if state.plan_failure != failure:
            self._context.record("Warning", failure.type, failure.message)
        state.plan_failure = failure
        state.plan_retry_at = self._context.later(delay_after(failure, state.plan))

    # --- pauses -------------------------------------------------------------------------------------------------------------------

    def pause(self, failure: Failure) -> None:
        """Do nothing at the cloud until the credential can be used; nothing is taken for gone meanwhile."""
        if not self._state.paused.type:
            self._context.record("Warning", failure.type, f"everything at the cloud is paused: {failure.message}")
        self._state.paused = failure
        self._state.paused_until = self._context.later(delay_after(failure, self._state.plan))

    def _resume(self) -> None:
        if not self._state.paused.type:
            return
        self._context.record("Normal", "Resumed", "the credential can be used again")
        self._state.paused, self._state.paused_until = NO_FAILURE, ""
        for entry in self._state.inventory.values():
            if entry.failure.type == CREDENTIALS:
                self._entries.clear(entry)

    # --- objects ------------------------------------------------------------------------------------------------------------------

    def _work_on(self, each: CloudObject) -> None:
        entry = self._state.inventory.setdefault(each.key, Entry(object=each))
        entry.object = each
        if entry.phase == "Broken" and not entry.was_ready:
            self._delete(each)
            return
        entry.since = entry.since or self._context.now().isoformat()
        if entry.phase != "Broken":
            # A broken one stays so until it was looked at.
            entry.phase = "Ready" if entry.was_ready else "Creating"
        order = self.order(entry, create=not (each.key == CLUSTER_KEY and entry.was_ready))
        digest = each.digest

        def made(result: CloudObjectResult) -> None:
            if self._entries.made(each.key, digest, result):
                self._delete(each)

        self._making[each.key] = True
        call = executing(CloudActivities.ensure_cloud_object, order, options_of(each, "ensure", entry.epoch))
        self._calls.start(each.key, call, made, lambda failure: self.object_failed(each.key, failure))

    def _stop_unwanted(self) -> None:
        """Wait no more for what is not wanted any more to be made: it would hold up others, and its own deletion."""
        for key, entry in self._state.inventory.items():
            if entry.removed_since and key in self._making and self._calls.running(key):
                self._calls.stop(key)

    def _delete(self, each: CloudObject) -> None:
        entry = self._state.inventory[each.key]
        self._making.pop(each.key, None)

        def removed(result: CloudObjectResult) -> None:
            self._entries.removed(each.key, result)

        call = executing(CloudActivities.delete_cloud_object, self.order(entry), options_of(each, "delete", entry.epoch))
        self._calls.start(each.key, call, removed, lambda failure: self.object_failed(each.key, failure))

    def order(self, entry: Entry, *, create: bool = True) -> CloudObjectOrder:
        """Order work on an object; it counts as tried."""
        account = self._state.account
        if account is None:
            raise ValueError("nothing is ordered before there is a plan")
        again, entry.tried = entry.tried, True
        known = self._state.known
        return CloudObjectOrder(account=account, object=entry.object, known=known, epoch=entry.epoch, again=again, create=create)

    def object_failed(self, key: str, failure: Failure) -> None:
        """Record the failure of work on an object; without a credential everything is paused."""
        entry = self._state.inventory[key]
        if failure.type == CREDENTIALS and not graph.is_in_cluster(entry):
            self.pause(failure)
        self._entries.failed(key, failure)

    # --- looks --------------------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        state = self._state
        if state.plan is None or state.account is None or self._calls.running(OBSERVE):
            return
        made = [each for each in state.plan.objects if graph.is_made(state.inventory.get(each.key), each)]
        objects = [each for each in made if not self._calls.running(each.key)]
        if not objects or not self._context.is_due(state.drift_at):
            return
        self._schedule_look()
        order = ObserveCloud(account=state.account, objects=objects, known=state.known)
        options = remote(WHOLE, f"look at {len(objects)} objects of {self._context.cluster}")
        self._calls.start(OBSERVE, executing(CloudActivities.observe_cloud, order, options), self._looked, self._look_failed)

    def _schedule_look(self) -> None:
        seconds = self._state.plan.drift_seconds if self._state.plan else 0
        self._state.drift_at = self._context.later(timedelta(seconds=seconds * (1 + _JITTER * workflow.random().uniform(-1, 1))))

    def _looked(self, seen: CloudObserved) -> None:
        for shown in sorted(seen.objects, key=lambda each: each.key != CLUSTER_KEY):
            if not self._calls.running(shown.key):
                self._entries.observed(shown, seen.facts.get(shown.key))
            if shown.phase == "Unknown":
                self._context.record("Warning", "NotObserved", f"{shown.key} ({shown.kind} {shown.name}): {shown.message}")
        if self._state.order is not None:
            # What the cloud offers changes too: capacity that was bought begins, and zones come.
            self._state.planned = 0

    def _look_failed(self, failure: Failure) -> None:
        if failure.type == CREDENTIALS:
            self.pause(failure)
        else:
            self._context.record("Warning", failure.type, f"the objects could not be looked at: {failure.message}")
            # What the cloud offers is asked all the same.
            self._state.planned = 0

    def _wait_for_times(self) -> None:
        """Make the next pass when the first wait ends."""
        now = self._context.now()
        times = [datetime.fromisoformat(entry.retry_at) for entry in self._state.inventory.values() if entry.retry_at]
        for time in [*times, *graph.drain_ends(self._state)]:
            if time > now:
                self._context.requeue_at(time)
