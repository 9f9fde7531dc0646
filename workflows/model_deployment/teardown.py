"""The deletion of a deployment: all replicas first, then the deployment itself.

It ends when the scheduler knows no replica of the deployment either.
"""

from typing import Literal, cast

from api_types.messages.entities import Force
from api_types.messages.scheduling import Bound, Forget, Forgotten
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    FleetSchedulerSignals,
    ModelReplicaSignals,
)
from workflows.entity import backoff
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.model_deployment.orders import Order
from workflows.model_deployment.replicas import DeploymentReplicaController, send
from workflows.model_deployment.state import DeploymentState, TrackedReplica

# A condition names this many of the remaining replicas, and counts the others.
NAMED_MAX = 5


class DeploymentTeardown:
    """Deletes the replicas, also those that only the scheduler knows, and waits for them."""

    def __init__(
        self,
        context: EntityContext[DeploymentState],
        replicas: DeploymentReplicaController,
    ) -> None:
        self._context = context
        self._replicas = replicas

    def step(self) -> list[Order]:
        """Take the next steps.

        The deployment is gone when no replica is left after them.
        """
        state, context = self._context.state, self._context
        context.set_condition("Ready", FALSE, "Deleting", "")
        orders: list[Order] = []
        if not state.forgotten:
            orders += self._release_placements()
            self._replicas.read_ended()
            state.forgotten = True
        self._replicas.restart_lost()
        orders += self._replicas.start()
        staying = state.staying()
        for replica in staying:
            state.update(replica, deletion_reason="Deleted")
        orders += self._replicas.delete(
            [replica for replica in staying if replica.started]
        )
        if state.forced and state.replicas:
            scope, state.forced = state.forced, ""
            # A repeated message must not skip two steps, so its id stays equal and the
            # history records it first.
            force = Force(
                request_id=f"{state.uid}/{context.next_registration()}",
                scope=cast("Literal['step', 'all']", scope),
                by=f"{context.kind} {context.name}",
                reason="forced",
            )
            orders += self._replicas.signal(
                state.started(), ModelReplicaSignals.FORCE, force, recorded=True
            )
        if state.replicas or state.unknown:
            state.released, state.release_check_at = False, ""
            context.set_condition(
                "Deleting",
                FALSE,
                "WaitingForReplicas",
                waiting_message(state.by_name(), state.unknown),
            )
        elif not state.released:
            context.set_condition(
                "Deleting",
                FALSE,
                "WaitingForScheduler",
                "waits until the scheduler has nothing charged to it",
            )
            orders += self._confirm_release()
        return orders

    def record_forgotten(self, message: Forgotten) -> None:
        """Record that the scheduler charges nothing to this deployment."""
        state = self._context.state
        if (
            message.uid == state.uid
            and message.epoch >= state.epoch
            and state.release_check_at
        ):
            state.released = True
            self._context.requeue()

    def _confirm_release(self) -> list[Order]:
        """Request the scheduler's confirmation that no replica of this deployment is left.

        It may know replicas that an earlier deployment of this name has started.
        """
        state, context = self._context.state, self._context
        if context.waits_until(state.release_check_at):
            return []
        due = context.moment() + backoff.check_of_deletion(state.release_checks)
        state.release_checks, state.release_check_at = (
            state.release_checks + 1,
            due.isoformat(),
        )
        context.requeue_at(due)
        forget = Forget(
            kind=context.kind,
            name=context.name,
            namespace=context.namespace,
            uid=state.uid,
            gone=True,
        )
        return send(
            [FleetSchedulerSignals.FORGET.request(FLEET_SCHEDULER, forget)],
            "report that no replica is left",
        )

    def _release_placements(self) -> list[Order]:
        """Have the scheduler release unused placements, after it knows the used ones."""
        state, context = self._context.state, self._context
        state.replicas = {
            uid: replica
            for uid, replica in state.replicas.items()
            if replica.was_started
        }
        unbound = {
            replica.uid: replica.entry
            for replica in state.by_name()
            if not replica.bound
        }
        bound = (
            [
                FleetSchedulerSignals.BOUND.request(
                    FLEET_SCHEDULER, Bound(entries=unbound)
                )
            ]
            if unbound
            else []
        )
        forget = Forget(
            kind=context.kind,
            name=context.name,
            namespace=context.namespace,
            uid=state.uid,
        )
        return send(
            [*bound, FleetSchedulerSignals.FORGET.request(FLEET_SCHEDULER, forget)],
            "release placements that were not used",
        )


def waiting_message(replicas: list[TrackedReplica], unresponsive: list[str]) -> str:
    """Return the names and the progress of some remaining replicas."""
    left = [
        f"{replica.name} on {replica.cluster} ({replica.message or replica.phase})"
        for replica in replicas
    ]
    left += [f"{name} (does not answer)" for name in unresponsive]
    more = f"; and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    return f"waits until gone: {'; '.join(left[:NAMED_MAX])}{more}"
