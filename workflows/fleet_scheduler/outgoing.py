"""What the scheduler says to others, in the words of the protocol. Pure: the workflow sends it."""

from collections.abc import Iterator, Sequence
from typing import Any

from api_types import names
from api_types.messages.delivery import SignalRequest
from api_types.messages.entities import Evict, Occupied, Place, Placed, PlacedCondition, ReplicaEviction, ReplicaPlacement, Revoke
from scheduler import Decision, Eviction, Fleet, ReplicaView, to_wire

# A placement takes one to two kilobytes in an answer, and a payload holds two thousand kilobytes.
PLACEMENTS_AT_ONCE = 800


def answer_to(place: Place, answer: dict[str, Any]) -> SignalRequest:
    """Answer a request."""
    return SignalRequest(workflow_id=names.workflow_id("ModelDeployment", place.namespace, place.name), signal="placed", payload=answer)


def eviction(victim: Eviction, epoch: int) -> SignalRequest:
    """Tell a deployment that one of its replicas has to make room for somebody else's."""
    said = ReplicaEviction(uid=victim.uid, name=victim.replica_name, cluster=victim.cluster, reason=victim.detail or victim.reason)
    return SignalRequest(
        workflow_id=names.workflow_id("ModelDeployment", victim.namespace, victim.deployment),
        signal="evict",
        payload=Evict(epoch=epoch, eviction=said).wire(),
    )


def revoke(entry: ReplicaView, epoch: int) -> SignalRequest:
    """Ask the deployment of an old reservation whether it is still wanted."""
    return SignalRequest(
        workflow_id=names.workflow_id("ModelDeployment", entry.namespace, entry.deployment),
        signal="revoke",
        payload=Revoke(uid=entry.uid, epoch=epoch).wire(),
    )


def ask_anew(namespace: str, name: str) -> SignalRequest:
    """Have a deployment ask again, because a taint sends its replicas away."""
    return SignalRequest(workflow_id=names.workflow_id("ModelDeployment", namespace, name), signal="resync")


def occupied(cluster: str, sequence: int, replicas: list[str]) -> SignalRequest:
    """Tell a cluster that is being deleted what the ledger still holds on it."""
    said = Occupied(cluster=cluster, sequence=sequence, replicas=replicas)
    return SignalRequest(workflow_id=names.workflow_id("InferenceCluster", "", cluster), signal="occupied", payload=said.wire())


def in_parts(said: Sequence[SignalRequest]) -> Iterator[list[SignalRequest]]:
    """Give what is said in parts that fit one payload each, in order; an answer counts as many placements as it lists."""
    part: list[SignalRequest] = []
    weight = 0
    for tell in said:
        heavy = len((tell.payload or {}).get("placements", ())) + 1
        if part and weight + heavy > PLACEMENTS_AT_ONCE:
            yield part
            part, weight = [], 0
        part.append(tell)
        weight += heavy
    if part:
        yield part


def placed_message(place: Place, decision: Decision, fleet: Fleet, epoch: int, version: str) -> Placed:
    """Say a decision, which the fleet has taken over, in the words of the protocol.

    The deployment may never have seen an earlier answer: what it does not list among its own is told in full.
    """
    listed = {kept.uid for kept in place.kept}
    return Placed(
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
                entry=_entry(fleet, placement.uid) if placement.action != "Keep" or placement.uid not in listed else {},
                after=list(placement.after),
            )
            for placement in decision.placements
        ],
        evictions=[
            ReplicaEviction(uid=eviction.uid, name=eviction.replica_name, cluster=eviction.cluster, reason=eviction.reason)
            for eviction in decision.evictions
        ],
        shortfall=decision.shortfall,
        message=decision.message,
        conditions=[
            PlacedCondition(type=item.type, status=item.status, reason=item.reason, message=item.message) for item in decision.conditions
        ],
        more=decision.more,
        scheduler_version=version,
    )


def _entry(fleet: Fleet, uid: str) -> dict[str, Any]:
    entry = fleet.replica(uid)
    return to_wire(entry) if entry else {}
