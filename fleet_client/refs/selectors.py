"""The selectors of kubectl.

`-l` is `app=chat,tier!=gold,region in (eu,us),gpu,!spot`, and `--field-selector` is
`metadata.name!=qwen`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from fleet_client.errors import Refused
from fleet_client.refs.targets import Target

Labels = Mapping[str, str]
Selector = Callable[[Labels], bool]

_KEY = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET = re.compile(rf"{_KEY}\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)\Z")
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_VALUES = re.compile(rf"{_VALUE}(?:\s*,\s*{_VALUE})*")
_EQUAL = re.compile(rf"{_KEY}\s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})\Z")
_PRESENT = re.compile(rf"(?P<bang>!?)\s*{_KEY}\Z")
_FIELDS = ("metadata.name", "metadata.namespace")
_LENGTH_MAX = 16 * 1024
TERMS_MAX = 64
"""The most terms of one selector.

A server evaluates each term for each object, and for each change in a watch.
"""


def parse_selector(text: str | None) -> Selector:
    """Compile a label selector to a predicate.

    An empty selector selects everything. Raise `Refused` with the bad part.
    """
    if not text or not text.strip():
        return lambda _: True
    if len(text) > _LENGTH_MAX:
        raise Refused(
            f"the label selector is longer than {_LENGTH_MAX} characters",
            next_step="select with fewer terms",
        )
    parts = list(_terms(text))
    if len(parts) > TERMS_MAX:
        raise Refused(
            f"the label selector has more than {TERMS_MAX} terms",
            next_step="select with fewer terms, such as key in (a,b)",
        )
    terms = [_term(part.strip()) for part in parts]
    return lambda labels: all(term(labels) for term in terms)


def parse_field_selector(text: str | None) -> Selector:
    """Compile a field selector to a predicate over the fields of custom resources.

    These are `metadata.name` and `metadata.namespace`, each compared with `=`, `==` or
    `!=`. Raise `Refused` for anything else.
    """
    for part in (text or "").split(",") if text else ():
        found = _EQUAL.match(part.strip())
        if found is None or found["key"] not in _FIELDS:
            raise Refused(
                f"{part!r} is not a field selector",
                next_step="write metadata.name=NAME or metadata.namespace!=NAME, for example",
            )
    return parse_selector(text)


class ObjectSelection(NamedTuple):
    """The objects of a kind that a command means: those that match both selectors."""

    labels: Selector
    fields: Selector

    @classmethod
    def parse(
        cls,
        wanted: Sequence[tuple[Any, str | None]],
        labels: str | None,
        fields: str | None = None,
    ) -> Self:
        """Parse the selectors of a command, which applies them to whole kinds.

        Raise `Refused` for an invalid selector, and for a selector beside a name.
        """
        named = next((name for _, name in wanted if name is not None), None)
        if named is not None and (labels or fields):
            raise Refused(
                f"a selector cannot be combined with a name, here {named!r}",
                next_step="name the objects, or select among all objects of a kind",
            )
        return cls(parse_selector(labels), parse_field_selector(fields))

    def selects(self, target: Target, labels: Labels) -> bool:
        fields = {
            "metadata.name": target.name,
            "metadata.namespace": target.namespace,
        }
        return self.labels(labels) and self.fields(fields)


def _terms(text: str) -> Iterator[str]:
    """Split a selector at the commas that are not between parentheses."""
    start = depth = 0
    for at, character in enumerate(text):
        depth = max(0, depth + {"(": 1, ")": -1}.get(character, 0))
        if character == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _term(text: str) -> Selector:
    found = _SET.match(text)
    if found and _VALUES.fullmatch(found["values"].strip()):
        key, values = (
            found["key"],
            {value.strip() for value in found["values"].split(",")},
        )
        if found["word"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(text):
        key, value = found["key"], found["value"]
        if found["sign"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _PRESENT.match(text):
        key, wanted = found["key"], not found["bang"]
        return lambda labels: (key in labels) is wanted
    raise Refused(
        f"{text!r} is not a label selector",
        next_step="write key=value, key!=value, key in (a,b), key notin (a,b), key or !key",
    )
