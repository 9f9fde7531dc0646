"""The signals that the scheduler sends, as messages of the protocol.

Pure: `calls` sends them.
"""

import math
from typing import Any

from api_types.messages.delivery import EntityRef, SignalRequest, entity
from api_types.messages.scheduling import (
    Evict,
    Forgotten,
    Occupied,
    PlacedCondition,
    PlacementRequest,
    PlacementResponse,
    Released,
    ReplicaEviction,
    ReplicaPlacement,
    Resync,
    Revoke,
)
from api_types.messages.signals import (
    InferenceClusterSignals,
    ModelDeploymentSignals,
    ReportingSignals,
)
from api_types.messages.versions import MessageVersion
from scheduler import Decision, Eviction, Fleet, LedgerEntry, Owner, to_wire


def answer_to(place: PlacementRequest, answer: dict[str, Any]) -> SignalRequest:
    """Answer a request. The answer, a `PlacementResponse`, is in wire form."""
    return SignalRequest(
        workflow_id=deployment(place.namespace, place.name).workflow_id,
        signal=ModelDeploymentSignals.PLACED.name,
        payload=answer,
    )


def eviction(
    victim: Eviction, epoch: int, started: LedgerEntry | None = None
) -> SignalRequest:
    """Report to a deployment that one of its replicas is evicted.

    `started` is the ledger entry of the replica, if its workflow was started.
    """
    evicted = _evicted(victim)
    if started is not None:
        evicted = evicted.model_copy(
            update={"index": started.index, "entry": to_wire(started)}
        )
    message = Evict(epoch=epoch, eviction=evicted)
    return ModelDeploymentSignals.EVICT.request(
        deployment(victim.namespace, victim.deployment), message
    )


def revoke(entry: LedgerEntry, epoch: int) -> SignalRequest:
    """Ask the deployment of an old reservation whether it is still wanted."""
    return ModelDeploymentSignals.REVOKE.request(
        deployment(entry.namespace, entry.deployment),
        Revoke(uid=entry.uid, epoch=epoch),
    )


def released(uid: str, owner: Owner) -> SignalRequest:
    """Report a deleted replica to a deployment whose placement waits for its nodes."""
    return ModelDeploymentSignals.RELEASED.request(
        deployment(*owner), Released(uid=uid)
    )


def forgotten(owner: str, uid: str, epoch: int) -> SignalRequest:
    """Report to a deployment under deletion that nothing is charged to it."""
    return ModelDeploymentSignals.FORGOTTEN.request(
        deployment(*owner.split("/")), Forgotten(uid=uid, epoch=epoch)
    )


def epoch(workflow_id: str, number: int) -> SignalRequest:
    """Send the epoch to an entity, which then reports itself."""
    return ReportingSignals.RESYNC.request(
        EntityRef[ReportingSignals](workflow_id), Resync(epoch=number)
    )


def resync(namespace: str, name: str) -> SignalRequest:
    """Make a deployment request placements again."""
    return ModelDeploymentSignals.RESYNC.request(deployment(namespace, name), None)


def occupied(
    cluster: str, reported: MessageVersion, replicas: list[str]
) -> SignalRequest:
    """Report to a cluster under deletion which replicas are still charged there."""
    message = Occupied(
        cluster=cluster, uid=reported.uid, sequence=reported.sequence, replicas=replicas
    )
    return InferenceClusterSignals.OCCUPIED.request(
        entity(InferenceClusterSignals, "", cluster), message
    )


def deployment(namespace: str, name: str) -> EntityRef[ModelDeploymentSignals]:
    """Return the reference to a deployment."""
    return entity(ModelDeploymentSignals, namespace, name)


def placement_response(
    place: PlacementRequest, decision: Decision, fleet: Fleet, epoch: int, version: str
) -> PlacementResponse:
    """Return the answer for a decision that the fleet has adopted.

    The deployment may never have received an earlier answer, so placements that the
    request does not list are written in full.
    """
    listed = {known.uid for known in place.kept}
    return PlacementResponse(
        request_id=place.request_id,
        epoch=epoch,
        generation=place.generation,
        placements=[
            ReplicaPlacement(
                uid=placement.uid,
                name=placement.replica_name,
                cluster=placement.cluster,
                index=placement.index,
                action=placement.action,
                entry=_entry(fleet, placement.uid)
                if placement.action != "Keep" or placement.uid not in listed
                else {},
                after=list(placement.after),
            )
            for placement in decision.placements
        ],
        evictions=[_evicted(victim) for victim in decision.evictions],
        shortfall=decision.shortfall,
        message=decision.message,
        conditions=[
            PlacedCondition(
                type=item.type,
                status=item.status,
                reason=item.reason,
                message=item.message,
            )
            for item in decision.conditions
        ],
        more=decision.more,
        drain_due_seconds=_drain_due_seconds(decision),
        scheduler_version=version,
    )


def _drain_due_seconds(decision: Decision) -> int:
    left = decision.drain_deadline - decision.now
    return max(1, math.ceil(left / 1000)) if decision.drain_deadline else 0


def _evicted(victim: Eviction) -> ReplicaEviction:
    # Users read the reason. The detail is more precise, for example the taint or the
    # preferred deployment.
    return ReplicaEviction(
        uid=victim.uid,
        name=victim.replica_name,
        cluster=victim.cluster,
        reason=victim.detail or victim.reason,
    )


def _entry(fleet: Fleet, uid: str) -> dict[str, Any]:
    entry = fleet.replica(uid)
    return to_wire(entry) if entry else {}
