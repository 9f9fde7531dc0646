"""Reading the one argument of a signal, an update or a query, whatever was sent.

Temporal decodes arguments before a handler sees them: of a signal it drops what does not decode, and tells no sender. So handlers take what
was sent as it is, and read it here. What cannot be read has words for it.
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
"""Objects and lists within one another. A manifest has some twenty; a thousand exhaust Python's stack wherever one is copied."""

PROBLEM_BYTES_MAX = 1000
"""What is said of one argument: it is kept in events and conditions."""
_PROBLEMS_MAX = 8

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_SIGNATURE = inspect.Signature([inspect.Parameter("self", _KIND), inspect.Parameter("payload", _KIND, annotation=RawValue)])


class UnusableMessage(ValueError):
    """A message that can be read, with something in it of which nothing can be made; a handler raises it before it changes anything."""


def read_signal(payloads: Sequence[Any], arrivals: Counter[str]) -> Any:
    """Give the argument of a signal, None without one. Raises `UnusableMessage`.

    `arrivals` counts the encrypted payloads of each id that this run of the workflow was sent.
    """
    argument = _only(payloads)
    if not isinstance(argument, RawValue):
        return argument
    _check_refusals(argument.payload, arrivals)
    return _read(argument.payload)


def read_request(payloads: Sequence[Any]) -> Any:
    """Give the argument of an update or of a query, None without one. Raises InvalidInput, which its caller gets."""
    try:
        argument = _only(payloads)
        return _read(argument.payload) if isinstance(argument, RawValue) else argument
    except UnusableMessage as error:
        raise InvalidInput(str(error)) from error


def problems_of(error: ValidationError, *at: str) -> str:
    """Describe what is wrong with a message, the first of it where it is much; `at`: the field that holds what was checked."""
    found = [": ".join(filter(None, (".".join(map(str, (*at, *item["loc"]))), item["msg"]))) for item in error.errors()[:_PROBLEMS_MAX]]
    more = error.error_count() - len(found)
    return shortened("; ".join([*found, *([f"and {more} more"] if more > 0 else ())]), PROBLEM_BYTES_MAX)


def value_problem(value: Any) -> str:
    """Tell why a JSON value is not taken, wherever in it that is; empty for one that is."""
    level = [value]
    for _ in range(NESTING_MAX + 1):
        parts: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                parts.extend(each.values())
            elif isinstance(each, list):
                parts.extend(each)
            elif isinstance(each, float) and not math.isfinite(each):
                return f"{each} is no number of JSON"
        level = parts
        if not level:
            return ""
    return f"objects and lists are nested more than {NESTING_MAX} deep"


def _only(payloads: Sequence[Any]) -> Any:
    if len(payloads) > 1:
        raise UnusableMessage(f"{len(payloads)} arguments were sent, and one is read")
    return payloads[0] if payloads else None


def _read(payload: Payload) -> Any:
    if payload.metadata.get("encoding") == unreadable.ENCODING:
        raise UnusableMessage(_problem(payload))
    if len(payload.data) > PAYLOAD_BYTES_MAX:
        raise UnusableMessage(f"it is {len(payload.data)} bytes; at most {PAYLOAD_BYTES_MAX} are read")
    try:
        value: Any = workflow.payload_converter().from_payloads([payload])[0]
    except Exception as error:  # whatever a converter says of bytes that any client may have sent
        raise UnusableMessage(shortened(f"it cannot be decoded: {_words(error)}", PROBLEM_BYTES_MAX)) from error
    if isinstance(value, bytes | bytearray):
        raise UnusableMessage("it is binary, and must be JSON")
    if problem := value_problem(value):
        raise UnusableMessage(problem)
    return value


def _check_refusals(payload: Payload, arrivals: Counter[str]) -> None:
    """Have a payload that was refused once be refused by every replay, and one that was read never be refused.

    The keys of a worker may change between the two, and a replay has to do what was done. So each refusal is recorded, as a patch.
    Raises `UnusableMessage`, or RuntimeError where only the key helps: the task fails, and is tried again.
    """
    arrival_id = payload.metadata.get(unreadable.ARRIVAL_ID)
    if arrival_id is None:
        return
    patch = _patch_of_next(arrival_id.decode(errors="replace"), arrivals)
    if payload.metadata.get("encoding") == unreadable.ENCODING:
        if workflow.patched(patch):
            raise UnusableMessage(_problem(payload))
        if not payload.data:
            raise RuntimeError(f"this was read before, and cannot be read again: {_problem(payload)}")
        payload.CopyFrom(Payload.FromString(payload.data))
    elif workflow.unsafe.is_replaying() and workflow.patched(patch):
        raise UnusableMessage("its key was not known when it arrived: send it again")


def _patch_of_next(arrival_id: str, arrivals: Counter[str]) -> str:
    """Name the record of the next payload with this id: an equal one may have been read before, or refused, and a patch holds for a run."""
    earlier = arrivals[arrival_id]
    arrivals[arrival_id] += 1
    return f"refused-{arrival_id}-{earlier}" if earlier else f"refused-{arrival_id}"


def _problem(payload: Payload) -> str:
    return shortened(payload.metadata.get(unreadable.PROBLEM, b"").decode(errors="replace"), PROBLEM_BYTES_MAX)


def _words(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return problems_of(error)
    return str(error.args[0]) if error.args else type(error).__name__


def taking_raw(method: Callable[..., Any], take: Callable[[Any, Sequence[Any]], Any]) -> Callable[..., Any]:
    """Make a method that Temporal gives all that was sent as it is; `take` gets the object and the arguments.

    Temporal decodes by the signature, so this one says that there is one argument and that it is not to be decoded.
    """

    def receive(self: Any, *payloads: Any) -> Any:
        return take(self, payloads)

    # Temporal finds overridden handlers by their qualified names.
    receive.__name__, receive.__qualname__, receive.__module__ = method.__name__, method.__qualname__, method.__module__
    receive.__doc__ = method.__doc__
    receive.__annotations__ = {"payload": RawValue}
    receive.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    return receive
