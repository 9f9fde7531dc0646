"""The node groups of an EKS cluster, and launch templates for capacity blocks and EFA."""

from dataclasses import replace

from activities.clouds.desired.counts import SYSTEM_COUNTS, Counts, pool_counts
from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    Machines,
    Parameters,
    Token,
)
from activities.clouds.desired.nodes import (
    GPU_TAINT_KEY,
    GPU_TAINT_VALUE,
    gpu_node_labels,
    system_node_labels,
)
from activities.clouds.desired.owner import SYSTEM_POOL
from activities.clouds.desired.pools import CloudPool
from activities.clouds.eks.wanted.control_plane import CLUSTER, CNI, SECURITY_GROUP
from activities.clouds.eks.wanted.identities import NODE_ROLE
from activities.clouds.eks.wanted.inputs import EksInputs, Reservation
from activities.clouds.eks.wanted.machines import CardInterface, interfaces_on
from activities.clouds.eks.wanted.network import (
    EFA_GROUP,
    PRIVATE_ROUTES,
    private_subnet,
)
from api_types import labels
from api_types.resources.inference_class import EksNodes

SYSTEM_KEY = f"pool/{SYSTEM_POOL}"
SCHEDULED = "scheduled"
CARDS_FACT = "cards"
"""Fact of a launch template: its network interfaces."""

SYSTEM_MACHINE = "m6i.xlarge"
_SYSTEM_IMAGE = "AL2023_x86_64_STANDARD"
# These images have the driver and the container toolkit. The keys state whether the
# processors are ARM.
_GPU_IMAGES = {False: "AL2023_x86_64_NVIDIA", True: "AL2023_ARM_64_NVIDIA"}
_ROOT_DEVICE = "/dev/xvda"
# EKS rejects a maximum of 0.
_MOST_MIN = 1


def has_efa(pool: CloudPool[EksNodes]) -> bool:
    return pool.pool.fabric is not None and pool.pool.fabric.type == "EFA"


def reservation_of(inputs: EksInputs, pool: CloudPool[EksNodes]) -> Reservation | None:
    """Return the capacity block of a pool if EC2 has described it."""
    block = pool.pool.capacity_block
    return (
        inputs.facts.reservations.get(block.capacity_reservation_id) if block else None
    )


def interfaces_of(
    inputs: EksInputs, pool: CloudPool[EksNodes]
) -> tuple[CardInterface, ...]:
    """Return the EFA interfaces of a pool's machines, or none if they are unknown.

    A pool keeps the interfaces of its launch template, because others would replace its
    nodes.
    """
    there = inputs.facts.template_cards.get(pool.name, ())
    return there or inputs.facts.machine(pool.nodes.instance_type).interfaces


def counts_of(pool: CloudPool[EksNodes]) -> Counts:
    """Return the counts of a pool.

    The default minimum is 1, because the autoscaler never scales up a GPU pool without
    nodes.
    """
    return pool_counts(pool.pool, least_default=1)


def system_group(inputs: EksInputs) -> DesiredObject:
    """Return the node group for pods without GPUs."""
    parameters: Parameters = {
        **_common(inputs, SYSTEM_POOL, SYSTEM_KEY),
        "scalingConfig": _scaling(SYSTEM_COUNTS, SYSTEM_COUNTS.start),
        "subnets": list(
            map(private_subnet, inputs.group_zones(SYSTEM_POOL, SYSTEM_MACHINE))
        ),
        "amiType": _SYSTEM_IMAGE,
        "instanceTypes": [SYSTEM_MACHINE],
        "labels": system_node_labels(),
    }
    machines = Machines(
        SYSTEM_MACHINE, inputs.eks.region, SYSTEM_COUNTS.start, SYSTEM_COUNTS.most
    )
    return _group(SYSTEM_KEY, SYSTEM_POOL, (), parameters, machines)


def gpu_group(inputs: EksInputs, pool: CloudPool[EksNodes]) -> list[DesiredObject]:
    """Return a GPU pool, after its launch template if it has one."""
    nodes, counts = pool.nodes, counts_of(pool)
    zones = pool.pool.zones or inputs.group_zones(pool.name, nodes.instance_type)
    # A capacity block has no machines before its start. The size is raised at the
    # start.
    reservation = reservation_of(inputs, pool)
    early = reservation is not None and reservation.state == SCHEDULED
    parameters: Parameters = {
        **_common(inputs, pool.name, pool.key),
        "scalingConfig": _scaling(
            replace(counts, least=0) if early else counts, 0 if early else counts.start
        ),
        "subnets": [private_subnet(zone) for zone in zones],
        "amiType": _GPU_IMAGES[bool(inputs.facts.machine(nodes.instance_type).arm)],
        # A full pool has no spare machine, so an old node ends before its replacement
        # starts.
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "labels": gpu_node_labels(pool.pool.name, nodes.accelerator.type),
        "taints": [
            {"key": GPU_TAINT_KEY, "value": GPU_TAINT_VALUE, "effect": "NO_SCHEDULE"}
        ],
    }
    if counts.most == 0:
        parameters["tags"] = {
            **inputs.tags(pool.key, f"{inputs.owner.base}-{pool.name}"),
            labels.FIXED_SIZE: "0",
        }
    machines = Machines(
        nodes.instance_type,
        inputs.eks.region,
        0 if early else counts.start,
        counts.most,
    )
    if pool.pool.capacity_block is None and not has_efa(pool):
        plain: Parameters = {
            "instanceTypes": [nodes.instance_type],
            "diskSize": nodes.disk_size_gb,
        }
        return [_group(pool.key, pool.name, (), parameters | plain, machines)]
    template = _launch_template(inputs, pool)
    # A number and not `$Latest`, because a change of the template must be detected as a
    # difference.
    parameters["launchTemplate"] = {
        "name": template.name,
        "version": Fact(template.key, "version"),
    }
    if pool.pool.capacity_block is not None:
        parameters["capacityType"] = "CAPACITY_BLOCK"
    return [
        template,
        _group(pool.key, pool.name, (template.key,), parameters, machines),
    ]


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
    return {
        "minSize": counts.least,
        "maxSize": max(counts.most, _MOST_MIN),
        "desiredSize": desired,
    }


def _group(
    key: str,
    name: str,
    more: tuple[str, ...],
    parameters: Parameters,
    machines: Machines,
) -> DesiredObject:
    # Nodes without a route to the internet or without the network add-on never join.
    needs = (CLUSTER, NODE_ROLE, PRIVATE_ROUTES, CNI, *more)
    return DesiredObject(
        key,
        "Nodegroup",
        name,
        needs,
        (CloudCall("eks", "create_nodegroup", parameters),),
        "status ACTIVE",
        machines,
    )


def _launch_template(inputs: EksInputs, pool: CloudPool[EksNodes]) -> DesiredObject:
    key, name = f"lt/{pool.name}", f"{inputs.owner.base}-lt-{pool.name}"
    data: Parameters = {
        "InstanceType": pool.nodes.instance_type,
        "BlockDeviceMappings": [
            {"DeviceName": _ROOT_DEVICE, "Ebs": {"VolumeSize": pool.nodes.disk_size_gb}}
        ],
    }
    block = pool.pool.capacity_block
    if block is not None:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {
                "CapacityReservationId": block.capacity_reservation_id
            },
        }
    needs: tuple[str, ...] = (CLUSTER,)
    if has_efa(pool):
        needs = (CLUSTER, EFA_GROUP)
        interfaces = interfaces_of(inputs, pool) or interfaces_on(1)
        data["NetworkInterfaces"] = [_interface(each) for each in interfaces]
        data["TagSpecifications"] = inputs.tag_specifications(
            "network-interface", key, name
        )
    parameters: Parameters = {
        "LaunchTemplateName": name,
        "LaunchTemplateData": data,
        "ClientToken": Token(),
        "TagSpecifications": inputs.tag_specifications("launch-template", key, name),
    }
    facts = {
        "id": "LaunchTemplate.LaunchTemplateId",
        "version": "LaunchTemplate.LatestVersionNumber",
    }
    return DesiredObject(
        key,
        "LaunchTemplate",
        name,
        needs,
        (CloudCall("ec2", "create_launch_template", parameters, facts),),
        "present",
    )


def _interface(each: CardInterface) -> Parameters:
    """Return the interface on a network card.

    EC2 deletes it with its machine. Otherwise it would block the deletion of its subnet.
    """
    return {
        "NetworkCardIndex": each.card,
        "DeviceIndex": each.device,
        "InterfaceType": each.type,
        "DeleteOnTermination": True,
        # The groups in a template replace the groups that EKS would attach. Without the
        # cluster's group the node could not reach the API server.
        "Groups": [Fact(EFA_GROUP), Fact(CLUSTER, SECURITY_GROUP)],
    }
