"""Requests to the scheduler, one whenever its answer may be another one, and what an answer orders.

No call is made here: each step changes the state and gives orders.
"""

from typing import Any

from api_types.messages.scheduling import Evict, PlacementResponse, Resync
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals
from workflows.entity.context import EntityContext
from workflows.model_deployment.decisions.plan import AnswerPlan, identities, placement_request, plan_answer
from workflows.model_deployment.decisions.status import without_retracted
from workflows.model_deployment.orders import Order
from workflows.model_deployment.replicas import ReplicaController, send
from workflows.model_deployment.state import DeploymentState, PlacementInputs, TrackedReplica

# More than any time in ms has: what is longer was not numbered here.
DIGITS_MAX = 16


class Placements:
    """Requests placements and carries answers out."""

    def __init__(self, context: EntityContext[DeploymentState], replicas: ReplicaController) -> None:
        self._context = context
        self._replicas = replicas

    # --- what arrived -------------------------------------------------------------------------------------------------------------

    def record_answer(self, answer: PlacementResponse) -> None:
        """Store an answer; one to an older request is void, and so is one that was given before another one to this request."""
        state = self._context.state
        if answer.request_id != state.request_id:
            self._request_after_undone(answer.request_id)
            return
        if answer.epoch < state.epoch:
            self._report_epoch()
            return
        if answer.epoch == state.epoch and answer.sequence < state.answer_sequence:
            return
        state.epoch, state.answer, state.answer_sequence = answer.epoch, answer, answer.sequence
        if state.requested_inputs:
            # That scheduler knows this request: the first epoch that a deployment hears of is no reason for another one.
            state.requested_inputs = state.requested_inputs._replace(epoch=answer.epoch)
        # The scheduler has released what this request gave back, and makes other uids for requests to come.
        state.returned = [uid for uid in state.returned if uid not in state.requested_returned]
        state.requested_returned = []
        if state.timings and state.timings.placed_seconds is None:
            seconds = self._context.moment().timestamp() - state.timings.accepted
            state.timings = state.timings.model_copy(update={"placed_seconds": seconds})
        self._context.requeue()

    def _request_after_undone(self, answered: str) -> None:
        """Request again if the scheduler has answered a later request than the last one that this deployment knows of.

        An attempt at a task that left no trace has sent that, and the next attempt had no reason for a request. The scheduler forgets a
        request for a later one, whatever that was made from.
        """
        state, uid, number = self._context.state, answered.partition("/")[0], answered.rpartition("/")[2]
        if uid == state.uid and number.isdecimal() and len(number) <= DIGITS_MAX and int(number) > state.last_request:
            state.last_request, state.requested_inputs = int(number), None
            self._context.requeue()

    def record_eviction(self, message: Evict) -> None:
        """Store that a replica is evicted.

        One that is not tracked may have been started by an earlier deployment of this name, and has to be deleted; or it is in an answer
        that is unread or on its way, and is given back.
        """
        state = self._context.state
        if message.epoch < state.epoch:
            return
        evicted = message.eviction
        if evicted.uid not in state.replicas and evicted.entry:
            state.replicas[evicted.uid] = TrackedReplica.to_delete(evicted, state.generation)
        if evicted.uid in state.replicas:
            state.evictions.append(evicted)
            self._context.requeue()
        else:
            self._replicas.give_back(evicted.uid)

    def record_new_scheduler(self, message: Resync) -> None:
        """Request anew of a scheduler that lost its state. It does not know placements that were never used, so they are void."""
        state = self._context.state
        if message.epoch <= state.epoch:
            if message.epoch < state.epoch:
                self._report_epoch()
            return
        state.epoch, state.requested_inputs, state.release_check_at = message.epoch, None, ""
        unused = [replica.uid for replica in state.by_name() if not replica.was_started]
        for uid in unused:
            del state.replicas[uid]
        state.returned += [uid for uid in unused if uid not in state.returned]

    def _report_epoch(self) -> None:
        """Request anew of a scheduler that has a smaller epoch than this deployment has seen: the request tells it so."""
        self._context.state.requested_inputs = None
        self._context.requeue()

    # --- the steps of a pass --------------------------------------------------------------------------------------------------------

    def request(self, inputs: PlacementInputs, need: dict[str, Any]) -> list[Order]:
        """Request placements; `need` is the deployment as the scheduler reads it."""
        state, context = self._context.state, self._context
        state.last_request = context.next_number(state.last_request)
        state.requested_inputs, state.answered, state.answer_sequence = inputs, False, 0
        state.request_id = f"{state.uid}/{state.generation}/{state.last_request}"
        state.requested_returned = list(state.returned)
        place = placement_request(state, context.namespace, context.name, need)
        request = FleetSchedulerSignals.PLACE.request(FLEET_SCHEDULER, place)
        return send([request], f"request {place.wanted} placements", recorded=bool(place.returned))

    def carry_out_evictions(self) -> list[Order]:
        """Delete the replicas that the scheduler evicted by a message of its own."""
        state = self._context.state
        evictions, state.evictions = state.evictions, []
        evicted: list[TrackedReplica] = []
        for eviction in evictions:
            replica = state.replicas.get(eviction.uid)
            if replica is not None:
                self._replicas.mark_deleted(replica, eviction.reason)
                evicted.append(replica)
        return self._replicas.delete([replica for replica in evicted if replica.started])

    def carry_out_answer(self) -> list[Order]:
        """Turn the newest answer into replicas to start, to update and to delete."""
        state, context = self._context.state, self._context
        answer, state.answer = state.answer, None
        # What changed after this request was, or will be, requested again.
        if answer is None or (answer.request_id, answer.generation) != (state.request_id, state.generation):
            return []
        self._adopt_conditions(answer)
        plan = plan_answer(state.replicas, answer, state.generation, state.uid, state.returned)
        self._track(plan)
        updates = self._replicas.update_templates(plan.update)
        # A new generation makes this answer void, and no replica can be kept that was told to end.
        deleted = [replica for replica in state.started() if replica.uid in plan.delete]
        deletions = self._replicas.delete(deleted, recorded=True)
        if state.requested_inputs and {replica.uid for replica in state.staying()} == {placement.uid for placement in answer.placements}:
            # The scheduler knows what it has just ordered; a request because of that would double its work.
            state.requested_inputs = state.requested_inputs._replace(replicas=identities(state))
        context.mark_changed()
        return [*updates, *deletions]

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
        for uid in plan.unheld:
            self._replicas.record_revoked(uid)
        for uid, entry in plan.entries.items():
            state.update(state.replicas[uid], entry=entry, generation=state.generation, adoption=state.adoption)
        for uid, after in plan.after.items():
            # An answer may be older than what was released since: nothing is waited for anew.
            replica = state.replicas[uid]
            state.update(replica, after=[other for other in replica.after if other in after])
        # What is started now is of the newest rollout.
        state.replicas |= {replica.uid: replica.model_copy(update={"adoption": state.adoption}) for replica in plan.create}
        if plan.repeat:
            state.requested_inputs = None
        if plan.create:
            clusters = sorted({replica.cluster for replica in plan.create})
            self._context.record_event(
                "Normal", "Scheduled", f"Scheduled {len(plan.create)} replicas across {len(clusters)} clusters: {', '.join(clusters)}"
            )
