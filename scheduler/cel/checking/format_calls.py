"""The check of `'...'.format([...])` calls whose text and list are literals.

Kubernetes refuses to compile such a call if a clause does not match its argument, or if
there are too many arguments.
"""

from __future__ import annotations

from scheduler.cel.runtime.format_clauses import FormatError, clauses
from scheduler.cel.syntax import tree
from scheduler.cel.syntax.static_types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
)

_SIMPLE = (INT, UINT, DOUBLE, BOOL, STRING, TIMESTAMP, BYTES, DURATION, NULL)
_TEXTUAL = frozenset({"list", "map", "type"} | {kind.kind for kind in _SIMPLE})
_ACCEPTED = {
    "s": _TEXTUAL,
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": frozenset({"int", "uint", "bool"}),
    "x": frozenset({"int", "uint", "string", "bytes"}),
    "X": frozenset({"int", "uint", "string", "bytes"}),
    "o": frozenset({"int", "uint"}),
}


def check_format_call(text: str, arguments: list[tree.Node]) -> None:
    """Check the arguments of a format call against its text.

    Raises:
        FormatError: Kubernetes would reject the call.

    """
    used = 0
    for clause in clauses(text):
        if not clause.letter:
            continue
        if used >= len(arguments):
            raise FormatError(f"the format text needs more than {used} arguments")
        _check_argument(clause.letter, arguments[used])
        used += 1
    if used < len(arguments):
        raise FormatError(f"the format text needs {used} arguments")


def _check_argument(letter: str, argument: tree.Node) -> None:
    pending = [argument]
    while pending:
        node = pending.pop()
        if not _fits(letter, node.type):
            raise FormatError(f"%{letter} does not take a {node.type}")
        if letter == "s" and isinstance(node, tree.ListLiteral):
            pending.extend(node.elements)
        elif letter == "s" and isinstance(node, tree.MapLiteral):
            for key, value in node.entries:
                pending += (key, value)


def _fits(letter: str, kind: Type) -> bool:
    return kind.kind == "dyn" or kind.kind in _ACCEPTED[letter]
