"""Create the planned objects of a cluster at its cloud and keep them as planned.

The steps are: make a plan, work along its graph, observe the objects regularly.
"""

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
from workflows.cloud_cluster.calls import (
    OBSERVE,
    PLAN,
    WHOLE,
    Calls,
    executing,
    options_of,
)
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.entries import Inventory
from workflows.cloud_cluster.failures import OUTDATED, REFUSED, delay_after, pauses
from workflows.cloud_cluster.state import NOT_OBSERVED, InventoryEntry
from workflows.entity.calls.activity_options import remote
from workflows.entity.failures import NO_FAILURE, Failure

# A random part of the time between two observations, so that many clusters are not
# observed at the same moment.
_JITTER = 0.2


class Converge:
    """Creates, updates and removes objects until they match the plan."""

    def __init__(self, context: CloudContext, calls: Calls, entries: Inventory) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls
        self._entries = entries
        self.messages = 0
        """The number of messages that may change the result of a running cloud request.
        """
        # The keys of objects whose last activity was an ensure, not a deletion.
        self._making: dict[str, bool] = {}

    def update(self) -> None:
        """Start all work that may start now."""
        self.update_plan()
        if self._state.plan is None or self._state.paused.type:
            return
        for each in graph.to_ensure(self._state, self._calls.keys, self._context.now()):
            self._work_on(each)
        for entry in graph.to_remove(
            self._state, self._calls.keys, self._context.now()
        ):
            self._delete(entry.object)
        self._stop_unwanted()
        self._look()
        # This runs last because `to_remove` sets the times from which removed pools
        # drain.
        self._wait_for_times()

    # Plan

    def update_plan(self) -> None:
        """Make a plan if the order is new or the time for another attempt has come.

        While all work is paused, making a plan tests whether the credential works
        again.
        """
        state = self._state
        if state.order is None or self._calls.running(PLAN):
            return
        if state.paused.type:
            due = self._context.is_due(state.paused_until)
        elif state.plan_failure.type:
            due = self._context.is_due(state.plan_retry_at)
        else:
            # The cloud may offer later what it does not offer now. A cluster without
            # objects is not observed, so only this retry makes a new plan.
            due = state.planned != state.order.sequence or (
                bool(state.plan_retry_at) and self._context.is_due(state.plan_retry_at)
            )
        if due:
            self._plan()

    def _plan(self) -> None:
        state, order = self._state, self._state.order
        account = None
        if order is not None:
            account = ordered_account(
                self._context.cluster, self._context.uid, order, state.account
            )
        if order is None or account is None:
            state.plan_failure = Failure(
                "Unsupported",
                "spec.cluster.source must be GKE or EKS for a cluster that Modelplane "
                "creates",
            )
            state.plan_retry_at = self._context.later(
                delay_after(state.plan_failure, state.plan)
            )
            return
        sequence, messages = order.sequence, self.messages
        asked = PlanCloud(
            account=account,
            manifest=order.manifest,
            classes=state.classes,
            known=state.known,
        )
        options = remote(
            WHOLE, f"plan the {account.provider} objects of {self._context.cluster}"
        )
        call = executing(CloudActivities.plan_cloud, asked, options)
        self._calls.start(
            PLAN,
            call,
            lambda plan: self._planned(plan, sequence, messages),
            lambda failure: self._plan_failed(failure, messages),
        )

    def plan_again(self) -> None:
        """Make a new plan without waiting, because a message may change its result.

        A plan that is being made when the message arrives is made again.
        """
        self.messages += 1
        self._state.paused_until, self._state.plan_retry_at = "", ""
        self._state.planned = 0
        self._context.requeue()

    def _planned(self, plan: CloudPlan, sequence: int, messages: int) -> None:
        state = self._state
        state.account = plan.account
        state.planned = sequence if messages == self.messages else 0
        state.plan_failure, state.plan_retry_at = NO_FAILURE, ""
        self._resume()
        before = [*state.plan.refused, *state.plan.warnings] if state.plan else []
        for problem in [*plan.refused, *plan.warnings]:
            if problem not in before:
                self._context.record(
                    "Warning",
                    problem.reason,
                    ": ".join(filter(None, (problem.at, problem.text))),
                )
        if any(problem.reason == REFUSED for problem in plan.refused):
            state.plan_retry_at = self._context.later(
                delay_after(Failure(REFUSED, ""), plan)
            )
            plan = plan.model_copy(update={"objects": self._beside_refused(plan)})
        self._take_over(plan)
        for each in plan.objects:
            entry = state.inventory.get(each.key)
            if entry is None:
                continue
            if self._calls.running(each.key):
                if each.key in self._making and entry.object.digest != each.digest:
                    # The object is being created in a form that is no longer wanted.
                    # Waiting for it may take hours, for example for capacity.
                    self._calls.stop(each.key)
                continue
            if entry.object.digest != each.digest and not entry.held:
                # The wanted object changed, so the failure of the old one no longer applies.
                self._entries.forget_trouble(entry)
                entry.rebuilds = 0
            # The object's needs may have changed although its digest did not.
            entry.object = each
        state.plan = plan
        now = self._context.now().isoformat()
        state.refused_since = {
            each.at: state.refused_since.get(each.at, now) for each in plan.refused
        }
        if not state.drift_at:
            self._schedule_look()

    def _take_over(self, plan: CloudPlan) -> None:
        """Restore what the InferenceCluster knows after this workflow lost its state.

        Objects that were ready are not repaired by deletion, and the control plane is
        not created a second time. Objects that were being removed are no longer in any
        plan: they are removed as if the removal started now.
        """
        order = self._state.order
        if self._state.inventory or order is None or not plan.objects:
            return
        for each in plan.objects:
            answered = each.key == CLUSTER_KEY or each.kind == CONNECTION
            was_ready = order.was_ready and each.key not in order.never_ready
            if was_ready or (order.was_usable and answered):
                self._state.inventory[each.key] = InventoryEntry(
                    object=each, was_ready=True
                )
        wanted = {each.key for each in plan.objects}
        now = self._context.now().isoformat()
        for each in order.removed or ():
            if each.key not in wanted:
                self._state.inventory[each.key] = InventoryEntry(
                    object=each,
                    phase="Ready",
                    was_ready=True,
                    tried=True,
                    removed_since=now,
                )

    def _beside_refused(self, plan: CloudPlan) -> list[CloudObject]:
        """Return the wanted objects.

        A refused pool keeps its previous objects. If the whole cluster is refused, all
        previous objects are kept.
        """
        before = self._state.plan.objects if self._state.plan else []
        refused = {problem.at for problem in plan.refused if problem.reason == REFUSED}
        if not plan.objects or "" in refused:
            return before
        wanted = {each.key for each in plan.objects}
        unwanted = [each for each in before if each.key not in wanted]
        kept = [each for each in unwanted if f"pool {each.pool}" in refused]
        return [*plan.objects, *kept]

    def _plan_failed(self, failure: Failure, messages: int) -> None:
        state = self._state
        if messages != self.messages:
            # The plan was made for an outdated order or before a possible fix. Another
            # plan follows at once.
            return
        if pauses(failure):
            self.pause(failure)
            return
        # The error is not about the credential. If the credential still does not work,
        # the next call reports that.
        self._resume()
        if state.plan_failure != failure:
            self._context.record("Warning", failure.type, failure.message)
        state.plan_failure = failure
        state.plan_retry_at = self._context.later(delay_after(failure, state.plan))

    # Pauses

    def pause(self, failure: Failure) -> None:
        """Pause all work on the cloud until the credential works again.

        Without a credential no object can be considered missing.
        """
        if not self._state.paused.type:
            self._context.record(
                "Warning",
                failure.type,
                f"all work on the cloud is paused: {failure.message}",
            )
        self._state.paused = failure
        self._state.paused_until = self._context.later(
            delay_after(failure, self._state.plan)
        )

    def _resume(self) -> None:
        if not self._state.paused.type:
            return
        self._context.record("Normal", "Resumed", "the cloud credential works again")
        self._state.paused, self._state.paused_until = NO_FAILURE, ""
        for entry in self._state.inventory.values():
            if pauses(entry.failure):
                self._entries.forget_trouble(entry)

    # Objects

    def _work_on(self, each: CloudObject) -> None:
        entry = self._state.inventory.setdefault(each.key, InventoryEntry(object=each))
        entry.object = each
        if entry.phase == "Broken" and not entry.was_ready:
            self._delete(each)
            return
        entry.since = entry.since or self._context.now().isoformat()
        if entry.phase != "Broken":
            # A broken object stays Broken until it was ensured successfully.
            entry.phase = "Ready" if entry.was_ready else "Creating"
        order = self.order(
            entry, create=not (each.key == CLUSTER_KEY and entry.was_ready)
        )
        digest = each.digest

        def made(result: CloudObjectResult) -> None:
            if self._entries.made(each.key, digest, result):
                self._delete(each)

        self._making[each.key] = True
        call = executing(
            CloudActivities.ensure_cloud_object,
            order,
            options_of(each, "ensure", entry.epoch),
        )
        self._calls.start(
            each.key, call, made, lambda failure: self.object_failed(each.key, failure)
        )

    def _stop_unwanted(self) -> None:
        """Cancel the creation of objects that are no longer wanted.

        A running creation would block other objects and its own deletion.
        """
        for key, entry in self._state.inventory.items():
            if entry.removed_since and key in self._making and self._calls.running(key):
                self._calls.stop(key)

    def _delete(self, each: CloudObject) -> None:
        entry = self._state.inventory[each.key]
        self._making.pop(each.key, None)

        def removed(result: CloudObjectResult) -> None:
            self._entries.removed(each.key, result)

        call = executing(
            CloudActivities.delete_cloud_object,
            self.order(entry),
            options_of(each, "delete", entry.epoch),
        )
        self._calls.start(
            each.key,
            call,
            removed,
            lambda failure: self.object_failed(each.key, failure),
        )

    def order(self, entry: InventoryEntry, *, create: bool = True) -> CloudObjectOrder:
        """Return the order for an activity on an object and mark the object as tried."""
        account = self._state.account
        if account is None:
            raise ValueError("an object cannot be ordered before the first plan")
        again, entry.tried = entry.tried, True
        known = self._state.known
        return CloudObjectOrder(
            account=account,
            object=entry.object,
            known=known,
            epoch=entry.epoch,
            again=again,
            create=create,
        )

    def object_failed(self, key: str, failure: Failure) -> None:
        """Record the failure of an activity on an object.

        A rejected credential pauses all work. If the cloud rejected a part of the plan,
        another plan leaves it out.
        """
        entry = self._state.inventory[key]
        if pauses(failure) and not graph.is_in_cluster(entry):
            self.pause(failure)
        self._entries.failed(key, failure)
        if failure.type == OUTDATED:
            self.plan_again()

    # Observation

    def _look(self) -> None:
        state = self._state
        if state.plan is None or state.account is None or self._calls.running(OBSERVE):
            return
        made = [
            each
            for each in state.plan.objects
            if graph.is_made(state.inventory.get(each.key), each)
        ]
        objects = [each for each in made if not self._calls.running(each.key)]
        if not objects or not self._context.is_due(state.drift_at):
            return
        self._schedule_look()
        order = ObserveCloud(account=state.account, objects=objects, known=state.known)
        options = remote(
            WHOLE, f"observe {len(objects)} objects of {self._context.cluster}"
        )
        self._calls.start(
            OBSERVE,
            executing(CloudActivities.observe_cloud, order, options),
            self._looked,
            self._look_failed,
        )

    def _schedule_look(self) -> None:
        seconds = self._state.plan.drift_seconds if self._state.plan else 0
        factor = 1 + _JITTER * workflow.random().uniform(-1, 1)
        self._state.drift_at = self._context.later(timedelta(seconds=seconds * factor))

    def _looked(self, seen: CloudObserved) -> None:
        for shown in sorted(seen.objects, key=lambda each: each.key != CLUSTER_KEY):
            if not self._calls.running(shown.key):
                self._entries.observed(shown, seen.facts.get(shown.key))
            if shown.phase == "Unknown":
                self._context.record(
                    "Warning",
                    NOT_OBSERVED,
                    f"{shown.key} ({shown.kind} {shown.name}): {shown.message}",
                )
        if self._state.order is not None:
            # The cloud's offer changes over time: reserved capacity begins, and zones
            # are added. So make a new plan after each observation.
            self._state.planned = 0

    def _look_failed(self, failure: Failure) -> None:
        if pauses(failure):
            self.pause(failure)
        else:
            self._context.record(
                "Warning",
                failure.type,
                f"cannot observe the cloud objects: {failure.message}",
            )
            # A new plan is made even if the observation failed.
            self._state.planned = 0

    def _wait_for_times(self) -> None:
        """Queue a pass for each future retry or end of a drain."""
        now = self._context.now()
        times = [
            datetime.fromisoformat(entry.retry_at)
            for entry in self._state.inventory.values()
            if entry.retry_at
        ]
        for time in [*times, *graph.drain_ends(self._state)]:
            if time > now:
                self._context.requeue_at(time)
