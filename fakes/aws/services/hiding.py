"""Objects of moto that are not found yet, and objects that vanish."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.faults import FaultKind, mentions
from fakes.aws.services.network import let_go, nat_gateways_without
from fakes.aws.wire import AwsRequest, AwsResponse

_PATHS: Mapping[str, tuple[str, ...]] = {
    "CreateVpc": ("Vpc", "VpcId"),
    "CreateSubnet": ("Subnet", "SubnetId"),
    "CreateInternetGateway": ("InternetGateway", "InternetGatewayId"),
    "AllocateAddress": ("AllocationId",),
    "CreateNatGateway": ("NatGateway", "NatGatewayId"),
    "CreateRouteTable": ("RouteTable", "RouteTableId"),
    "CreateSecurityGroup": ("GroupId",),
    "CreateLaunchTemplate": ("LaunchTemplate", "LaunchTemplateId"),
    "CreateRole": ("Role", "RoleName"),
    "CreatePolicy": ("Policy", "Arn"),
    "CreateFileSystem": ("FileSystemId",),
    "CreateMountTarget": ("MountTargetId",),
    "CreateCluster": ("cluster", "name"),
    "CreateNodegroup": ("nodegroup", "nodegroupName"),
    "CreateAddon": ("addon", "addonName"),
    "CreateAccessEntry": ("accessEntry", "principalArn"),
    "CreatePodIdentityAssociation": ("association", "associationId"),
}
"""The place of the created object's id or name in the answer of each operation."""
_READERS: Mapping[str, tuple[str, ...]] = {
    "CreateVpc": ("DescribeVpcs",),
    "CreateSubnet": ("DescribeSubnets",),
    "CreateInternetGateway": ("DescribeInternetGateways",),
    "AllocateAddress": ("DescribeAddresses",),
    "CreateNatGateway": ("DescribeNatGateways",),
    "CreateRouteTable": ("DescribeRouteTables",),
    "CreateSecurityGroup": ("DescribeSecurityGroups",),
    "CreateLaunchTemplate": (
        "DescribeLaunchTemplates",
        "DescribeLaunchTemplateVersions",
    ),
    "CreateRole": ("GetRole", "ListRoles"),
    "CreatePolicy": ("GetPolicy", "ListPolicies"),
    "CreateFileSystem": ("DescribeFileSystems",),
    "CreateMountTarget": ("DescribeMountTargets",),
}


def made_by(request: AwsRequest, answer: AwsResponse) -> str:
    """Return the id or name of the created object, or an empty string."""
    value: Any = answer.result
    for key in _PATHS.get(request.operation, ()):
        value = value.get(key, {}) if isinstance(value, Mapping) else {}
    return value if isinstance(value, str) else ""


def hide_or_doom(cloud: AwsCloud, request: AwsRequest, made: str) -> None:
    """Hide a new object, or let it vanish, if a fault says so."""
    if request.operation not in _READERS or not made:
        return
    for kind, where in (
        (FaultKind.INVISIBLE, cloud.hidden),
        (FaultKind.VANISH, cloud.vanishing),
    ):
        fault = cloud.take(kind, request)
        if fault is not None:
            where[made] = fault.times
            cloud.kinds[made] = request.operation


@contextmanager
def without_hidden(cloud: AwsCloud, request: AwsRequest) -> Iterator[None]:
    """Answer a call without the hidden objects.

    The call counts as a read of objects whose kind it reads, or that it names.
    """
    _count(cloud, request, cloud.vanishing, lambda made: _vanish(cloud, made))
    restore = [
        _take_out(cloud, made)
        for made in dict.fromkeys(
            (*cloud.hidden, *nat_gateways_without(cloud, request))
        )
    ]
    try:
        yield
    finally:
        for each in restore:
            each()
        # A refused call counts as well.
        _count(cloud, request, cloud.hidden, lambda _: None)


def _count(
    cloud: AwsCloud,
    request: AwsRequest,
    left: dict[str, int],
    end: Callable[[str], object],
) -> None:
    for made in list(left):
        if request.operation in _READERS[cloud.kinds[made]] or mentions(
            request.parameters, made
        ):
            left[made] -= 1
            if left[made] <= 0:
                del left[made]
                end(made)


def _vanish(cloud: AwsCloud, made: str) -> None:
    """Remove an object with its dependents."""
    if nat := cloud.ec2.nat_gateways.get(made):
        let_go(cloud, nat)
    for target in [
        each
        for each, target in cloud.efs.mount_targets_by_id.items()
        if target.file_system_id == made
    ]:
        cloud.efs.delete_mount_target(target)
    _take_out(cloud, made)


def _take_out(cloud: AwsCloud, made: str) -> Callable[[], None]:
    """Remove an object from moto. Return a function that puts it back."""
    ec2 = cloud.ec2
    flat = (
        ec2.vpcs,
        ec2.internet_gateways,
        ec2.nat_gateways,
        ec2.route_tables,
        ec2.launch_templates,
        cloud.iam.managed_policies,
    )
    storage = (cloud.efs.file_systems_by_id, cloud.efs.mount_targets_by_id)
    for store in (*flat, *storage, *ec2.subnets.values(), *ec2.groups.values()):
        if made in store:
            return _put_back(store, made, store.pop(made))
    for key, role in cloud.iam.roles.items():
        if role.name == made:
            return _put_back(cloud.iam.roles, key, cloud.iam.roles.pop(key))
    for address in ec2.addresses:
        if address.allocation_id == made:
            ec2.addresses.remove(address)
            return lambda: ec2.addresses.append(address)
    return lambda: None


def _put_back(store: dict[str, Any], key: str, value: Any) -> Callable[[], None]:
    def put() -> None:
        store[key] = value

    return put
