"""The failures of a fake cloud, as a script of faults.

Each is used up after some calls. A fault counts calls and reads no clock, so equal
scripts and equal calls give equal answers.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """The effect of a fault."""

    THROTTLE = "throttle"
    """The next `times` calls are refused as too many."""
    LOSE_ANSWER = "lose-answer"
    """The call is done, and the connection is cut before the answer."""
    LATE_ERROR = "late-error"
    """The call is done, and answered with an internal error."""
    REFUSE = "refuse"
    """The call is refused with `code` and `message`, such as a quota or a missing
    permission.
    """
    SLOW = "slow"
    """The answer comes `seconds` later."""
    STOCK_OUT = "stock-out"
    """A node group in `zone`, or in any zone, ends as CREATE_FAILED with
    AsgInstanceLaunchFailures, even if other zones have machines.
    """
    DEGRADE = "degrade"
    """The node group that the next call of `operation` creates becomes DEGRADED after it
    was ACTIVE, for the next `times` reads, with `code` and `message`.
    """
    INVISIBLE = "invisible"
    """The object that the next call of `operation` creates is not found by the next
    `times` calls that read its kind or name it.
    """
    ROLE_NOT_ASSUMABLE = "role-not-assumable"
    """EKS cannot assume a role for the next `times` calls that name it."""
    FAIL = "fail"
    """The object that the next call of `operation` creates ends in its failed state,
    with `code` as the reason.
    """
    VANISH = "vanish"
    """The object that the next call of `operation` creates is gone after `times` calls
    that read it.
    """
    FOREIGN = "foreign"
    """An object with the same name and another owner exists already at the next call of
    `operation`.

    EKS only.
    """
    HOLD = "hold"
    """The next `times` calls of `operation`, a deletion, are refused because something
    depends on the object.
    """
    DELETE_FAILED = "delete-failed"
    """The next deletion of a node group or add-on ends as DELETE_FAILED, once.

    It can be repeated.
    """
    LEAK = "leak"
    """A `leftover` of the cluster appears in its VPC at the next call of `operation`.
    """
    OUTAGE = "outage"
    """The next `times` calls are answered with an error of the server."""
    FORBID = "forbid"
    """The next `times` calls are refused because the credential lacks a permission."""
    PAGES = "pages"
    """The next `times` lists have one item for each page."""
    STRIP = "strip"
    """At the next call of `operation`, somebody removes all tags of the objects of one
    kind, whose name is `code`, such as `vpc` or `subnet`.
    """
    BY_HAND = "by-hand"
    """At the next call of `operation`, somebody deletes a subnet that nothing uses."""
    CLOCK = "clock"
    """The next `times` calls are refused as signed at another time, because the clock of
    the caller is wrong.
    """
    CREDENTIAL = "credential"
    """All credentials are refused for the next `times` calls, then accepted again."""


class VpcLeftover(StrEnum):
    """The objects that a cluster can leave in its VPC."""

    INTERFACE = "interface"
    """A network interface `aws-K8S-…` of a node that ended abruptly."""
    LOAD_BALANCER = "load-balancer"
    """A classic load balancer of a Service, with its interface and its group
    `k8s-elb-…`, which a rule of the cluster's group names.
    """
    GROUP = "group"
    """Only the group of such a load balancer, still named in a rule."""
    USER_BALANCER = "user-balancer"
    """A classic load balancer as above, of a Service of a user."""
    GUARD_DUTY = "guard-duty"
    """The endpoint of GuardDuty with its interface and its group."""
    ENDPOINT = "endpoint"
    """An endpoint of another service, which somebody else created."""


@dataclass(frozen=True)
class AwsFault:
    """One fault.

    `operation` is a name of the API such as `CreateVpc`, or empty for all. `match` is a
    text in one of its parameters. The first `skip` matching calls pass. `times` is the
    number of calls that it affects, or of reads that it lasts.
    """

    kind: FaultKind
    operation: str = ""
    service: str = ""
    match: str = ""
    times: int = 1
    skip: int = 0
    code: str = ""
    message: str = ""
    status: int = 0
    zone: str = ""
    seconds: float = 0.0
    leftover: VpcLeftover = VpcLeftover.INTERFACE

    def document(self) -> dict[str, Any]:
        """The fault as JSON."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "AwsFault":
        """Parse a fault from JSON. Raise ValueError or TypeError."""
        kind, leftover = (
            FaultKind(document["kind"]),
            VpcLeftover(document.get("leftover", VpcLeftover.INTERFACE)),
        )
        return cls(**{**document, "kind": kind, "leftover": leftover})


# The codes of each service for too many calls, and for a deletion that has to wait.
_THROTTLED = {
    "ec2": "RequestLimitExceeded",
    "iam": "Throttling",
    "efs": "ThrottlingException",
    "eks": "ThrottlingException",
}
_HELD = {
    "ec2": "DependencyViolation",
    "iam": "DeleteConflict",
    "efs": "DependencyTimeout",
    "eks": "ResourceInUseException",
}


_UNAVAILABLE = {
    "ec2": "Unavailable",
    "iam": "ServiceFailure",
    "efs": "InternalServerError",
    "eks": "ServiceUnavailableException",
}
_FORBIDDEN = {"ec2": "UnauthorizedOperation", "eks": "AccessDeniedException"}


def unavailable_code(service: str) -> str:
    """Return the code of a service during an outage."""
    return _UNAVAILABLE.get(service, "ServiceUnavailable")


def forbidden_code(service: str) -> str:
    """Return the code of a service for a missing permission."""
    return _FORBIDDEN.get(service, "AccessDenied")


def throttled_code(service: str) -> str:
    """Return the code of a service for too many calls."""
    return _THROTTLED.get(service, "Throttling")


def held_code(service: str) -> str:
    """Return the code of a service for a deletion that dependencies block."""
    return _HELD.get(service, "ResourceInUse")


class AwsFaultScript:
    """The remaining faults, and how often each is still skipped and used."""

    def __init__(self, faults: Iterable[AwsFault] = ()) -> None:
        self._left: list[_Left] = []
        self.add(*faults)

    def add(self, *faults: AwsFault) -> None:
        """Append faults."""
        self._left += [_Left(fault, fault.skip, fault.times) for fault in faults]

    def drop(self, *faults: AwsFault) -> None:
        """Forget these faults."""
        self._left = [each for each in self._left if each.fault not in faults]

    def left(self) -> list[AwsFault]:
        """Return the faults that are not used up."""
        return [each.fault for each in self._left]

    def take(
        self,
        kind: FaultKind,
        service: str,
        operation: str,
        parameters: object = None,
        accept: Callable[[AwsFault], bool] = lambda _: True,
    ) -> AwsFault | None:
        """Use the first matching fault once.

        One that lasts for reads is used up; the caller counts its `times`.
        """
        for each in self._left:
            fault = each.fault
            if (
                fault.kind != kind
                or (fault.service and fault.service != service)
                or (fault.operation and fault.operation != operation)
            ):
                continue
            if (fault.match and not mentions(parameters, fault.match)) or not accept(
                fault
            ):
                continue
            if each.skip:
                each.skip -= 1
                continue
            each.times = 0 if kind in _LASTING else each.times - 1
            if each.times < 1:
                self._left.remove(each)
            return fault
        return None


_LASTING = frozenset({FaultKind.INVISIBLE, FaultKind.VANISH, FaultKind.DEGRADE})


@dataclass
class _Left:
    fault: AwsFault
    skip: int
    times: int


def mentions(value: object, text: str) -> bool:
    """Return whether a text is in one of the values of parameters."""
    if isinstance(value, Mapping):
        return any(mentions(item, text) for item in value.values())
    if isinstance(value, list | tuple):
        return any(mentions(item, text) for item in value)
    return text in str(value)


CREATING = (
    "CreateVpc",
    "CreateSubnet",
    "CreateInternetGateway",
    "AllocateAddress",
    "CreateNatGateway",
    "CreateRouteTable",
    "CreateRoute",
    "CreateSecurityGroup",
    "CreateLaunchTemplate",
    "CreateRole",
    "CreatePolicy",
    "AttachRolePolicy",
    "CreateCluster",
    "CreateAccessEntry",
    "CreateAddon",
    "CreateNodegroup",
    "CreatePodIdentityAssociation",
    "CreateFileSystem",
    "CreateMountTarget",
)
"""Operations that create an object of a cluster."""
DELETING = (
    "DeleteNatGateway",
    "ReleaseAddress",
    "DetachInternetGateway",
    "DeleteInternetGateway",
    "DeleteSubnet",
    "DeleteRouteTable",
    "DeleteSecurityGroup",
    "DeleteVpc",
    "DeleteLaunchTemplate",
    "DeleteRole",
    "DeletePolicy",
    "DeleteCluster",
    "DeleteNodegroup",
    "DeletePodIdentityAssociation",
    "DeleteFileSystem",
    "DeleteMountTarget",
)
"""Operations that delete one."""
QUOTAS: Mapping[str, str] = {
    "CreateVpc": "VpcLimitExceeded",
    "CreateSubnet": "SubnetLimitExceeded",
    "CreateInternetGateway": "InternetGatewayLimitExceeded",
    "AllocateAddress": "AddressLimitExceeded",
    "CreateNatGateway": "NatGatewayLimitExceeded",
    "CreateRouteTable": "RouteTableLimitExceeded",
    "CreateSecurityGroup": "SecurityGroupLimitExceeded",
    "CreateRole": "LimitExceeded",
    "CreateCluster": "ResourceLimitExceededException",
    "CreateNodegroup": "ResourceLimitExceededException",
    "CreateFileSystem": "FileSystemLimitExceeded",
    "CreateMountTarget": "NetworkInterfaceLimitExceeded",
}
"""The quota code of each operation that has a quota."""

_INVISIBLE_AT = (
    "CreateVpc",
    "CreateSubnet",
    "CreateInternetGateway",
    "AllocateAddress",
    "CreateRole",
    "CreateSecurityGroup",
)
_FAILING = ("CreateNatGateway", "CreateAddon", "CreateNodegroup")


def random_script(
    generator: random.Random, count: int, zones: Sequence[str]
) -> list[AwsFault]:
    """Draw faults that all end, so a cluster can still be created and deleted.

    `zones` are the zones of the region.
    """
    return [_random_fault(generator, zones) for _ in range(count)]


def _random_fault(generator: random.Random, zones: Sequence[str]) -> AwsFault:
    kinds = (
        FaultKind.THROTTLE,
        FaultKind.LOSE_ANSWER,
        FaultKind.LATE_ERROR,
        FaultKind.REFUSE,
        FaultKind.STOCK_OUT,
        FaultKind.INVISIBLE,
        FaultKind.ROLE_NOT_ASSUMABLE,
        FaultKind.FAIL,
        FaultKind.HOLD,
        FaultKind.DELETE_FAILED,
        FaultKind.LEAK,
        FaultKind.CREDENTIAL,
    )
    kind, few = generator.choice(kinds), generator.randint(1, 3)
    if kind == FaultKind.THROTTLE:
        return AwsFault(
            kind,
            generator.choice((*CREATING, *DELETING, "")),
            times=few,
            skip=generator.randint(0, 5),
        )
    if kind in (FaultKind.LOSE_ANSWER, FaultKind.LATE_ERROR):
        return AwsFault(
            kind, generator.choice((*CREATING, *DELETING)), skip=generator.randint(0, 2)
        )
    if kind == FaultKind.REFUSE:
        operation = generator.choice(tuple(QUOTAS))
        return AwsFault(
            kind,
            operation,
            code=QUOTAS[operation],
            message="the quota is reached",
            times=few,
        )
    if kind == FaultKind.STOCK_OUT:
        return AwsFault(kind, "CreateNodegroup", zone=generator.choice(tuple(zones)))
    if kind == FaultKind.INVISIBLE:
        return AwsFault(kind, generator.choice(_INVISIBLE_AT), times=few)
    if kind == FaultKind.FAIL:
        return AwsFault(kind, generator.choice(_FAILING))
    if kind == FaultKind.HOLD:
        return AwsFault(kind, generator.choice(DELETING), times=few)
    if kind == FaultKind.LEAK:
        return AwsFault(
            kind, "DeleteNodegroup", leftover=generator.choice(tuple(VpcLeftover))
        )
    return AwsFault(
        kind,
        times=few,
        skip=generator.randint(0, 40) if kind == FaultKind.CREDENTIAL else 0,
    )
