"""Requests to the scheduler, and the changes that follow from its answers. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api_types.messages.scheduling import (
    KnownReplica,
    PlacementRequest,
    PlacementResponse,
)
from workflows.model_deployment.state import (
    DeploymentState,
    PlacementInputs,
    ReplicaHealth,
    ReplicaIdentity,
    TrackedReplica,
)


def placement_inputs(state: DeploymentState, cache: dict[str, Any]) -> PlacementInputs:
    """Return all inputs of an answer.

    The health of replicas is an input only while the scheduler has further steps that
    wait for it.
    """
    health = (
        [
            ReplicaHealth(replica.uid, replica.current, replica.serving)
            for replica in state.by_name()
        ]
        if state.more
        else []
    )
    return PlacementInputs(
        state.generation, state.epoch, identities(state), health, cache, state.adoption
    )


def identities(state: DeploymentState) -> list[ReplicaIdentity]:
    """Return the replicas, and for each whether it is being deleted."""
    return [
        ReplicaIdentity(replica.uid, bool(replica.deletion_reason))
        for replica in state.by_name()
    ]


def placement_request(
    state: DeploymentState, namespace: str, name: str, need: dict[str, Any]
) -> PlacementRequest:
    """Return the request for the placements of deployment `name`."""
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


# The reason for the deletion of a replica whose placement the scheduler does not have.
UNKNOWN = "the scheduler does not have it"


@dataclass(frozen=True)
class AnswerPlan:
    """The changes that follow from an answer.

    Attributes:
        delete: the reasons for replicas to delete, by uid.
        create: replicas to track and to start.
        entries: new ledger entries of tracked replicas, by uid.
        after: the predecessors that the placements of tracked replicas wait for, by
            uid.
        update: uids of replicas that get the present template now.
        unheld: uids in evictions of replicas that the deployment does not hold.
        repeat: a placement names a lost or returned replica, so a new request is
            needed.

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
    """Return the changes that follow from an answer to the present generation.

    Placements that the deployment has returned are void.
    """
    delete = {
        eviction.uid: eviction.reason
        for eviction in answer.evictions
        if eviction.uid in replicas
    }
    placed = {placement.uid for placement in answer.placements}
    # The request listed this replica and the answer does not: the scheduler does not
    # have it.
    delete |= {
        uid: UNKNOWN
        for uid, replica in replicas.items()
        if not replica.was_started and uid not in placed and uid not in delete
    }
    # Forget an evicted replica that was never started.
    tracked = {
        uid
        for uid, replica in replicas.items()
        if replica.was_started or uid not in delete
    }
    new = [placement for placement in answer.placements if placement.uid not in tracked]
    usable = [
        placement
        for placement in new
        if placement.entry and placement.uid not in returned
    ]
    return AnswerPlan(
        delete=delete,
        create=[
            TrackedReplica.placed(placement, generation, deployment_uid)
            for placement in usable
        ],
        entries={
            placement.uid: placement.entry
            for placement in answer.placements
            if placement.uid in tracked and placement.entry
        },
        after={
            placement.uid: placement.after
            for placement in answer.placements
            if placement.uid in tracked
        },
        update=[
            placement.uid
            for placement in answer.placements
            if placement.action == "Update"
        ],
        unheld=[
            eviction.uid
            for eviction in answer.evictions
            if eviction.uid not in replicas
        ],
        repeat=len(usable) < len(new),
    )


def with_unread_orders(
    answer: PlacementResponse, unread: PlacementResponse | None
) -> PlacementResponse:
    """Return an answer with the orders of an unread earlier answer to the same request.

    The scheduler has recorded those updates and evictions, and orders them once.
    """
    if unread is None or (unread.request_id, unread.epoch) != (
        answer.request_id,
        answer.epoch,
    ):
        return answer
    updated = {each.uid for each in unread.placements if each.action == "Update"}
    entries = {each.uid: each.entry for each in unread.placements}
    placements = [
        each.model_copy(update={"action": "Update", "entry": entries[each.uid]})
        if each.action == "Keep" and each.uid in updated
        else each
        for each in answer.placements
    ]
    known = {each.uid for each in answer.placements}
    known |= {each.uid for each in answer.evictions}
    evictions = [each for each in unread.evictions if each.uid not in known]
    return answer.model_copy(
        update={
            "placements": placements,
            "evictions": [*evictions, *answer.evictions],
        }
    )


def startable(
    replicas: Sequence[TrackedReplica], now: datetime
) -> list[TrackedReplica]:
    """Return the replicas to start now: their predecessors are gone and their names are free.

    If several replicas share a name, the one that ran before comes first, because only
    its own workflow can delete its objects.
    """
    taken = {
        replica.name for replica in replicas if replica.started or replica.starting
    }
    found = []
    for replica in sorted(replicas, key=lambda replica: not replica.restarted):
        if (
            replica.started
            or replica.starting
            or replica.name in taken
            or replica.after
            or replica.must_wait(now)
        ):
            continue
        taken.add(replica.name)
        found.append(replica)
    return found
