"""Troubles of a real account for random lives, each as a script of faults.

`fakes.aws.faults` draws short faults. A trouble lasts longer, or comes from people and
other services. Each ends by itself, except objects of others, which
`FakeAws.remove_of_others` deletes.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from fakes.aws.faults import CREATING, DELETING, AwsFault, FaultKind, VpcLeftover
from fakes.aws.services.people import KINDS

Zones = Sequence[str]
Trouble = Callable[[random.Random, Zones], list[AwsFault]]
NODES_DO_NOT_JOIN = (
    "NodeCreationFailure",
    "Instances failed to join the kubernetes cluster",
)
"""Code and message."""
INVISIBLE_AT = ("CreateVpc", "CreateSubnet", "CreateSecurityGroup", "CreateRole")
_STRIPPED_AT = ("CreateCluster", "CreateNodegroup", "DeleteCluster")


def _leak(leftover: VpcLeftover) -> Trouble:
    def made(draw: random.Random, _zones: Zones) -> list[AwsFault]:
        operation = draw.choice(("CreateNodegroup", "DeleteNodegroup"))
        return [AwsFault(FaultKind.LEAK, operation, leftover=leftover)]

    return made


def _stock_out(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    return [AwsFault(FaultKind.STOCK_OUT, "CreateNodegroup", times=draw.randint(2, 5))]


def _zone_out(draw: random.Random, zones: Zones) -> list[AwsFault]:
    zone = draw.choice(list(zones))
    return [AwsFault(FaultKind.STOCK_OUT, "CreateNodegroup", zone=zone, times=4)]


def _tags(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    operation, kind = draw.choice(_STRIPPED_AT), draw.choice(KINDS)
    return [AwsFault(FaultKind.STRIP, operation, code=kind)]


def _subnet(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    return [AwsFault(FaultKind.BY_HAND, draw.choice(("CreateRole", "CreateCluster")))]


def _forbidden(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    service = draw.choice(("ec2", "eks", "iam", ""))
    times, skip = draw.randint(3, 20), draw.randint(0, 60)
    return [AwsFault(FaultKind.FORBID, service=service, times=times, skip=skip)]


def _inconsistent(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    return [
        AwsFault(
            FaultKind.INVISIBLE, draw.choice(INVISIBLE_AT), times=draw.randint(8, 25)
        )
    ]


def _outage(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    service = draw.choice(("ec2", "eks", "efs", ""))
    times, skip = draw.randint(20, 120), draw.randint(0, 80)
    return [AwsFault(FaultKind.OUTAGE, service=service, times=times, skip=skip)]


def _throttled(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    operation = draw.choice((*CREATING, *DELETING, ""))
    return [AwsFault(FaultKind.THROTTLE, operation, times=draw.randint(10, 60))]


def _pages(_draw: random.Random, _zones: Zones) -> list[AwsFault]:
    return [AwsFault(FaultKind.PAGES, times=300)]


def _clock(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    times, skip = draw.randint(1, 10), draw.randint(0, 60)
    return [AwsFault(FaultKind.CLOCK, times=times, skip=skip)]


def _nodes_do_not_join(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    (code, text), times = NODES_DO_NOT_JOIN, draw.randint(1, 3)
    return [
        AwsFault(
            FaultKind.FAIL, "CreateNodegroup", code=code, message=text, times=times
        )
    ]


def _degraded(draw: random.Random, _zones: Zones) -> list[AwsFault]:
    return [AwsFault(FaultKind.DEGRADE, "CreateNodegroup", times=draw.randint(5, 40))]


TROUBLES: Mapping[str, Trouble] = {
    "stock-out for hours": _stock_out,
    "one zone out": _zone_out,
    "tags stripped": _tags,
    "subnets deleted by hand": _subnet,
    "403 after a role change": _forbidden,
    "long inconsistency": _inconsistent,
    "outage": _outage,
    "throttling": _throttled,
    "partial pages": _pages,
    "clock skew": _clock,
    "NodeCreationFailure": _nodes_do_not_join,
    "DEGRADED after ACTIVE": _degraded,
    "GuardDuty": _leak(VpcLeftover.GUARD_DUTY),
    "foreign endpoint": _leak(VpcLeftover.ENDPOINT),
    "load balancer of a user": _leak(VpcLeftover.USER_BALANCER),
}
"""The faults of each trouble, drawn for the zones of a region."""
