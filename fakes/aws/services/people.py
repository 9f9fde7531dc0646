"""Changes that people make at AWS by hand: they remove tags and delete subnets."""

from collections.abc import Iterator, Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.faults import FaultKind
from fakes.aws.services.network import groups, interfaces
from fakes.aws.wire import AwsRequest

KINDS = ("vpc", "subnet", "internet-gateway", "route-table", "security-group", "role")
"""The kinds of objects whose tags a fault may remove."""


def interfere(cloud: AwsCloud, request: AwsRequest) -> None:
    """Make the changes that faults plan for this call."""
    while (fault := cloud.take(FaultKind.STRIP, request)) is not None:
        strip(cloud, fault.code or KINDS[0])
    while cloud.take(FaultKind.BY_HAND, request) is not None:
        delete_a_subnet(cloud)


def strip(cloud: AwsCloud, kind: str) -> None:
    """Remove all tags of the objects of a kind, until `restore`."""
    if kind == "role":
        for role in cloud.iam.roles.values():
            if role.tags:
                cloud.stripped[role.id] = role.tags
            role.tags = {}
        return
    for identity in _ids(cloud, kind):
        if tags := cloud.ec2.tags.pop(identity, None):
            cloud.stripped[identity] = tags


def restore(cloud: AwsCloud) -> None:
    """Give all objects that still exist the tags back that `strip` removed."""
    for role in cloud.iam.roles.values():
        role.tags = cloud.stripped.pop(role.id, role.tags)
    there = [each for kind in KINDS if kind != "role" for each in _ids(cloud, kind)]
    for identity in there:
        if tags := cloud.stripped.pop(identity, None):
            cloud.ec2.tags[identity].update(tags)


def _ids(cloud: AwsCloud, kind: str) -> Iterator[str]:
    stores: Mapping[str, Any] = {
        "vpc": cloud.ec2.vpcs,
        "internet-gateway": cloud.ec2.internet_gateways,
        "route-table": cloud.ec2.route_tables,
        "security-group": [each.id for each in groups(cloud)],
        "subnet": [each for zone in cloud.ec2.subnets.values() for each in zone],
    }
    yield from list(stores[kind])


def delete_a_subnet(cloud: AwsCloud) -> str:
    """Delete the first subnet of the account that nothing uses. Return its id, or ""."""
    own = [
        each
        for zone in cloud.ec2.subnets.values()
        for each in zone.values()
        if not each.default_for_az or each.default_for_az == "false"
    ]
    for each in sorted(own, key=lambda item: str(item.cidr_block), reverse=True):
        if not interfaces(cloud, subnet=each.id):
            for table in cloud.ec2.route_tables.values():
                for name, where in list(table._associations.items()):  # noqa: SLF001
                    if where == each.id:
                        del table._associations[name]  # noqa: SLF001
            cloud.ec2.subnets[each.availability_zone].pop(each.id)
            return str(each.id)
    return ""
