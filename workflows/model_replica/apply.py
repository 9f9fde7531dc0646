"""Applies the present generation of a ModelReplica to its cluster."""

from datetime import datetime, timedelta

from activities.secrets.store import SecretMissing
from api_types.messages.cluster_work import Applied
from api_types.resources.replica_spec import engine_sizes
from workflows.entity import backoff
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.model_replica.decisions.cluster import access_of, connection_problem
from workflows.model_replica.decisions.observation import drift, drift_message
from workflows.model_replica.decisions.plan import (
    DRIFT_DELAY,
    ApplyReason,
    decide_apply,
    ends_all_pods,
    recent_repairs,
    recreated_engines,
)
from workflows.model_replica.decisions.requests import apply_request
from workflows.model_replica.orders import Apply, Order
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ApplyInputs, ModelReplicaState

# A missing object may appear right after a failed attempt, and the replica should use
# it within a minute.
COPIES_PAUSE_MAX = timedelta(seconds=30)

# The maximum number of consecutive applies by workers whose renderer differs from that
# of the cluster's facts. An upgrade of the workers is over by then, so the remaining
# workers disagree. The next change of inputs resets the count.
OTHER_RENDERERS_MAX = 8

# Reasons in conditions for errors whose own name is not the reason.
_REASONS = {
    "InvalidInput": "InvalidSpec",
    "StillThere": "Deploying",
    "StackMissing": "ServingStackMissing",
    "Unsupported": "RoutingUnsupported",
    "CredentialsInvalid": "ClusterUnreachable",
    "WorkerClockWrong": "ClusterUnreachable",
    "PermissionDenied": "ClusterUnreachable",
}


# The time that new pods wait for routes to drop the old ones. A control cluster that
# does not answer may recover within ten minutes, and until then its gateway sends
# requests to the old pods. A control cluster that is lost for good must not block
# rollouts.
ROUTES_FOLLOW_WITHIN = timedelta(minutes=15)
# The minimum wait for routes after a failed apply, because they have contained the
# endpoint again since then. They follow within seconds.
ROUTES_FOLLOW_AGAIN = timedelta(seconds=30)


class ReplicaApply:
    """Applies the objects of the replica, and records the result."""

    def __init__(
        self,
        context: EntityContext[ModelReplicaState],
        reports: DeploymentReports,
    ) -> None:
        self._context = context
        self._reports = reports
        # The inputs of the last apply, and of the apply that failed because a copied
        # object is missing. A new run makes its own attempt.
        self._last: tuple[int, ApplyInputs] | None = None
        self._awaited: tuple[int, ApplyInputs] | None = None

    @property
    def awaits_copies(self) -> bool:
        """Whether an apply now would fail again because of the same missing objects."""
        return self._awaited == (
            self._context.state.generation,
            self._context.state.inputs(),
        )

    def retry(self) -> None:
        """Allow the next attempt although objects are missing."""
        self._awaited = None

    def next_orders(self) -> list[Order]:
        """Return an apply if one is due; otherwise set the time of the next decision."""
        state = self._context.state
        self._forget_lost_drain()
        if access_of(state) is None or self.awaits_copies:
            self._end_drain()
            return []
        decision = decide_apply(state, self._context.moment())
        state.drift_since = decision.drift_since
        if decision.check_at is not None:
            self._context.requeue_at(decision.check_at)
        if decision.reason == "spec" and ends_all_pods(state, recreated_engines(state)):
            if self._drains():
                return []
        else:
            self._end_drain()
        return self._begin(decision.reason) if decision.reason else []

    def _drains(self) -> bool:
        """Stop new requests to pods that the apply ends; return True while requests still run."""
        state = self._context.state
        if not state.drain_until:
            facts = state.cluster.facts if state.cluster else None
            until = self._context.moment() + timedelta(
                seconds=facts.drain_seconds if facts else 0
            )
            state.drain_until = until.isoformat()
            state.routes_until = (
                state.routes_until or (until + ROUTES_FOLLOW_WITHIN).isoformat()
            )
            self._context.mark_changed()
        until = self._drained_at(datetime.fromisoformat(state.drain_until))
        if until > self._context.moment():
            self._context.requeue_at(until)
            return True
        if not state.endpoint.is_out_of_routes:
            self._context.record_event(
                "Warning",
                "StillRouted",
                "pods are replaced although routes of services may still have the endpoint",
            )
        return False

    def _drained_at(self, until: datetime) -> datetime:
        """Return the end of the time that running requests have to finish.

        This time starts when no route has the endpoint. While a route still has it,
        return the end of the wait for routes.
        """
        state, published = self._context.state, self._context.state.endpoint
        if not published.is_out_of_routes:
            if not state.routes_until:
                return until + ROUTES_FOLLOW_WITHIN
            return max(
                until + ROUTES_FOLLOW_AGAIN, datetime.fromisoformat(state.routes_until)
            )
        # The routes have followed, so a later apply starts another wait.
        state.routes_until = ""
        if not published.withdrawn_at:
            return until
        facts = state.cluster.facts if state.cluster else None
        time = timedelta(seconds=facts.drain_seconds if facts else 0)
        return max(until, datetime.fromisoformat(published.withdrawn_at) + time)

    def _forget_lost_drain(self) -> None:
        """End the drain, and its wait for routes, on a disconnected cluster.

        The next attempt may be hours away.
        """
        if self._context.state.drain_until and connection_problem(self._context.state):
            self._context.state.routes_until = ""
            self._end_drain()

    def _end_drain(self) -> None:
        if self._context.state.drain_until:
            self._context.state.drain_until = ""
            self._context.mark_changed()

    def _begin(self, reason: ApplyReason) -> list[Order]:
        state = self._context.state
        drifted = (
            drift_message(state.applied, state.observed)
            if reason == "drift" and state.applied and state.observed
            else ""
        )
        order = Apply(apply_request(state), state.inputs(), drifted)
        self._last = state.generation, order.inputs
        if drifted:
            self._context.record_event(
                "Normal", "DriftDetected", f"{drifted}: re-applying"
            )
        withdrawn = self._withdraw_on_mode_change()
        state.apply_started, state.inventory_complete = True, False
        state.surface = order.request.facts.routing
        if state.applied is None:
            self._context.set_condition(
                "ModelAccepted",
                FALSE,
                "Deploying",
                f"applying to {order.request.cluster}",
            )
            self._context.set_condition(
                "Ready", FALSE, "Creating", f"applying to {order.request.cluster}"
            )
            self._context.publish()
        return [*withdrawn, order]

    def is_obsolete(self, order: Apply) -> bool:
        """Whether a newer generation or a deletion supersedes the running apply."""
        state = self._context.state
        return (
            state.deleting
            or state.cluster_doubted
            or state.generation != order.request.generation
        )

    def applied(self, order: Apply, applied: Applied) -> None:
        """Record the result of an apply."""
        state, generation = self._context.state, order.request.generation
        self._record_events(applied, order.request.cluster, order.drifted)
        if order.drifted:
            state.drift_repairs = recent_repairs(state, self._context.moment()) + 1
            state.drift_repaired_at = self._context.moment().isoformat()
        changed = state.applied_generation not in (
            0,
            generation,
        ) or state.applied_inputs not in (None, order.inputs)
        may_be_obsolete = changed or order.request.search or applied.has_obsolete
        state.prune, state.prune_at = state.prune or may_be_obsolete, ""
        self._check_renderer(order, applied)
        state.applied, state.applied_generation, state.inventory_complete = (
            applied,
            generation,
            True,
        )
        state.applied_inputs, state.applied_mode, state.applied_sources = (
            order.inputs,
            state.mode(),
            state.pod_sources(),
        )
        state.applied_sizes = engine_sizes(state.spec or {})
        if state.drain_until:
            # Until the new pods exist, the observation shows the pods that end.
            state.serving, state.drain_until = False, ""
        state.routes_until = ""
        state.copies_due = ""
        state.failure, state.retry_at, state.attempts, state.drift_since = (
            NO_FAILURE,
            "",
            0,
            "",
        )
        if state.observed and drift(applied, state.observed):
            # The observation may be older than this apply, so check again when a newer
            # one can have arrived.
            self._context.requeue_after(DRIFT_DELAY)

    def _check_renderer(self, order: Apply, applied: Applied) -> None:
        """Repeat an apply by a worker whose renderer differs from that of the cluster's worker.

        During an upgrade of the workers either build may apply, and only one of them
        finds the pending changes.
        """
        state, expected = self._context.state, order.request.facts.renderer
        if (
            state.applied_inputs != order.inputs
            or not applied.renderer
            or applied.renderer == expected
        ):
            state.rendered_otherwise = 0
        state.render_at = ""
        if (
            applied.renderer
            and expected
            and applied.renderer != expected
            and state.rendered_otherwise < OTHER_RENDERERS_MAX
        ):
            pause = backoff.renderer(state.rendered_otherwise)
            state.rendered_otherwise += 1
            state.render_at = (self._context.moment() + pause).isoformat()
            self._context.requeue_after(pause)

    def failed(self, failure: Failure, reason: str) -> None:
        """Record the failure of an apply; `reason` is its reason in conditions."""
        state = self._context.state
        self._end_drain()
        state.failure, state.failure_reason = (
            failure,
            reason or _REASONS.get(failure.type, failure.type),
        )
        pause = backoff_after(failure, state.attempts)
        if reason == SecretMissing.__name__:
            # The replica notices new objects at once, so this pause only limits the
            # rate of failures.
            self._awaited, pause = self._last, min(pause, COPIES_PAUSE_MAX)
        else:
            self._context.requeue_after(pause)
        state.attempts += 1
        state.retry_at = (self._context.moment() + pause).isoformat()
        self._context.record_event("Warning", state.failure_reason, failure.message)

    def cancelled(self) -> None:
        """Decide again after a superseded apply was cancelled."""
        self._end_drain()
        self._context.requeue()

    def _withdraw_on_mode_change(self) -> list[Order]:
        """Withdraw the endpoint before engines change roles: a picker serves pods of one mode."""
        state = self._context.state
        if not state.serving or state.applied_mode in ("", state.mode()):
            return []
        change = f"serving mode changes from {state.applied_mode} to {state.mode()}"
        state.serving = False
        self._context.set_condition("Serving", FALSE, "NotServing", change)
        self._context.set_condition("Ready", FALSE, "Unavailable", change)
        return self._reports.report()

    def _record_events(self, applied: Applied, cluster: str, drifted: str) -> None:
        before = self._context.state.applied
        if before is None:
            self._context.record_event(
                "Normal", "Applied", f"{len(applied.inventory)} objects on {cluster}"
            )
        if drifted:
            written = (
                f"; written by others: {', '.join(applied.overwritten)}"
                if applied.overwritten
                else ""
            )
            self._context.record_event(
                "Normal", "DriftRepaired", f"re-applied after {drifted}{written}"
            )
        if applied.pending and (before is None or applied.pending != before.pending):
            causes = ", ".join(applied.pending_causes)
            self._context.record_event(
                "Normal",
                "ChangePending",
                f"{causes}: pods stay until a rollout: {', '.join(applied.pending)}",
            )
        for warning in applied.warnings:
            if before is None or warning not in before.warnings:
                self._context.record_event("Warning", "Rendering", warning)
