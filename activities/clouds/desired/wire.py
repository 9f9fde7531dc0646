"""The JSON form of desired objects in messages.

A fact is `{"$fact": [key, name]}`, a token `{"$token": true}`. No parameter of a cloud
begins with `$`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from activities.clouds.desired.graph import CloudCall, DesiredObject, Fact, Token, Value
from api_types.messages.clouds import CloudObject, WorkClass

_FACT = "$fact"
_TOKEN = "$token"  # noqa: S105 - a key of JSON


def to_wire(each: DesiredObject, work: WorkClass, pool: str = "") -> CloudObject:
    calls = [
        {
            "service": call.service,
            "operation": call.operation,
            "parameters": _written(call.parameters),
            "facts": dict(call.facts),
        }
        for call in each.calls
    ]
    digest = hashlib.sha256(json.dumps(calls, sort_keys=True).encode()).hexdigest()[:16]
    return CloudObject(
        key=each.key,
        kind=each.kind,
        name=each.name,
        needs=list(each.needs),
        work=work,
        calls=calls,
        waits_for=each.waits_for,
        digest=digest,
        pool=pool,
    )


def from_wire(sent: CloudObject) -> DesiredObject:
    """Parse an object that `to_wire` wrote. Raises ValueError if it is malformed."""
    try:
        calls = tuple(
            CloudCall(
                call["service"],
                call["operation"],
                _read(call["parameters"]),
                dict(call["facts"]),
            )
            for call in sent.calls
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"object {sent.key} has malformed calls ({type(error).__name__})"
        ) from None
    return DesiredObject(
        sent.key, sent.kind, sent.name, tuple(sent.needs), calls, sent.waits_for
    )


def _written(value: Value) -> Any:
    if isinstance(value, Fact):
        return {_FACT: [value.key, value.name]}
    if isinstance(value, Token):
        return {_TOKEN: True}
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_written(item) for item in value]
    return value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        if _FACT in value:
            key, name = value[_FACT]
            return Fact(str(key), str(name))
        if _TOKEN in value:
            return Token()
        return {key: _read(item) for key, item in value.items()}
    return [_read(item) for item in value] if isinstance(value, list) else value
