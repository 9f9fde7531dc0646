"""EC2: refusals that moto lacks, and transitional states."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.faults import FaultKind
from fakes.aws.wire import AwsRequest, AwsResponse, Refusal

PENDING = "pending"
AVAILABLE = "available"
DELETED = "deleted"
FAILED = "failed"
NAT_DESCRIPTION = "Interface for NAT Gateway"
_ANYWHERE = "0.0.0.0/0"


def interfaces(cloud: AwsCloud, **wanted: object) -> list[Any]:
    """Return the network interfaces whose `subnet`, `vpc` or `group` has this id."""
    found = []
    for each in cloud.ec2.enis.values():
        facts = {"subnet": each.subnet.id, "vpc": each.subnet.vpc_id}
        groups = {group.id for group in each.group_set}
        if all(
            value in groups if key == "group" else facts[key] == value
            for key, value in wanted.items()
        ):
            found.append(each)
    return found


def subnet(cloud: AwsCloud, subnet_id: str) -> Any | None:
    """Return a subnet, or None."""
    return next(
        (zone[subnet_id] for zone in cloud.ec2.subnets.values() if subnet_id in zone),
        None,
    )


def groups(cloud: AwsCloud) -> Iterator[Any]:
    """Return all security groups of the region."""
    return chain.from_iterable(
        list(each.values()) for each in list(cloud.ec2.groups.values())
    )


def add_interface(
    cloud: AwsCloud,
    subnet_id: str,
    group_ids: list[str],
    description: str,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Create a network interface. Return its id."""
    made = cloud.ec2.create_network_interface(
        cloud.ec2.get_subnet(subnet_id),
        None,
        group_ids=group_ids,
        description=description,
        tags=dict(tags or {}),
    )
    return str(made.id)


def remove_interface(cloud: AwsCloud, interface_id: str) -> None:
    """Remove a network interface, if it exists."""
    cloud.ec2.enis.pop(interface_id, None)


def has_way_out(cloud: AwsCloud, subnet_id: str) -> bool:
    """Return whether a route of the subnet leads to a working gateway.

    Nodes need one to join a cluster.
    """
    for route in _routes_anywhere(cloud, subnet_id):
        nat = route.nat_gateway
        if nat is None and route.gateway is not None:
            return True
        # A NAT gateway needs a way out of its own subnet.
        if (
            nat is not None
            and nat.state == AVAILABLE
            and any(each.gateway for each in _routes_anywhere(cloud, nat.subnet_id))
        ):
            return True
    return False


def _routes_anywhere(cloud: AwsCloud, subnet_id: str) -> list[Any]:
    within = subnet(cloud, subnet_id)
    if within is None:
        return []
    tables = [
        each for each in cloud.ec2.route_tables.values() if each.vpc_id == within.vpc_id
    ]
    own = [each for each in tables if subnet_id in each._associations.values()]  # noqa: SLF001
    used = own or [each for each in tables if each.main_association_id]
    return [
        route
        for table in used
        for route in table.routes
        if route.destination_cidr_block == _ANYWHERE
    ]


def nat_gateways_without(cloud: AwsCloud, request: AwsRequest) -> list[str]:
    """Return the NAT gateways that a request excludes by tags.

    moto ignores those filters.
    """
    if request.operation != "DescribeNatGateways":
        return []
    filters = (
        request.parameters.get("Filter") or request.parameters.get("Filters") or []
    )
    wanted = {
        each["Name"].removeprefix("tag:"): each["Values"]
        for each in filters
        if each["Name"].startswith("tag:")
    }
    return [
        each.id
        for each in cloud.ec2.nat_gateways.values()
        if any(
            {tag["key"]: tag["value"] for tag in each.get_tags()}.get(key) not in values
            for key, values in wanted.items()
        )
    ]


# Before moto answers


def _attach_gateway(cloud: AwsCloud, request: AwsRequest) -> None:
    vpc = request.text("VpcId")
    other = [
        each.id
        for each in cloud.ec2.internet_gateways.values()
        if each.vpc is not None and each.vpc.id == vpc
    ]
    if other == [request.text("InternetGatewayId")]:
        raise Refusal(
            "Resource.AlreadyAssociated",
            f"resource {other[0]} is already attached to network {vpc}",
        )
    if other:
        raise Refusal(
            "InvalidParameterValue",
            f"Network {vpc} already has an internet gateway attached",
        )


def _detach_gateway(cloud: AwsCloud, request: AwsRequest) -> None:
    vpc = request.text("VpcId")
    in_vpc = {each.id for each in interfaces(cloud, vpc=vpc)}
    mapped = [
        each
        for each in cloud.ec2.addresses
        if each.eni is not None and each.eni.id in in_vpc
    ]
    public = [
        each for each in cloud.ec2.enis.values() if each.id in in_vpc and each.public_ip
    ]
    if mapped or public:
        cloud.count_reads(list(cloud.steps))
        raise Refusal(
            "DependencyViolation",
            (
                f"Network {vpc} has some mapped public address(es). Please unmap those public "
                "address(es) before detaching the gateway."
            ),
        )


def _release(cloud: AwsCloud, request: AwsRequest) -> None:
    # AWS uses these words, and not those of a dependency, for an address whose NAT
    # gateway is not fully gone.
    allocation = request.text("AllocationId")
    held = next(
        (
            each
            for each in cloud.ec2.addresses
            if each.allocation_id == allocation and each.eni is not None
        ),
        None,
    )
    if held is None:
        return
    gateways = [
        each
        for each in cloud.ec2.nat_gateways.values()
        if each._eni.id == held.eni.id and each.state != DELETED  # noqa: SLF001
    ]
    if gateways:
        cloud.count_reads([each.id for each in gateways])
        raise Refusal(
            "AuthFailure",
            "You do not have permission to access the specified resource.",
            status=400,
        )
    raise Refusal("InvalidIPAddress.InUse", f"Address {allocation} is in use.")


def _delete_subnet(cloud: AwsCloud, request: AwsRequest) -> None:
    subnet_id = request.text("SubnetId")
    # AWS never names the dependent objects.
    if interfaces(cloud, subnet=subnet_id):
        cloud.count_reads(list(cloud.steps))
        text = f"The subnet '{subnet_id}' has dependencies and cannot be deleted."
        raise Refusal("DependencyViolation", text)


def _delete_group(cloud: AwsCloud, request: AwsRequest) -> None:
    group = next(
        (each for each in groups(cloud) if each.id == request.text("GroupId")), None
    )
    if group is None:
        return
    if group.name == "default":
        raise Refusal(
            "CannotDelete",
            f"the specified group: {group.id} name: default cannot be deleted by a user",
        )
    named = [
        each
        for each in groups(cloud)
        if each.id != group.id and group.id in referenced(each)
    ]
    held = interfaces(cloud, group=group.id)
    if held or named:
        cloud.count_reads(list(cloud.steps))
        raise Refusal(
            "DependencyViolation", f"resource {group.id} has a dependent object"
        )


def referenced(group: Any) -> set[str]:
    """Return the ids of the groups that rules of a group name."""
    return {
        str(rule.source_group.get("GroupId", ""))
        for rule in (*group.ingress_rules, *group.egress_rules)
        if rule.source_group
    }


def _delete_vpc(cloud: AwsCloud, request: AwsRequest) -> None:
    vpc = request.text("VpcId")
    attached = [
        each.id
        for each in cloud.ec2.internet_gateways.values()
        if each.vpc is not None and each.vpc.id == vpc
    ]
    own = [
        each.id
        for each in groups(cloud)
        if each.vpc_id == vpc and each.name != "default"
    ]
    held = [each.id for each in interfaces(cloud, vpc=vpc)]
    endpoints = [
        each.id
        for each in cloud.ec2.vpc_end_points.values()
        if each.vpc_id == vpc and each.state != DELETED
    ]
    if attached or own or held or endpoints:
        raise Refusal(
            "DependencyViolation",
            f"The vpc '{vpc}' has dependencies and cannot be deleted.",
        )


def _delete_table(cloud: AwsCloud, request: AwsRequest) -> None:
    table = cloud.ec2.route_tables.get(request.text("RouteTableId"))
    if table is not None and table._associations:  # noqa: SLF001
        raise Refusal(
            "DependencyViolation",
            f"The routeTable '{table.id}' has dependencies and cannot be deleted.",
        )


def _create_subnet(cloud: AwsCloud, request: AwsRequest) -> None:
    vpc = cloud.ec2.vpcs.get(request.text("VpcId"))
    if vpc is None:
        return
    block = ipaddress.ip_network(request.text("CidrBlock"))
    for zone in cloud.ec2.subnets.values():
        for other in zone.values():
            if other.vpc_id == vpc.id and block.overlaps(
                ipaddress.ip_network(other.cidr_block)
            ):
                raise Refusal(
                    "InvalidSubnet.Conflict",
                    f"The CIDR '{block}' conflicts with another subnet",
                )


def _delete_nat(cloud: AwsCloud, request: AwsRequest) -> None:
    nat = cloud.ec2.nat_gateways.get(request.text("NatGatewayId"))
    if nat is None:
        raise Refusal(
            "NatGatewayNotFound",
            f"The Nat Gateway {request.text('NatGatewayId')} was not found",
        )


def _read_nat(cloud: AwsCloud, _request: AwsRequest) -> None:
    cloud.count_reads([each for each in cloud.ec2.nat_gateways if each in cloud.steps])


# After moto has answered


def _created_nat(cloud: AwsCloud, request: AwsRequest, answer: AwsResponse) -> None:
    nat = cloud.ec2.nat_gateways[answer.result["NatGateway"]["NatGatewayId"]]
    interface = nat._eni  # noqa: SLF001
    interface.description, interface.status, interface.requester_managed = (
        f"{NAT_DESCRIPTION} {nat.id}",
        "in-use",
        True,
    )
    nat.state = PENDING
    fault = cloud.take(FaultKind.FAIL, request)
    attached = any(
        each.vpc is not None and each.vpc.id == nat.vpc_id
        for each in cloud.ec2.internet_gateways.values()
    )

    def settle() -> None:
        if fault is None and attached:
            nat.state = AVAILABLE
        else:
            nat.state = FAILED
            let_go(cloud, nat)

    cloud.after_reads(nat.id, cloud.delays.create, settle)


def _deleted_nat(cloud: AwsCloud, request: AwsRequest, _answer: AwsResponse) -> None:
    nat = cloud.ec2.nat_gateways[request.text("NatGatewayId")]
    nat.state = "deleting"

    def gone() -> None:
        nat.state = DELETED
        let_go(cloud, nat)

    cloud.after_reads(nat.id, cloud.delays.delete, gone)


def let_go(cloud: AwsCloud, nat: Any) -> None:
    """Release the interface and the address of a deleted NAT gateway."""
    interface = nat._eni  # noqa: SLF001
    for address in cloud.ec2.addresses:
        if address.eni is not None and address.eni.id == interface.id:
            address.eni, address.association_id = None, None
    remove_interface(cloud, interface.id)


# Operations that moto lacks


def _reservations(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    wanted = request.parameters.get("CapacityReservationIds") or list(
        cloud.reservations
    )
    if unknown := [each for each in wanted if each not in cloud.reservations]:
        raise Refusal(
            "InvalidCapacityReservationId.NotFound",
            f"The capacity reservation {unknown[0]} does not exist",
        )
    return {"CapacityReservations": [cloud.reservations[each] for each in wanted]}


def _created_template(
    cloud: AwsCloud, request: AwsRequest, answer: AwsResponse
) -> None:
    """Remove the tags of a template from its content.

    moto keeps them there too, and EC2 does not.
    """
    del request
    (version,) = cloud.ec2.launch_templates[
        answer.result["LaunchTemplate"]["LaunchTemplateId"]
    ].versions
    kept = [
        each
        for each in version.data.pop("TagSpecifications", ())
        if each.get("ResourceType") != "launch-template"
    ]
    if kept:
        version.data["TagSpecifications"] = kept


BEFORE: Mapping[str, Callable[[AwsCloud, AwsRequest], None]] = {
    "AttachInternetGateway": _attach_gateway,
    "DetachInternetGateway": _detach_gateway,
    "ReleaseAddress": _release,
    "CreateSubnet": _create_subnet,
    "DeleteSubnet": _delete_subnet,
    "DeleteSecurityGroup": _delete_group,
    "DeleteVpc": _delete_vpc,
    "DeleteRouteTable": _delete_table,
    "DeleteNatGateway": _delete_nat,
    "DescribeNatGateways": _read_nat,
}
AFTER: Mapping[str, Callable[[AwsCloud, AwsRequest, AwsResponse], None]] = {
    "CreateLaunchTemplate": _created_template,
    "CreateNatGateway": _created_nat,
    "DeleteNatGateway": _deleted_nat,
}
OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    "DescribeCapacityReservations": _reservations
}
