"""The failures of the cloud.

`call` and `target` are glob patterns. `call` is `service.method`, such as
`container.create_cluster` or `compute.networks.insert`; `target` is the full name of
the object, such as `projects/p/global/networks/n`. The first `skip` matching calls
pass, and the next `times` calls meet the fault.
"""

from dataclasses import dataclass
from typing import Literal

from fakes.gcp.calls.errors import ONLY_MESSAGE, CloudError, throttled

Kind = Literal[
    "address",
    "backend_service",
    "backend_service_balancer",
    "disk",
    "filestore",
    "firewall",
    "forwarding_rule",
    "health_check",
    "neg",
    "target_pool",
    "user_balancer",
]
"""Objects that the software of a cluster can leave.

`services/leftovers.py` creates one of each.
"""


@dataclass(frozen=True, kw_only=True)
class GcpFault:
    """One fault, and the calls that meet it."""

    call: str = "*"
    target: str = "*"
    skip: int = 0
    times: int = 1

    def refusal(self, service: str) -> CloudError | None:
        """Return the error that the call gets before any effect, or None.

        `service` is the host of the API.
        """
        del service
        return None


@dataclass(frozen=True, kw_only=True)
class TooManyRequests(GcpFault):
    """Too many requests."""

    def refusal(self, service: str) -> CloudError | None:
        """Refuse with the reason RATE_LIMIT_EXCEEDED."""
        return throttled(service)


@dataclass(frozen=True, kw_only=True)
class Refuse(GcpFault):
    """A refusal before any effect, by gRPC code, text and reason.

    Examples are a quota, an account that is not usable yet, and missing permissions.
    """

    code: str
    message: str
    reason: str = ""
    http_reason: str = ""

    def refusal(self, service: str) -> CloudError | None:
        """Refuse with the given code."""
        del service
        return CloudError(
            self.code, self.message, reason=self.reason, http_reason=self.http_reason
        )


@dataclass(frozen=True, kw_only=True)
class DependencyRefuses(GcpFault):
    """A deletion is refused because another object still uses this one."""

    by: str = "projects/p/global/firewalls/k8s-fw"

    def refusal(self, service: str) -> CloudError | None:
        """Refuse as compute does."""
        del service
        message = f"The resource is already being used by '{self.by}'"
        return CloudError(
            "FAILED_PRECONDITION", message, http_reason="resourceInUseByAnotherResource"
        )


@dataclass(frozen=True, kw_only=True)
class LoseAnswer(GcpFault):
    """The call takes effect, and its answer is lost.

    `cut` ends the connection of HTTP. gRPC calls share a connection, so both say
    UNAVAILABLE there.
    """

    how: Literal["unavailable", "cut"] = "unavailable"


@dataclass(frozen=True, kw_only=True)
class LateEffect(GcpFault):
    """The answer is DEADLINE_EXCEEDED, and the effect follows `later` more answers."""

    later: int = 3


@dataclass(frozen=True, kw_only=True)
class Slow(GcpFault):
    """The answer takes so long."""

    seconds: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Invisible(GcpFault):
    """The first `reads` reads do not see the created object.

    For an API, its first uses are refused.
    """

    reads: int = 2


@dataclass(frozen=True, kw_only=True)
class Vanish(GcpFault):
    """Another client deletes the object and its parts just before the call."""


@dataclass(frozen=True, kw_only=True)
class ForeignOwner(GcpFault):
    """Another owner creates an object of the name just before a create."""


@dataclass(frozen=True, kw_only=True)
class EtagRace(GcpFault):
    """Another caller adds a member to the policy just before `set_iam_policy`."""

    member: str = "user:other@example.com"


@dataclass(frozen=True, kw_only=True)
class ConcurrentOperation(GcpFault):
    """Google starts an operation of its own on the cluster just before the call.

    It locks the cluster for so many reads.
    """

    kind: str = "UPGRADE_MASTER"
    reads: int = 3


@dataclass(frozen=True, kw_only=True)
class Leak(GcpFault):
    """An object that the cluster's software created stays after the deletion."""

    call: str = "container.delete_cluster"
    kind: Kind = "forwarding_rule"


@dataclass(frozen=True, kw_only=True)
class RevokeCredential(GcpFault):
    """Every token is refused, and none is issued, for `calls` calls from this one on."""

    calls: int = 5


@dataclass(frozen=True, kw_only=True)
class OperationFails(GcpFault):
    """The operation ends with an error.

    With `effect` it takes effect nevertheless. `reason` is compute's reason besides the
    gRPC code, such as `resourceInUseByAnotherResource`.
    """

    code: str = "INTERNAL"
    message: str = "An internal error has occurred."
    reason: str = ""
    effect: bool = False
    only_message: bool = False
    """Whether GKE reports the error only in the status message, without a code."""

    def error(self) -> CloudError:
        """Return the error of the operation."""
        reason = ONLY_MESSAGE if self.only_message else ""
        return CloudError(
            self.code, self.message, reason=reason, http_reason=self.reason
        )


@dataclass(frozen=True, kw_only=True)
class TerminalState(GcpFault):
    """A new cluster or pool ends in state ERROR with this condition.

    Only its deletion helps.
    """

    condition: str = "UNKNOWN"
    message: str = "The cluster is in an error state."


@dataclass(frozen=True, kw_only=True)
class StockOut(GcpFault):
    """A zone has no machines for a new pool.

    The pool ends in state ERROR with condition GCE_STOCKOUT.
    """

    call: str = "container.create_node_pool"
    zone: str = ""
    """A zone of the pool; the default is its first one."""


@dataclass(frozen=True, kw_only=True)
class HalfDeleted(GcpFault):
    """The deletion of a cluster ends with an error.

    Its pools are gone, and the control plane stays in state ERROR. It can be deleted
    again.
    """

    call: str = "container.delete_cluster"
