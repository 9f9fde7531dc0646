"""JSON encoding of the scheduler's dataclasses for Temporal payloads.

Field names become camelCase. Fields that equal their default are omitted, and absent
fields take their default, so old payloads can still be read. A codec per class is built
once from its fields. Placements repeat the same engines hundreds of times, so a
decision writes each distinct tuple of engines once and refers to it by number.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from scheduler.model.decision import Decision, EnginePlacement, Placement
from scheduler.model.fields import FieldError, inside, is_whole, wrong

T = TypeVar("T")
Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def to_wire(value: Any) -> Any:
    """Return the JSON tree of a scheduler dataclass, or of a tuple of them.

    Equal values give equal trees.
    """
    if isinstance(value, tuple | list):
        return [to_wire(item) for item in value]
    return codec(type(value))[0](value)


def from_wire(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Read a value; absent fields take their defaults, and unknown fields are ignored.

    Raise ValueError that names the field if a value has the wrong type or a required
    field is missing.
    """
    try:
        value: T = codec(kind)[1](tree)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"invalid {kind.__name__}: {error}") from error
    return value


_codecs: dict[Any, Codec] = {}


def codec(kind: Any) -> Codec:
    """Return the writer and the reader of a type.

    Raise TypeError for a type without a JSON form.
    """
    known = _codecs.get(kind)
    if known is None:
        known = _codecs[kind] = _make(kind)
    return known


def _make(kind: Any) -> Codec:
    if kind is Decision:
        return _write_decision, _read_decision
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if kind in _SCALARS:
        return _same, _SCALARS[kind]
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None and issubclass(_class(origin), Mapping):
        return _mapping(*codec(arguments[1]))
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    raise TypeError(f"{kind} has no JSON form")


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise wrong("", "text", value)
    return value


def _whole(value: Any) -> Any:
    if not is_whole(value):
        raise wrong("", "a whole number of 64 bits", value)
    return value


def _flag(value: Any) -> Any:
    if type(value) is not bool:
        raise wrong("", "true or false", value)
    return value


def _scalar(value: Any) -> Any:
    if type(value) not in (str, bool) and not is_whole(value):
        raise wrong("", "text, a whole number, true or false", value)
    return value


# `object` is the type of an attribute's value; the field before it states the type.
_SCALARS: Mapping[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _whole,
    bool: _flag,
    object: _scalar,
}


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong("", "an object", value)
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise wrong("", "a list", value)
    return value


def _all(read: Callable[[Any], Any], items: Iterable[tuple[str, Any]]) -> None:
    """Read fields until one fails, and raise its error with the name of the field."""
    for name, item in items:
        try:
            read(item)
        except ValueError as error:
            raise inside(name, error) from error


def _tuple(arguments: tuple[Any, ...]) -> Codec:
    if arguments[-1] is Ellipsis:
        return _sequence(*codec(arguments[0]))
    pairs = [codec(argument) for argument in arguments]

    def read_pairs(tree: Any) -> tuple[Any, ...]:
        if len(_list(tree)) != len(pairs):
            raise wrong("", f"a list of {len(pairs)}", tree)
        return tuple(read(item) for (_, read), item in zip(pairs, tree, strict=True))

    return (
        lambda value: [
            write(item) for (write, _), item in zip(pairs, value, strict=True)
        ]
    ), read_pairs


def _sequence(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Codec:
    def read_items(tree: Any) -> tuple[Any, ...]:
        try:
            return tuple([read(item) for item in _list(tree)])
        except ValueError:
            _all(read, ((f"[{i}]", item) for i, item in enumerate(_list(tree))))
            raise

    return (lambda value: [write(item) for item in value]), read_items


def _mapping(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Codec:
    def read_items(tree: Any) -> dict[str, Any]:
        try:
            return {key: read(item) for key, item in _object(tree).items()}
        except ValueError:
            _all(read, _object(tree).items())
            raise

    return (lambda value: {key: write(value[key]) for key in sorted(value)}), read_items


def _optional(arguments: tuple[Any, ...]) -> Codec:
    kinds = [argument for argument in arguments if argument is not type(None)]
    if len(kinds) > 1:  # a whole number or a percentage
        return _same, _scalar
    write, read = codec(kinds[0])
    return (lambda value: None if value is None else write(value)), (
        lambda tree: None if tree is None else read(tree)
    )


def camel(name: str) -> str:
    """Return the JSON name of a field."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _record(kind: Any) -> Codec:
    hints = get_type_hints(kind)
    fields = []
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        write, read = codec(hints[field.name])
        default = (
            field.default_factory()
            if field.default_factory is not dataclasses.MISSING
            else field.default
        )
        fields.append((field.name, camel(field.name), write, read, default))

    def put(value: Any) -> dict[str, Any]:
        tree = {}
        for name, key, write, _, default in fields:
            item = getattr(value, name)
            if item != default:
                tree[key] = write(item)
        return tree

    def get(tree: Mapping[str, Any]) -> Any:
        try:
            return kind(
                **{
                    name: read(tree[key])
                    for name, key, _, read, _ in fields
                    if tree.get(key) is not None
                }
            )
        except (TypeError, ValueError, AttributeError) as error:
            # The field is identified only after a failure: a decision has thousands of
            # fields, and most decisions have no invalid field.
            given = _object(tree)
            for _, key, _, read, default in fields:
                if given.get(key) is not None:
                    _all(read, [(key, given[key])])
                elif default is dataclasses.MISSING:
                    raise FieldError(key, "is required") from error
            raise

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
        tree = write_placement(dataclasses.replace(placement, engines=(), held=()))
        tree["engines"] = distinct.setdefault(placement.engines, len(distinct))
        if placement.held:
            tree["held"] = distinct.setdefault(placement.held, len(distinct))
        placements.append(tree)
    whole: dict[str, Any] = _plain_decision()[0](
        dataclasses.replace(decision, placements=())
    )
    whole["stamps"] = [write_engines(engines) for engines in distinct]
    whole["placements"] = placements
    return whole


def _read_decision(tree: Mapping[str, Any]) -> Decision:
    read_engines = codec(tuple[EnginePlacement, ...])[1]
    read_placement = codec(Placement)[1]
    distinct = [read_engines(engines) for engines in tree.get("stamps", [])]
    decision: Decision = _plain_decision()[1]({**tree, "placements": []})
    placements = tuple(
        dataclasses.replace(
            read_placement({**item, "engines": [], "held": []}),
            engines=distinct[item["engines"]],
            held=distinct[item["held"]] if "held" in item else (),
        )
        for item in tree["placements"]
    )
    return dataclasses.replace(decision, placements=placements)
