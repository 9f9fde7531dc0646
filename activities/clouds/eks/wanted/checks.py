"""What EC2 and EKS would refuse of a cluster, and what its owner should know, before anything is created."""

import re
from collections.abc import Iterator, Sequence

from activities.clouds.counts import count_warnings
from activities.clouds.desired import INVALID_INPUT, Problem
from activities.clouds.eks.wanted.inputs import EksInputs, Reservation
from activities.clouds.eks.wanted.node_groups import SCHEDULED, cards_of, counts_of, has_efa, reservation_of
from activities.clouds.pools import CloudPool
from api_types.resources.inference_class import EksNodes
from api_types.resources.inference_cluster import EksCluster, InferenceCluster

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")
_ZONE = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+[a-z]")
_USABLE = ("active", SCHEDULED)


def place_problems(eks: EksCluster, cluster: InferenceCluster, usable: Sequence[str]) -> Iterator[Problem]:
    """Refuse what is no region, and zones of pools that are not in it, or that the account cannot use where `usable` is known."""
    if _ZONE.fullmatch(eks.region):
        yield Problem(INVALID_INPUT, "", f'region "{eks.region}" is a zone: write {eks.region[:-1]}, and the zone in zones of a pool')
        return
    if not _REGION.fullmatch(eks.region):
        yield Problem(INVALID_INPUT, "", f'region "{eks.region}" is no region of AWS, such as us-east-2')
        return
    for pool in cluster.spec.node_pools or ():
        at = f"pool {pool.name}"
        for zone in pool.zones or ():
            if not _ZONE.fullmatch(zone) or zone[:-1] != eks.region:
                yield Problem(INVALID_INPUT, at, f'zone "{zone}" is not in region {eks.region}, whose zones are {eks.region}a and so on')
            elif usable and zone not in usable:
                yield Problem(INVALID_INPUT, at, f'zone "{zone}" cannot be used by this account; it has {", ".join(sorted(usable))}')
        if len(set(pool.zones or ())) < len(pool.zones or ()):
            yield Problem(INVALID_INPUT, at, "a zone is named twice")


def reservation_problems(inputs: EksInputs, pool: CloudPool[EksNodes]) -> Iterator[Problem]:
    """Refuse a pool that its capacity block cannot fill."""
    block, found = pool.pool.capacity_block, reservation_of(inputs, pool)
    if block is not None and found is not None:
        for text in _differences(pool, found):
            yield Problem(INVALID_INPUT, pool.title, f"capacity block {block.capacity_reservation_id} {text}")


def _differences(pool: CloudPool[EksNodes], found: Reservation) -> Iterator[str]:
    zones = pool.pool.zones or ()
    if zones != (found.zone,):
        yield f"is in zone {found.zone}; write zones: [{found.zone}]"
    if found.instance_type != pool.nodes.instance_type:
        yield f"is of {found.instance_type}, and the class of the pool of {pool.nodes.instance_type}"
    if found.state not in _USABLE:
        yield f"is {found.state}, not {' or '.join(_USABLE)}"
    if found.count < pool.pool.nodes_max:
        yield f"has {found.count} machines, and the pool up to {pool.pool.nodes_max}"


def pool_warnings(inputs: EksInputs, pool: CloudPool[EksNodes]) -> Iterator[Problem]:
    """Warn of a pool that may not do what its owner expects."""
    counts = counts_of(pool)
    yield from count_warnings(pool.pool, counts)
    if counts.autoscaled and counts.least == 0:
        text = "with minNodeCount 0 the pool never comes back once it has no nodes: the autoscaler of EKS knows no DRA; write 1 or more"
        yield Problem("ScaleFromZeroUnsupported", pool.title, text)
    zones = pool.pool.zones or ()
    if len(zones) != 1 and (has_efa(pool) or pool.pool.capacity_block is not None):
        what = "EFA joins nodes of one zone" if has_efa(pool) else "a capacity block is in one zone"
        yield Problem("SeveralZones", pool.title, f"{what}; name exactly one in zones")
    if has_efa(pool) and cards_of(inputs, pool) is None:
        text = f"how many network cards {pool.nodes.instance_type} has is asked of EC2 when it is created; one is assumed"
        yield Problem("NetworkCardsUnknown", pool.title, text)
    block, found = pool.pool.capacity_block, reservation_of(inputs, pool)
    if block is not None and found is None:
        text = f"zone, type and count of capacity block {block.capacity_reservation_id} are compared when the cluster is created"
        yield Problem("CapacityBlockUnknown", pool.title, text)
    if found is not None and found.state == SCHEDULED:
        text = "the capacity block has not begun; the pool starts without nodes, and gets them when it begins"
        yield Problem("CapacityBlockScheduled", pool.title, text)
