"""The documents of a text: what a user wrote, one object each, and where it stands."""

from collections.abc import Iterable, Mapping
from typing import Any

from api_types.text.reader import Unreadable, read_trees
from api_types.validation.problems import InvalidManifest, Problem

DOCUMENTS_MAX = 50_000
"""Of one text. Each is checked on its own, so more would take minutes; exports of whole fleets have fewer."""


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


def parse(text: str, source: str) -> list[Document]:
    """Read every document of a text; a v1 List counts as its items, an empty document as none.

    `source` names the text in errors. Raises InvalidManifest naming source, document number and line, or of a text with too many documents.
    """
    try:
        trees = read_trees(text)
    except Unreadable as error:
        place = f"{source} document {error.number} line {error.line}"
        raise InvalidManifest([Problem(place, "", str(error))]) from None
    return _documents(trees, source)


def _documents(trees: Iterable[tuple[Any, int]], source: str) -> list[Document]:
    documents: list[Document] = []
    problems: list[Problem] = []
    for number, (tree, line) in enumerate(trees, start=1):
        if tree is None:
            continue
        if not isinstance(tree, Mapping):
            problems.append(Problem(f"{source} document {number} (line {line})", "", "must be an object with apiVersion and kind"))
            continue
        items = _items(tree)
        if len(documents) + len(items) > DOCUMENTS_MAX:
            raise InvalidManifest([Problem(source, "", f"has more than {DOCUMENTS_MAX} documents; put them in several files")])
        for item in items:
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
    return items if is_list and isinstance(items, list) else [tree]
