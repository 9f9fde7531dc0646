"""Error texts for structural errors of a document.

Pydantic finds the errors. This table has a text in terms of the API for each type of
error; `Advice` adds text for single fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from api_types.hints import nearest
from api_types.resources.parts.base_types import ResourceModel
from api_types.resources.parts.misplaced import VALUES
from api_types.validation.model_walk import Field, ModelLocation, fields_of, resolve
from api_types.validation.problems import Loc

_SHOWN_MAX = 80
_UNKNOWN = "extra_forbidden"
_MISSING = "missing"
# The validator counts valid items only, so it would also report a list with an invalid
# item as too short. Therefore this module checks lengths itself.
_LENGTHS = frozenset({"too_short", "too_long"})

Wording = Callable[[ErrorDetails, Field | None], str]


def quoted(value: object) -> str:
    """Format a value from a document: text quoted and shortened, booleans as in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "…"}"'
    return written(value)


def written(value: object) -> str:
    """Return a number as written in the file: `1.30` must not become 1.3 in the hint."""
    return str(getattr(value, "written", value))


def type_name(value: object) -> str:
    """Return the type of a value in terms of YAML and JSON."""
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else quoted(value)


def one_of(choices: Iterable[object]) -> str:
    """Join choices: `A`, `A or B`, `A, B or C`."""
    *head, last = map(str, choices)
    return f"{', '.join(head)} or {last}" if head else last


def _not_a_string(error: ErrorDetails, field: Field | None) -> str:
    value = error["input"]
    if field and field.advice.not_a_string:
        return field.advice.not_a_string.format(got=type_name(value))
    if isinstance(value, bool | int | float):
        text = quoted(value) if isinstance(value, bool) else written(value)
        return f'must be a string; quote it: "{text}"'
    return f"must be a string, got {type_name(value)}"


def _not_a(expected: str) -> Wording:
    return lambda error, _field: f"must be {expected}, got {type_name(error['input'])}"


def _out_of_range(error: ErrorDetails, field: Field | None) -> str:
    low, high = (field.low, field.high) if field else (None, None)
    if low is not None and high is not None:
        bounds = f"between {low} and {high}"
    elif low is not None:
        bounds = f"at least {low}"
    else:
        bounds = f"at most {high}"
    text = f"must be {bounds}, got {written(error['input'])}"
    is_too_low = error["type"] == "greater_than_equal"
    if field and is_too_low and field.advice.out_of_range:
        text += f"; {field.advice.out_of_range}"
    return text


def _choice(error: ErrorDetails, field: Field | None) -> str:
    value = error["input"]
    if field and field.advice.choice and isinstance(value, str):
        return field.advice.choice.format(got=value)
    choices = one_of(field.choices if field else ())
    if not isinstance(value, str):
        return f"must be {choices}, got {type_name(value)}"
    text = f"must be {choices}, got {quoted(value)}"
    meant = VALUES.get((field.wire, value)) if field else None
    return f"{text}; {meant}" if meant else text


def _wrong_length(field: Field, got: int) -> str:
    """Return the error for too few or too many items of a list or map, or ""."""
    if field.low is not None and got < field.low:
        plural = "s" if field.low > 1 else ""
        leave_out = "" if field.required else ", or leave the field out"
        return (
            field.advice.too_few.format(got=got)
            or f"needs at least {field.low} item{plural}{leave_out}"
        )
    if field.high is not None and got > field.high:
        return (
            field.advice.too_many.format(got=got)
            or f"at most {field.high} items, got {got}"
        )
    return ""


def _too_short_text(error: ErrorDetails, _field: Field | None) -> str:
    low = error["ctx"]["min_length"]
    return (
        "must not be empty"
        if low == 1
        else f"must be at least {low} characters, got {len(error['input'])}"
    )


def _too_long_text(error: ErrorDetails, _field: Field | None) -> str:
    high = error["ctx"]["max_length"]
    return f"must be at most {high} characters, got {len(error['input'])}"


def _missing(_error: ErrorDetails, field: Field | None) -> str:
    return (field.advice.missing if field else "") or "required field is missing"


def _other_text(error: ErrorDetails, field: Field | None) -> str:
    got, advice = quoted(error["input"]), field.advice.pattern if field else ""
    return (
        f"{advice}, got {got}"
        if advice
        else f"must match {error['ctx']['pattern']}, got {got}"
    )


WORDINGS: Mapping[str, Wording] = {
    _MISSING: _missing,
    "string_type": _not_a_string,
    "string_unicode": lambda _error, _field: "must be text that UTF-8 can encode",
    "int_type": _not_a("an integer"),
    "int_from_float": _not_a("an integer"),
    "bool_type": _not_a("true or false"),
    "model_type": _not_a("an object"),
    "model_attributes_type": _not_a("an object"),
    "dict_type": _not_a("an object"),
    "mapping_type": _not_a("an object"),
    "tuple_type": _not_a("a list"),
    "literal_error": _choice,
    "greater_than_equal": _out_of_range,
    "less_than_equal": _out_of_range,
    "string_too_short": _too_short_text,
    "string_too_long": _too_long_text,
    "string_pattern_mismatch": _other_text,
}


def describe(
    model: type[ResourceModel], raw: Any, errors: Iterable[ErrorDetails]
) -> list[tuple[Loc, str]]:
    """Return every structural error as a location and a sentence, unknown fields first.

    If a required field is missing while its misspelling is present, the result has one
    error for their object instead of two.
    """
    errors = list(errors)
    missing = {error["loc"] for error in errors if error["type"] == _MISSING}
    reported: list[tuple[Loc, str]] = []
    explained: set[Loc] = set()
    for error in errors:
        if error["type"] == _UNKNOWN:
            loc, sentence, explains = _unknown(model, raw, error["loc"], missing)
            reported.append((loc, sentence))
            explained.update(explains)
    for error in errors:
        if (
            error["type"] == _UNKNOWN
            or error["type"] in _LENGTHS
            or error["loc"] in explained
        ):
            continue
        spot = resolve(model, error["loc"])
        if (
            error["type"] == _MISSING
            and spot.field
            and spot.field.advice.missing_from_parent
        ):
            reported.append((error["loc"][:-1], spot.field.advice.missing_from_parent))
        else:
            reported.append((error["loc"], _sentence(error, spot)))
    return [*reported, *_wrong_lengths(model, raw, ())]


def _wrong_lengths(
    model: type[ResourceModel], raw: Any, at: Loc
) -> Iterator[tuple[Loc, str]]:
    if not isinstance(raw, Mapping):
        return
    for wire, field in fields_of(model).items():
        items = _items(field, raw.get(wire))
        if field.holds != "one" and items is not None:
            sentence = _wrong_length(field, len(items))
            if sentence:
                yield (*at, wire), sentence
        if field.model is None:
            continue
        for key, item in (items or {}).items():
            # A field with one object has no key between the field and the object.
            below = (*at, wire) if field.holds == "one" else (*at, wire, key)
            yield from _wrong_lengths(field.model, item, below)


def _items(field: Field, value: Any) -> Mapping[str | int, Any] | None:
    """Return the items of a field by index or key, or None for a wrong type."""
    if field.holds == "one":
        return {0: value}
    if field.holds == "list" and isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if field.holds == "map" and isinstance(value, Mapping) else None


def _sentence(error: ErrorDetails, spot: ModelLocation) -> str:
    wording = WORDINGS.get(error["type"])
    return wording(error, spot.field) if wording else error["msg"]


def _unknown(
    model: type[ResourceModel], raw: Any, loc: Loc, missing: set[Loc]
) -> tuple[Loc, str, tuple[Loc, ...]]:
    """Return the location and sentence for an unknown field.

    The third value has the locations of missing fields that the unknown field explains.
    """
    parent, name = loc[:-1], str(loc[-1])
    owner = resolve(model, loc).owner or model
    if name in owner.refused_fields:
        return loc, owner.refused_fields[name], ()
    parent_value = _value_at(raw, parent)
    absent = [
        wire
        for wire in fields_of(owner)
        if not isinstance(parent_value, Mapping) or wire not in parent_value
    ]
    meant = (
        owner.renamed_fields.get(name)
        or nearest(name, absent)
        or _one_level_down(owner, name)
    )
    if not meant:
        text = "unknown field"
        above = _further_up(model, loc)
        if above:
            text += f"; it belongs further up: write it in {above}"
        return loc, text, ()
    if (*parent, meant) in missing and parent:
        return (
            parent,
            f"{meant} is missing; unknown field {name}, did you mean {meant}?",
            ((*parent, meant),),
        )
    return loc, f"unknown field, did you mean {meant}?", ()


def _one_level_down(owner: type[ResourceModel], name: str) -> str:
    """Return the path of a field that was written next to the block that has it, or ""."""
    blocks = [
        (wire, field.model)
        for wire, field in fields_of(owner).items()
        if field.holds == "one" and field.model
    ]
    found = [f"{wire}.{name}" for wire, block in blocks if name in fields_of(block)]
    return found[0] if len(found) == 1 else ""


def _further_up(model: type[ResourceModel], loc: Loc) -> str:
    """Return the enclosing block with a field of this name, or "".

    Users often write a field of a block inside the part of the block that it concerns.
    """
    for end in range(len(loc) - 2, 0, -1):
        block = resolve(model, loc[:end]).model
        field = fields_of(block).get(str(loc[-1])) if block else None
        if field and field.model:
            parts = ("[]" if isinstance(part, int) else part for part in loc[:end])
            return ".".join(parts).replace(".[]", "[]")
    return ""


def _value_at(raw: Any, loc: Loc) -> Any:
    for part in loc:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return None
    return raw
