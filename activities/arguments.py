"""Reject activity arguments that cannot be decoded, with an error that is not retried.

The SDK decodes arguments before any interceptor runs, and retries a decoding error
without limit. Therefore the converter of the worker's activities decodes such an
argument into an `InvalidArgument` object, and an interceptor rejects the activity.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from types import MethodType
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadConverter
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from api_types.errors import InvalidInput, UnreadableArgument
from api_types.payloads import unreadable
from api_types.payloads.limits import shortened

_PROBLEM_BYTES_MAX = 1000


@dataclass(frozen=True)
class InvalidArgument:
    """An argument that cannot be decoded.

    `undecrypted` is True if its encryption key may become available later.
    """

    problem: str
    undecrypted: bool = False


def tolerant(converter: DataConverter) -> DataConverter:
    """Return a converter that decodes into `InvalidArgument` if `converter` raises."""
    inner = converter.payload_converter_class

    class Tolerant(PayloadConverter):
        def __init__(self) -> None:
            self._inner = inner()

        def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
            return self._inner.to_payloads(values)

        def from_payloads(
            self, payloads: Sequence[Payload], type_hints: list[type] | None = None
        ) -> list[Any]:
            return [
                _read(self._inner, payload, hint)
                for payload, hint in zip_longest(payloads, type_hints or ())
            ]

    return replace(converter, payload_converter_class=Tolerant)


def _read(converter: PayloadConverter, payload: Payload, hint: type | None) -> Any:
    if payload.metadata.get("encoding") == unreadable.ENCODING:
        # Payloads that passed through a codec carry the arrival id. Without a codec
        # there is no key that could become available.
        undecrypted = not payload.data and unreadable.ARRIVAL_ID in payload.metadata
        problem = payload.metadata.get(unreadable.PROBLEM, b"").decode(errors="replace")
        return InvalidArgument(_shortened(problem), undecrypted)
    try:
        value = converter.from_payloads([payload], None if hint is None else [hint])[0]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"]
        return InvalidArgument(_shortened(f"{place}: {message}" if place else message))
    except Exception as error:  # noqa: BLE001 - any client may have sent these bytes
        return InvalidArgument(_shortened(f"it cannot be decoded: {error}"))
    # Only the JSON decoder checks the type. Other encodings decode to None or bytes.
    if isinstance(hint, type) and not isinstance(value, hint):
        return InvalidArgument(f"must be a {hint.__name__}")
    return value


def _shortened(problem: str) -> str:
    return shortened(problem, _PROBLEM_BYTES_MAX)


class ArgumentCheck(Interceptor):
    """Rejects activities whose arguments do not match or cannot be decoded."""

    def intercept_activity(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002 - the SDK's name
    ) -> ActivityInboundInterceptor:
        return _Check(next)


def _parameter_count(function: Callable[..., Any]) -> int:
    if isinstance(function, MethodType):
        return _parameter_count_of_function(function.__func__) - 1
    return _parameter_count_of_function(function)


@lru_cache(maxsize=512)
def _parameter_count_of_function(function: Callable[..., Any]) -> int:
    # Reading a signature takes as long as several small activities.
    return len(inspect.signature(function).parameters)


class _Check(ActivityInboundInterceptor):
    async def execute_activity(
        self,
        input: ExecuteActivityInput,  # noqa: A002 - the SDK's name
    ) -> Any:
        name = activity.info().activity_type
        expected = _parameter_count(input.fn)
        if len(input.args) != expected:
            raise InvalidInput(
                f"{name}: got {len(input.args)} arguments, expected {expected}"
            )
        for number, argument in enumerate(input.args, 1):
            if isinstance(argument, InvalidArgument):
                problem = f"{name}: argument {number}: {argument.problem}"
                # The calling workflow encrypted the argument with a key that this
                # worker may still receive, so retry. Activities without a workflow have
                # no caller that waits.
                if argument.undecrypted and activity.info().workflow_id:
                    raise UnreadableArgument(problem)
                raise InvalidInput(problem)
        return await super().execute_activity(input)
