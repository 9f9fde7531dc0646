"""Reads the argument of a signal, an update or a query.

Temporal decodes arguments before a handler runs. It drops a signal that cannot be
decoded, and its sender receives no error. So handlers accept raw payloads and decode
them here. Every decoding error becomes a message for users.
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from api_types.errors import InvalidInput
from api_types.payloads import unreadable
from api_types.payloads.limits import PAYLOAD_BYTES_MAX, shortened

NESTING_MAX = 64
"""The deepest nesting of objects and lists.

A manifest has some twenty levels. A thousand levels exhaust Python's stack wherever the
value is copied.
"""

PROBLEM_BYTES_MAX = 1000
"""The longest description of the problems of one argument.

Events and conditions keep it.
"""
_PROBLEMS_MAX = 8

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_SIGNATURE = inspect.Signature(
    [
        inspect.Parameter("self", _KIND),
        inspect.Parameter("payload", _KIND, annotation=RawValue),
    ]
)


class UnusableMessage(ValueError):
    """The error for a readable message with unusable content.

    Handlers raise it before they change anything.
    """


def read_signal(payloads: Sequence[Any], arrivals: Counter[str]) -> Any:
    """Return the argument of a signal, or None without one.

    `arrivals` counts the encrypted payloads of each id that this run has received.
    Raises `UnusableMessage`.
    """
    argument = _only(payloads)
    if not isinstance(argument, RawValue):
        return argument
    _check_refusals(argument.payload, arrivals)
    return _read(argument.payload)


def read_request(payloads: Sequence[Any]) -> Any:
    """Return the argument of an update or a query, or None without one.

    Raises InvalidInput, which the caller receives.
    """
    try:
        argument = _only(payloads)
        return _read(argument.payload) if isinstance(argument, RawValue) else argument
    except UnusableMessage as error:
        raise InvalidInput(str(error)) from error


def problems_of(error: ValidationError, *at: str) -> str:
    """Describe the first problems of a message.

    `at` is the path of the checked field.
    """
    found = []
    for item in error.errors()[:_PROBLEMS_MAX]:
        path = ".".join(str(part) for part in (*at, *item["loc"]))
        found.append(f"{path}: {item['msg']}" if path else item["msg"])
    more = error.error_count() - len(found)
    if more > 0:
        found.append(f"and {more} more")
    return shortened("; ".join(found), PROBLEM_BYTES_MAX)


def value_problem(value: Any) -> str:
    """Return why a JSON value is not accepted; empty if it is accepted.

    The check includes nested values.
    """
    level = [value]
    for _ in range(NESTING_MAX + 1):
        parts: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                parts.extend(each.values())
            elif isinstance(each, list):
                parts.extend(each)
            elif isinstance(each, float) and not math.isfinite(each):
                return f"{each} is not a JSON number"
        level = parts
        if not level:
            return ""
    return f"objects and lists are nested more than {NESTING_MAX} deep"


def _only(payloads: Sequence[Any]) -> Any:
    if len(payloads) > 1:
        raise UnusableMessage(f"expected one argument, got {len(payloads)}")
    return payloads[0] if payloads else None


def _read(payload: Payload) -> Any:
    if payload.metadata.get("encoding") == unreadable.ENCODING:
        raise UnusableMessage(_problem(payload))
    if len(payload.data) > PAYLOAD_BYTES_MAX:
        raise UnusableMessage(
            f"it has {len(payload.data)} bytes; "
            f"at most {PAYLOAD_BYTES_MAX} are accepted"
        )
    try:
        value: Any = workflow.payload_converter().from_payloads([payload])[0]
    except (
        Exception
        # Any client may have sent these bytes, so the converter may raise any error.
    ) as error:
        raise UnusableMessage(
            shortened(f"it cannot be decoded: {_words(error)}", PROBLEM_BYTES_MAX)
        ) from error
    if isinstance(value, bytes | bytearray):
        raise UnusableMessage("it is binary; send JSON")
    if problem := value_problem(value):
        raise UnusableMessage(problem)
    return value


def _check_refusals(payload: Payload, arrivals: Counter[str]) -> None:
    """Make every replay refuse the same payloads as the first execution.

    The keys of the worker may change before a replay, so each refusal is recorded as a
    patch.

    Raises `UnusableMessage`. Raises RuntimeError if only the missing key can help: the
    task fails, and Temporal retries it.
    """
    arrival_id = payload.metadata.get(unreadable.ARRIVAL_ID)
    if arrival_id is None:
        return
    patch = _patch_of_next(arrival_id.decode(errors="replace"), arrivals)
    if payload.metadata.get("encoding") == unreadable.ENCODING:
        if workflow.patched(patch):
            raise UnusableMessage(_problem(payload))
        if not payload.data:
            raise RuntimeError(
                "an argument that was decoded before cannot be decoded again: "
                f"{_problem(payload)}"
            )
        payload.CopyFrom(Payload.FromString(payload.data))
    elif workflow.unsafe.is_replaying() and workflow.patched(patch):
        raise UnusableMessage("its key was unknown when it arrived; send it again")


def _patch_of_next(arrival_id: str, arrivals: Counter[str]) -> str:
    """Return the patch id for the next payload with this id.

    An equal payload may have been read or refused before, and a patch holds for a whole
    run.
    """
    earlier = arrivals[arrival_id]
    arrivals[arrival_id] += 1
    return f"refused-{arrival_id}-{earlier}" if earlier else f"refused-{arrival_id}"


def _problem(payload: Payload) -> str:
    return shortened(
        payload.metadata.get(unreadable.PROBLEM, b"").decode(errors="replace"),
        PROBLEM_BYTES_MAX,
    )


def _words(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return problems_of(error)
    return str(error.args[0]) if error.args else type(error).__name__


def taking_raw(
    method: Callable[..., Any], take: Callable[[Any, Sequence[Any]], Any]
) -> Callable[..., Any]:
    """Return a handler method that receives its arguments undecoded.

    `take` receives the object and the arguments. Temporal decodes by the signature. The
    signature of this method has one argument, of a type that Temporal does not decode.
    """

    def receive(self: Any, *payloads: Any) -> Any:
        return take(self, payloads)

    # Temporal finds overridden handlers by their qualified names.
    receive.__name__, receive.__qualname__, receive.__module__ = (
        method.__name__,
        method.__qualname__,
        method.__module__,
    )
    receive.__doc__ = method.__doc__
    receive.__annotations__ = {"payload": RawValue}
    receive.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    return receive
