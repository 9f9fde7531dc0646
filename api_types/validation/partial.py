"""Read as much of a broken document as can be read.

All mistakes of an object are told at once, also those that only a rule over several fields can see. So rules run on broken documents
too: a draft is a model without the attributes that are wrong or missing. A rule that reads one of them ends in an AttributeError and has
nothing to say; every other rule still speaks.
"""

from collections.abc import Collection, Mapping
from typing import Any

from api_types.resources.parts.base_types import Shape
from api_types.validation.model_walk import Field, fields_of
from api_types.validation.problems import Loc

_ABSENT: Any = object()


def draft(model: type[Shape], raw: Any, wrong: Collection[Loc], at: Loc = ()) -> Any:
    """Build a model of `raw` without checking it; `wrong` says which locations did not hold."""
    if not isinstance(raw, Mapping):
        return _hollow(model)
    fields = fields_of(model)
    values = {fields[wire].attribute: _value(fields[wire], value, wrong, (*at, wire)) for wire, value in raw.items() if wire in fields}
    built = model.model_construct(_fields_set=set(values), **values)
    for attribute, value in values.items():
        if value is _ABSENT:
            del built.__dict__[attribute]
    return built


def _hollow(model: type[Shape]) -> Shape:
    """Give an object of which nothing can be read."""
    built = model.model_construct()
    built.__dict__.clear()
    return built


def _value(field: Field, raw: Any, wrong: Collection[Loc], at: Loc) -> Any:
    if field.holds == "one":
        return _item(field, raw, wrong, at)
    # A list of the wrong length is still a list: rules may look at the items that are there.
    items: Any = _ABSENT
    if field.holds == "list" and isinstance(raw, list | tuple):
        items = tuple(_item(field, item, wrong, (*at, index)) for index, item in enumerate(raw))
    elif field.holds == "map" and isinstance(raw, Mapping):
        items = {key: _item(field, item, wrong, (*at, key)) for key, item in raw.items()}
    held = items.values() if isinstance(items, dict) else items
    return _ABSENT if held is _ABSENT or any(item is _ABSENT for item in held) else items


def _item(field: Field, raw: Any, wrong: Collection[Loc], at: Loc) -> Any:
    if field.model is not None:
        return draft(field.model, raw, wrong, at)
    return _ABSENT if at in wrong else raw
