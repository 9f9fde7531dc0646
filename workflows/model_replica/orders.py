"""What a ModelReplica's decisions order: plain values, which its workflow carries out in their order.

Results come back to who ordered: `ReplicaCluster.memo_read`, `ReplicaApply.applied` and `.failed`, `ReplicaTeardown.attempted`,
`.attempt_failed` and `.cancelled`, `DeploymentReports.sent`, `EndpointPublication.applied`, `.removed` and `.failed`. Sending again what
was carried out already changes nothing at the receiver.
"""

from dataclasses import dataclass
from datetime import timedelta

from api_types.messages.cluster_work import ApplyReplica, RunTeardownStep
from api_types.messages.delivery import SignalRequest
from workflows.entity.registering.endpoint import ApplyBackendOrder, EndpointOrder, RemoveBackendOrder, ReportOrder
from workflows.model_replica.state import ApplyInputs


@dataclass(frozen=True)
class Send:
    """Send one signal. `recorded`: not before the decision to send it is in the history."""

    signal: SignalRequest
    recorded: bool = False


@dataclass(frozen=True)
class ReadMemo:
    """Read the connection of a cluster from the memo of its InferenceCluster."""

    cluster: str


@dataclass(frozen=True)
class Apply:
    """Apply the replica's objects. `inputs` are what this takes from outside the spec; `drifted` says what is repaired."""

    request: ApplyReplica
    inputs: ApplyInputs
    drifted: str = ""


@dataclass(frozen=True)
class DeleteObjects:
    """Make one attempt at a step of the teardown.

    `forced`: what was forced until now; with `limit` the attempt is the last one, and is not waited for any longer.
    """

    request: RunTeardownStep
    title: str
    forced: str = ""
    limit: timedelta | None = None


@dataclass(frozen=True)
class LeaveCache:
    """Report to the cache that no pod of this replica mounts it any more."""


Order = Send | ReadMemo | Apply | DeleteObjects | LeaveCache | EndpointOrder

__all__ = ["Apply", "ApplyBackendOrder", "DeleteObjects", "LeaveCache", "Order", "ReadMemo", "RemoveBackendOrder", "ReportOrder", "Send"]
