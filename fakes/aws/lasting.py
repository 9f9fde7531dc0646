"""Troubles that last until they are ended, for a person who breaks clusters by hand.

end = begin("outage", aws)
...  # every call fails
end()

The names are those of `fakes.aws.troubles`, whose troubles end by themselves. Some
troubles are one act of a person or of another service. Their end is the next act: the
owners delete their objects, and a person restores tags, but nobody restores subnets.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.aws.eks_store import ACTIVE, DEGRADED
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
from fakes.aws.services import leaks, people
from fakes.aws.troubles import INVISIBLE_AT, NODES_DO_NOT_JOIN

End = Callable[[], None]
Trouble = Callable[[FakeAws], End]

_FOR_EVER = 1_000_000
_HOUR = 3600.0
# A fault of this kind is used up by one object, so there are some for a whole cluster.
_OBJECTS_MAX = 50
_HIDDEN_READS = 20
_NO_CAPACITY = {
    "code": "AsgInstanceLaunchFailures",
    "message": (
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We "
        "currently do not have sufficient capacity in the Availability Zone you "
        "requested."
    ),
    "resourceIds": [],
}
_SYSTEM = "system"


def begin(name: str, aws: FakeAws) -> End:
    """Begin a trouble of `LASTING`. Return the function that ends it."""
    with aws.front.lock:
        end = LASTING[name](aws)

    def ended() -> None:
        with aws.front.lock:
            end()

    return ended


def _while(*faults: AwsFault) -> Trouble:
    """Return the trouble of calls that meet faults until its end."""

    def trouble(aws: FakeAws) -> End:
        script = aws.cloud.script
        script.add(*faults)
        return lambda: script.drop(*faults)

    return trouble


def _one_zone_out(aws: FakeAws) -> End:
    """The first zone of each region has no machines for new node groups."""
    return _while(
        *(
            AwsFault(
                FaultKind.STOCK_OUT,
                "CreateNodegroup",
                zone=f"{each.account.region}a",
                times=_FOR_EVER,
            )
            for each in aws.clouds
        )
    )(aws)


def _tags_stripped(aws: FakeAws) -> End:
    """A person removes the tags of all networks and roles, and restores them at the end."""
    for each in aws.clouds:
        for kind in people.KINDS:
            people.strip(each, kind)

    def end() -> None:
        for each in aws.clouds:
            people.restore(each)

    return end


def _subnet_deleted(aws: FakeAws) -> End:
    """A person deletes a subnet that nothing uses. AWS refuses the others."""
    for each in aws.clouds:
        people.delete_a_subnet(each)
    return _nothing


def _clock_skew(aws: FakeAws) -> End:
    """The clock of the worker is an hour behind."""
    aws.account.ahead_seconds += _HOUR

    def end() -> None:
        aws.account.ahead_seconds -= _HOUR

    return end


def _degraded(aws: FakeAws) -> End:
    """The running node groups of GPU pools lose machines, and AWS has no others."""
    broken: list[dict[str, Any]] = [
        group.body
        for cluster in _clusters(aws)
        for group in cluster.node_groups.values()
        if group.status == ACTIVE and group.body["nodegroupName"] != _SYSTEM
    ]
    for body in broken:
        body |= {"status": DEGRADED, "health": {"issues": [_NO_CAPACITY]}}

    def end() -> None:
        for body in broken:
            if body["status"] == DEGRADED:
                body |= {"status": ACTIVE, "health": {"issues": []}}

    return end


def _left_by_others(leftover: VpcLeftover) -> Trouble:
    """Return the trouble of an object of others in the VPC of each cluster."""

    def trouble(aws: FakeAws) -> End:
        for cloud in aws.clouds:
            for cluster in cloud.eks.clusters.values():
                leaks.leave(cloud, cluster, leftover)

        def end() -> None:
            for each in aws.clouds:
                leaks.remove_of_others(each)

        return end

    return trouble


def _clusters(aws: FakeAws) -> list[Any]:
    return [each for cloud in aws.clouds for each in cloud.eks.clusters.values()]


def _nothing() -> None:
    """End a trouble that a person has caused once."""


LASTING: Mapping[str, Trouble] = {
    "stock-out for hours": _while(
        AwsFault(FaultKind.STOCK_OUT, "CreateNodegroup", times=_FOR_EVER)
    ),
    "one zone out": _one_zone_out,
    "tags stripped": _tags_stripped,
    "subnets deleted by hand": _subnet_deleted,
    "403 after a role change": _while(AwsFault(FaultKind.FORBID, times=_FOR_EVER)),
    "long inconsistency": _while(
        *(
            AwsFault(FaultKind.INVISIBLE, operation, times=_HIDDEN_READS)
            for operation in INVISIBLE_AT * _OBJECTS_MAX
        )
    ),
    "outage": _while(AwsFault(FaultKind.OUTAGE, times=_FOR_EVER)),
    "throttling": _while(AwsFault(FaultKind.THROTTLE, times=_FOR_EVER)),
    "partial pages": _while(AwsFault(FaultKind.PAGES, times=_FOR_EVER)),
    "clock skew": _clock_skew,
    "NodeCreationFailure": _while(
        AwsFault(
            FaultKind.FAIL,
            "CreateNodegroup",
            code=NODES_DO_NOT_JOIN[0],
            message=NODES_DO_NOT_JOIN[1],
            times=_FOR_EVER,
        )
    ),
    "DEGRADED after ACTIVE": _degraded,
    "GuardDuty": _left_by_others(VpcLeftover.GUARD_DUTY),
    "foreign endpoint": _left_by_others(VpcLeftover.ENDPOINT),
    "load balancer of a user": _left_by_others(VpcLeftover.USER_BALANCER),
}
