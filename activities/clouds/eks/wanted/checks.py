"""Rejections and warnings about a cluster's manifest, before anything is created."""

import re
from collections.abc import Iterator, Sequence

from activities.clouds.desired.counts import count_warnings
from activities.clouds.desired.plan import INVALID_INPUT, PlanProblem
from activities.clouds.desired.pools import CloudPool
from activities.clouds.eks.wanted.inputs import EksInputs, Reservation
from activities.clouds.eks.wanted.node_groups import (
    SCHEDULED,
    counts_of,
    has_efa,
    interfaces_of,
    reservation_of,
)
from api_types.resources.inference_class import EksNodes
from api_types.resources.inference_cluster import EksCluster, InferenceCluster

_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")
_ZONE = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+[a-z]")
_USABLE = ("active", SCHEDULED)


def place_problems(
    eks: EksCluster, cluster: InferenceCluster, usable: Sequence[str]
) -> Iterator[PlanProblem]:
    """Reject an invalid region, and zones of pools that cannot be used.

    `usable` are the zones of the account, or empty if they are unknown.
    """
    if _ZONE.fullmatch(eks.region):
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'region "{eks.region}" is a zone: use {eks.region[:-1]}, and name the zone in '
            "zones of a pool",
        )
        return
    if not _REGION.fullmatch(eks.region):
        yield PlanProblem(
            INVALID_INPUT,
            "",
            f'region "{eks.region}" is not a region of AWS, such as us-east-2',
        )
        return
    for pool in cluster.spec.node_pools or ():
        at = f"pool {pool.name}"
        for zone in pool.zones or ():
            if not _ZONE.fullmatch(zone) or zone[:-1] != eks.region:
                yield PlanProblem(
                    INVALID_INPUT,
                    at,
                    f'zone "{zone}" is not in region {eks.region}, whose zones are '
                    f"{eks.region}a and so on",
                )
            elif usable and zone not in usable:
                yield PlanProblem(
                    INVALID_INPUT,
                    at,
                    f'zone "{zone}" is not available to this account; its zones are '
                    f"{', '.join(sorted(usable))}",
                )
        if len(set(pool.zones or ())) < len(pool.zones or ()):
            yield PlanProblem(INVALID_INPUT, at, "a zone is named twice")


def reservation_problems(
    inputs: EksInputs, pool: CloudPool[EksNodes]
) -> Iterator[PlanProblem]:
    """Reject a pool that does not match its capacity block."""
    block, found = pool.pool.capacity_block, reservation_of(inputs, pool)
    if block is not None and found is not None:
        for text in _differences(pool, found):
            yield PlanProblem(
                INVALID_INPUT,
                pool.title,
                f"capacity block {block.capacity_reservation_id} {text}",
            )


def _differences(pool: CloudPool[EksNodes], found: Reservation) -> Iterator[str]:
    zones = pool.pool.zones or ()
    if zones != (found.zone,):
        yield f"is in zone {found.zone}; set zones: [{found.zone}]"
    if found.instance_type != pool.nodes.instance_type:
        yield (
            f"is for {found.instance_type}, and the class of the pool has "
            f"{pool.nodes.instance_type}"
        )
    if found.state not in _USABLE:
        yield f"is {found.state}, not {' or '.join(_USABLE)}"
    if found.count < pool.pool.nodes_max:
        yield f"has {found.count} machines, and the pool may have {pool.pool.nodes_max}"


def machine_problems(
    inputs: EksInputs, pool: CloudPool[EksNodes]
) -> Iterator[PlanProblem]:
    """Reject a new pool whose class counts other GPUs than its machines have."""
    machine, count = pool.nodes.instance_type, pool.nodes.accelerator.count
    gpus = inputs.facts.machine(machine).gpus
    if gpus is not None and gpus != count and pool.name not in inputs.facts.group_zones:
        yield PlanProblem(
            INVALID_INPUT,
            pool.title,
            f"{machine} has {gpus} GPUs, and accelerator.count of class "
            f"{pool.pool.class_name} is {count}: set it to {gpus}, or use another instanceType",
        )


def pool_warnings(
    inputs: EksInputs, pool: CloudPool[EksNodes]
) -> Iterator[PlanProblem]:
    """Warn of a pool that may behave differently from what its owner expects."""
    counts = counts_of(pool)
    yield from count_warnings(pool.pool, counts)
    if counts.autoscaled and counts.least == 0:
        text = (
            "with minNodeCount 0 the pool is never scaled up again once it has no nodes: "
            "the autoscaler of EKS does not support DRA; use 1 or more"
        )
        yield PlanProblem("ScaleFromZeroUnsupported", pool.title, text)
    zones = pool.pool.zones or ()
    if len(zones) != 1 and (has_efa(pool) or pool.pool.capacity_block is not None):
        reason = "a capacity block is in one zone"
        if has_efa(pool):
            reason = "EFA connects nodes of one zone"
        yield PlanProblem(
            "SeveralZones", pool.title, f"{reason}; name exactly one in zones"
        )
    if has_efa(pool) and not interfaces_of(inputs, pool):
        text = (
            f"the number of network cards of {pool.nodes.instance_type} is read from EC2 "
            "when the pool is created; one is assumed"
        )
        yield PlanProblem("NetworkCardsUnknown", pool.title, text)
    block, found = pool.pool.capacity_block, reservation_of(inputs, pool)
    if block is not None and found is None:
        text = (
            f"zone, type and count of capacity block {block.capacity_reservation_id} are "
            "checked when the cluster is created"
        )
        yield PlanProblem("CapacityBlockUnknown", pool.title, text)
    if found is not None and found.state == SCHEDULED:
        text = (
            "the capacity block has not begun; the pool starts without nodes, and gets "
            "them when it begins"
        )
        yield PlanProblem("CapacityBlockScheduled", pool.title, text)
