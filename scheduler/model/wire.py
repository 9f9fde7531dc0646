"""Plain JSON for everything of the scheduler that crosses Temporal.

Field names become camelCase, what equals its default is left out, and what is absent takes its default again, so old payloads still open.
A codec per class is built once from its fields. Lists of placements repeat the same engines hundreds of times; a decision therefore
writes each different tuple of them once and refers to it by number.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from scheduler.model.decision import Decision, EnginePlacement, Placement

T = TypeVar("T")
Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def to_wire(value: Any) -> Any:
    """Give the JSON tree of any of the scheduler's dataclasses, or of a tuple of them; equal values give equal trees."""
    if isinstance(value, tuple | list):
        return [to_wire(item) for item in value]
    return codec(type(value))[0](value)


def from_wire(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Read a value back; absent fields take their defaults, unknown fields are ignored.

    Raises ValueError naming the field when a value has the wrong shape or a required one is missing.
    """
    try:
        value: T = codec(kind)[1](tree)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"this is not a {kind.__name__}: {error}") from error
    return value


_codecs: dict[Any, Codec] = {}


def codec(kind: Any) -> Codec:
    """Give the writer and the reader of a type; raises TypeError for a type that has no JSON form here."""
    known = _codecs.get(kind)
    if known is None:
        known = _codecs[kind] = _make(kind)
    return known


def _make(kind: Any) -> Codec:
    if kind is Decision:
        return _write_decision, _read_decision
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if kind in (str, int, bool, object, Any):
        return _same, _same
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None and issubclass(_class(origin), Mapping):
        write, read = codec(arguments[1])
        return (
            lambda value: {key: write(value[key]) for key in sorted(value)},
            lambda tree: {key: read(item) for key, item in tree.items()},
        )
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    raise TypeError(f"{kind} has no JSON form")


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _same(value: Any) -> Any:
    return value


def _tuple(arguments: tuple[Any, ...]) -> Codec:
    if arguments[-1] is Ellipsis:
        write, read = codec(arguments[0])
        return (lambda value: [write(item) for item in value]), (lambda tree: tuple(read(item) for item in tree))
    pairs = [codec(argument) for argument in arguments]
    return (
        lambda value: [write(item) for (write, _), item in zip(pairs, value, strict=True)],
        lambda tree: tuple(read(item) for (_, read), item in zip(pairs, tree, strict=True)),
    )


def _optional(arguments: tuple[Any, ...]) -> Codec:
    kinds = [argument for argument in arguments if argument is not type(None)]
    if len(kinds) > 1:
        return _same, _same
    write, read = codec(kinds[0])
    return (lambda value: None if value is None else write(value)), (lambda tree: None if tree is None else read(tree))


def camel(name: str) -> str:
    """Give the JSON name of a field."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _record(kind: Any) -> Codec:
    hints = get_type_hints(kind)
    fields = []
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        write, read = codec(hints[field.name])
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        fields.append((field.name, camel(field.name), write, read, default))

    def put(value: Any) -> dict[str, Any]:
        tree = {}
        for name, key, write, _, default in fields:
            item = getattr(value, name)
            if item != default:
                tree[key] = write(item)
        return tree

    def get(tree: Mapping[str, Any]) -> Any:
        return kind(**{name: read(tree[key]) for name, key, _, read, _ in fields if tree.get(key) is not None})

    return put, get


@cache
def _plain_decision() -> Codec:
    return _record(Decision)


def _write_decision(decision: Decision) -> dict[str, Any]:
    distinct: dict[tuple[EnginePlacement, ...], int] = {}
    write_placement = codec(Placement)[0]
    write_engines = codec(tuple[EnginePlacement, ...])[0]
    placements = []
    for placement in decision.placements:
        tree = write_placement(dataclasses.replace(placement, engines=()))
        tree["engines"] = distinct.setdefault(placement.engines, len(distinct))
        placements.append(tree)
    whole: dict[str, Any] = _plain_decision()[0](dataclasses.replace(decision, placements=()))
    whole["stamps"] = [write_engines(engines) for engines in distinct]
    whole["placements"] = placements
    return whole


def _read_decision(tree: Mapping[str, Any]) -> Decision:
    read_engines = codec(tuple[EnginePlacement, ...])[1]
    read_placement = codec(Placement)[1]
    distinct = [read_engines(engines) for engines in tree.get("stamps", [])]
    decision: Decision = _plain_decision()[1]({**tree, "placements": []})
    placements = tuple(
        dataclasses.replace(read_placement({**item, "engines": []}), engines=distinct[item["engines"]]) for item in tree["placements"]
    )
    return dataclasses.replace(decision, placements=placements)
