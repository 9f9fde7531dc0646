"""Read YAML and JSON as users write it.

YAML 1.2 with the core schema: `yes`, `on` and dates are strings, only `true` and `false` are booleans. The tree is built here from the
parser's events, because its own constructors have more types than manifests, and lose how a number was written: an error about `1.30`
must not show 1.3.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
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

from api_types.validation.normalize import DEPTH_MAX
from api_types.validation.problems import InvalidManifest, Problem

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
_MERGE = "<<"


class WrittenFloat(float):
    """A number with a fraction that keeps its text."""

    written: str

    def __new__(cls, text: str) -> Self:
        """Read YAML's and JSON's spellings."""
        number = super().__new__(cls, _DOTTED.sub(r"\1", text))
        number.written = text
        return number


class Document(dict[str, Any]):
    """One document of a file, and its position there."""

    def __init__(self, content: Mapping[str, Any], source: str = "", number: int = 1, line: int = 1) -> None:
        super().__init__(content)
        self.source = source
        self.number = number
        self.line = line

    @property
    def place(self) -> str:
        """Where a user finds it: file, document number and line."""
        return f"{self.source} document {self.number} (line {self.line})"


class _Unreadable(Exception):
    """The text of one document cannot be read."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


def parse(text: str, source: str) -> list[Document]:
    """Read every document of a text; a v1 List counts as its items, an empty document as none.

    `source` names the text in errors. Raises InvalidManifest naming source, document number and line.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            trees = _json_trees(text)
        except (ValueError, RecursionError):  # flow-style YAML begins like JSON
            trees = None
        if trees is not None:
            return _documents(trees, source)
    return _documents(_yaml_trees(text, source), source)


def _documents(trees: Iterable[tuple[Any, int]], source: str) -> list[Document]:
    documents: list[Document] = []
    problems: list[Problem] = []
    for number, (tree, line) in enumerate(trees, start=1):
        if tree is None:
            continue
        if not isinstance(tree, Mapping):
            problems.append(Problem(f"{source} document {number} (line {line})", "", "must be an object with apiVersion and kind"))
            continue
        for item in _items(tree):
            if isinstance(item, Mapping):
                documents.append(Document(item, source, number, line))
            else:
                problems.append(Problem(f"{source} document {number} (line {line})", "items", "each item must be an object"))
    if problems:
        raise InvalidManifest(problems)
    return documents


def _items(tree: Mapping[str, Any]) -> list[Any]:
    items = tree.get("items")
    is_list = tree.get("apiVersion") == "v1" and tree.get("kind") == "List" and isinstance(items, list)
    return list(items) if is_list and isinstance(items, list) else [tree]


# --- JSON -------------------------------------------------------------------------------------------------------------------------------


def _json_trees(text: str) -> list[tuple[Any, int]]:
    decoder = json.JSONDecoder(parse_float=WrittenFloat, object_pairs_hook=_object)
    trees: list[tuple[Any, int]] = []
    at = 0
    while at < len(text):
        rest = text[at:]
        at += len(rest) - len(rest.lstrip())
        if at >= len(text):
            break
        line = text.count("\n", 0, at) + 1
        tree, at = decoder.raw_decode(text, at)
        trees.append((tree, line))
    return trees


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # The YAML reader, which gets the text next, reads JSON too and names the line.
        raise ValueError("duplicate key")
    return found


# --- YAML -------------------------------------------------------------------------------------------------------------------------------


def _yaml_trees(text: str, source: str) -> list[tuple[Any, int]]:
    trees: list[tuple[Any, int]] = []
    try:
        events = iter(YAML(typ="safe", pure=True).parse(text))
        for event in events:
            if isinstance(event, DocumentStartEvent):
                line = event.start_mark.line + (2 if event.explicit else 1)
                trees.append((_Builder(events).document(), line))
    except _Unreadable as error:
        raise InvalidManifest([Problem(_place(source, len(trees) + 1, error.line), "", str(error))]) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(str(part) for part in (error.context, error.problem) if part)
        raise InvalidManifest([Problem(_place(source, len(trees) + 1, mark.line + 1 if mark else 1), "", f"not YAML: {said}")]) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        said = f"not YAML: unacceptable character #x{error.character:02x}: {error.reason}"
        raise InvalidManifest([Problem(_place(source, len(trees) + 1, line), "", said)]) from None
    except YAMLError as error:
        raise InvalidManifest([Problem(_place(source, len(trees) + 1, 1), "", f"not YAML: {error}")]) from None
    return trees


def _place(source: str, number: int, line: int) -> str:
    return f"{source} document {number} line {line}"


class _Builder:
    """Builds one document from the parser's events."""

    def __init__(self, events: Iterator[Event]) -> None:
        self.events = events
        self.anchors: dict[str, Any] = {}
        self.depth = 0

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
            raise _Unreadable(f"is nested more than {DEPTH_MAX} levels deep", event.start_mark.line + 1)
        built = self._built(event)
        self.depth -= 1
        return built

    def _built(self, event: Event) -> Any:
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise _Unreadable(f"unknown alias *{event.anchor}", event.start_mark.line + 1)
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
        merged: list[Mapping[Any, Any]] = []
        for event in self._until(MappingEndEvent):
            line = event.start_mark.line + 1
            is_merge = isinstance(event, ScalarEvent) and event.value == _MERGE and event.style is None
            key = self.value(event)
            value = self.value(next(self.events))
            if is_merge:
                merged.extend(_merge_sources(value, line))
                continue
            if isinstance(key, dict | list):
                raise _Unreadable("a key must be a string", line)
            if key in mapping:
                raise _Unreadable(f'key "{key}" is given twice', line)
            mapping[key] = value
        for source in merged:
            for key, value in source.items():
                mapping.setdefault(key, value)


def _merge_sources(value: Any, line: int) -> list[Mapping[Any, Any]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, Mapping) for source in sources):
        raise _Unreadable("<< merges objects only", line)
    return sources


def _only_tag(event: MappingStartEvent | SequenceStartEvent, expected: str) -> None:
    tag = str(event.tag) if event.tag else ""
    if tag not in ("", "!", f"{_TAG}{expected}"):
        raise _Unreadable(f"tag {tag} means nothing in a manifest", event.start_mark.line + 1)


def _scalar(event: ScalarEvent) -> Any:
    tag = str(event.tag) if event.tag else ""
    if tag not in ("", "!", f"{_TAG}str"):
        kinds = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float")}
        if tag not in kinds:
            raise _Unreadable(f"tag {tag} means nothing in a manifest", event.start_mark.line + 1)
        return _plain(event.value)
    if tag or event.style is not None:
        return event.value
    return _plain(event.value)


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
