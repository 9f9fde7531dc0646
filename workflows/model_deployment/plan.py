"""What to request of the scheduler, and what an answer means for the replicas: pure decisions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.messages.scheduling import KnownReplica, PlacementRequest, PlacementResponse
from workflows.model_deployment.state import DeploymentState, PlacementInputs, ReplicaHealth, ReplicaIdentity, TrackedReplica


def placement_inputs(state: DeploymentState, cache: dict[str, Any]) -> PlacementInputs:
    """Give all that an answer depends on; the health of replicas only while the scheduler has more steps that wait for it."""
    health = [ReplicaHealth(replica.uid, replica.current, replica.serving) for replica in state.by_name()] if state.more else []
    return PlacementInputs(state.generation, state.epoch, identities(state), health, cache)


def identities(state: DeploymentState) -> list[ReplicaIdentity]:
    """Give which replicas there are, and which are being deleted."""
    return [ReplicaIdentity(replica.uid, bool(replica.deletion_reason)) for replica in state.by_name()]


def placement_request(state: DeploymentState, namespace: str, name: str, need: dict[str, Any]) -> PlacementRequest:
    """Write the request for the placements of deployment `name`."""
    return PlacementRequest(
        request_id=state.request_id,
        epoch=state.epoch,
        namespace=namespace,
        name=name,
        uid=state.uid,
        generation=state.generation,
        wanted=state.wanted,
        need=need,
        kept=[
            KnownReplica(
                uid=replica.uid,
                template=replica.entry.get("template", ""),
                ready=replica.current,
                serving=replica.serving,
                terminating=bool(replica.deletion_reason),
            )
            for replica in state.by_name()
        ],
    )


@dataclass(frozen=True)
class AnswerPlan:
    """What to do about an answer.

    Attributes:
        delete: replicas to delete, with the reason, by uid.
        create: replicas to track and to start.
        entries: new ledger entries of replicas that are tracked, by uid.
        update: uids of replicas that get the present template now.
        unknown: a placement names a replica that is gone, so placements have to be requested again.

    """

    delete: dict[str, str]
    create: list[TrackedReplica]
    entries: dict[str, dict[str, Any]]
    update: list[str]
    unknown: bool


def plan_answer(replicas: Mapping[str, TrackedReplica], answer: PlacementResponse, generation: int) -> AnswerPlan:
    """Decide what an answer to the present generation changes."""
    delete = {eviction.uid: eviction.reason for eviction in answer.evictions if eviction.uid in replicas}
    # A replica that was never started is forgotten as soon as it is evicted.
    tracked = {uid for uid, replica in replicas.items() if replica.was_started or uid not in delete}
    new = [placement for placement in answer.placements if placement.uid not in tracked]
    return AnswerPlan(
        delete=delete,
        create=[TrackedReplica.placed(placement, generation) for placement in new if placement.entry],
        entries={placement.uid: placement.entry for placement in answer.placements if placement.uid in tracked and placement.entry},
        update=[placement.uid for placement in answer.placements if placement.action == "Update"],
        unknown=any(not placement.entry for placement in new),
    )


def startable(replicas: Mapping[str, TrackedReplica], by_name: Collection[TrackedReplica]) -> list[TrackedReplica]:
    """Give the replicas to start now: those whose predecessors are deleted and whose name is free."""
    taken = {replica.name for replica in replicas.values() if replica.started}
    return [
        replica
        for replica in by_name
        if not replica.started and replica.name not in taken and not any(uid in replicas for uid in replica.after)
    ]
