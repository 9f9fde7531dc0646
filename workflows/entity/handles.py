"""Signal handlers that take a message of the table of signals.

A signal cannot be refused by its receiver, and a handler that raises blocks its workflow. So whatever arrives is taken; what is not the
message of that signal goes to `refuse_malformed` in place of the handler.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow

from api_types.base import Message
from api_types.messages.delivery import MessageT, Signal


class UnusableMessage(ValueError):
    """A message that can be read, with something in it of which nothing can be made; a handler raises it before it changes anything."""


class SignalHandler(Protocol):
    """A workflow with handlers of typed signals."""

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record that a signal's argument was not such a message."""


HandlerT = TypeVar("HandlerT", bound=SignalHandler)
WorkflowT = TypeVar("WorkflowT")


def handles(signal: Signal[Any, MessageT]) -> Callable[[Callable[[HandlerT, MessageT], None]], Callable[[HandlerT, Any], None]]:
    """Register a method as the handler of a signal, under the name that the table gives it; the method gets the message, read."""

    def register(handler: Callable[[HandlerT, MessageT], None]) -> Callable[[HandlerT, Any], None]:
        def read(self: HandlerT, payload: Any) -> None:
            try:
                message = signal.parse(payload)
            except ValidationError as error:
                self.refuse_malformed(signal.message, problems_of(error))
                return
            try:
                handler(self, message)
            except UnusableMessage as error:
                self.refuse_malformed(signal.message, str(error))

        return _registered(signal, handler, read)

    return register


def receives(signal: Signal[Any, Any]) -> Callable[[Callable[[WorkflowT, Any], None]], Callable[[WorkflowT, Any], None]]:
    """Register a method as the receiver of a signal whose argument is read later; the method gets whatever arrived."""

    def register(receiver: Callable[[WorkflowT, Any], None]) -> Callable[[WorkflowT, Any], None]:
        return _registered(signal, receiver, receiver)

    return register


def check_spec(model: type[BaseModel], spec: Any) -> None:
    """Check a spec that another entity sent: the pass that reads it could not go on without what is missing. Raises `UnusableMessage`."""
    try:
        model.model_validate(spec)
    except ValidationError as error:
        raise UnusableMessage(f"spec.{problems_of(error)}") from error


def problems_of(error: ValidationError) -> str:
    """Describe what is wrong with a message."""
    return "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())


def _registered(
    signal: Signal[Any, Any], method: Callable[..., None], take: Callable[[WorkflowT, Any], None]
) -> Callable[[WorkflowT, Any], None]:
    # Temporal decodes by the annotations of what it registers, and drops what does not decode. `functools.wraps` would show it the
    # message type; with any number of untyped arguments everything that is JSON gets through.
    def receive(self: WorkflowT, *payloads: Any) -> None:
        take(self, payloads[0] if payloads else None)

    # Temporal finds overridden handlers by their qualified names.
    receive.__name__, receive.__qualname__, receive.__module__ = method.__name__, method.__qualname__, method.__module__
    receive.__doc__ = method.__doc__
    # Shown in the Temporal UI, where a user may send the signal.
    description = f"{signal.message.__name__}: {method.__doc__ or ''}"
    return workflow.signal(name=signal.name, description=description)(receive)
