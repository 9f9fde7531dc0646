"""What a deployment's decisions order: plain values, which its workflow carries out in their order.

The results come back to the decisions as `ReplicaController.sent`, `.started` and `.accounts_read`.

A workflow task may be lost when its local activities have acted already. It is executed again, with what arrived meanwhile, and may decide
otherwise. So whatever no later decision can take back is in the history before it is done: that a placement is used, or never will be.
"""

from dataclasses import dataclass

from api_types.messages.delivery import SignalRequest
from api_types.messages.entities import StartReplica


@dataclass(frozen=True)
class Send:
    """Send signals, in order for each receiver. `recorded`: not before the decision to send them is in the history."""

    signals: list[SignalRequest]
    summary: str
    recorded: bool = False


@dataclass(frozen=True)
class Start:
    """Start the workflows of replicas."""

    replicas: list[StartReplica]


@dataclass(frozen=True)
class ReadAccounts:
    """Query replicas of these names that it does not know: that report to this deployment, or `unfinished`, that were terminated.

    Those have names that others were placed under, and are started again to be deleted first.
    """

    names: list[str]
    unfinished: bool = False


Order = Send | Start | ReadAccounts
