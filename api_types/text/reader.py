"""Read YAML and JSON as users write it.

YAML 1.2 with the core schema: `yes`, `on` and dates are strings, only `true` and `false` are booleans. The tree is built here from the
parser's events, because its own constructors have more types than manifests, and lose how a number was written: an error about `1.30`
must not show 1.3.

A client may send any text. What would be large or slow to build is refused while it is built: aliases and merge keys that expand, depth,
long numbers, keys that collide. So is text that is not Unicode: half of a surrogate pair can be escaped in a document, and neither stored
nor printed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
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
from ruamel.yaml.reader import ReaderError

DEPTH_MAX = 64
VALUES_MAX = 50_000
"""Of one document. A manifest of the largest size has a tenth of it."""

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# Python spells infinity and not-a-number without the dot.
_DOTTED = re.compile(r"\.(inf|nan)", re.IGNORECASE)
_DIGITS_MAX = 64
_TAGS_OF_YAML = frozenset(
    {"binary", "omap", "pairs", "set", "timestamp", "seq", "map", "str", "null", "bool", "int", "float", "merge", "value"}
)
_MERGE = "<<"
_QUOTED = re.compile(r"'(?!<)[^']{4,}'")
_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Exports of whole fleets have a tenth of it.
_TEXT_MAX = 64 * 1024 * 1024
# Larger ones can be chosen so that they collide in a dict, which makes it quadratic.
_KEY_INT_MAX = 2**53


class WrittenFloat(float):
    """A number with a fraction that keeps its text."""

    written: str

    def __new__(cls, text: str) -> Self:
        """Read YAML's and JSON's spellings."""
        number = super().__new__(cls, _DOTTED.sub(r"\1", text))
        number.written = text
        return number


class Unreadable(ValueError):
    """A text that cannot be read. `reason` holds no part of it: what is misplaced in it may be a secret."""

    def __init__(self, reason: str, line: int, *, quoted: str = "") -> None:
        super().__init__(f"{reason}{f': {quoted}' if quoted else ''}")
        self.reason = reason
        self.line = line
        self.number = 1
        """Which document of the text it is."""


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can carry a text: half of a surrogate pair is no character."""
    return text.isascii() or not _SURROGATE.search(text)


def read_one(text: str, values_max: int = VALUES_MAX) -> Any:
    """Read a text that holds one document, such as a kubeconfig or a policy; None if it is empty. Raises Unreadable.

    Also with every alias followed it has at most `values_max` values.
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
    """Counts the values of a tree, those of an alias at each of its uses."""

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
    """Read every document of a text, each with its line. Their aliases are references, which may stand for much. Raises Unreadable."""
    if len(text) > _TEXT_MAX:
        raise Unreadable(f"is larger than {_TEXT_MAX // 1024**2} MiB", 1)
    start = _after_space(text, 0)
    if text[start : start + 1] in ("{", "["):
        try:
            return _json_trees(text)
        except (ValueError, RecursionError):  # flow-style YAML begins like JSON
            pass
    return _yaml_trees(text, values_max)


# --- JSON -------------------------------------------------------------------------------------------------------------------------------


def _json_trees(text: str) -> list[tuple[Any, int]]:
    if _ESCAPED_SURROGATE.search(text):
        # Which of them are pairs, the reader of YAML finds out.
        raise ValueError("surrogates")
    decoder = json.JSONDecoder(parse_float=_json_float, parse_int=_json_int, parse_constant=_json_constant, object_pairs_hook=_object)
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
        # The YAML reader, which gets the text next, reads JSON too and names the line.
        raise ValueError("duplicate key")
    return found


def _json_int(text: str) -> Any:
    return int(text) if len(text) <= _DIGITS_MAX else text


def _json_float(text: str) -> Any:
    return WrittenFloat(text) if len(text) <= _DIGITS_MAX else text


def _json_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


# --- YAML -------------------------------------------------------------------------------------------------------------------------------


def _yaml_trees(text: str, values_max: int) -> list[tuple[Any, int]]:
    trees: list[tuple[Any, int]] = []
    try:
        events = iter(YAML(typ="safe", pure=True).parse(text))
        for event in events:
            if isinstance(event, DocumentStartEvent):
                line = event.start_mark.line + (2 if event.explicit else 1)
                trees.append((_Builder(events, values_max).document(), line))
    except (Unreadable, YAMLError, RecursionError, ValueError, OverflowError) as error:
        unreadable = error if isinstance(error, Unreadable) else _not_yaml(error, text)
        unreadable.number = len(trees) + 1
        raise unreadable from None
    return trees


def _not_yaml(error: Exception, text: str) -> Unreadable:
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        # Its words quote the text, such as a password that looks like a tag; names of tokens begin with "<".
        said = _QUOTED.sub("'…'", ", ".join(str(part) for part in (error.context, error.problem) if part))
        return Unreadable("not YAML", mark.line + 1 if mark else 1, quoted=said)
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Unreadable(f"not YAML: unacceptable character #x{error.character:02x}: {error.reason}", line)
    # The parser itself fails in other ways for directives and escapes that no document needs.
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
            raise Unreadable(f"is nested more than {DEPTH_MAX} levels deep", event.start_mark.line + 1)
        self.values += 1
        if self.values > self.values_max:
            raise Unreadable(f"has more than {self.values_max} values", event.start_mark.line + 1)
        built = self._built(event)
        self.depth -= 1
        return built

    def _count_merged(self, keys: int, line: int) -> None:
        """Bound what merge keys make: unlike an alias, which is a reference, they copy."""
        self.merged += keys
        if self.merged > VALUES_MAX:
            raise Unreadable(f"merges more than {VALUES_MAX} keys", line)

    def _built(self, event: Event) -> Any:
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                # A password that begins with an asterisk looks like an alias too.
                raise Unreadable("an alias of no anchor; a text that begins with * must be quoted", event.start_mark.line + 1)
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
            is_merge = isinstance(event, ScalarEvent) and event.value == _MERGE and event.style is None
            key = self.value(event)
            value = self.value(next(self.events))
            if is_merge:
                sources = _merge_sources(value, line)
                self._count_merged(len(sources), line)
                merged.extend((source, line) for source in sources)
                continue
            if isinstance(key, dict | list | float) or (isinstance(key, int) and abs(key) > _KEY_INT_MAX):
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
    if tag or event.style is not None:
        return _unicode(event)
    return _plain(_unicode(event))


def _meaningless(tag: str, event: Event) -> Unreadable:
    # A password that begins with an exclamation mark looks like a tag too; only those of YAML itself are shown.
    known = tag.startswith(_TAG) and tag.removeprefix(_TAG) in _TAGS_OF_YAML
    reason = f"tag {tag} means nothing here" if known else "a tag that means nothing here; a text that begins with ! must be quoted"
    return Unreadable(reason, event.start_mark.line + 1)


def _unicode(event: ScalarEvent) -> str:
    """Give the text of a scalar, in which two escapes of JSON may be one character."""
    text: str = event.value
    if _SURROGATE.search(text):
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise Unreadable("half of a surrogate pair, which is no character", event.start_mark.line + 1) from None
    return text


def _plain(text: str) -> Any:
    """Resolve a plain scalar by YAML's core schema."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    # Longer numbers are out of every range, and slow to convert.
    if len(text) <= _DIGITS_MAX:
        if _INT.fullmatch(text):
            return int(text)
        if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return WrittenFloat(text)
    return text
