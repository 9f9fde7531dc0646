"""What goes wrong in a fake cloud, as a script: a list of faults, each used up after so many times.

Nothing here reads a clock: a fault counts calls. Equal scripts and equal calls give equal answers.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a fault does. In brackets: its number in the specification of provisioning."""

    THROTTLE = "throttle"
    """(F1) The next `times` calls are refused as too many."""
    LOSE_ANSWER = "lose-answer"
    """(F2) The call is done, and the connection is cut before the answer."""
    LATE_ERROR = "late-error"
    """(F20) The call is done, and answered with an internal error."""
    REFUSE = "refuse"
    """(F5) The call is refused with `code` and `message`: a quota, a permission."""
    SLOW = "slow"
    """The answer comes `seconds` later."""
    STOCK_OUT = "stock-out"
    """(F6) A node group that is only in `zone`, or in no zone with machines, ends as CREATE_FAILED with AsgInstanceLaunchFailures."""
    INVISIBLE = "invisible"
    """(F7) What the next call of `operation` makes is not found by the next `times` calls that read its kind or name it."""
    ROLE_NOT_ASSUMABLE = "role-not-assumable"
    """(F8) EKS cannot assume a role for the next `times` calls that name it."""
    FAIL = "fail"
    """(F9, F13) What the next call of `operation` makes ends in its failed state, with `code` as the reason."""
    VANISH = "vanish"
    """(F11) What the next call of `operation` makes is gone after `times` calls that read it."""
    FOREIGN = "foreign"
    """(F12) At the next call of `operation` a namesake with another owner is there already. EKS only."""
    HOLD = "hold"
    """(F14) The next `times` calls of `operation`, a delete, are refused because something depends on the object."""
    DELETE_FAILED = "delete-failed"
    """The next node group or add-on that is deleted ends as DELETE_FAILED, once; it can be deleted again."""
    LEAK = "leak"
    """(F15) At the next call of `operation` a `leftover` of the cluster appears in its VPC."""
    CREDENTIAL = "credential"
    """(F16) All credentials are refused for the next `times` calls, then accepted again."""


class Leftover(StrEnum):
    """What a cluster leaves behind in its VPC."""

    INTERFACE = "interface"
    """A network interface `aws-K8S-…` of a node that ended hard."""
    LOAD_BALANCER = "load-balancer"
    """A classic load balancer of a Service, with its interface and its group `k8s-elb-…`, which the cluster's group names in a rule."""
    GROUP = "group"
    """Only the group of such a load balancer, still named in a rule."""


@dataclass(frozen=True)
class Fault:
    """One fault. `operation` is a name of the API such as `CreateVpc`, empty for all; `match` a text in one of its parameters.

    The first `skip` calls that match pass. `times` says how often it strikes, or for how many reads it lasts.
    """

    kind: Kind
    operation: str = ""
    service: str = ""
    match: str = ""
    times: int = 1
    skip: int = 0
    code: str = ""
    message: str = ""
    zone: str = ""
    seconds: float = 0.0
    leftover: Leftover = Leftover.INTERFACE

    def document(self) -> dict[str, Any]:
        """The fault as JSON."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Fault":
        """Read a fault from JSON; raises ValueError or TypeError for what is none."""
        kind, leftover = Kind(document["kind"]), Leftover(document.get("leftover", Leftover.INTERFACE))
        return cls(**{**document, "kind": kind, "leftover": leftover})


# How each service says that it is called too often, and that a delete has to wait.
_THROTTLED = {"ec2": "RequestLimitExceeded", "iam": "Throttling", "efs": "ThrottlingException", "eks": "ThrottlingException"}
_HELD = {"ec2": "DependencyViolation", "iam": "DeleteConflict", "efs": "DependencyTimeout", "eks": "ResourceInUseException"}


def throttled_code(service: str) -> str:
    """Give the code with which a service refuses a call as too many."""
    return _THROTTLED.get(service, "Throttling")


def held_code(service: str) -> str:
    """Give the code with which a service refuses to delete what something depends on."""
    return _HELD.get(service, "ResourceInUse")


class Script:
    """The faults that are left, and how often each is still skipped and strikes."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._left: list[_Left] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        """Append faults."""
        self._left += [_Left(fault, fault.skip, fault.times) for fault in faults]

    def left(self) -> list[Fault]:
        """Give the faults that have not been used up."""
        return [each.fault for each in self._left]

    def take(
        self, kind: Kind, service: str, operation: str, parameters: object = None, accept: Callable[[Fault], bool] = lambda _: True
    ) -> Fault | None:
        """Use a fault once, the first that matches. One that lasts for reads is used up whole: its `times` are for the taker to count."""
        for each in self._left:
            fault = each.fault
            if fault.kind != kind or (fault.service and fault.service != service) or (fault.operation and fault.operation != operation):
                continue
            if (fault.match and not mentions(parameters, fault.match)) or not accept(fault):
                continue
            if each.skip:
                each.skip -= 1
                continue
            each.times = 0 if kind in _LASTING else each.times - 1
            if each.times < 1:
                self._left.remove(each)
            return fault
        return None


_LASTING = frozenset({Kind.INVISIBLE, Kind.VANISH})


@dataclass
class _Left:
    fault: Fault
    skip: int
    times: int


def mentions(value: object, text: str) -> bool:
    """Whether a text is in one of the values of parameters."""
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
"""Operations that make an object of a cluster."""
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
"""Operations that remove one."""
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
"""The code of the quota of each operation that has one."""

_INVISIBLE_AT = ("CreateVpc", "CreateSubnet", "CreateInternetGateway", "AllocateAddress", "CreateRole", "CreateSecurityGroup")
_FAILING = ("CreateNatGateway", "CreateAddon", "CreateNodegroup")


def random_script(generator: random.Random, count: int, zones: Sequence[str]) -> list[Fault]:
    """Draw faults that all pass in the end, so a cluster is made, changed and deleted all the same. `zones` are those of the region."""
    return [_random_fault(generator, zones) for _ in range(count)]


def _random_fault(generator: random.Random, zones: Sequence[str]) -> Fault:
    kinds = (
        Kind.THROTTLE,
        Kind.LOSE_ANSWER,
        Kind.LATE_ERROR,
        Kind.REFUSE,
        Kind.STOCK_OUT,
        Kind.INVISIBLE,
        Kind.ROLE_NOT_ASSUMABLE,
        Kind.FAIL,
        Kind.HOLD,
        Kind.DELETE_FAILED,
        Kind.LEAK,
        Kind.CREDENTIAL,
    )
    kind, few = generator.choice(kinds), generator.randint(1, 3)
    if kind == Kind.THROTTLE:
        return Fault(kind, generator.choice((*CREATING, *DELETING, "")), times=few, skip=generator.randint(0, 5))
    if kind in (Kind.LOSE_ANSWER, Kind.LATE_ERROR):
        return Fault(kind, generator.choice((*CREATING, *DELETING)), skip=generator.randint(0, 2))
    if kind == Kind.REFUSE:
        operation = generator.choice(tuple(QUOTAS))
        return Fault(kind, operation, code=QUOTAS[operation], message="the quota is reached", times=few)
    if kind == Kind.STOCK_OUT:
        return Fault(kind, "CreateNodegroup", zone=generator.choice(tuple(zones)))
    if kind == Kind.INVISIBLE:
        return Fault(kind, generator.choice(_INVISIBLE_AT), times=few)
    if kind == Kind.FAIL:
        return Fault(kind, generator.choice(_FAILING))
    if kind == Kind.HOLD:
        return Fault(kind, generator.choice(DELETING), times=few)
    if kind == Kind.LEAK:
        return Fault(kind, "DeleteNodegroup", leftover=generator.choice(tuple(Leftover)))
    return Fault(kind, times=few, skip=generator.randint(0, 40) if kind == Kind.CREDENTIAL else 0)
