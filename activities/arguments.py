"""Arguments of activities that cannot be read fail them for good, in words.

The SDK decodes the arguments before any interceptor, and what that raises is retried for ever. So the converter of the worker's activities
gives such an argument a form of its own, and an interceptor in front of every activity refuses it.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadConverter
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from api_types.errors import InvalidInput, UnreadableArgument
from api_types.payloads import unreadable
from api_types.payloads.limits import shortened

_PROBLEM_BYTES_MAX = 1000


@dataclass(frozen=True)
class Refused:
    """Stands for an argument that cannot be read. `undecrypted`: a key may come back."""

    problem: str
    undecrypted: bool = False


def tolerant(converter: DataConverter) -> DataConverter:
    """Give a converter that gives `Refused` where the other one raises; it writes as that does."""
    inner = converter.payload_converter_class

    class Tolerant(PayloadConverter):
        def __init__(self) -> None:
            self._inner = inner()

        def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
            return self._inner.to_payloads(values)

        def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
            return [_read(self._inner, payload, hint) for payload, hint in zip_longest(payloads, type_hints or ())]

    return replace(converter, payload_converter_class=Tolerant)


def _read(converter: PayloadConverter, payload: Payload, hint: type | None) -> Any:
    if payload.metadata.get("encoding") == unreadable.ENCODING:
        # What came through a codec has the id; without one there is no key that could come back.
        undecrypted = not payload.data and unreadable.ARRIVAL_ID in payload.metadata
        return Refused(_words(payload.metadata.get(unreadable.PROBLEM, b"").decode(errors="replace")), undecrypted)
    try:
        value = converter.from_payloads([payload], None if hint is None else [hint])[0]
    except ValidationError as error:
        first = error.errors()[0]
        return Refused(_words(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}".removeprefix(": ")))
    except Exception as error:  # noqa: BLE001 - whatever a converter says of bytes that any client may have sent
        return Refused(_words(f"it cannot be decoded: {error}"))
    # Only JSON is read as what is wanted: other encodings give nothing, or bytes, whatever that is.
    return Refused(f"must be a {hint.__name__}") if isinstance(hint, type) and not isinstance(value, hint) else value


def _words(problem: str) -> str:
    return shortened(problem, _PROBLEM_BYTES_MAX)


class ArgumentCheck(Interceptor):
    """Refuses what no activity can be executed with."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """See the base class."""
        return _Check(next)


class _Check(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        name = activity.info().activity_type
        taken = len(inspect.signature(input.fn).parameters)
        if len(input.args) != taken:
            raise InvalidInput(f"{name}: {len(input.args)} arguments were given, and it takes {taken}")
        for number, argument in enumerate(input.args, 1):
            if isinstance(argument, Refused):
                problem = f"{name}: argument {number}: {argument.problem}"
                # The workflow that gave it has written it with a key that this worker may get. No workflow waits for any other activity.
                if argument.undecrypted and activity.info().workflow_id:
                    raise UnreadableArgument(problem)
                raise InvalidInput(problem)
        return await super().execute_activity(input)
