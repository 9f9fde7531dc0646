"""What can go wrong at the cloud, as descriptions. F numbers are those of provisioning.md 10.4.

`call` and `target` are patterns as in file names: of `service.method`, such as `container.create_cluster` or `compute.networks.insert`, and
of the full name of the object, such as `projects/p/global/networks/n`. Of the calls that match, the first `skip` go undisturbed, and the
`times` after them meet the fault.
"""

from dataclasses import dataclass
from typing import Literal

from testbed.clouds.gcp.calls.errors import CloudError, throttled

Kind = Literal["address", "backend_service", "disk", "filestore", "firewall", "forwarding_rule", "health_check", "neg", "target_pool"]
"""What remains of a cluster that its own software made: `services/leftovers.py` makes one of each."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, and which calls meet it."""

    call: str = "*"
    target: str = "*"
    skip: int = 0
    times: int = 1

    def refusal(self, service: str) -> CloudError | None:
        """Give the error that the call meets instead of taking effect, if it meets one; `service` is the host of the API."""
        del service
        return None


@dataclass(frozen=True, kw_only=True)
class Throttle(Fault):
    """F1: too many requests."""

    def refusal(self, service: str) -> CloudError | None:
        """Refuse with the reason RATE_LIMIT_EXCEEDED."""
        return throttled(service)


@dataclass(frozen=True, kw_only=True)
class Refuse(Fault):
    """Any refusal before an effect, by gRPC code, text and reason: a quota (F5), an account not usable yet (F8), missing rights."""

    code: str
    message: str
    reason: str = ""
    http_reason: str = ""

    def refusal(self, service: str) -> CloudError | None:
        """Refuse as described."""
        del service
        return CloudError(self.code, self.message, reason=self.reason, http_reason=self.http_reason)


@dataclass(frozen=True, kw_only=True)
class DependencyRefuses(Fault):
    """F14: a deletion is refused since something else still uses the object."""

    by: str = "projects/p/global/firewalls/k8s-fw"

    def refusal(self, service: str) -> CloudError | None:
        """Refuse as compute does."""
        del service
        message = f"The resource is already being used by '{self.by}'"
        return CloudError("FAILED_PRECONDITION", message, http_reason="resourceInUseByAnotherResource")


@dataclass(frozen=True, kw_only=True)
class LoseAnswer(Fault):
    """F2: the call takes effect, and its answer is lost.

    `cut` ends the connection of HTTP; over gRPC, where many calls share one, both say UNAVAILABLE.
    """

    how: Literal["unavailable", "cut"] = "unavailable"


@dataclass(frozen=True, kw_only=True)
class LateEffect(Fault):
    """F20: the answer is DEADLINE_EXCEEDED, and the call takes effect when `later` more calls of any kind were answered."""

    later: int = 3


@dataclass(frozen=True, kw_only=True)
class Slow(Fault):
    """The answer takes so long."""

    seconds: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Invisible(Fault):
    """F7: the first `reads` reads of what the call created do not see it; of an API that was enabled, the first uses are refused."""

    reads: int = 2


@dataclass(frozen=True, kw_only=True)
class Vanish(Fault):
    """F11: the object is deleted by another hand just before the call, with all that is part of it."""


@dataclass(frozen=True, kw_only=True)
class ForeignOwner(Fault):
    """F12: just before a create another owner creates an object of that name."""


@dataclass(frozen=True, kw_only=True)
class EtagRace(Fault):
    """Just before `set_iam_policy` another caller adds a member to the policy."""

    member: str = "user:other@example.com"


@dataclass(frozen=True, kw_only=True)
class ConcurrentOperation(Fault):
    """F10: just before the call, Google begins an operation of its own on the cluster, which holds it for so many reads."""

    kind: str = "UPGRADE_MASTER"
    reads: int = 3


@dataclass(frozen=True, kw_only=True)
class Leak(Fault):
    """F15: when the cluster is deleted, something that its software made stays in its network."""

    call: str = "container.delete_cluster"
    kind: Kind = "forwarding_rule"


@dataclass(frozen=True, kw_only=True)
class RevokeCredential(Fault):
    """F16: from this call on every token is refused and none is issued, for `calls` calls; then all is as before."""

    calls: int = 5


@dataclass(frozen=True, kw_only=True)
class OperationFails(Fault):
    """F9: the operation ends with an error; with `effect` what it was to do is done all the same.

    `reason` is what compute says beside the gRPC code, such as `resourceInUseByAnotherResource`.
    """

    code: str = "INTERNAL"
    message: str = "An internal error has occurred."
    reason: str = ""
    effect: bool = False

    def error(self) -> CloudError:
        """Give the error of the operation."""
        return CloudError(self.code, self.message, http_reason=self.reason)


@dataclass(frozen=True, kw_only=True)
class TerminalState(Fault):
    """F13: a cluster or pool that is created ends in state ERROR, with this condition; only its deletion helps."""

    condition: str = "UNKNOWN"
    message: str = "The cluster is in an error state."


@dataclass(frozen=True, kw_only=True)
class StockOut(Fault):
    """F6: a zone has no machines for a pool that is created; the pool ends in state ERROR with condition GCE_STOCKOUT."""

    call: str = "container.create_node_pool"
    zone: str = ""
    """A zone of the pool; its first one if none is given."""


@dataclass(frozen=True, kw_only=True)
class HalfDeleted(Fault):
    """The deletion of a cluster ends with an error: its pools are gone, the control plane stays in state ERROR and can be deleted."""

    call: str = "container.delete_cluster"
