"""Typed signals: what a signal is, who may be sent one, and what the sending activities take and give.

`Signal.request` and `Signal.broadcast` are the only places where a signal and its message meet: there the type checker compares both with
the receiver. The signals themselves are in `signals`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import Field

from api_types.base import Id, Message, Text
from api_types.names import workflow_id


class Receiver:
    """A kind of workflow, as those see it who signal it."""

    kind: ClassVar[str]


ReceiverT = TypeVar("ReceiverT", bound=Receiver)
ReceiverT_co = TypeVar("ReceiverT_co", bound=Receiver, covariant=True)
# A signal that all entities take may be sent to any kind of entity.
ReceiverT_contra = TypeVar("ReceiverT_contra", bound=Receiver, contravariant=True)
MessageT = TypeVar("MessageT", bound=Message | None)


@dataclass(frozen=True)
class EntityRef(Generic[ReceiverT_co]):
    """A workflow of a known kind. Where namespace and name are known, `entity` makes one."""

    workflow_id: str


def entity(receiver: type[ReceiverT], namespace: str, name: str) -> EntityRef[ReceiverT]:
    """Refer to an entity; the namespace of a cluster-scoped kind is empty."""
    return EntityRef(workflow_id(receiver.kind, namespace, name))


class SignalRequest(Message):
    """One signal to one entity; made by `Signal.request`."""

    workflow_id: Id
    signal: Id
    payload: Any = None

    def __str__(self) -> str:
        return f"signal {self.signal} to {self.workflow_id}"


class SignalBatch(Message):
    """Signals to several entities, in order for each."""

    signals: list[SignalRequest] = Field(alias="tells")


class SignalBatchResult(Message):
    """The workflow ids that do not exist."""

    missing: list[str] = Field(default_factory=list)


class HoldSignals(Message):
    """Signals that one receiver refused, with the reason. `sender` is the workflow id of the sender."""

    sender: Id = ""
    signals: list[SignalRequest]
    problem: Text


class Delivery(Message):
    """Whether a receiver, named by its workflow id, accepts signals. `problem` is the reason of a refusal, empty after its end.

    `run` is the first run of the Redelivery, and `refusal` counts the refusals that it has seen. Both
    let senders recognize a late report.
    """

    receiver: Id
    run: Id = ""
    refusal: int = 0
    problem: Text = ""


class Redelivered(Message):
    """How many signals a receiver accepted, in order. `missing`: it does not run. `problem`: the reason why it refused the next signal."""

    count: int
    missing: bool = False
    problem: str = ""


class Broadcast(Message):
    """One signal to all running entities of some kinds, found in visibility; empty fields do not narrow. Made by `Signal.broadcast`."""

    kinds: list[Id]
    namespace: Id = ""
    cluster: Id = ""
    signal: Id
    payload: Any = None


class Signal(Generic[ReceiverT_contra, MessageT]):
    """A signal: its name on the wire and the model of its argument. `optional`: it may be sent without one."""

    def __init__(self, name: str, message: type[MessageT], *, optional: bool = False) -> None:
        self.name = name
        self.message = cast("type[Message]", message)
        self.optional = optional

    def parse(self, payload: Any) -> MessageT:
        """Read an argument. Raises pydantic's `ValidationError`."""
        message = None if payload is None and self.optional else self.message.model_validate(payload)
        return cast("MessageT", message)

    def request(self, to: EntityRef[ReceiverT_contra], message: MessageT) -> SignalRequest:
        """Write this signal to one entity."""
        return SignalRequest(workflow_id=to.workflow_id, signal=self.name, payload=_wire(message))

    def broadcast(self, message: MessageT, *receivers: type[ReceiverT_contra], namespace: str = "", cluster: str = "") -> Broadcast:
        """Write this signal to all running entities of some kinds, in a namespace or on a cluster if one is given."""
        kinds = [receiver.kind for receiver in receivers]
        return Broadcast(kinds=kinds, namespace=namespace, cluster=cluster, signal=self.name, payload=_wire(message))

    def __repr__(self) -> str:
        return f"signal {self.name}({self.message.__name__})"


def _wire(message: Message | None) -> Any:
    return None if message is None else message.wire()
