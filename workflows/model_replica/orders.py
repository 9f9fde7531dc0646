"""Orders of a ModelReplica: plain values, which its workflow carries out in sequence.

Each result returns to the part that ordered it: `ReplicaCluster.memo_read`,
`ReplicaApply.applied` and `.failed`, `ReplicaTeardown.attempted`, `.attempt_failed` and
`.cancelled`, `DeploymentReports.sent`, `EndpointPublication.applied`, `.removed` and
`.failed`. A repeated order changes nothing at its receiver.
"""

from dataclasses import dataclass
from datetime import timedelta

from api_types.messages.cluster_work import ApplyReplica, RunTeardownStep
from api_types.messages.delivery import SignalRequest
from workflows.entity.registering.endpoint import (
    ApplyBackendOrder,
    EndpointOrder,
    RemoveBackendOrder,
    ReportOrder,
)
from workflows.model_replica.state import ApplyInputs


@dataclass(frozen=True)
class SendReplicaSignal:
    """Send one signal.

    With `recorded`, the history records the decision before the signal is sent.
    """

    signal: SignalRequest
    recorded: bool = False


@dataclass(frozen=True)
class ReadClusterMemo:
    """Read the connection of a cluster from the memo of its InferenceCluster."""

    cluster: str


@dataclass(frozen=True)
class Apply:
    """Apply the replica's objects.

    `inputs` come from outside the spec; `drifted` names repairs.
    """

    request: ApplyReplica
    inputs: ApplyInputs
    drifted: str = ""


@dataclass(frozen=True)
class DeleteObjects:
    """Make one attempt at a step of the teardown.

    `forced` is the scope of force so far. With `limit` the attempt is the last one, and
    ends after that time.
    """

    request: RunTeardownStep
    title: str
    forced: str = ""
    limit: timedelta | None = None


@dataclass(frozen=True)
class LeaveCache:
    """Report to the cache that no pod of this replica mounts it any more."""


Order = (
    SendReplicaSignal
    | ReadClusterMemo
    | Apply
    | DeleteObjects
    | LeaveCache
    | EndpointOrder
)

__all__ = [
    "Apply",
    "ApplyBackendOrder",
    "DeleteObjects",
    "LeaveCache",
    "Order",
    "ReadClusterMemo",
    "RemoveBackendOrder",
    "ReportOrder",
    "SendReplicaSignal",
]
