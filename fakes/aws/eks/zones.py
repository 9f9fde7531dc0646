"""Zones in which EKS places no control plane, or in which EC2 lacks a machine type."""

from collections.abc import Collection

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.parts import INVALID_REQUEST
from fakes.aws.wire import Refusal

# https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
_ZONES_WITHOUT_EKS = ("cac1-az3", "cnn1-az4", "use1-az3", "usw1-az2")


def check_zones(cloud: AwsCloud, name: str, zones: Collection[str]) -> None:
    """Refuse the first zone in which EKS places no control plane.

    The text is from https://github.com/eksctl-io/eksctl/issues/817.
    """
    every = cloud.ec2.describe_availability_zones()
    usable = [
        each.name
        for each in every
        if each.name not in cloud.unsupported_zones
        and each.zone_id not in _ZONES_WITHOUT_EKS
    ]
    if refused := sorted(set(zones).difference(usable)):
        text = (
            f"Cannot create cluster '{name}' because {refused[0]}, the targeted "
            "availability zone, does not currently have sufficient capacity to support "
            "the cluster. Retry and choose from these availability zones: "
            f"{', '.join(usable)}"
        )
        raise Refusal(
            "UnsupportedAvailabilityZoneException",
            text,
            clusterName=name,
            validZones=usable,
        )


def check_offered(
    cloud: AwsCloud, machines: Collection[str], zones: Collection[str]
) -> None:
    """Refuse a node group in a zone that does not offer its machine types.

    The text is from https://github.com/eksctl-io/eksctl/issues/6461.
    """
    ids = {each.name: each.zone_id for each in cloud.ec2.describe_availability_zones()}
    for machine in machines:
        found = cloud.ec2.describe_instance_type_offerings(
            "availability-zone-id", {"instance-type": [machine]}
        )
        offered = {each["Location"] for each in found}
        lacking = cloud.not_offered.get(machine, frozenset())
        usable = sorted(
            name
            for name, zone in ids.items()
            if zone in offered and name not in lacking
        )
        if refused := sorted(set(zones).difference(usable)):
            raise Refusal(
                INVALID_REQUEST,
                f"Your requested instance type ({machine}) is not supported in your "
                f"requested Availability Zone ({refused[0]}). Please retry your request "
                "by not specifying an Availability Zone or choosing "
                f"{', '.join(usable)}.",
            )
