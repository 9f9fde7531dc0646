"""The node groups of an EKS cluster, and the launch templates of those that need one: with a capacity block, or with EFA."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from activities.clouds.counts import SYSTEM_COUNTS, Counts, pool_counts
from activities.clouds.eks.wanted.control_plane import CLUSTER, CNI, SECURITY_GROUP
from activities.clouds.eks.wanted.identities import NODE_ROLE
from activities.clouds.eks.wanted.inputs import EksInputs, Reservation
from activities.clouds.eks.wanted.network import EFA_GROUP, PRIVATE_ROUTES, private_subnet
from activities.clouds.graph import Call, DesiredObject, Fact, Machines, Parameters, Token
from activities.clouds.nodes import GPU_TAINT_KEY, GPU_TAINT_VALUE, gpu_node_labels, system_node_labels
from activities.clouds.owner import SYSTEM_POOL
from activities.clouds.pools import CloudPool
from api_types import labels
from api_types.resources.inference_class import EksNodes

SYSTEM_KEY = f"pool/{SYSTEM_POOL}"
SCHEDULED = "scheduled"
CARDS_FACT = "cards"
"""Fact of a launch template: for how many network cards it has interfaces."""

SYSTEM_MACHINE = "m6i.xlarge"
_SYSTEM_IMAGE = "AL2023_x86_64_STANDARD"
# With driver and container toolkit.
_GPU_IMAGE = "AL2023_x86_64_NVIDIA"
_ROOT_DEVICE = "/dev/xvda"
# EKS refuses a maximum of 0.
_MOST_MIN = 1

CARDS: Final[Mapping[str, int]] = {
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
}


def has_efa(pool: CloudPool[EksNodes]) -> bool:
    """Whether the nodes of a pool have EFA interfaces."""
    return pool.pool.fabric is not None and pool.pool.fabric.type == "EFA"


def reservation_of(inputs: EksInputs, pool: CloudPool[EksNodes]) -> Reservation | None:
    """Give the capacity block of a pool where EC2 has described it."""
    block = pool.pool.capacity_block
    return inputs.facts.reservations.get(block.capacity_reservation_id) if block else None


def cards_of(inputs: EksInputs, pool: CloudPool[EksNodes]) -> int | None:
    """Give how many network cards the machines of a pool have; None where neither EC2 nor this release says it.

    A pool keeps what its template has, whatever EC2 answers now: another count would replace its nodes.
    """
    there = inputs.facts.template_cards.get(pool.name)
    return there or CARDS.get(pool.nodes.instance_type) or inputs.facts.network_cards.get(pool.nodes.instance_type)


def counts_of(pool: CloudPool[EksNodes]) -> Counts:
    """Give the counts of a pool. The minimum is 1 unless one is written: the autoscaler never takes a pool of GPUs up from no nodes."""
    return pool_counts(pool.pool, least_default=1)


def system_group(inputs: EksInputs) -> DesiredObject:
    """Give the group for pods without GPUs."""
    parameters: Parameters = {
        **_common(inputs, SYSTEM_POOL, SYSTEM_KEY),
        "scalingConfig": _scaling(SYSTEM_COUNTS, SYSTEM_COUNTS.start),
        "subnets": [private_subnet(pair.zone) for pair in inputs.pairs],
        "amiType": _SYSTEM_IMAGE,
        "instanceTypes": [SYSTEM_MACHINE],
        "labels": system_node_labels(),
    }
    machines = Machines(SYSTEM_MACHINE, inputs.eks.region, SYSTEM_COUNTS.start, SYSTEM_COUNTS.most)
    return _group(SYSTEM_KEY, SYSTEM_POOL, (), parameters, machines)


def gpu_group(inputs: EksInputs, pool: CloudPool[EksNodes]) -> list[DesiredObject]:
    """Give a GPU pool, after its launch template where it has one."""
    nodes, counts = pool.nodes, counts_of(pool)
    zones = pool.pool.zones or tuple(pair.zone for pair in inputs.pairs)
    # Before a capacity block begins it has no machines; the size is raised at its start.
    reservation = reservation_of(inputs, pool)
    early = reservation is not None and reservation.state == SCHEDULED
    parameters: Parameters = {
        **_common(inputs, pool.name, pool.key),
        "scalingConfig": _scaling(replace(counts, least=0) if early else counts, 0 if early else counts.start),
        "subnets": [private_subnet(zone) for zone in zones],
        "amiType": _GPU_IMAGE,
        "labels": gpu_node_labels(pool.pool.name, nodes.accelerator.type),
        "taints": [{"key": GPU_TAINT_KEY, "value": GPU_TAINT_VALUE, "effect": "NO_SCHEDULE"}],
    }
    if counts.most == 0:
        parameters["tags"] = {**inputs.tags(pool.key, f"{inputs.owner.base}-{pool.name}"), labels.FIXED_SIZE: "0"}
    machines = Machines(nodes.instance_type, inputs.eks.region, 0 if early else counts.start, counts.most)
    if pool.pool.capacity_block is None and not has_efa(pool):
        plain: Parameters = {"instanceTypes": [nodes.instance_type], "diskSize": nodes.disk_size_gb}
        return [_group(pool.key, pool.name, (), parameters | plain, machines)]
    template = _launch_template(inputs, pool)
    # A number, not `$Latest`: with that a change of the template would never be seen as a difference.
    parameters["launchTemplate"] = {"name": template.name, "version": Fact(template.key, "version")}
    if pool.pool.capacity_block is not None:
        parameters["capacityType"] = "CAPACITY_BLOCK"
    return [template, _group(pool.key, pool.name, (template.key,), parameters, machines)]


def _common(inputs: EksInputs, name: str, key: str) -> Parameters:
    return {
        "clusterName": inputs.owner.base,
        "nodegroupName": name,
        "nodeRole": Fact(NODE_ROLE, "arn"),
        "updateConfig": {"maxUnavailable": 1},
        "clientRequestToken": Token(),
        "tags": inputs.tags(key, f"{inputs.owner.base}-{name}"),
    }


def _scaling(counts: Counts, desired: int) -> Parameters:
    return {"minSize": counts.least, "maxSize": max(counts.most, _MOST_MIN), "desiredSize": desired}


def _group(key: str, name: str, more: tuple[str, ...], parameters: Parameters, machines: Machines) -> DesiredObject:
    # Nodes without a route out, or without the network add-on, never join.
    needs = (CLUSTER, NODE_ROLE, PRIVATE_ROUTES, CNI, *more)
    return DesiredObject(key, "Nodegroup", name, needs, (Call("eks", "create_nodegroup", parameters),), "status ACTIVE", machines)


def _launch_template(inputs: EksInputs, pool: CloudPool[EksNodes]) -> DesiredObject:
    key, name = f"lt/{pool.name}", f"{inputs.owner.base}-lt-{pool.name}"
    data: Parameters = {
        "InstanceType": pool.nodes.instance_type,
        "BlockDeviceMappings": [{"DeviceName": _ROOT_DEVICE, "Ebs": {"VolumeSize": pool.nodes.disk_size_gb}}],
    }
    block = pool.pool.capacity_block
    if block is not None:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": block.capacity_reservation_id},
        }
    needs: tuple[str, ...] = (CLUSTER,)
    if has_efa(pool):
        needs = (CLUSTER, EFA_GROUP)
        cards = cards_of(inputs, pool) or 1
        data["NetworkInterfaces"] = [_interface(card) for card in range(cards)]
    parameters: Parameters = {
        "LaunchTemplateName": name,
        "LaunchTemplateData": data,
        "ClientToken": Token(),
        "TagSpecifications": inputs.tag_specifications("launch-template", key, name),
    }
    facts = {"id": "LaunchTemplate.LaunchTemplateId", "version": "LaunchTemplate.LatestVersionNumber"}
    return DesiredObject(key, "LaunchTemplate", name, needs, (Call("ec2", "create_launch_template", parameters, facts),), "present")


def _interface(card: int) -> Parameters:
    """Give the EFA interface of a network card. All but the first have no addresses: the first boot of a node would wait for them."""
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": 0 if card == 0 else 1,
        "InterfaceType": "efa" if card == 0 else "efa-only",
        # What a template lists replaces what EKS would attach: without its group the node could not reach the API server.
        "Groups": [Fact(EFA_GROUP), Fact(CLUSTER, SECURITY_GROUP)],
    }
