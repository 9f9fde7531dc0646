"""Operations on the parts of objects: list, compare, merge and remove them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from front.applying.fields import FieldSet, Json, Path, is_owned, to_tree
from front.applying.shapes import Shape


@dataclass(frozen=True)
class Comparison:
    """The fields in which two states of an object differ."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    @property
    def written(self) -> FieldSet:
        """The fields with a new or another value in the later state."""
        return frozenset(self.added | self.modified)


def fields_of(shape: Shape, value: Json) -> FieldSet:
    """Return the fields that a manager owns if it applies this object."""
    return frozenset(_fields(shape, value, ()))


def _fields(shape: Shape, value: Any, path: Path) -> Iterator[Path]:
    parts = shape.parts(value)
    if parts is None:
        yield path
        return
    for element, part in parts.items():
        below = (*path, element)
        yield from _fields(shape.of(element), part, below)
        if part == {} or not shape.declares(element):
            yield below


def compared(shape: Shape, before: Json, after: Json) -> Comparison:
    """Return the differences between two states of an object."""
    found = Comparison()
    _compare(shape, before, after, (), found)
    return found


def _compare(
    shape: Shape, before: Any, after: Any, path: Path, found: Comparison
) -> None:
    old, new = shape.parts(before), shape.parts(after)
    if old is None or new is None:
        if before != after or isinstance(before, bool) is not isinstance(after, bool):
            found.modified.add(path)
        return
    for element in old.keys() | new.keys():
        below = (*path, element)
        if element not in old:
            found.added.update(_everything(shape.of(element), new[element], below))
        elif element not in new:
            found.removed.update(_everything(shape.of(element), old[element], below))
        else:
            _compare(shape.of(element), old[element], new[element], below, found)


def _everything(shape: Shape, value: Any, path: Path) -> Iterator[Path]:
    yield path
    for element, part in (shape.parts(value) or {}).items():
        yield from _everything(shape.of(element), part, (*path, element))


def merged(shape: Shape, live: Any, config: Any) -> Any:
    """Merge a configuration into the live object."""
    old, new = shape.parts(live), shape.parts(config)
    if old is None or new is None or not (old or new):
        return config
    if shape.form == "list":
        order = _in_order(list(old), list(new))
    else:
        order = [*old, *(element for element in new if element not in old)]

    def part(element: str) -> Any:
        if element in old and element in new:
            return merged(shape.of(element), old[element], new[element])
        return new[element] if element in new else old[element]

    return shape.whole({element: part(element) for element in order})


def _in_order(old: list[str], new: list[str]) -> list[str]:
    """Order the items of two lists as the configuration orders its own.

    Other items keep their place before the next item that is in both lists.
    """
    wanted, held = set(new), set(old)
    shared = iter([element for element in new if element in held])
    following = next(shared, None)
    order: list[str] = []
    at_old, at_new = 0, 0
    while at_old < len(old) or at_new < len(new):
        left = old[at_old] if at_old < len(old) else None
        if left is not None and left not in wanted:
            order.append(left)
            at_old += 1
        elif left is not None and left not in (new[at_new], following):
            # The configuration has this item at another position.
            at_old += 1
        else:
            right = new[at_new]
            order.append(right)
            at_new += 1
            at_old += left == right
            following = next(shared, None) if right == following else following
    return order


def without(shape: Shape, value: Any, removed: FieldSet) -> Any:
    """Remove fields from an object, with everything in them."""
    return _without(shape, value, to_tree(removed))


def _without(shape: Shape, value: Any, removed: Json) -> Any:
    parts = shape.parts(value)
    if parts is None:
        return value
    rest: Json = {}
    for element, part in parts.items():
        if element not in removed:
            rest[element] = part
        elif not is_owned(removed[element]):
            rest[element] = _without(shape.of(element), part, removed[element])
    return shape.whole(rest)


def with_parents(shape: Shape, fields: FieldSet) -> FieldSet:
    """Add the parents that the schema names. Nobody owns these parents themselves."""
    found = set(fields)
    for path in fields:
        at = shape
        for length, element in enumerate(path[:-1], 1):
            if at.declares(element):
                found.add(path[:length])
            at = at.of(element)
    return frozenset(found)
