"""Signal handlers that receive the messages of the signal table.

A receiver cannot refuse a signal, and a handler that raises blocks its workflow. So a
handler accepts every payload. A payload that is not the message of the signal goes to
`refuse_malformed` instead.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError
from temporalio import workflow

from api_types.base import Message
from api_types.messages.delivery import MessageT, Signal
from workflows.entity.arguments import (
    UnusableMessage,
    problems_of,
    read_request,
    read_signal,
    taking_raw,
)


class SignalHandler(Protocol):
    """A workflow with handlers of typed signals."""

    arrivals: Counter[str]
    """The number of encrypted payloads of each id that this run has received."""

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record that the argument of a signal was not a `message`."""


HandlerT = TypeVar("HandlerT", bound=SignalHandler)
WorkflowT = TypeVar("WorkflowT")
AnswerT = TypeVar("AnswerT")


def handles(
    signal: Signal[Any, MessageT],
) -> Callable[[Callable[[HandlerT, MessageT], None]], Callable[[HandlerT, Any], None]]:
    """Register a method as the handler of a signal of the table.

    The method receives the parsed message.
    """

    def register(
        handler: Callable[[HandlerT, MessageT], None],
    ) -> Callable[[HandlerT, Any], None]:
        def read(self: HandlerT, payload: Any) -> None:
            try:
                message = signal.parse(payload)
            except ValidationError as error:
                raise UnusableMessage(problems_of(error)) from error
            handler(self, message)

        return _registered(signal, handler, read)

    return register


def receives(
    signal: Signal[Any, Any],
) -> Callable[[Callable[[HandlerT, Any], None]], Callable[[HandlerT, Any], None]]:
    """Register a method as the receiver of a signal that is parsed later.

    The method receives the JSON value.
    """

    def register(
        receiver: Callable[[HandlerT, Any], None],
    ) -> Callable[[HandlerT, Any], None]:
        return _registered(signal, receiver, receiver)

    return register


def answers(
    query: Callable[[WorkflowT, Any], AnswerT],
) -> Callable[[WorkflowT, Any], AnswerT]:
    """Register a method as a query with an argument.

    The method receives the JSON value, or None without one. It raises InvalidInput if
    it cannot use the value, and the caller receives the error.
    """

    def take(self: WorkflowT, payloads: Sequence[Any]) -> AnswerT:
        return query(self, read_request(payloads))

    return workflow.query(name=query.__name__)(taking_raw(query, take))


def changes(
    update: Callable[[WorkflowT, Any], AnswerT],
) -> Callable[[WorkflowT, Any], AnswerT]:
    """Register a method as an update.

    It receives the JSON value, or None without one. Register its validator with
    `checks`.
    """

    def take(self: WorkflowT, payloads: Sequence[Any]) -> AnswerT:
        return update(self, read_request(payloads))

    registered: Any = workflow.update(name=update.__name__)(taking_raw(update, take))
    return cast("Callable[[WorkflowT, Any], AnswerT]", registered)


def checks(
    update: Any,
) -> Callable[[Callable[[WorkflowT, Any], None]], Callable[[WorkflowT, Any], None]]:
    """Register a method as the validator of an update.

    The caller receives its error, and the history does not change.
    """

    def register(
        check: Callable[[WorkflowT, Any], None],
    ) -> Callable[[WorkflowT, Any], None]:
        def take(self: WorkflowT, payloads: Sequence[Any]) -> None:
            check(self, read_request(payloads))

        validator: Callable[[WorkflowT, Any], None] = update.validator(
            taking_raw(check, take)
        )
        return validator

    return register


def check_spec(model: type[BaseModel], spec: Any) -> None:
    """Check a spec that another entity sent.

    Without a required field, the next pass would fail. Raises `UnusableMessage`.
    """
    try:
        model.model_validate(spec)
    except ValidationError as error:
        raise UnusableMessage(problems_of(error, "spec")) from error


def _registered(
    signal: Signal[Any, Any],
    method: Callable[[HandlerT, Any], None],
    read: Callable[[HandlerT, Any], None],
) -> Callable[[HandlerT, Any], None]:
    def take(self: HandlerT, payloads: Sequence[Any]) -> None:
        try:
            read(self, read_signal(payloads, self.arrivals))
        except UnusableMessage as error:
            self.refuse_malformed(signal.message, str(error))

    # The description is shown in the Temporal UI, where a user may send the signal.
    description = f"{signal.message.__name__}: {method.__doc__ or ''}"
    # A handler stores a message without waiting. If the workflow fails at its start, a
    # handler that has not begun has nothing to finish.
    abandoned = workflow.HandlerUnfinishedPolicy.ABANDON
    return workflow.signal(
        name=signal.name, description=description, unfinished_policy=abandoned
    )(taking_raw(method, take))
