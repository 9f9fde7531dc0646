"""Signal handlers that take a message of the table of signals.

A signal cannot be refused by its receiver, and a handler that raises blocks its workflow. So whatever arrives is taken; what is not the
message of that signal goes to `refuse_malformed` in place of the handler.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError
from temporalio import workflow

from api_types.base import Message
from api_types.messages.delivery import MessageT, Signal
from workflows.entity.arguments import UnusableMessage, problems_of, read_request, read_signal, taking_raw


class SignalHandler(Protocol):
    """A workflow with handlers of typed signals."""

    arrivals: Counter[str]
    """How many encrypted payloads of each id this run was sent."""

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record that a signal's argument was not such a message."""


HandlerT = TypeVar("HandlerT", bound=SignalHandler)
WorkflowT = TypeVar("WorkflowT")
AnswerT = TypeVar("AnswerT")


def handles(signal: Signal[Any, MessageT]) -> Callable[[Callable[[HandlerT, MessageT], None]], Callable[[HandlerT, Any], None]]:
    """Register a method as the handler of a signal, under the name that the table gives it; the method gets the message, read."""

    def register(handler: Callable[[HandlerT, MessageT], None]) -> Callable[[HandlerT, Any], None]:
        def read(self: HandlerT, payload: Any) -> None:
            try:
                message = signal.parse(payload)
            except ValidationError as error:
                raise UnusableMessage(problems_of(error)) from error
            handler(self, message)

        return _registered(signal, handler, read)

    return register


def receives(signal: Signal[Any, Any]) -> Callable[[Callable[[HandlerT, Any], None]], Callable[[HandlerT, Any], None]]:
    """Register a method as the receiver of a signal that is read later; the method gets whatever JSON arrived."""

    def register(receiver: Callable[[HandlerT, Any], None]) -> Callable[[HandlerT, Any], None]:
        return _registered(signal, receiver, receiver)

    return register


def answers(query: Callable[[WorkflowT, Any], AnswerT]) -> Callable[[WorkflowT, Any], AnswerT]:
    """Register a method as a query with an argument; whoever sends something else gets that in words.

    The method gets whatever JSON was sent, None for none, and raises InvalidInput where it cannot use that.
    """

    def take(self: WorkflowT, payloads: Sequence[Any]) -> AnswerT:
        return query(self, read_request(payloads))

    return workflow.query(name=query.__name__)(taking_raw(query, take))


def changes(update: Callable[[WorkflowT, Any], AnswerT]) -> Callable[[WorkflowT, Any], AnswerT]:
    """Register a method as an update; it gets whatever JSON was sent, None for none. Its validator is registered with `checks`."""

    def take(self: WorkflowT, payloads: Sequence[Any]) -> AnswerT:
        return update(self, read_request(payloads))

    registered: Any = workflow.update(name=update.__name__)(taking_raw(update, take))
    return cast("Callable[[WorkflowT, Any], AnswerT]", registered)


def checks(update: Any) -> Callable[[Callable[[WorkflowT, Any], None]], Callable[[WorkflowT, Any], None]]:
    """Register a method as the validator of an update: what it raises its caller gets, and the history does not change."""

    def register(check: Callable[[WorkflowT, Any], None]) -> Callable[[WorkflowT, Any], None]:
        def take(self: WorkflowT, payloads: Sequence[Any]) -> None:
            check(self, read_request(payloads))

        validator: Callable[[WorkflowT, Any], None] = update.validator(taking_raw(check, take))
        return validator

    return register


def check_spec(model: type[BaseModel], spec: Any) -> None:
    """Check a spec that another entity sent: the pass that reads it could not go on without what is missing. Raises `UnusableMessage`."""
    try:
        model.model_validate(spec)
    except ValidationError as error:
        raise UnusableMessage(problems_of(error, "spec")) from error


def _registered(
    signal: Signal[Any, Any], method: Callable[[HandlerT, Any], None], read: Callable[[HandlerT, Any], None]
) -> Callable[[HandlerT, Any], None]:
    def take(self: HandlerT, payloads: Sequence[Any]) -> None:
        try:
            read(self, read_signal(payloads, self.arrivals))
        except UnusableMessage as error:
            self.refuse_malformed(signal.message, str(error))

    # The description is shown in the Temporal UI, where a user may send the signal.
    description = f"{signal.message.__name__}: {method.__doc__ or ''}"
    # A handler only stores, without waiting; one that has not begun when its workflow fails at its start has nothing to finish.
    abandoned = workflow.HandlerUnfinishedPolicy.ABANDON
    return workflow.signal(name=signal.name, description=description, unfinished_policy=abandoned)(taking_raw(method, take))
