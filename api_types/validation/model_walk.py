"""The fields of a model, read once from its annotations, and the walk over a manifest.

Error paths, error texts, rules and the duplicate check all need the same properties of
a field: its JSON name, whether it holds one object, a list or a map of objects, its
bounds and its `Advice`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic.fields import FieldInfo

from api_types.resources.parts.base_types import Advice, MapKeys, ResourceModel
from api_types.validation.problems import Loc

_NO_ADVICE = Advice()


@dataclass(frozen=True)
class Field:
    """One field of a model."""

    attribute: str
    wire: str
    required: bool
    holds: Literal["one", "list", "map"]
    model: type[ResourceModel] | None
    """The model of the value, or of each item; None for plain values."""
    low: int | None = None
    high: int | None = None
    """Bounds of a number, or of the length of a text, list or map."""
    map_keys: MapKeys | None = None
    advice: Advice = _NO_ADVICE
    choices: tuple[str, ...] = ()
    """The permitted values of the field, or of each of its items; empty for any."""


@cache
def fields_of(model: type[ResourceModel]) -> Mapping[str, Field]:
    """Return the fields of a model by wire name."""
    found = (_field(name, info) for name, info in model.model_fields.items())
    return MappingProxyType({field.wire: field for field in found})


def _field(name: str, info: FieldInfo) -> Field:
    annotation, notes = _unwrap(info.annotation, list(info.metadata))
    holds: Literal["one", "list", "map"] = "one"
    item = annotation
    if get_origin(annotation) is tuple:
        holds, item = "list", _unwrap(get_args(annotation)[0], [])[0]
    elif get_origin(annotation) is dict:
        holds, item = "map", _unwrap(get_args(annotation)[1], [])[0]
    is_model = isinstance(item, type) and issubclass(item, ResourceModel)
    return Field(
        attribute=name,
        wire=info.alias or name,
        required=info.is_required(),
        holds=holds,
        model=item if is_model else None,
        low=_bound(notes, Ge, "ge", MinLen, "min_length"),
        high=_bound(notes, Le, "le", MaxLen, "max_length"),
        map_keys=next((note for note in notes if isinstance(note, MapKeys)), None),
        advice=next((note for note in notes if isinstance(note, Advice)), _NO_ADVICE),
        choices=get_args(item) if get_origin(item) is Literal else (),
    )


def _bound(
    notes: list[Any], of_number: type, number: str, of_length: type, length: str
) -> int | None:
    for note in notes:
        if isinstance(note, of_number):
            return int(getattr(note, number))
        if isinstance(note, of_length):
            return int(getattr(note, length))
    return None


def _unwrap(annotation: Any, notes: list[Any]) -> tuple[Any, list[Any]]:
    """Unwrap `Annotated` and `| None`, and collect the annotations."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        for note in more:
            found = note.metadata if isinstance(note, FieldInfo) else [note]
            notes = [*notes, *found]
        return _unwrap(inner, notes)
    if get_origin(annotation) in (Union, UnionType):
        rest = [one for one in get_args(annotation) if one is not NoneType]
        if len(rest) == 1:
            return _unwrap(rest[0], notes)
    return annotation, notes


@dataclass(frozen=True)
class ModelLocation:
    """The models and the field at a location."""

    owner: type[ResourceModel] | None
    """The model with the last field of the location."""
    field: Field | None
    """The last field; None if the model has no such field."""
    model: type[ResourceModel] | None
    """The model of the value at the location itself."""


def resolve(model: type[ResourceModel], loc: Loc) -> ModelLocation:
    """Resolve a location in the models, as far as they describe it."""
    owner: type[ResourceModel] | None = None
    field: Field | None = None
    current: type[ResourceModel] | None = model
    inside = False  # past the field's name, among the items of its list or map
    for part in loc:
        if current is not None and not inside:
            owner, field = current, fields_of(current).get(str(part))
            current = field.model if field else None
            inside = field is not None and field.holds != "one"
        else:
            inside = False
    return ModelLocation(owner, field, None if inside else current)


def show(model: type[ResourceModel], raw: Any, loc: Loc) -> str:
    """Format a location for users: `spec.engines[name=a].members[0]`."""
    text = ""
    field: Field | None = None
    current: type[ResourceModel] | None = model
    inside = False
    value = raw
    for part in loc:
        if current is not None and not inside:
            field = fields_of(current).get(str(part))
            current = field.model if field else None
            inside = field is not None and field.holds != "one"
            text += f".{part}" if text else str(part)
        else:
            item = _child(value, part)
            text += _item(part, item, field if inside else None)
            inside = False
        value = _child(value, part)
    return text


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list | tuple) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def _item(part: str | int, item: Any, field: Field | None) -> str:
    if isinstance(part, str):
        return (
            f".{part}"
            if part.replace("_", "").replace("-", "").isalnum()
            else f'["{part}"]'
        )
    if field and field.map_keys and field.model and isinstance(item, Mapping):
        shape = fields_of(field.model)
        pairs = [(key, item.get(key)) for key in field.map_keys.keys]
        # A value that its field does not permit does not identify an item.
        if all(_identifies(value, shape[key]) for key, value in pairs):
            return f"[{','.join(f'{key}={value}' for key, value in pairs)}]"
    return f"[{part}]"


def _identifies(value: Any, key: Field) -> bool:
    if not isinstance(value, str) or not value:
        return False
    return not key.choices or value in key.choices


def walk(value: ResourceModel, at: Loc = ()) -> Iterator[tuple[ResourceModel, Loc]]:
    """Yield every object of a manifest with its location, parents first."""
    yield value, at
    for wire, field in fields_of(type(value)).items():
        if field.model is None:
            continue
        # a draft may not have this attribute
        held = value.__dict__.get(field.attribute)
        if isinstance(held, ResourceModel):
            yield from walk(held, (*at, wire))
        elif isinstance(held, tuple | dict):
            items = held.items() if isinstance(held, dict) else enumerate(held)
            for key, item in items:
                if isinstance(item, ResourceModel):
                    yield from walk(item, (*at, wire, key))
