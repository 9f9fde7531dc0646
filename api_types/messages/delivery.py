"""Typed signals, their receivers, and the input and output of the sending activities.

Only `Signal.request` and `Signal.broadcast` combine a signal with a message, so the
type checker compares both with the receiver there. The signals themselves are in
`signals`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import Field

from api_types.base import Id, Message, Text
from api_types.names import workflow_id


class Receiver:
    """A kind of workflow, as the receiver of signals."""

    kind: ClassVar[str]


ReceiverT = TypeVar("ReceiverT", bound=Receiver)
ReceiverT_co = TypeVar("ReceiverT_co", bound=Receiver, covariant=True)
# A signal for all entities may be sent to any kind of entity.
ReceiverT_contra = TypeVar("ReceiverT_contra", bound=Receiver, contravariant=True)
MessageT = TypeVar("MessageT", bound=Message | None)


@dataclass(frozen=True)
class EntityRef(Generic[ReceiverT_co]):
    """A workflow of a known kind. `entity` creates one from a namespace and name."""

    workflow_id: str


def entity(
    receiver: type[ReceiverT], namespace: str, name: str
) -> EntityRef[ReceiverT]:
    """Return a reference to an entity; the namespace of a cluster-scoped kind is empty."""
    return EntityRef(workflow_id(receiver.kind, namespace, name))


class SignalRequest(Message):
    """One signal to one entity, created by `Signal.request`."""

    workflow_id: Id
    signal: Id
    payload: Any = None

    def __str__(self) -> str:
        return f"signal {self.signal} to {self.workflow_id}"


class SignalBatch(Message):
    """Signals to several entities. Each entity gets its signals in order."""

    signals: list[SignalRequest]


class SignalBatchResult(Message):
    """The workflow ids of entities that do not exist."""

    missing: list[str] = Field(default_factory=list)


class HoldSignals(Message):
    """Signals that one receiver refused, with the reason.

    `sender` is the workflow id of the sender.
    """

    sender: Id = ""
    signals: list[SignalRequest]
    problem: Text


class Delivery(Message):
    """Whether a receiver accepts signals.

    `receiver` is a workflow id. `problem` is the reason for the refusal, and is empty
    once the receiver accepts signals again. `run` is the first run of the Redelivery,
    and `refusal` counts the refusals that it has seen. Senders recognize a late report
    by these two fields.
    """

    receiver: Id
    run: Id = ""
    refusal: int = 0
    problem: Text = ""


class Redelivered(Message):
    """The number of signals that a receiver accepted, in order.

    `missing` means that the receiver does not run. `problem` is the reason why it
    refused the next signal.
    """

    count: int
    missing: bool = False
    problem: str = ""


class Broadcast(Message):
    """One signal to all running entities of some kinds, which visibility lists.

    Empty fields do not filter.
    """

    kinds: list[Id]
    namespace: Id = ""
    cluster: Id = ""
    signal: Id
    payload: Any = None


class Signal(Generic[ReceiverT_contra, MessageT]):
    """A signal: its wire name and the model of its argument.

    With `optional`, the signal may be sent without an argument.
    """

    def __init__(
        self, name: str, message: type[MessageT], *, optional: bool = False
    ) -> None:
        self.name = name
        self.message = cast("type[Message]", message)
        self.optional = optional

    def parse(self, payload: Any) -> MessageT:
        """Parse an argument.

        Raises:
            pydantic.ValidationError: the payload does not match the model.

        """
        message = (
            None
            if payload is None and self.optional
            else self.message.model_validate(payload)
        )
        return cast("MessageT", message)

    def request(
        self, to: EntityRef[ReceiverT_contra], message: MessageT
    ) -> SignalRequest:
        """Return this signal, addressed to one entity."""
        return SignalRequest(
            workflow_id=to.workflow_id, signal=self.name, payload=_wire(message)
        )

    def broadcast(
        self,
        message: MessageT,
        *receivers: type[ReceiverT_contra],
        namespace: str = "",
        cluster: str = "",
    ) -> Broadcast:
        """Return this signal, addressed to all running entities of some kinds.

        A namespace or a cluster restricts the receivers.
        """
        kinds = [receiver.kind for receiver in receivers]
        return Broadcast(
            kinds=kinds,
            namespace=namespace,
            cluster=cluster,
            signal=self.name,
            payload=_wire(message),
        )

    def __repr__(self) -> str:
        return f"signal {self.name}({self.message.__name__})"


def _wire(message: Message | None) -> Any:
    return None if message is None else message.wire()
