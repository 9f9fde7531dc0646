"""A write of one manager: what the object is then, and who owns its fields.

By an apply a manager owns what its configuration says. What it said before and says no more is removed, unless another owns it too. A field
that another owns and that would change is a conflict. By any other write a manager owns what it changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from front.applying.fields import FieldSet, Json, Path, text_of
from front.applying.owners import Owner
from front.applying.shapes import Shape
from front.applying.trees import compared, fields_of, merged, with_parents, without

Fields = Mapping[Owner, FieldSet]
# Part of every object, and of none in particular.
_NOBODYS: FieldSet = frozenset({("f:metadata",), ("f:metadata", "f:name")})


@dataclass(frozen=True)
class Conflict:
    """A field that an apply would change and another manager owns."""

    owner: Owner
    path: Path

    @property
    def field(self) -> str:
        """Give its path as users write it."""
        return text_of(self.path)


class Conflicts(Exception):
    """An apply would change what others own."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        """Say what and whose."""
        super().__init__(", ".join(f"{each.owner.name} {each.field}" for each in conflicts))
        self.conflicts = tuple(conflicts)


def updated(shape: Shape, before: Json, after: Json, fields: Fields, owner: Owner) -> tuple[Fields, bool]:
    """Give who owns what after any write but an apply, and whether its manager has changed anything."""
    found = compared(shape, before, after)
    written = found.written - _NOBODYS
    others = {each: held - written - found.removed for each, held in fields.items()}
    return {**others, owner: (fields.get(owner, frozenset()) - found.removed) | written}, bool(written)


@dataclass(frozen=True)
class Terms:
    """How an apply is carried out.

    `force`: it may take fields of others; `allowed`: these it may take anyway.
    `stored`: gives an object as it would be stored. Who writes a value in another way, as without what is its default, takes nothing.
    """

    force: bool = False
    allowed: FieldSet = frozenset()
    stored: Callable[[Json], Json] = lambda tree: tree


def applied(shape: Shape, live: Json, config: Json, fields: Fields, owner: Owner, *, terms: Terms) -> tuple[Json, Fields]:
    """Apply a configuration; gives the object and who owns what. Raises Conflicts."""
    before = fields.get(owner, frozenset())
    now = {**fields, owner: fields_of(shape, config) - _NOBODYS}
    result = _pruned(shape, merged(shape, live, config), before, frozenset().union(*now.values()))
    changes = compared(shape, live, result)
    written = changes.written
    if any(held & written for each, held in fields.items() if each != owner):
        written -= changes.modified - compared(shape, live, terms.stored(result)).modified
    conflicts = [Conflict(each, path) for each, held in sorted(fields.items()) if each != owner for path in sorted(held & written)]
    if not terms.force and (left := [each for each in conflicts if each.path not in terms.allowed]):
        raise Conflicts(left)
    return result, {each: held if each == owner else held - written - changes.removed for each, held in now.items()}


def _pruned(shape: Shape, whole: Json, before: FieldSet, owned: FieldSet) -> Json:
    """Remove what a manager owned by its last apply and nobody owns now.

    A map or an item goes with all that is in it if nobody owns anything there.
    """
    if not before:
        return whole
    mine, theirs = with_parents(shape, before), with_parents(shape, owned | _NOBODYS)
    everything = with_parents(shape, fields_of(shape, whole))
    left = with_parents(shape, fields_of(shape, without(shape, whole, mine)))
    left = with_parents(shape, fields_of(shape, without(shape, whole, everything - left - theirs)))
    result: Json = without(shape, whole, (everything - left) & mine)
    return result
