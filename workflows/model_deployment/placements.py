"""Requests to the scheduler, one whenever its answer may be another one, and what an answer orders."""

from typing import Any

from temporalio import workflow

from api_types.messages.scheduling import Evict, PlacementResponse, Resync
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals
from workflows.entity.context import EntityContext
from workflows.model_deployment.plan import AnswerPlan, identities, placement_request, plan_answer
from workflows.model_deployment.replicas import ReplicaController
from workflows.model_deployment.state import DeploymentState, PlacementInputs
from workflows.model_deployment.status import without_retracted


class Placements:
    """Requests placements and carries answers out."""

    def __init__(self, context: EntityContext[DeploymentState], replicas: ReplicaController) -> None:
        self._context = context
        self._replicas = replicas

    # --- what arrived -------------------------------------------------------------------------------------------------------------

    def record_answer(self, answer: PlacementResponse) -> None:
        """Store an answer; one to an older request is void."""
        state = self._context.state
        if answer.request_id != state.request_id or answer.epoch < state.epoch:
            return
        state.epoch, state.answer = answer.epoch, answer
        if state.timings and state.timings.placed_seconds is None:
            state.timings = state.timings.model_copy(update={"placed_seconds": workflow.time() - state.timings.accepted})
        self._context.requeue()

    def record_preemption(self, message: Evict) -> None:
        """Store that a replica is preempted."""
        state = self._context.state
        if message.epoch >= state.epoch and message.eviction.uid in state.replicas:
            state.evictions.append(message.eviction)
            self._context.requeue()

    def record_new_scheduler(self, message: Resync) -> None:
        """Request anew of a scheduler that lost its state. It does not know placements that were never used, so they are void."""
        state = self._context.state
        if message.epoch > state.epoch:
            state.epoch, state.requested_inputs = message.epoch, None
            state.replicas = {uid: replica for uid, replica in state.replicas.items() if replica.was_started}

    # --- the steps of a pass --------------------------------------------------------------------------------------------------------

    async def request(self, inputs: PlacementInputs, need: dict[str, Any]) -> None:
        """Request placements; `need` is the deployment as the scheduler reads it."""
        state, context = self._context.state, self._context
        state.requests_made += 1
        state.requested_inputs, state.answered = inputs, False
        state.request_id = f"{state.uid}/{state.generation}/{state.requests_made}"
        place = placement_request(state, context.namespace, context.name, need)
        await context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.PLACE, place)

    async def carry_out_answer(self) -> None:
        """Turn the newest answer into replicas to start, to update and to delete."""
        state, context = self._context.state, self._context
        answer, state.answer = state.answer, None
        # What changed after this request was, or will be, requested again.
        if answer is None or (answer.request_id, answer.generation) != (state.request_id, state.generation):
            return
        self._adopt_conditions(answer)
        plan = plan_answer(state.replicas, answer, state.generation)
        self._track(plan)
        await self._replicas.update_templates(plan.update)
        await self._replicas.delete([replica for replica in state.started() if replica.uid in plan.delete])
        if state.requested_inputs and {replica.uid for replica in state.staying()} == {placement.uid for placement in answer.placements}:
            # The scheduler knows what it has just ordered; a request because of that would double its work.
            state.requested_inputs = state.requested_inputs._replace(replicas=identities(state))
        context.mark_changed()

    def _adopt_conditions(self, answer: PlacementResponse) -> None:
        state = self._context.state
        state.answered = True
        state.shortfall, state.message = answer.shortfall, answer.message
        still_true = without_retracted(state.conditions, state.scheduler_conditions, answer.conditions)
        if still_true != state.conditions:
            state.conditions = still_true
            self._context.mark_changed()
        state.scheduler_conditions, state.more = answer.conditions, answer.more

    def _track(self, plan: AnswerPlan) -> None:
        """Write into the state which replicas an answer deletes, places and changes."""
        state = self._context.state
        for replica in state.by_name():
            if replica.uid in plan.delete:
                self._replicas.mark_deleted(replica, plan.delete[replica.uid])
        for uid, entry in plan.entries.items():
            state.update(state.replicas[uid], entry=entry, generation=state.generation)
        state.replicas |= {replica.uid: replica for replica in plan.create}
        if plan.unknown:
            state.requested_inputs = None
        if plan.create:
            clusters = sorted({replica.cluster for replica in plan.create})
            self._context.record_event(
                "Normal", "Scheduled", f"Scheduled {len(plan.create)} replicas across {len(clusters)} clusters: {', '.join(clusters)}"
            )
