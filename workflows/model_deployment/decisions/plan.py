"""What to request of the scheduler, and what an answer means for the replicas: pure decisions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api_types.messages.scheduling import KnownReplica, PlacementRequest, PlacementResponse
from workflows.model_deployment.state import DeploymentState, PlacementInputs, ReplicaHealth, ReplicaIdentity, TrackedReplica


def placement_inputs(state: DeploymentState, cache: dict[str, Any]) -> PlacementInputs:
    """Give all that an answer depends on; the health of replicas only while the scheduler has more steps that wait for it."""
    health = [ReplicaHealth(replica.uid, replica.current, replica.serving) for replica in state.by_name()] if state.more else []
    return PlacementInputs(state.generation, state.epoch, identities(state), health, cache, state.adoption)


def identities(state: DeploymentState) -> list[ReplicaIdentity]:
    """Give which replicas there are, and which are being deleted."""
    return [ReplicaIdentity(replica.uid, bool(replica.deletion_reason)) for replica in state.by_name()]


def placement_request(state: DeploymentState, namespace: str, name: str, need: dict[str, Any]) -> PlacementRequest:
    """Write the request for the placements of deployment `name`."""
    return PlacementRequest(
        request_id=state.request_id,
        sequence=state.last_request,
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
                name=replica.name,
                cluster=replica.cluster,
                template=replica.entry.get("template", ""),
                ready=replica.current,
                serving=replica.serving,
                terminating=bool(replica.deletion_reason),
            )
            for replica in state.by_name()
        ],
        returned=list(state.returned),
    )


# Why a placement is dropped that the scheduler does not have.
UNKNOWN = "the scheduler does not have it"


@dataclass(frozen=True)
class AnswerPlan:
    """What to do about an answer.

    Attributes:
        delete: replicas to delete, with the reason, by uid.
        create: replicas to track and to start.
        entries: new ledger entries of replicas that are tracked, by uid.
        after: what the placements of replicas that are tracked still wait for, by uid.
        update: uids of replicas that get the present template now.
        unheld: uids of evictions of replicas that are not held.
        repeat: a placement names a replica that is gone or was given back, so placements have to be requested again.

    """

    delete: dict[str, str]
    create: list[TrackedReplica]
    entries: dict[str, dict[str, Any]]
    after: dict[str, list[str]]
    update: list[str]
    unheld: list[str]
    repeat: bool


def plan_answer(
    replicas: Mapping[str, TrackedReplica],
    answer: PlacementResponse,
    generation: int,
    deployment_uid: str,
    returned: Collection[str] = (),
) -> AnswerPlan:
    """Decide what an answer to the present generation of a deployment changes. Placements that were given back are void."""
    delete = {eviction.uid: eviction.reason for eviction in answer.evictions if eviction.uid in replicas}
    placed = {placement.uid for placement in answer.placements}
    # The request listed it, and the answer does not: the scheduler does not have it any more.
    delete |= {uid: UNKNOWN for uid, replica in replicas.items() if not replica.was_started and uid not in placed and uid not in delete}
    # A replica that was never started is forgotten as soon as it is evicted.
    tracked = {uid for uid, replica in replicas.items() if replica.was_started or uid not in delete}
    new = [placement for placement in answer.placements if placement.uid not in tracked]
    usable = [placement for placement in new if placement.entry and placement.uid not in returned]
    return AnswerPlan(
        delete=delete,
        create=[TrackedReplica.placed(placement, generation, deployment_uid) for placement in usable],
        entries={placement.uid: placement.entry for placement in answer.placements if placement.uid in tracked and placement.entry},
        after={placement.uid: placement.after for placement in answer.placements if placement.uid in tracked},
        update=[placement.uid for placement in answer.placements if placement.action == "Update"],
        unheld=[eviction.uid for eviction in answer.evictions if eviction.uid not in replicas],
        repeat=len(usable) < len(new),
    )


def startable(replicas: Sequence[TrackedReplica], now: datetime) -> list[TrackedReplica]:
    """Give the replicas to start now: those whose predecessors are gone, tracked here or not, and whose name is free.

    Of several of one name the one that ran before is the first: only its own workflow can delete what it has applied.
    """
    taken = {replica.name for replica in replicas if replica.started or replica.starting}
    found = []
    for replica in sorted(replicas, key=lambda replica: not replica.restarted):
        if replica.started or replica.starting or replica.name in taken or replica.after or replica.must_wait(now):
            continue
        taken.add(replica.name)
        found.append(replica)
    return found
