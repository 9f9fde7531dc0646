"""Read YAML and JSON from users.

The YAML dialect is YAML 1.2 with the core schema: `yes`, `on` and dates are strings,
only `true` and `false` are booleans. This module builds the tree from the parser's
events. The parser's own constructors support more types than manifests, and lose the
spelling of a number: an error about `1.30` must not show 1.3.

A client may send any text. Input that would be large or slow to build is rejected
during the build: expanding aliases and merge keys, depth, long numbers, colliding keys.
Text that is not Unicode is rejected too: a document can escape half of a surrogate
pair, which can be neither stored nor printed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

import yaml
from yaml import CSafeLoader, MarkedYAMLError, SafeLoader, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.reader import ReaderError

DEPTH_MAX = 64
VALUES_MAX = 50_000
"""The maximum number of values in a document.

The largest manifest has a tenth of it.
"""

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
# Python spells infinity and not-a-number without the dot.
_DOTTED = re.compile(r"\.(inf|nan)", re.IGNORECASE)
_DIGITS_MAX = 64
_TAGS_OF_YAML = frozenset(
    {
        "binary",
        "omap",
        "pairs",
        "set",
        "timestamp",
        "seq",
        "map",
        "str",
        "null",
        "bool",
        "int",
        "float",
        "merge",
        "value",
    }
)
_MERGE = "<<"
_QUOTED = re.compile(r"'(?!<)[^']{4,}'")
_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Exports of whole fleets are about a tenth of this size.
_TEXT_MAX = 64 * 1024 * 1024
# Larger integers can be chosen to collide in a dict, which makes it quadratic.
_KEY_INT_MAX = 2**53


class WrittenFloat(float):
    """A number with a fraction that keeps its spelling."""

    written: str

    def __new__(cls, text: str) -> Self:
        """Parse YAML's and JSON's spellings."""
        number = super().__new__(cls, _DOTTED.sub(r"\1", text))
        number.written = text
        return number


class Unreadable(ValueError):
    """A text that cannot be read.

    `reason` contains no part of the text, because a misplaced part may be a secret.
    """

    def __init__(self, reason: str, line: int, *, quoted: str = "") -> None:
        super().__init__(f"{reason}{f': {quoted}' if quoted else ''}")
        self.reason = reason
        self.line = line
        self.number = 1
        """The position of the document in the text, counted from 1."""


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text, which fails for half of a surrogate pair."""
    return text.isascii() or not _SURROGATE.search(text)


def read_one(text: str, values_max: int = VALUES_MAX) -> Any:
    """Read a text that holds one document, such as a kubeconfig or a policy.

    An empty text returns None. The document has at most `values_max` values, with the
    values of an alias counted at each use.

    Raises:
        Unreadable: the text is invalid, or has several documents or too many values.

    """
    trees = read_trees(text, values_max)
    if len(trees) > 1:
        raise Unreadable("holds more than one document", trees[1][1])
    if not trees:
        return None
    tree, line = trees[0]
    _Followed(values_max, line).count(tree)
    return tree


class _Followed:
    """Counts the values of a tree, with the values of an alias counted at each use."""

    def __init__(self, values_max: int, line: int) -> None:
        self.values_max = values_max
        self.left = values_max
        self.line = line

    def count(self, value: Any, depth: int = 1) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"has more than {self.values_max} values", self.line)
        if depth > DEPTH_MAX:
            raise Unreadable(f"is nested more than {DEPTH_MAX} levels deep", self.line)
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self.count(item, depth + 1)


def read_trees(text: str, values_max: int = _TEXT_MAX) -> list[tuple[Any, int]]:
    """Read every document of a text, each with its line number.

    Aliases become references, so a tree may expand to many more values.

    Raises:
        Unreadable: the text is invalid or too large.

    """
    if len(text) > _TEXT_MAX:
        raise Unreadable(f"is larger than {_TEXT_MAX // 1024**2} MiB", 1)
    start = _after_space(text, 0)
    if text[start : start + 1] in ("{", "["):
        try:
            return _json_trees(text)
        except (ValueError, RecursionError):  # flow-style YAML begins like JSON
            pass
    return _yaml_trees(text, values_max)


# JSON


def _json_trees(text: str) -> list[tuple[Any, int]]:
    if _ESCAPED_SURROGATE.search(text):
        # The YAML reader determines which surrogates form pairs.
        raise ValueError("surrogates")
    decoder = json.JSONDecoder(
        parse_float=_json_float,
        parse_int=_json_int,
        parse_constant=_json_constant,
        object_pairs_hook=_object,
    )
    trees: list[tuple[Any, int]] = []
    at, line, counted = _after_space(text, 0), 1, 0
    while at < len(text):
        line += text.count("\n", counted, at)
        counted = at
        tree, at = decoder.raw_decode(text, at)
        trees.append((tree, line))
        at = _after_space(text, at)
    return trees


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # The YAML reader, which reads the text next, accepts JSON too and reports the
        # line.
        raise ValueError("duplicate key")
    return found


def _json_int(text: str) -> Any:
    return int(text) if len(text) <= _DIGITS_MAX else text


def _json_float(text: str) -> Any:
    return WrittenFloat(text) if len(text) <= _DIGITS_MAX else text


def _json_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# YAML


def _yaml_trees(text: str, values_max: int) -> list[tuple[Any, int]]:
    trees: list[tuple[Any, int]] = []
    try:
        events = _events(text)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                line = event.start_mark.line + (2 if event.explicit else 1)
                trees.append((_Builder(events, values_max).document(), line))
    except (Unreadable, YAMLError, RecursionError, ValueError, OverflowError) as error:
        unreadable = error if isinstance(error, Unreadable) else _not_yaml(error, text)
        unreadable.number = len(trees) + 1
        raise unreadable from None
    return trees


def _events(text: str) -> Iterator[Event]:
    # libyaml needs a tenth of the time of PyYAML's own parser. It rejects surrogates,
    # and JSON may write a character as a pair of them.
    libyaml_reads = is_unicode(text) and not _ESCAPED_SURROGATE.search(text)
    loader = CSafeLoader if libyaml_reads else SafeLoader
    yield from yaml.parse(text, Loader=loader)


def _not_yaml(error: Exception, text: str) -> Unreadable:
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        # The parser's message quotes the text, for instance a password that looks like
        # a tag. Names of tokens begin with "<".
        said = _QUOTED.sub(
            "'…'",
            ", ".join(str(part) for part in (error.context, error.problem) if part),
        )
        # The parser counts one line more when it misses something at the end.
        line = min(mark.line, text.count("\n")) + 1 if mark else 1
        return Unreadable("not YAML", line, quoted=said)
    if isinstance(error, ReaderError):
        # The parsers disagree on whether `position` counts bytes or characters.
        line = text.count("\n", 0, text.find(chr(error.character))) + 1
        return Unreadable(
            f"not YAML: unacceptable character #x{error.character:02x}: {error.reason}",
            line,
        )
    # The parser itself fails in other ways for directives and escapes that no document
    # needs.
    return Unreadable("not YAML", 1)


class _Builder:
    """Builds one document from the parser's events."""

    def __init__(self, events: Iterator[Event], values_max: int) -> None:
        self.events = events
        self.values_max = values_max
        self.anchors: dict[str, Any] = {}
        self.depth = 0
        self.values = 0
        self.merged = 0

    def document(self) -> Any:
        tree = None
        for event in self.events:
            if isinstance(event, DocumentEndEvent):
                break
            tree = self.value(event)
        return tree

    def value(self, event: Event) -> Any:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Unreadable(
                f"is nested more than {DEPTH_MAX} levels deep",
                event.start_mark.line + 1,
            )
        self.values += 1
        if self.values > self.values_max:
            raise Unreadable(
                f"has more than {self.values_max} values", event.start_mark.line + 1
            )
        built = self._built(event)
        self.depth -= 1
        return built

    def _count_merged(self, keys: int, line: int) -> None:
        """Limit the keys from merge keys, which copy, unlike an alias."""
        self.merged += keys
        if self.merged > VALUES_MAX:
            raise Unreadable(f"merges more than {VALUES_MAX} keys", line)

    def _built(self, event: Event) -> Any:
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                # A password that begins with an asterisk looks like an alias too.
                raise Unreadable(
                    "an alias without an anchor; quote a text that begins with *",
                    event.start_mark.line + 1,
                )
            return self.anchors[event.anchor]
        built: Any
        if isinstance(event, ScalarEvent):
            built = _scalar(event)
            self._remember(event, built)
        elif isinstance(event, SequenceStartEvent):
            _only_tag(event, "seq")
            built = []
            self._remember(event, built)
            built.extend(self.value(item) for item in self._until(SequenceEndEvent))
        elif isinstance(event, MappingStartEvent):
            _only_tag(event, "map")
            built = {}
            self._remember(event, built)
            self._fill(built)
        else:
            raise TypeError(event)
        return built

    def _remember(self, event: NodeEvent, built: Any) -> None:
        if event.anchor:
            self.anchors[event.anchor] = built

    def _until(self, end: type[Event]) -> Iterator[Event]:
        for event in self.events:
            if isinstance(event, end):
                return
            yield event

    def _fill(self, mapping: dict[Any, Any]) -> None:
        merged: list[tuple[Mapping[Any, Any], int]] = []
        for event in self._until(MappingEndEvent):
            line = event.start_mark.line + 1
            is_merge = (
                isinstance(event, ScalarEvent)
                and event.value == _MERGE
                and not event.style
            )
            key = self.value(event)
            value = self.value(next(self.events))
            if is_merge:
                sources = _merge_sources(value, line)
                self._count_merged(len(sources), line)
                merged.extend((source, line) for source in sources)
                continue
            if isinstance(key, dict | list | float) or (
                isinstance(key, int) and abs(key) > _KEY_INT_MAX
            ):
                raise Unreadable("a key must be a string", line)
            if key in mapping:
                raise Unreadable("a key is given twice", line, quoted=str(key))
            mapping[key] = value
        for source, line in merged:
            self._count_merged(len(source), line)
            for key, value in source.items():
                mapping.setdefault(key, value)


def _merge_sources(value: Any, line: int) -> list[Mapping[Any, Any]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, Mapping) for source in sources):
        raise Unreadable("<< merges objects only", line)
    return sources


def _only_tag(event: MappingStartEvent | SequenceStartEvent, expected: str) -> None:
    tag = str(event.tag) if event.tag else ""
    if tag not in ("", "!", f"{_TAG}{expected}"):
        raise _meaningless(tag, event)


def _scalar(event: ScalarEvent) -> Any:
    tag = str(event.tag) if event.tag else ""
    if tag not in ("", "!", f"{_TAG}str"):
        kinds = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float")}
        if tag not in kinds:
            raise _meaningless(tag, event)
        return _plain(event.value)
    if tag or event.style:
        return _unicode(event)
    return _plain(_unicode(event))


def _meaningless(tag: str, event: Event) -> Unreadable:
    # A password that begins with an exclamation mark looks like a tag too, so the
    # message shows only YAML's own tags.
    known = tag.startswith(_TAG) and tag.removeprefix(_TAG) in _TAGS_OF_YAML
    reason = (
        f"tag {tag} is not supported"
        if known
        else "a tag that is not supported; quote a text that begins with !"
    )
    return Unreadable(reason, event.start_mark.line + 1)


def _unicode(event: ScalarEvent) -> str:
    """Return the text of a scalar, with each escaped surrogate pair joined."""
    text: str = event.value
    if _SURROGATE.search(text):
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise Unreadable(
                "half of a surrogate pair, which is not a character",
                event.start_mark.line + 1,
            ) from None
    return text


def _plain(text: str) -> Any:
    """Resolve a plain scalar by YAML's core schema."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    # Longer numbers exceed every range, and are slow to convert.
    if len(text) <= _DIGITS_MAX:
        if _INT.fullmatch(text):
            return int(text)
        if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return WrittenFloat(text)
    return text
