"""Removes a ModelReplica from its cluster, step by step.

A step ends when its objects are gone, however long that takes. One attempt is bounded,
so that a condition can name the remaining objects and their blockers. Only `force`
skips a step, and the status then lists the remaining objects. The nodes are freed after
the last step, when a complete list of the cluster shows no object of the replica, or
the step was abandoned.
"""

from datetime import timedelta

from activities.render.objects.teardown import SWEEP
from api_types import labels, names
from api_types.messages.cluster_work import (
    AppliedObject,
    RemainingObject,
    TeardownStepResult,
)
from api_types.messages.scheduling import Released
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure, backoff_after
from workflows.entity.registering.endpoint import EndpointPublication
from workflows.model_replica.cluster import ReplicaCluster
from workflows.model_replica.decisions.cluster import connection_problem
from workflows.model_replica.decisions.endpoint import has_control_cluster
from workflows.model_replica.decisions.requests import teardown_request
from workflows.model_replica.decisions.teardown_plan import (
    StepDecision,
    decide_after_failure,
    decide_step,
    has_objects,
)
from workflows.model_replica.orders import (
    DeleteObjects,
    LeaveCache,
    Order,
    SendReplicaSignal,
)
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ModelReplicaState
from workflows.model_replica.teardown_progress import Outcome, left_behind, named

# A forced attempt still deletes what it can at once, and its result has to arrive
# within the attempt's time.
LAST_ATTEMPT_TIMEOUT = timedelta(seconds=2)


class ReplicaTeardown:
    """Takes the steps of the teardown in order."""

    def __init__(
        self,
        context: EntityContext[ModelReplicaState],
        cluster: ReplicaCluster,
        reports: DeploymentReports,
        publication: EndpointPublication,
    ) -> None:
        self._context = context
        self._state = context.state
        self._cluster = cluster
        self._reports = reports
        self._publication = publication
        self._waiting = False
        self.gone = False

    # Orders

    def next_orders(self) -> list[Order]:
        """Take steps until one needs an order; return none while it waits or all are complete."""
        self._begin()
        while not (self.gone or self._waiting):
            needs_cluster = has_objects(self._state) or self._may_be_published
            if needs_cluster and (orders := self._cluster.read_if_unknown()):
                return orders
            if orders := self._take_step():
                return orders
        self._waiting = False
        return []

    def _begin(self) -> None:
        progress, self._state.serving = self._state.teardown, False
        for kind in ("ModelReady", "RoutingReady", "Serving", "Ready"):
            self._context.set_condition(kind, FALSE, "Deleting", "")
        progress.since = progress.since or self._context.now()
        if self._state.forced == "all" and not progress.forced_at:
            progress.forced_at = self._context.moment().isoformat()

    def _take_step(self) -> list[Order]:
        decision = decide_step(self._state, self._context.moment())
        match decision.action:
            case "report":
                return self._withdraw()
            case "drain":
                self._drain()
                return []
            case "release":
                return self._end()
            case "attempt":
                return [self._attempt(decision)]
            case _:
                return self._carry_out(decision)

    def _carry_out(self, decision: StepDecision) -> list[Order]:
        """Carry out a decision without an order."""
        match decision.action:
            case "none needed":
                self._complete("not needed")
            case "done":
                self._complete("done")
            case "skip":
                self._skip()
            case "abandon":
                self._abandon(decision.reason)
            case "gone":
                self._end_with_cluster(decision.reason)
            case "wait for cluster":
                message = f"{self._state.teardown.message()}; {connection_problem(self._state)}"
                self._context.set_condition(
                    "Deleting", FALSE, "WaitingForCluster", message
                )
                self._waiting = True
            case _:
                if decision.check_at is not None:
                    self._context.requeue_at(decision.check_at)
                self._waiting = True
        return []

    def _complete(self, outcome: Outcome) -> None:
        self._state.teardown.complete(outcome, self._context.now())

    # Steps of the workflow itself

    def _withdraw(self) -> list[Order]:
        """Remove the endpoint from all routes, and wait until they have followed."""
        orders: list[Order] = [*self._reports.report(), *self._withdrawal()]
        if orders and not self._state.endpoint.is_withdrawn:
            return orders
        if self._state.endpoint.is_withdrawn:
            self._complete("done")
        elif self._state.forced:
            self._skip()
        else:
            self._wait_for("the routes of services still have it")
        return orders

    @property
    def _may_be_published(self) -> bool:
        """Whether an earlier run may have published the endpoint on a control cluster."""
        ran_before = self._state.start.restarted or self._state.reset
        return ran_before and self._state.endpoint.sequence == 0

    def _withdrawal_of_earlier_run(self) -> list[Order]:
        if not (self._may_be_published and has_control_cluster(self._state)):
            return []
        self._state.endpoint.backend_started = True
        return list(self._publication.withdraw_unknown())

    def _withdrawal(self) -> list[Order]:
        return self._withdrawal_of_earlier_run() or [*self._publication.withdraw()]

    def _end(self) -> list[Order]:
        """Remove the backend of the endpoint, then free the nodes."""
        # The first step may have run before the cluster was known.
        if withdrawal := self._withdrawal_of_earlier_run():
            return withdrawal
        published = self._state.endpoint
        if not published.backend_started:
            return self._release()
        if orders := self._publication.remove():
            return list(orders)
        if self._state.forced and (
            published.failure.type or not published.is_withdrawn
        ):
            self._publication.abandon("the teardown was forced")
            self._clear_step_force()
            return self._release()
        failure = published.failure
        self._wait_for(
            f"its backend remains: {failure.type}: {failure.message}"
            if failure.type
            else "the gateway follows its routes"
        )
        return []

    def _wait_for(self, what: str) -> None:
        message = f"{self._state.teardown.message()}; {what}"
        self._context.set_condition(
            "Deleting", FALSE, self._state.teardown.reason(), message
        )
        self._waiting = True

    def _drain(self) -> None:
        """Start the drain, in which the last requests may finish."""
        facts = self._state.cluster.facts if self._state.cluster else None
        seconds = facts.drain_seconds if facts else 0
        message = f"{self._state.teardown.message()}; running requests have {seconds} s to finish"
        self._context.set_condition("Deleting", FALSE, "Draining", message)
        self._state.teardown.drain_until = (
            self._context.moment() + timedelta(seconds=seconds)
        ).isoformat()

    def _release(self) -> list[Order]:
        """Free the nodes, and report it to cache, scheduler and deployment, in this order.

        If the replica is terminated in between, its deployment restarts it; it finds
        nothing and repeats both reports. In the opposite order its deployment would
        forget it, and its nodes would stay charged.
        """
        # A closed workflow still answers queries, so `gone` must be set before another
        # entity learns of it.
        self.gone = True
        released = Released(uid=self._state.uid, name=self._context.name)
        ended: list[Order] = [LeaveCache(), *self._publication.end()]
        return [
            *ended,
            SendReplicaSignal(
                FleetSchedulerSignals.RELEASED.request(FLEET_SCHEDULER, released)
            ),
            self._reports.report_gone(),
        ]

    # Steps on the cluster

    def _attempt(self, decision: StepDecision) -> Order:
        """Order one attempt to delete the objects of the current step."""
        progress = self._state.teardown
        self._state.retry_at = ""
        self.show()
        last = decision.limit is not None
        request = teardown_request(
            self._state,
            LAST_ATTEMPT_TIMEOUT if last else backoff.poll_timeout(progress.attempts),
        )
        return DeleteObjects(
            request,
            f"{self._context.name}: {progress.step.title}",
            self._state.forced,
            decision.limit,
        )

    def is_obsolete(self, order: DeleteObjects) -> bool:
        """Whether force, or another or missing cluster, supersedes the running attempt."""
        known = self._state.cluster
        if self._state.cluster_doubted:
            return True
        return (
            self._state.forced != order.forced
            or known is None
            or not known.present
            or known.connection != order.request.connection
        )

    def attempted(self, result: TeardownStepResult) -> None:
        """Record the result of an attempt."""
        progress = self._state.teardown
        if self._state.forced == "all":
            # The cluster answers, so its next answer may take the whole limit again.
            progress.forced_at = self._context.moment().isoformat()
        for skipped in result.skipped:
            self._context.record_event("Warning", "NotOwned", f"not deleted: {skipped}")
        if not result.remaining:
            self._clear_step_force()
            self._complete("done")
            return
        progress.record_remaining(result.remaining)
        self.show()
        if self._state.forced:
            self._skip()
        else:
            self._try_again()

    def attempt_failed(self, failure: Failure) -> None:
        """Record the failure of an attempt."""
        progress = self._state.teardown
        progress.record_failure(failure)
        decision = decide_after_failure(self._state)
        if decision.action != "wait":
            self._carry_out(decision)
            return
        pause = backoff_after(failure, progress.attempts - 1)
        self._state.retry_at = (self._context.moment() + pause).isoformat()
        self._context.requeue_after(pause)
        self._waiting = True
        self.show()

    def cancelled(self) -> None:
        """Decide again after a superseded attempt was cancelled."""
        self._try_again()

    def _try_again(self) -> None:
        """End this pass, so that its results are published, and continue with the next one."""
        self._waiting = True
        self._context.requeue()

    def show_connection(self) -> None:
        """Show whether the cluster is connected, while an attempt may wait for it."""
        if self._state.teardown.since and self._state.teardown.step.on_cluster:
            self.show()

    def show(self) -> None:
        """Show the current step and the remaining objects."""
        progress, problem = self._state.teardown, connection_problem(self._state)
        message = (
            f"{progress.message()}; {problem}"
            if problem and progress.step.on_cluster
            else progress.message()
        )
        self._context.set_condition("Deleting", FALSE, progress.reason(), message)
        self._context.publish()

    # Force

    def _skip(self) -> None:
        """End the current step because of `force`, and list the remaining objects."""
        progress, number, title = (
            self._state.teardown,
            self._state.teardown.number,
            self._state.teardown.step.title,
        )
        if progress.step.on_cluster:
            remaining = progress.remaining_of_step(self._inventory())
            progress.skipped += [item.id for item in remaining]
            self._list_left_behind(remaining, f"step {number} ({title}) was skipped")
            if number == SWEEP:
                self._list_unknown(f"step {number} ({title}) was skipped")
        self._state.retry_at = ""
        self._clear_step_force()
        self._complete("skipped")

    def _clear_step_force(self) -> None:
        """A request to skip a step is valid for one step."""
        self._state.forced = "" if self._state.forced == "step" else self._state.forced

    def _abandon(self, why: str) -> None:
        """Abandon the current and all later steps on the cluster, and list their objects."""
        progress = self._state.teardown
        remaining: list[RemainingObject] = []
        while progress.step.on_cluster:
            remaining += progress.remaining_of_step(self._inventory())
            self._complete("abandoned")
        self._context.record_event("Warning", "Abandoned", why)
        self._list_left_behind(remaining, why)
        self._list_unknown(why)
        self._state.retry_at, self._state.forced = "", ""

    def _end_with_cluster(self, why: str) -> None:
        """End all steps on the cluster, because their objects are gone with it."""
        while self._state.teardown.step.on_cluster:
            self._complete("done")
        self._context.record_event("Normal", "ClusterGone", why)
        self._state.retry_at, self._state.forced = "", ""

    def _inventory(self) -> list[AppliedObject]:
        return self._state.applied.inventory if self._state.applied else []

    def _list_unknown(self, why: str) -> None:
        """List possible objects outside the inventory: of an interrupted apply or earlier runs."""
        if self._state.inventory_complete:
            return
        workload = names.workload_name(self._context.namespace, self._context.name)
        selector = f"{labels.REPLICA}={workload}"
        more = f"{why}; there may be more objects with this label"
        cluster = self._state.start.cluster
        self._state.add_left_behind(
            [
                LeftBehind(
                    kind="label",
                    name=selector,
                    namespace=self._context.namespace,
                    location=cluster,
                    reason=more,
                )
            ]
        )

    def _list_left_behind(self, remaining: list[RemainingObject], why: str) -> None:
        """List objects as left behind, each once."""
        known = {
            (item.kind, item.namespace, item.name) for item in self._state.left_behind
        }
        found = left_behind(remaining, self._state.start.cluster, why)
        self._state.add_left_behind(
            [
                item
                for item in found
                if (item.kind, item.namespace, item.name) not in known
            ]
        )
        objects = named(remaining) or "no known objects"
        message = f"{why}; remaining on {self._state.start.cluster}: {objects}"
        self._context.record_event("Warning", "LeftBehind", message)
