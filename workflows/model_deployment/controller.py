"""What a ModelDeployment does next, without doing it: messages come in, orders go out, and results come back.

Nothing here waits or calls. The cache is followed, and replicas of an earlier deployment are found, by parts of the workflow of their own.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from math import ceil
from typing import Any

from api_types.messages.entities import Scale
from api_types.messages.scheduling import Evict, Forgotten, PlacementResponse, Released, Resync, Revoke
from api_types.messages.signals import FLEET_SCHEDULER
from api_types.resources.status import LastScale
from scheduler import deployment_view, to_wire
from workflows.entity.conditions import TRUE, condition_of
from workflows.entity.context import EntityContext
from workflows.entity.manifest import manifest_of
from workflows.model_deployment.decisions.plan import placement_inputs
from workflows.model_deployment.decisions.scaling import scale_problem
from workflows.model_deployment.decisions.status import conditions_of
from workflows.model_deployment.decisions.writers import SCALED_BY_ONE, scaled_by_one, with_writer
from workflows.model_deployment.orders import Order
from workflows.model_deployment.placements import Placements
from workflows.model_deployment.replicas import ReplicaController
from workflows.model_deployment.state import DeploymentState, GenerationTimings
from workflows.model_deployment.teardown import DeploymentTeardown

WRITERS_PATCH = "several-autoscalers"
KEDA_PATCH = "keda-and-its-autoscaler-are-one"


class DeploymentController:
    """Decides over a deployment: what to request of the scheduler, which replicas to start, to change and to delete."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self._state = context.state
        self.replicas = ReplicaController(context)
        self.placements = Placements(context, self.replicas)
        self.teardown = DeploymentTeardown(context, self.replicas)

    # --- orders ---------------------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether replicas are wanted, be it none."""
        return self._state.spec is not None and not self._state.deleting

    @property
    def is_gone(self) -> bool:
        """Whether the deployment is deleted and nothing of it is left."""
        return self._state.released and not self._state.replicas and not self._state.unknown

    def next_orders(self, cache: dict[str, Any]) -> list[Order]:
        """Decide what this pass orders; `cache` is the cache as placement reads it."""
        state, replicas = self._state, self.replicas
        orders = [*replicas.read_unknown(), *self.placements.carry_out_evictions()]
        if state.deleting:
            orders += self.teardown.step()
        elif state.spec is not None:
            orders += replicas.resync()
            replicas.restart_lost()
            self._begin_adoption()
            orders += self._request_placements(cache)
            orders += [*self.placements.carry_out_answer(), *replicas.start(), *replicas.update_labels()]
        return [*orders, *replicas.answer_revoked(), *replicas.check_leaving()]

    def _request_placements(self, cache: dict[str, Any]) -> list[Order]:
        inputs = placement_inputs(self._state, cache)
        if inputs == self._state.requested_inputs:
            return []
        shown = {"rollout": {"adoption": self._state.adoption}}
        view = deployment_view(manifest_of(self._context, "", shown), cache or None)
        return self.placements.request(inputs, to_wire(view))

    def _begin_adoption(self) -> None:
        """Begin a rollout of what replicas would make otherwise now, if that needs no word of a user. What waits already is part of it."""
        state = self._state
        waiting = [replica for replica in state.staying() if replica.adopting and replica.adopted >= max(state.adoption, replica.adoption)]
        if waiting:
            state.adoption = self._context.next_number(state.adoption)
            causes = ", ".join(dict.fromkeys(replica.pending for replica in waiting))
            self._context.record_event("Normal", "AdoptingChange", f"{causes}: a rollout replaces the pods of {len(waiting)} replicas")

    # --- conclusions ----------------------------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """Write the conditions, and how long the generation took to become Ready."""
        state, context = self._state, self._context
        if not self.is_active:
            return
        for kind, verdict in conditions_of(state):
            context.set_condition(kind, *verdict)
            if (kind, verdict.status) == ("Ready", TRUE) and state.timings and state.timings.ready_seconds is None:
                seconds = context.moment().timestamp() - state.timings.accepted
                state.timings = state.timings.model_copy(update={"ready_seconds": seconds})
        state.observed_generation = state.generation

    def show_writers(self, patched: Callable[[str], bool]) -> None:
        """Write, or remove, the condition that several autoscalers scale this deployment. `patched`: whether a history has that."""
        state, context = self._state, self._context
        writers, now = state.scale_writers if self.is_active else [], context.moment().timestamp()
        verdict, seconds = scaled_by_one(writers, now)
        of_before = scaled_by_one(writers, now, keda_is_one=False)
        if of_before != (verdict, seconds) and not patched(KEDA_PATCH):
            verdict, seconds = of_before
        if (verdict is None and condition_of(state.conditions, SCALED_BY_ONE) is None) or not patched(WRITERS_PATCH):
            return
        if verdict is None:
            context.remove_condition(SCALED_BY_ONE)
        else:
            context.set_condition(SCALED_BY_ONE, *verdict)
            context.requeue_after(timedelta(seconds=ceil(seconds)))

    # --- messages -------------------------------------------------------------------------------------------------------------------

    def scale(self, message: Scale) -> None:
        """Change the replica count; the last accepted count holds and is recorded."""
        state, context = self._state, self._context
        problem = scale_problem(state, message)
        if problem or state.spec is None:
            context.record_event("Warning", "ScaleRefused", problem)
            return
        before, count = state.spec["replicas"], message.replicas
        state.last_scale = LastScale(replicas=count, by=message.by, at=context.now(), request_id=message.request_id)
        state.scale_writers = with_writer(state.scale_writers, message, context.moment().timestamp())
        if count != before:
            why = f": {message.reason}" if message.reason else ""
            context.record_event("Normal", "Scaled", f"from {before} to {count} by {message.by or 'unknown'}{why}")
            state.spec = {**state.spec, "replicas": count}
            state.generation += 1
            self.start_timing()
        context.mark_changed()

    def start_timing(self) -> None:
        """Measure how long a new generation takes."""
        self._state.timings = GenerationTimings(generation=self._state.generation, accepted=self._context.moment().timestamp())

    def placed(self, message: PlacementResponse) -> None:
        """Store the scheduler's answer."""
        self.placements.record_answer(message)

    def evict(self, message: Evict) -> None:
        """Store that a replica is evicted."""
        self.placements.record_eviction(message)

    def revoke(self, message: Revoke) -> None:
        """Store that the scheduler asks whether an old reservation is used."""
        if message.epoch >= self._state.epoch:
            self.replicas.record_revoked(message.uid)

    def released(self, message: Released) -> None:
        """Store that a replica is gone whose nodes a placement waits for."""
        self.replicas.record_released(message.uid)

    def forgotten(self, message: Forgotten) -> None:
        """Store that the scheduler has nothing charged to this deployment."""
        self.teardown.record_forgotten(message)

    def resync(self, message: Resync | None) -> None:
        """Request placements again: of a scheduler that lost its state, or because a taint, an admission or `drain` may change them."""
        if message is None:
            self.repeat_reports()
        else:
            self.placements.record_new_scheduler(message)
        self._context.requeue()

    def receivers_lost(self, workflow_ids: Collection[str]) -> None:
        """Request placements of a scheduler that was started anew, or does not answer; start replicas that do not run."""
        if FLEET_SCHEDULER.workflow_id in workflow_ids or not self._state.answered:
            self._state.requested_inputs = None
        self.replicas.sent(workflow_ids)

    def repeat_reports(self) -> None:
        """Request placements again, and have the replicas report again, with the next pass."""
        self._state.requested_inputs = None
        self.replicas.request_resync()
