"""How a pass walks over the tree of a selector.

A selector may be nested 250 levels deep and chain thousands of terms. Python's own
stack may be too small for that if the caller is already deep inside a framework. So
every visit is a generator that yields the next child to visit, and `walk` keeps the
stack in a list. Passes can still be read like plain recursion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any, ClassVar, cast

from scheduler.cel.syntax import tree

Visit = Generator[tree.Node, Any, Any]


class Visitor(ABC):
    """One pass over a tree: a method per kind of node.

    A method yields each child to visit, receives the child's result, and returns its own.
    """

    def walk(self, root: tree.Node) -> Any:
        """Visit `root` and the nodes that the visits yield; return the result of `root`."""
        pending = [self._visit(root)]
        result: Any = None
        while pending:
            try:
                child = pending[-1].send(result)
            except StopIteration as done:
                pending.pop()
                result = done.value
            else:
                pending.append(self._visit(child))
                result = None
        return result

    def _visit(self, node: tree.Node) -> Visit:
        return cast("Visit", getattr(self, self._METHODS[type(node)])(node))

    @abstractmethod
    def _literal(self, node: tree.Literal) -> Visit: ...

    @abstractmethod
    def _ident(self, node: tree.Ident) -> Visit: ...

    @abstractmethod
    def _select(self, node: tree.Select) -> Visit: ...

    @abstractmethod
    def _call(self, node: tree.Call) -> Visit: ...

    @abstractmethod
    def _logic(self, node: tree.Logic) -> Visit: ...

    @abstractmethod
    def _ternary(self, node: tree.Ternary) -> Visit: ...

    @abstractmethod
    def _list(self, node: tree.ListLiteral) -> Visit: ...

    @abstractmethod
    def _map(self, node: tree.MapLiteral) -> Visit: ...

    @abstractmethod
    def _comprehension(self, node: tree.Comprehension) -> Visit: ...

    @abstractmethod
    def _bind(self, node: tree.Bind) -> Visit: ...

    @abstractmethod
    def _optional_map(self, node: tree.OptionalMap) -> Visit: ...

    _METHODS: ClassVar[Mapping[type[tree.Node], str]] = {
        tree.Literal: _literal.__name__,
        tree.Ident: _ident.__name__,
        tree.Select: _select.__name__,
        tree.Call: _call.__name__,
        tree.Logic: _logic.__name__,
        tree.Ternary: _ternary.__name__,
        tree.ListLiteral: _list.__name__,
        tree.MapLiteral: _map.__name__,
        tree.Comprehension: _comprehension.__name__,
        tree.Bind: _bind.__name__,
        tree.OptionalMap: _optional_map.__name__,
    }
