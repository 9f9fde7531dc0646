"""The mark of zones in which a service of AWS creates nothing.

Only a call shows that a service rejects a zone. A tag of the VPC stores this, so that
the next plan leaves out the zone although the worker or its workflow lost its state.
"""

from collections.abc import Collection
from typing import Literal

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import tags_of
from activities.clouds.eks.wanted.network import SUBNETS, VPC
from activities.clouds.lifecycle.handler import ObjectWork
from api_types import labels
from api_types.errors import PlanOutdated

EKS: Literal["eks"] = "eks"
EFS: Literal["efs"] = "efs"


def zones_of(wanted: ObjectWork) -> dict[str, str]:
    """Return the zone of each subnet of the cluster, by id."""
    tiers = ("public-", "private-")
    return {
        value: name.partition("-")[2]
        for name, value in wanted.known.get(SUBNETS, {}).items()
        if name.startswith(tiers) and value.startswith("subnet-")
    }


def zones_without_machines(clients: AwsClients, wanted: ObjectWork) -> frozenset[str]:
    """Return the zones in which the last group of this name found no machines."""
    return frozenset(_network_tags(clients, wanted).get(_short_of(wanted), "").split())


def note_zones_without_machines(
    clients: AwsClients, wanted: ObjectWork, zones: Collection[str]
) -> None:
    """Record the zones in which a group found no machines, for the next group.

    A tag of the VPC stores them, because the group is deleted. Without other zones, the
    next group tries all zones again.
    """
    key, value = _short_of(wanted), " ".join(sorted(zones))
    vpc = wanted.known.get(VPC, {}).get("id", "")
    if vpc and _network_tags(clients, wanted).get(key, "") != value:
        tags = [{"Key": key, "Value": value}]
        clients.update("ec2", "create_tags", Resources=[vpc], Tags=tags)


def _short_of(wanted: ObjectWork) -> str:
    return f"{labels.CLOUD_ZONES_WITHOUT_MACHINES}.{wanted.object.name}"


def _network_tags(clients: AwsClients, wanted: ObjectWork) -> dict[str, str]:
    vpc = wanted.known.get(VPC, {}).get("id", "")
    if not vpc:
        return {}
    found = clients.listed("ec2", "describe_vpcs", "Vpcs", VpcIds=[vpc])
    return {key: value for each in found for key, value in tags_of(each).items()}


def refuse_zones(
    clients: AwsClients,
    wanted: ObjectWork,
    service: Literal["eks", "efs"],
    zones: Collection[str],
) -> None:
    """Record that a service rejects these zones of the cluster.

    Raises PlanOutdated, because the next plan has other zones.
    """
    key, vpc = f"{labels.CLOUD_ZONES_REFUSED_BY}{service}", wanted.known[VPC]["id"]
    found = clients.listed("ec2", "describe_vpcs", "Vpcs", VpcIds=[vpc])
    before = {zone for each in found for zone in tags_of(each).get(key, "").split()}
    value = " ".join(sorted(before.union(zones)))
    clients.update(
        "ec2", "create_tags", Resources=[vpc], Tags=[{"Key": key, "Value": value}]
    )
    raise PlanOutdated(
        f"{service.upper()} does not support {', '.join(sorted(zones))} for this account; "
        "the cluster uses other zones"
    )
