"""Build a model from the valid part of an invalid document.

All errors of an object are reported at once, including errors of rules over several
fields. So rules run on invalid documents too: a draft is a model without the invalid
and missing attributes. A rule that reads such an attribute ends in an AttributeError
and reports nothing. Every other rule still runs.
"""

from collections.abc import Collection, Mapping
from typing import Any

from api_types.resources.parts.base_types import ResourceModel
from api_types.validation.model_walk import Field, fields_of
from api_types.validation.problems import Loc

_ABSENT: Any = object()


def draft(
    model: type[ResourceModel], raw: Any, wrong: Collection[Loc], at: Loc = ()
) -> Any:
    """Build a model of `raw` without validation; `wrong` are the invalid locations."""
    if not isinstance(raw, Mapping):
        return _empty(model)
    fields = fields_of(model)
    values = {}
    for wire, value in raw.items():
        field = fields.get(wire)
        if field:
            values[field.attribute] = _value(field, value, wrong, (*at, wire))
    built = model.model_construct(_fields_set=set(values), **values)
    for attribute, value in values.items():
        if value is _ABSENT:
            del built.__dict__[attribute]
    return built


def _empty(model: type[ResourceModel]) -> ResourceModel:
    """Return a model without any attribute."""
    built = model.model_construct()
    built.__dict__.clear()
    return built


def _value(field: Field, raw: Any, wrong: Collection[Loc], at: Loc) -> Any:
    if field.holds == "one":
        return _item(field, raw, wrong, at)
    # A list of the wrong length is still a list: rules may check its items.
    items: Any = _ABSENT
    if field.holds == "list" and isinstance(raw, list | tuple):
        items = tuple(
            _item(field, item, wrong, (*at, index)) for index, item in enumerate(raw)
        )
    elif field.holds == "map" and isinstance(raw, Mapping):
        items = {
            key: _item(field, item, wrong, (*at, key)) for key, item in raw.items()
        }
    held = items.values() if isinstance(items, dict) else items
    return (
        _ABSENT if held is _ABSENT or any(item is _ABSENT for item in held) else items
    )


def _item(field: Field, raw: Any, wrong: Collection[Loc], at: Loc) -> Any:
    if field.model is not None:
        return draft(field.model, raw, wrong, at)
    return _ABSENT if at in wrong else raw
