"""Orders of a deployment: plain values, which its workflow carries out one after the other.

The results return to the decisions as `DeploymentReplicaController.sent`, `.started`
and `.accounts_read`.

A workflow task may be lost after its local activities ran. It is repeated with the
messages that arrived meanwhile, and may decide differently. Therefore the history
records a decision that no later decision can undo before it is carried out: that a
placement is used, or never will be.
"""

from dataclasses import dataclass

from api_types.messages.delivery import SignalRequest
from api_types.messages.entities import StartReplica


@dataclass(frozen=True)
class SendDeploymentSignals:
    """Send signals, in order for each receiver.

    With `recorded`, the history records the decision before the signal is sent.
    """

    signals: list[SignalRequest]
    summary: str
    recorded: bool = False


@dataclass(frozen=True)
class StartReplicaWorkflows:
    """Start the workflows of replicas."""

    replicas: list[StartReplica]


@dataclass(frozen=True)
class ReadReplicaAccounts:
    """Query untracked replicas: running ones that report here, or terminated (`unfinished`) ones.

    The scheduler may place other replicas under the names of terminated ones, which are
    restarted first to delete their objects.
    """

    names: list[str]
    unfinished: bool = False


Order = SendDeploymentSignals | StartReplicaWorkflows | ReadReplicaAccounts
