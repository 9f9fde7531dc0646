"""How deep a tree is, recorded while it is built: what Kubernetes would not read because of its depth is refused at once."""

from __future__ import annotations

from scheduler.cel.limits import NESTING_MAX
from scheduler.cel.syntax.tree import Node


class Misuse(Exception):
    """A construct that parses but is refused.

    Attributes:
        at: offset of the construct in the text.
        problem: what is wrong with it.

    """

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem


def check_depth(node: Node) -> None:
    """Check what has been recorded about a node.

    Raises:
        Misuse: it nests too deeply.

    """
    if node.depth > NESTING_MAX or node.nesting > NESTING_MAX:
        raise Misuse(node.at, f"the selector nests deeper than {NESTING_MAX} levels; split it into several selectors")


def with_depth(node: Node, below: list[Node], step: int = 0) -> Node:
    """Record how deep `node` is.

    Args:
        node: a new node.
        below: its children.
        step: 1 where the reference parser would nest once more for it.

    Returns:
        The node.

    Raises:
        Misuse: it nests too deeply.

    """
    depth = nesting = 0
    for child in below:
        depth = max(depth, child.depth)
        nesting = max(nesting, child.nesting)
    node.depth = depth + 1
    node.nesting = nesting + step
    check_depth(node)
    return node
