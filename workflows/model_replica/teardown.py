"""How a ModelReplica is removed from its cluster: step by step, each until what it deletes is really gone, however long that takes.

One attempt at a step is bounded, so that a condition can say what is still there and what blocks it; the wait itself never ends by
itself. Only `force` skips a step, and then what stays on the cluster is listed. Capacity is released after the last step.
"""

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.render.objects.teardown import SWEEP
from activities.workloads.activities import WorkloadActivities
from api_types import labels, names
from api_types.messages.cluster_work import Connection, RemainingObject, TeardownStepResult
from api_types.messages.scheduling import Released
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals
from api_types.resources.status import LeftBehind
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import backoff_after, failure_of
from workflows.model_replica.cache import ReplicaCache
from workflows.model_replica.cluster import ReplicaCluster
from workflows.model_replica.decisions.orders import teardown_order
from workflows.model_replica.decisions.teardown_plan import StepDecision, decide_after_failure, decide_step, has_objects
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ModelReplicaState
from workflows.model_replica.teardown_progress import Outcome, left_behind, named

# When everything is skipped, what can be deleted at once is still deleted.
LAST_ATTEMPT_TIMEOUT = timedelta(seconds=2)


class ReplicaTeardown:
    """Takes the steps of the teardown, in order."""

    def __init__(
        self, context: EntityContext[ModelReplicaState], cluster: ReplicaCluster, cache: ReplicaCache, reports: DeploymentReports
    ) -> None:
        self._context = context
        self._state = context.state
        self._cluster = cluster
        self._cache = cache
        self._reports = reports
        self.gone = False

    async def run(self) -> bool:
        """Take step after step; False while the current one has to be tried again."""
        progress = self._state.teardown
        self._state.serving = False
        for kind in ("ModelReady", "RoutingReady", "Serving", "Ready"):
            self._context.set_condition(kind, FALSE, "Deleting", "")
        progress.since = progress.since or self._context.now()
        while not self.gone:
            outcome = await self._take_step()
            if outcome is None:
                await self._reports.send()
                return False
            if not self.gone:
                progress.complete(outcome, self._context.now())
        return True

    async def _take_step(self) -> Outcome | None:
        """Take the current step; None if it is not complete."""
        if has_objects(self._state):
            await self._cluster.ensure_connection_known()
        decision = decide_step(self._state, workflow.now())
        match decision.action:
            case "report":
                await self._reports.send()
                return "done"
            case "drain":
                return await self._drain()
            case "release":
                return await self._release()
            case "attempt":
                return await self._attempt()
            case _:
                return self._carry_out(decision)

    def _carry_out(self, decision: StepDecision) -> Outcome | None:
        """Carry out a decision that needs no activity."""
        match decision.action:
            case "none needed":
                return "not needed"
            case "skip":
                return self._skip()
            case "abandon":
                return self._abandon(decision.reason)
            case "wait for cluster":
                message = f"{self._state.teardown.message()}; InferenceCluster {self._state.start.cluster} is not connected"
                self._context.set_condition("Deleting", FALSE, "WaitingForCluster", message)
                self._context.requeue_after(backoff.transient(self._state.attempts))
            case _:
                if decision.check_at is not None:
                    self._context.requeue_at(decision.check_at)
        return None

    # --- steps of the workflow itself -----------------------------------------------------------------------------------------------

    async def _drain(self) -> Outcome:
        """Let the last requests finish."""
        facts = self._state.cluster.facts if self._state.cluster else None
        seconds = facts.drain_seconds if facts else 0
        message = f"{self._state.teardown.message()}; running requests have {seconds} s to finish"
        self._context.set_condition("Deleting", FALSE, "Draining", message)
        self._context.publish()
        try:
            await workflow.wait_condition(
                lambda: bool(self._state.forced), timeout=timedelta(seconds=seconds), timeout_summary="let requests finish"
            )
        except TimeoutError:
            return "done"
        self._clear_step_force()
        return "skipped"

    async def _release(self) -> Outcome:
        """Free the nodes, and report it to cache, scheduler and deployment."""
        # A closed workflow still answers queries, so `gone` must hold before anyone learns of it.
        self.gone = True
        await self._cache.unregister()
        released = Released(uid=self._state.uid, name=self._context.name)
        await self._context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.RELEASED, released)
        await self._reports.send_gone()
        return "done"

    # --- steps on the cluster -------------------------------------------------------------------------------------------------------

    async def _attempt(self) -> Outcome | None:
        """Try once to delete the objects of the current step; None if some remain."""
        progress = self._state.teardown
        self._state.retry_at = ""
        self._show()
        try:
            result = await self._execute()
        except ActivityError as error:
            return self._record_failure(error)
        if result is None:
            self._context.requeue()
            return None
        for skipped in result.skipped:
            self._context.record_event("Warning", "NotOwned", f"not deleted: {skipped}")
        if not result.remaining:
            return "done"
        progress.record_remaining(result.remaining)
        self._show()
        self._context.requeue()
        return self._skip() if self._state.forced else None

    async def _execute(self) -> TeardownStepResult | None:
        """Run the current step on the cluster; None if that was cancelled because the situation changed."""
        progress = self._state.teardown
        timeout = LAST_ATTEMPT_TIMEOUT if self._state.forced == "all" else backoff.poll_timeout(progress.attempts)
        order, summary = teardown_order(self._state, timeout), f"{self._context.name}: {progress.step.title}"
        return await self._context.run_until(
            self._cancelled_when(order.connection),
            workflow.execute_activity_method(
                WorkloadActivities.teardown_replica_step,
                order,
                **activity_options.remote(activity_options.TEARDOWN_STEP, summary, order.connection.task_queue),
            ),
        )

    def _cancelled_when(self, connection: Connection) -> Callable[[], bool]:
        """Give the test for what makes a running attempt pointless."""
        forced, attempts = self._state.forced, self._state.teardown.attempts

        def changed() -> bool:
            known = self._state.cluster
            skipped = self._state.forced != forced and bool(self._state.forced == "all" or attempts)
            return skipped or known is None or not known.present or known.connection != connection

        return changed

    def _record_failure(self, error: ActivityError) -> Outcome | None:
        progress = self._state.teardown
        failure = failure_of(error, "TearingDown")
        progress.record_failure(failure)
        decision = decide_after_failure(self._state)
        if decision.action != "wait":
            return self._carry_out(decision)
        pause = backoff_after(failure, progress.attempts - 1)
        self._state.retry_at = (workflow.now() + pause).isoformat()
        self._context.requeue_after(pause)
        self._show()
        return None

    def _show(self) -> None:
        """Show the current step and what it waits for."""
        progress = self._state.teardown
        self._context.set_condition("Deleting", FALSE, progress.reason(), progress.message())
        self._context.publish()

    # --- force ----------------------------------------------------------------------------------------------------------------------

    def _clear_step_force(self) -> None:
        """A request to skip one step holds for one step."""
        self._state.forced = "" if self._state.forced == "step" else self._state.forced

    def _skip(self) -> Outcome:
        """End the current step because of `force`, and list what stays."""
        progress = self._state.teardown
        remaining = progress.remaining_of_step(self._state.applied.inventory if self._state.applied else [])
        progress.skipped += [item.id for item in remaining]
        self._list_left_behind(remaining, f"step {progress.number} ({progress.step.title}) was skipped")
        self._state.retry_at = ""
        self._clear_step_force()
        return "skipped"

    def _abandon(self, why: str) -> Outcome:
        """Give up the current step and all others that need the cluster, and list what they would have deleted."""
        progress = self._state.teardown
        inventory = self._state.applied.inventory if self._state.applied else []
        remaining: list[RemainingObject] = []
        while progress.step.number <= SWEEP:
            remaining += progress.remaining_of_step(inventory)
            if progress.step.number == SWEEP:
                break
            progress.complete("abandoned", self._context.now())
        self._context.record_event("Warning", "Abandoned", why)
        self._list_left_behind(remaining, why)
        if not self._state.inventory_complete:
            # An interrupted apply may have created more than the inventory has.
            selector = f"{labels.REPLICA}={names.workload_name(self._context.namespace, self._context.name)}"
            more = f"{why}; there may be more objects with this label"
            cluster = self._state.start.cluster
            self._state.left_behind.append(
                LeftBehind(kind="label", name=selector, namespace=self._context.namespace, location=cluster, reason=more)
            )
        self._state.retry_at, self._state.forced = "", ""
        return "abandoned"

    def _list_left_behind(self, remaining: list[RemainingObject], why: str) -> None:
        """List objects as left behind, each once."""
        known = {(item.kind, item.namespace, item.name) for item in self._state.left_behind}
        found = left_behind(remaining, self._state.start.cluster, why)
        self._state.left_behind += [item for item in found if (item.kind, item.namespace, item.name) not in known]
        message = f"{why}; remaining on {self._state.start.cluster}: {named(remaining) or 'no known objects'}"
        self._context.record_event("Warning", "LeftBehind", message)
