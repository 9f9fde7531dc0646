"""The documents in a text: one object each, with its position."""

from collections.abc import Iterable, Mapping
from typing import Any

from api_types.text.reader import Unreadable, read_trees
from api_types.validation.problems import InvalidManifest, Problem

DOCUMENTS_MAX = 50_000
"""The maximum per text.

Each document is checked separately, so more would take minutes. Exports of whole fleets
have fewer.
"""


class Document(dict[str, Any]):
    """One document of a file, with its position."""

    def __init__(
        self,
        content: Mapping[str, Any],
        source: str = "",
        number: int = 1,
        line: int = 1,
    ) -> None:
        super().__init__(content)
        self.source = source
        self.number = number
        self.line = line

    @property
    def place(self) -> str:
        """The position for users: file, document number and line."""
        return f"{self.source} document {self.number} (line {self.line})"


def parse(text: str, source: str) -> list[Document]:
    """Read every document of a text.

    A v1 List counts as its items; an empty document is skipped. `source` is the name of
    the text in errors.

    Raises:
        InvalidManifest: it has source, document number and line of the problem, or the
            text has too many documents.

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
        place = f"{source} document {number} (line {line})"
        if not isinstance(tree, Mapping):
            text = "must be an object with apiVersion and kind"
            problems.append(Problem(place, "", text))
            continue
        items = _items(tree)
        if len(documents) + len(items) > DOCUMENTS_MAX:
            text = f"has more than {DOCUMENTS_MAX} documents; put them in several files"
            raise InvalidManifest.of(source, "", text)
        for item in items:
            if isinstance(item, Mapping):
                documents.append(Document(item, source, number, line))
            else:
                problems.append(Problem(place, "items", "each item must be an object"))
    if problems:
        raise InvalidManifest(problems)
    return documents


def _items(tree: Mapping[str, Any]) -> list[Any]:
    items = tree.get("items")
    is_list = (
        tree.get("apiVersion") == "v1"
        and tree.get("kind") == "List"
        and isinstance(items, list)
    )
    return items if is_list and isinstance(items, list) else [tree]
