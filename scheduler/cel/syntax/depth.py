"""The depth of a tree, recorded during its construction to limit it."""

from __future__ import annotations

from scheduler.cel.limits import NESTING_MAX
from scheduler.cel.syntax.tree import Node


class Misuse(Exception):
    """A construct that is syntactically valid but rejected.

    Attributes:
        at: offset of the construct in the text.
        problem: the reason.

    """

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem


def check_depth(node: Node) -> None:
    """Check the recorded depth of a node.

    Raises:
        Misuse: it nests too deeply.

    """
    if node.depth > NESTING_MAX or node.nesting > NESTING_MAX:
        raise Misuse(
            node.at,
            f"the selector nests deeper than {NESTING_MAX} levels; split it into several selectors",
        )


def with_depth(node: Node, below: list[Node], step: int = 0) -> Node:
    """Record the depth of `node`.

    Args:
        node: a new node.
        below: its children.
        step: 1 if the parser of cel-go recurses one level deeper for it.

    Returns:
        The node.

    Raises:
        Misuse: it is nested too deeply.

    """
    depth = nesting = 0
    for child in below:
        depth = max(depth, child.depth)
        nesting = max(nesting, child.nesting)
    node.depth = depth + 1
    node.nesting = nesting + step
    check_depth(node)
    return node
