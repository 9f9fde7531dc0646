"""The HTTPRoute of a ModelService on the control cluster: apply, repair, remove."""

from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.routing.activities import RoutingActivities
from api_types import names
from api_types.errors import NoControlCluster
from api_types.messages.gateway_work import AppliedRoute, ApplyRoute, RemoveRoute
from api_types.resources.status import LeftBehind
from workflows.entity import backoff, drift
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after, failure_of
from workflows.entity.registering.endpoint import GATEWAY_RECOVERS
from workflows.model_service import decisions
from workflows.model_service.decisions import WantedRoute
from workflows.model_service.state import ACCEPTED_WITHIN, ServiceState


class ServiceRoute:
    """Applies the route of a service, and removes it with the service."""

    def __init__(self, context: EntityContext[ServiceState]) -> None:
        self._context = context
        self._state = context.state

    @property
    def _title(self) -> str:
        return f"{self._context.namespace}/{self._context.name}"

    def wanted(self) -> WantedRoute | None:
        """Return the wanted route; None while it is unknown."""
        return decisions.wanted_route(
            self._state, self._context.namespace, self._context.name
        )

    async def bring(self) -> None:
        """Apply the route if the wanted or the observed route has changed."""
        state, wanted = self._state, self.wanted()
        if wanted is None:
            return
        if wanted.digest == state.applied_digest and not (
            self._drift_is_due(wanted) or self._middleware_is_due()
        ):
            state.failure, state.retry_at = NO_FAILURE, ""
            return
        if self._waits(wanted):
            return
        state.attempted_digest = wanted.digest
        try:
            applied = await self._apply(wanted)
        except ActivityError as error:
            self._record_failure(failure_of(error))
            return
        is_behind = bool(state.applied_at) and not decisions.is_taken_over(state)
        state.applied, state.applied_digest = applied, wanted.digest
        # While the gateway has not accepted the previous change, keep the start of its
        # wait. Otherwise frequent changes would extend the wait without limit.
        if not is_behind:
            state.applied_at = self._context.moment().isoformat()
        state.failure, state.retry_at, state.attempts = NO_FAILURE, "", 0
        state.drift_since = ""
        self._context.mark_changed()

    def gateway_is_behind(self) -> bool:
        """Return whether the gateway may still send requests by an earlier route.

        If so, requeue for the end of the gateway's wait.
        """
        applied_at = self._state.applied_at
        if not applied_at or decisions.is_taken_over(self._state):
            return False
        due = datetime.fromisoformat(applied_at) + ACCEPTED_WITHIN
        if due <= self._context.moment():
            return False
        self._context.requeue_at(due)
        return True

    def note_recovery(self) -> None:
        """Record that the control cluster answers again after an outage."""
        self._state.gateway_recovers_at = (
            self._context.moment() + GATEWAY_RECOVERS
        ).isoformat()

    # One apply

    async def _apply(self, wanted: WantedRoute) -> AppliedRoute:
        state = self._state
        state.route_started = True
        order = (
            wanted.route.model_copy(update={"middleware_left": True})
            if state.middleware_started
            else wanted.route
        )
        state.middleware_started |= decisions.has_parts(order)
        if order.retries and order.gateway is None and self._gateway_recovers():
            order = order.model_copy(update={"gateway_recovers": True})
        endpoints = sum(len(entry.endpoints) for entry in wanted.route.entries)
        summary = f"route {self._title} to {endpoints} endpoints"
        applied = await workflow.execute_activity_method(
            RoutingActivities.apply_service_route,
            order,
            **activity_options.on_cluster(activity_options.APPLY, summary),
        )
        if state.failure.is_unreachable:
            self.note_recovery()
        self._follow_middleware(order, applied)
        return applied

    def _gateway_recovers(self) -> bool:
        """Return whether the gateway may be slow to watch Middlewares again.

        This is the case soon after an outage of the control cluster.
        """
        return self._state.failure.is_unreachable or self._context.is_future(
            self._state.gateway_recovers_at
        )

    def _follow_middleware(self, order: ApplyRoute, applied: AppliedRoute) -> None:
        """Record the result for the Middleware.

        Schedule the next attempt if it failed.
        """
        state = self._state
        state.middleware_started = decisions.has_parts(order)
        if order.retries is None or applied.middleware:
            state.middleware_retry_at, state.middleware_attempts = "", 0
            return
        if order.gateway_recovers:
            state.middleware_retry_at = state.gateway_recovers_at
            self._context.requeue_at(datetime.fromisoformat(state.gateway_recovers_at))
            return
        pause = backoff.permanent(state.middleware_attempts)
        state.middleware_attempts += 1
        state.middleware_retry_at = (self._context.moment() + pause).isoformat()
        self._context.requeue_after(pause)

    def _middleware_is_due(self) -> bool:
        """Return whether a failed Middleware is to be applied again."""
        due = self._state.middleware_retry_at
        return bool(due) and not self._context.waits_until(due)

    def _waits(self, wanted: WantedRoute) -> bool:
        """Return whether the next attempt at this route waits, and requeue if so."""
        is_same = wanted.digest == self._state.attempted_digest
        return is_same and self._context.waits_until(self._state.retry_at)

    def _drift_is_due(self, wanted: WantedRoute) -> bool:
        state = self._state
        has_drifted = decisions.drifted(state)
        if not drift.has_lasted(self._context, state, has_drifted=has_drifted):
            return False
        if not self._waits(wanted):
            drift.count_repair(self._context, state)
            part = "policy" if decisions.falls_back(state) else "Middleware"
            drifted = part if decisions.middleware_drifted(state) else "HTTPRoute"
            self._context.record_event(
                "Warning",
                "DriftDetected",
                f"another client changed or deleted the {drifted}; it is applied again",
            )
        return True

    def _record_failure(self, failure: Failure) -> None:
        self._state.failure = failure
        self._context.record_event("Warning", failure.type, failure.message)
        pause = backoff_after(failure, self._state.attempts)
        self._state.attempts += 1
        self._state.retry_at = (self._context.moment() + pause).isoformat()
        self._context.requeue_after(pause)

    # Teardown

    async def remove(self) -> bool:
        """Remove the route; return False while this fails.

        A forced teardown lists it as left behind.
        """
        state = self._state
        if not state.forced and self._context.waits_until(state.retry_at):
            return False
        self._context.set_condition(
            "Deleting",
            FALSE,
            "InProgress",
            "the HTTPRoute on the control cluster is being removed",
        )
        self._context.publish()
        try:
            await self._remove()
        except ActivityError as error:
            failure = failure_of(error)
        else:
            return True
        if failure.type == NoControlCluster.__name__ and not state.route_started:
            return True
        if state.forced:
            self._leave_behind(failure)
            return True
        self._record_failure(failure)
        self._context.set_condition(
            "Deleting",
            FALSE,
            "ClusterUnreachable" if failure.is_unreachable else "InProgress",
            f"the HTTPRoute remains: {failure.type}: {failure.message}",
        )
        return False

    async def _remove(self) -> None:
        state = self._state
        # The first apply takes over the objects of a service that was terminated.
        has_unknown = state.reset or state.applied is None
        await workflow.execute_activity_method(
            RoutingActivities.remove_service_route,
            RemoveRoute(
                namespace=self._context.namespace,
                name=self._context.name,
                uid=state.uid,
                of_predecessors=has_unknown,
                middleware_left=state.middleware_started or has_unknown or None,
                gateway="Envoy" if decisions.falls_back(state) else None,
            ),
            **activity_options.on_cluster(
                activity_options.APPLY, f"remove the route of {self._title}"
            ),
        )
        state.route_started = state.middleware_started = False
        state.middleware_retry_at = ""

    def _leave_behind(self, failure: Failure) -> None:
        """List the objects that a forced teardown leaves on the control cluster."""
        namespace, name = self._context.namespace, self._context.name
        route = LeftBehind(
            kind="HTTPRoute",
            namespace=namespace,
            name=names.service_route_name(namespace, name),
            location="control cluster",
            reason=f"the teardown was forced; {failure.type}",
        )
        left = [route]
        if self._state.middleware_started:
            left.append(route.model_copy(update={"kind": "Middleware"}))
        self._state.add_left_behind(left)
        kinds = " and ".join(each.kind for each in left)
        self._context.record_event(
            "Warning", "LeftBehind", f"{kinds} {namespace}/{route.name} may remain"
        )
