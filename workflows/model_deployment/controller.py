"""Decides the next steps of a ModelDeployment.

It receives messages and results, and returns orders. Nothing here waits or calls. Other
parts of the workflow follow the cache and find the replicas of an earlier deployment.
"""

from collections.abc import Collection
from datetime import timedelta
from math import ceil
from typing import Any

from api_types.messages.entities import Scale
from api_types.messages.scheduling import (
    Evict,
    Forgotten,
    PlacementResponse,
    Released,
    Resync,
    Revoke,
)
from api_types.messages.signals import FLEET_SCHEDULER
from api_types.resources.status import LastScale
from scheduler import deployment_view, to_wire
from workflows.entity.conditions import TRUE, condition_of
from workflows.entity.context import EntityContext
from workflows.entity.manifest import manifest_of
from workflows.model_deployment.decisions.plan import placement_inputs
from workflows.model_deployment.decisions.scaling import scale_problem
from workflows.model_deployment.decisions.status import conditions_of
from workflows.model_deployment.decisions.writers import (
    SCALED_BY_ONE,
    scaled_by_one,
    with_writer,
)
from workflows.model_deployment.orders import Order
from workflows.model_deployment.placements import Placements
from workflows.model_deployment.replicas import DeploymentReplicaController
from workflows.model_deployment.state import DeploymentState, GenerationTimings
from workflows.model_deployment.teardown import DeploymentTeardown


class DeploymentController:
    """Decides on requests to the scheduler, and on starts, updates and deletions of replicas."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self._state = context.state
        self.replicas = DeploymentReplicaController(context)
        self.placements = Placements(context, self.replicas)
        self.teardown = DeploymentTeardown(context, self.replicas)

    # Orders

    @property
    def is_active(self) -> bool:
        """Whether the deployment may have replicas: it has a spec and is not being deleted."""
        return self._state.spec is not None and not self._state.deleting

    @property
    def is_gone(self) -> bool:
        """Whether the deployment is deleted and has no replica left."""
        return (
            self._state.released
            and not self._state.replicas
            and not self._state.unknown
        )

    def next_orders(self, cache: dict[str, Any]) -> list[Order]:
        """Return the orders of this pass; `cache` is the cache in the form that placement reads."""
        state, replicas = self._state, self.replicas
        orders = [*replicas.read_unknown(), *self.placements.carry_out_evictions()]
        if state.deleting:
            orders += self.teardown.step()
        elif state.spec is not None:
            orders += replicas.resync()
            replicas.restart_lost()
            self._begin_adoption()
            orders += self._request_placements(cache)
            orders += [
                *self.placements.carry_out_answer(),
                *replicas.start(),
                *replicas.update_labels(),
            ]
        return [*orders, *replicas.answer_revoked(), *replicas.check_leaving()]

    def _request_placements(self, cache: dict[str, Any]) -> list[Order]:
        self.placements.repeat_at_deadline()
        inputs = placement_inputs(self._state, cache)
        if inputs == self._state.requested_inputs:
            return []
        shown = {"rollout": {"adoption": self._state.adoption}}
        view = deployment_view(manifest_of(self._context, "", shown), cache or None)
        return self.placements.request(inputs, to_wire(view))

    def _begin_adoption(self) -> None:
        """Start a rollout for replicas whose pods would change, unless it needs the user's consent.

        A pending rollout already includes these replicas.
        """
        state = self._state
        waiting = [
            replica
            for replica in state.staying()
            if replica.adopting
            and replica.adopted >= max(state.adoption, replica.adoption)
        ]
        if waiting:
            state.adoption = self._context.next_number(state.adoption)
            causes = ", ".join(dict.fromkeys(replica.pending for replica in waiting))
            self._context.record_event(
                "Normal",
                "AdoptingChange",
                f"{causes}: a rollout replaces the pods of {len(waiting)} replicas",
            )

    # Conclusions

    def conclude(self) -> None:
        """Write the conditions, and measure how long the generation took to become Ready."""
        state, context = self._state, self._context
        if not self.is_active:
            return
        for kind, verdict in conditions_of(state):
            context.set_condition(kind, *verdict)
            if (
                (kind, verdict.status) == ("Ready", TRUE)
                and state.timings
                and state.timings.ready_seconds is None
            ):
                seconds = context.moment().timestamp() - state.timings.accepted
                state.timings = state.timings.model_copy(
                    update={"ready_seconds": seconds}
                )
        state.observed_generation = state.generation

    def show_writers(self) -> None:
        state, context = self._state, self._context
        writers, now = (
            state.scale_writers if self.is_active else [],
            context.moment().timestamp(),
        )
        verdict, seconds = scaled_by_one(writers, now)
        if verdict is None and condition_of(state.conditions, SCALED_BY_ONE) is None:
            return
        if verdict is None:
            context.remove_condition(SCALED_BY_ONE)
        else:
            context.set_condition(SCALED_BY_ONE, *verdict)
            context.requeue_after(timedelta(seconds=ceil(seconds)))

    # Messages

    def scale(self, message: Scale) -> None:
        """Set the replica count and record the writer.

        The last accepted count is in force.
        """
        state, context = self._state, self._context
        problem = scale_problem(state, message)
        if problem or state.spec is None:
            context.record_event("Warning", "ScaleRefused", problem)
            return
        before, count = state.spec["replicas"], message.replicas
        state.last_scale = LastScale(
            replicas=count,
            by=message.by,
            at=context.now(),
            request_id=message.request_id,
        )
        state.scale_writers = with_writer(
            state.scale_writers, message, context.moment().timestamp()
        )
        if count != before:
            why = f": {message.reason}" if message.reason else ""
            context.record_event(
                "Normal",
                "Scaled",
                f"from {before} to {count} by {message.by or 'unknown'}{why}",
            )
            state.spec = {**state.spec, "replicas": count}
            state.generation += 1
            self.start_timing()
        context.mark_changed()

    def start_timing(self) -> None:
        """Measure how long a new generation takes."""
        self._state.timings = GenerationTimings(
            generation=self._state.generation,
            accepted=self._context.moment().timestamp(),
        )

    def placed(self, message: PlacementResponse) -> None:
        self.placements.record_answer(message)

    def evict(self, message: Evict) -> None:
        self.placements.record_eviction(message)

    def revoke(self, message: Revoke) -> None:
        if message.epoch >= self._state.epoch:
            self.replicas.record_revoked(message.uid)

    def released(self, message: Released) -> None:
        """Record the end of a replica. A placement may wait for its nodes."""
        self.replicas.record_released(message.uid)

    def forgotten(self, message: Forgotten) -> None:
        """Record that the scheduler charges nothing to this deployment."""
        self.teardown.record_forgotten(message)

    def resync(self, message: Resync | None) -> None:
        """Request placements again.

        The scheduler may have lost its state, or a taint, an admission or `drain` may
        change the answer.
        """
        if message is None:
            self.repeat_reports()
        else:
            self.placements.record_new_scheduler(message)
        self._context.requeue()

    def receivers_lost(self, workflow_ids: Collection[str]) -> None:
        """Request placements from a restarted scheduler, and start replicas that do not run."""
        if FLEET_SCHEDULER.workflow_id in workflow_ids or not self._state.answered:
            self._state.requested_inputs = None
        self.replicas.sent(workflow_ids)

    def repeat_reports(self) -> None:
        """Request placements and reports of all replicas with the next pass."""
        self._state.requested_inputs = None
        self.replicas.request_resync()
