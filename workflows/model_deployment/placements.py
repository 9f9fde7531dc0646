"""Requests to the scheduler, and the changes that its answers order.

A request is sent whenever its answer may differ. Nothing here calls: each step changes
the state and returns orders.
"""

from datetime import timedelta
from typing import Any

from api_types.messages.scheduling import Evict, PlacementResponse, Resync
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals
from workflows.entity.context import EntityContext
from workflows.model_deployment.decisions.plan import (
    AnswerPlan,
    identities,
    placement_request,
    plan_answer,
    with_unread_orders,
)
from workflows.model_deployment.decisions.status import without_retracted
from workflows.model_deployment.orders import Order
from workflows.model_deployment.replicas import DeploymentReplicaController, send
from workflows.model_deployment.state import (
    DeploymentState,
    PlacementInputs,
    TrackedReplica,
)

# Greater than any time in milliseconds: a greater number cannot come from this
# deployment.
DIGITS_MAX = 16
# The clock of the scheduler may differ a little. A request just before the deadline
# would change nothing.
DEADLINE_MARGIN = timedelta(seconds=1)


class Placements:
    """Requests placements and applies answers."""

    def __init__(
        self,
        context: EntityContext[DeploymentState],
        replicas: DeploymentReplicaController,
    ) -> None:
        self._context = context
        self._replicas = replicas

    # Messages

    def record_answer(self, answer: PlacementResponse) -> None:
        """Store an answer.

        An answer to an older request is void, and so is one that was made before
        another answer to this request.
        """
        state = self._context.state
        if answer.request_id != state.request_id:
            self._request_after_undone(answer.request_id)
            return
        if answer.epoch < state.epoch:
            self._report_epoch()
            return
        if answer.epoch == state.epoch and answer.sequence < state.answer_sequence:
            return
        state.epoch, state.answer, state.answer_sequence = (
            answer.epoch,
            with_unread_orders(answer, state.answer),
            answer.sequence,
        )
        if state.requested_inputs:
            # The scheduler knows this request. When a deployment learns its first
            # epoch, it need not repeat its request.
            state.requested_inputs = state.requested_inputs._replace(epoch=answer.epoch)
        # The scheduler has released the placements that this request returned, and
        # assigns new uids to later requests.
        state.returned = [
            uid for uid in state.returned if uid not in state.requested_returned
        ]
        state.requested_returned = []
        if state.timings and state.timings.placed_seconds is None:
            seconds = self._context.moment().timestamp() - state.timings.accepted
            state.timings = state.timings.model_copy(update={"placed_seconds": seconds})
        self._context.requeue()

    def _request_after_undone(self, answered: str) -> None:
        """Request again if the scheduler has answered a later request than the last known one.

        A lost workflow task sent that request, and its repetition had no reason for a
        request. The scheduler forgets a request when a later one arrives, whatever its
        inputs were.
        """
        state, uid, number = (
            self._context.state,
            answered.partition("/")[0],
            answered.rpartition("/")[2],
        )
        if (
            uid == state.uid
            and number.isdecimal()
            and len(number) <= DIGITS_MAX
            and int(number) > state.last_request
        ):
            state.last_request, state.requested_inputs = int(number), None
            self._context.requeue()

    def record_eviction(self, message: Evict) -> None:
        """Record the eviction of a replica.

        An untracked replica may have been started by an earlier deployment of this name
        and has to be deleted. Or it is in an unread answer, and is returned.
        """
        state = self._context.state
        if message.epoch < state.epoch:
            return
        evicted = message.eviction
        if evicted.uid not in state.replicas and evicted.entry:
            state.replicas[evicted.uid] = TrackedReplica.to_delete(
                evicted, state.generation
            )
        if evicted.uid in state.replicas:
            state.evictions.append(evicted)
            self._context.requeue()
        else:
            self._replicas.give_back(evicted.uid)

    def record_new_scheduler(self, message: Resync) -> None:
        """Repeat the request to a scheduler that lost its state.

        It does not know placements that were never used, so they are void.
        """
        state = self._context.state
        if message.epoch <= state.epoch:
            if message.epoch < state.epoch:
                self._report_epoch()
            return
        state.epoch, state.requested_inputs, state.release_check_at = (
            message.epoch,
            None,
            "",
        )
        unused = [replica.uid for replica in state.by_name() if not replica.was_started]
        for uid in unused:
            del state.replicas[uid]
        state.returned += [uid for uid in unused if uid not in state.returned]

    def _report_epoch(self) -> None:
        """Repeat the request to a scheduler whose epoch is smaller than the last known one.

        The request carries the greater epoch.
        """
        self._context.state.requested_inputs = None
        self._context.requeue()

    # Steps of a pass

    def request(self, inputs: PlacementInputs, need: dict[str, Any]) -> list[Order]:
        """Request placements; `need` is the deployment in the form that the scheduler reads."""
        state, context = self._context.state, self._context
        state.last_request = context.next_number(state.last_request)
        state.requested_inputs, state.answered, state.answer_sequence = inputs, False, 0
        state.request_id = f"{state.uid}/{state.generation}/{state.last_request}"
        state.requested_returned = list(state.returned)
        place = placement_request(state, context.namespace, context.name, need)
        request = FleetSchedulerSignals.PLACE.request(FLEET_SCHEDULER, place)
        return send(
            [request],
            f"request {place.wanted} placements",
            recorded=bool(place.returned),
        )

    def carry_out_evictions(self) -> list[Order]:
        """Delete the replicas that the scheduler evicted outside of an answer."""
        state = self._context.state
        evictions, state.evictions = state.evictions, []
        evicted: list[TrackedReplica] = []
        for eviction in evictions:
            replica = state.replicas.get(eviction.uid)
            if replica is not None:
                self._replicas.mark_deleted(replica, eviction.reason)
                evicted.append(replica)
        return self._replicas.delete(
            [replica for replica in evicted if replica.started]
        )

    def carry_out_answer(self) -> list[Order]:
        """Turn the newest answer into replicas to start, to update and to delete."""
        state, context = self._context.state, self._context
        answer, state.answer = state.answer, None
        # Changes after this request have led to another request, or will.
        if answer is None or (answer.request_id, answer.generation) != (
            state.request_id,
            state.generation,
        ):
            return []
        self._adopt_conditions(answer)
        plan = plan_answer(
            state.replicas, answer, state.generation, state.uid, state.returned
        )
        self._track(plan)
        updates = self._replicas.update_templates(plan.update)
        # A new generation makes this answer void, and replicas that were ordered to end
        # cannot be kept.
        deleted = [replica for replica in state.started() if replica.uid in plan.delete]
        deletions = self._replicas.delete(deleted, recorded=True)
        if state.requested_inputs and {replica.uid for replica in state.staying()} == {
            placement.uid for placement in answer.placements
        }:
            # The scheduler knows its own orders. Another request for them would double
            # its work.
            state.requested_inputs = state.requested_inputs._replace(
                replicas=identities(state)
            )
        context.mark_changed()
        return [*updates, *deletions]

    def _adopt_conditions(self, answer: PlacementResponse) -> None:
        state = self._context.state
        state.answered = True
        state.shortfall, state.message = answer.shortfall, answer.message
        still_true = without_retracted(
            state.conditions, state.scheduler_conditions, answer.conditions
        )
        if still_true != state.conditions:
            state.conditions = still_true
            self._context.mark_changed()
        state.scheduler_conditions, state.more = answer.conditions, answer.more
        state.drain_due = ""
        if answer.drain_due_seconds:
            pause = timedelta(seconds=answer.drain_due_seconds) + DEADLINE_MARGIN
            state.drain_due = (self._context.moment() + pause).isoformat()
            self._context.requeue_after(pause)

    def repeat_at_deadline(self) -> None:
        """Request again when the deadline of a drain has passed."""
        state = self._context.state
        if state.drain_due and not self._context.waits_until(state.drain_due):
            state.drain_due, state.requested_inputs = "", None

    def _track(self, plan: AnswerPlan) -> None:
        """Apply the placements, deletions and updates of an answer to the state."""
        state = self._context.state
        for replica in state.by_name():
            if replica.uid in plan.delete:
                self._replicas.mark_deleted(replica, plan.delete[replica.uid])
        for uid in plan.unheld:
            self._replicas.record_revoked(uid)
        for uid, entry in plan.entries.items():
            state.update(
                state.replicas[uid],
                entry=entry,
                generation=state.generation,
                adoption=state.adoption,
            )
        for uid, after in plan.after.items():
            # An answer may be older than later releases, so drop predecessors that are
            # gone.
            replica = state.replicas[uid]
            state.update(
                replica, after=[other for other in replica.after if other in after]
            )
        # A replica that starts now belongs to the newest rollout.
        state.replicas |= {
            replica.uid: replica.model_copy(update={"adoption": state.adoption})
            for replica in plan.create
        }
        if plan.repeat:
            state.requested_inputs = None
        if plan.create:
            clusters = sorted({replica.cluster for replica in plan.create})
            self._context.record_event(
                "Normal",
                "Scheduled",
                f"Scheduled {len(plan.create)} replicas across {len(clusters)} "
                f"clusters: {', '.join(clusters)}",
            )
