"""The types of machines: their zones, processors and stock."""

import re
from collections.abc import Collection, Sequence

from moto.ec2.models.instance_types import INSTANCE_TYPES

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.parts import INVALID_PARAMETER
from fakes.aws.wire import Refusal

# For example m7g, c7gn, t4g, g5g and p6e-gb200.
_ARM = re.compile(r"a1\.|[a-z]+[0-9]+g[a-z]*\.|p[0-9]+e-gb[0-9]+\.")


def is_arm(machine: str) -> bool:
    """Return whether a type of machine has ARM processors."""
    known = INSTANCE_TYPES.get(machine)
    if known is None:
        return _ARM.match(machine) is not None
    return "arm64" in known["ProcessorInfo"]["SupportedArchitectures"]


def check_image(machines: Sequence[str], image: str) -> None:
    """Refuse machines whose processors do not fit an image type of EKS."""
    wrong = [each for each in machines if is_arm(each) != ("_ARM_64" in image)]
    if wrong and image != "CUSTOM":
        raise Refusal(
            INVALID_PARAMETER,
            f"[{', '.join(wrong)}] is not a valid instance type for requested amiType {image}",
        )


def not_offered(cloud: AwsCloud, machine: str, zones: Collection[str]) -> set[str]:
    """Return the zones that do not have a type of machine."""
    return set(zones) & cloud.not_offered.get(machine, frozenset())


def unsupported(cloud: AwsCloud, machine: str, zone: str) -> str:
    """Return EC2's text about a machine that a zone does not have."""
    others = [
        each.name
        for each in cloud.ec2.describe_availability_zones()
        if each.name not in cloud.not_offered.get(machine, ())
    ]
    return (
        f"Your requested instance type ({machine}) is not supported in your requested "
        f"Availability Zone ({zone}). Please retry your request by not specifying an "
        f"Availability Zone or choosing {', '.join(others)}."
    )


def out_of_stock(machine: str, out: Collection[str], zones: Collection[str]) -> str:
    """Return EC2's text about zones without machines."""
    (zone, *_), others = sorted(out), sorted(set(zones) - set(out))
    choice = f" or choosing {', '.join(others)}" if others else ""
    return (
        "InsufficientInstanceCapacity - We currently do not have sufficient "
        f"{machine} capacity in the Availability Zone you requested ({zone}). Our system will be "
        f"working on provisioning additional capacity. You can currently get {machine} capacity "
        f"by not specifying an Availability Zone in your request{choice}."
    )
