"""How a deployment is deleted: every replica first, then itself."""

from typing import Literal, cast

from api_types.messages.entities import Force
from api_types.messages.scheduling import Bound, Forget
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals, ModelReplicaSignals
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.model_deployment.replicas import ReplicaController
from workflows.model_deployment.state import DeploymentState, TrackedReplica

# A condition names so many of the replicas that are waited for, and counts the others.
NAMED_MAX = 5


class DeploymentTeardown:
    """Deletes the replicas and waits until the last one is gone."""

    def __init__(self, context: EntityContext[DeploymentState], replicas: ReplicaController) -> None:
        self._context = context
        self._replicas = replicas

    async def run(self) -> bool:
        """Take the next steps; True when no replica is left."""
        state, context = self._context.state, self._context
        context.set_condition("Ready", FALSE, "Deleting", "")
        if not state.forgotten:
            await self._release_placements()
            state.forgotten = True
        self._replicas.restart_lost()
        if any(not replica.started for replica in state.replicas.values()):
            await self._replicas.start()
        staying = state.staying()
        for replica in staying:
            state.update(replica, deletion_reason="Deleted")
        await self._replicas.delete(staying)
        if state.forced and state.replicas:
            scope, state.forced = state.forced, ""
            force = Force(scope=cast("Literal['step', 'all']", scope), by=f"{context.kind} {context.name}", reason="forced")
            await self._replicas.signal(state.by_name(), ModelReplicaSignals.FORCE, force)
        if state.replicas:
            context.set_condition("Deleting", FALSE, "WaitingForReplicas", waiting_message(state.by_name()))
            return False
        return True

    async def _release_placements(self) -> None:
        """Have the scheduler release placements that were never used, after it knows those that were."""
        state, context = self._context.state, self._context
        state.replicas = {uid: replica for uid, replica in state.replicas.items() if replica.was_started}
        unbound = {replica.uid: replica.entry for replica in state.by_name() if not replica.bound}
        if unbound:
            await context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.BOUND, Bound(entries=unbound))
        forget = Forget(kind=context.kind, name=context.name, namespace=context.namespace, uid=state.uid)
        await context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.FORGET, forget)


def waiting_message(replicas: list[TrackedReplica]) -> str:
    """Name the replicas that are waited for, a few of them, each with how far it is."""
    left = [f"{replica.name} on {replica.cluster} ({replica.message or replica.phase})" for replica in replicas]
    more = f"; and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    return f"waits until gone: {'; '.join(left[:NAMED_MAX])}{more}"
