"""Read as much of a broken document as can be read.

All mistakes of an object are told at once, also those that only a rule over several fields can see. So rules run on broken documents
too: what is wrong or missing is replaced by a value that stops any rule that looks at it. Such a rule then has nothing to say, and every
other rule still speaks.
"""

from collections.abc import Collection, Mapping
from typing import Any, Never

from api_types.anatomy import Field, fields_of
from api_types.problems import Loc
from api_types.shapes import Shape


class Unreadable(Exception):
    """A rule looked at a value that is itself wrong."""


class _Wrong:
    """Stands for a wrong value; whatever is done with it raises Unreadable."""

    def _stop(self, *_anything: object) -> Never:
        raise Unreadable

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = __contains__ = _stop
    __lt__ = __le__ = __gt__ = __ge__ = __str__ = __format__ = __hash__ = _stop
    __eq__ = __ne__ = _stop


WRONG: Any = _Wrong()


def draft(model: type[Shape], raw: Any, wrong: Collection[Loc], at: Loc = ()) -> Any:
    """Build a model of `raw` without checking it; `wrong` says which locations did not hold. Read it under `except Unreadable`."""
    if not isinstance(raw, Mapping):
        return WRONG
    values: dict[str, Any] = {}
    for wire, field in fields_of(model).items():
        if wire in raw:
            values[field.attribute] = _value(field, raw[wire], wrong, (*at, wire))
        elif field.required:
            values[field.attribute] = WRONG
    return model.model_construct(_fields_set=set(values), **values)


def _value(field: Field, raw: Any, wrong: Collection[Loc], at: Loc) -> Any:
    # A list of the wrong length is still a list: rules may look at the items that are there.
    if field.holds == "list" and isinstance(raw, list | tuple):
        return tuple(_item(field, item, wrong, (*at, index)) for index, item in enumerate(raw))
    if field.holds == "map" and isinstance(raw, Mapping):
        return {key: _item(field, item, wrong, (*at, key)) for key, item in raw.items()}
    return WRONG if field.holds != "one" else _item(field, raw, wrong, at)


def _item(field: Field, raw: Any, wrong: Collection[Loc], at: Loc) -> Any:
    if field.model is not None:
        return draft(field.model, raw, wrong, at)
    return WRONG if at in wrong else raw
