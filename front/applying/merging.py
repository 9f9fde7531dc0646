"""Merges one manager's write into an object, and computes the new field owners.

With an apply, a manager owns the fields in its configuration. Fields of its previous
configuration that are missing now are removed, unless another manager owns them too.
Changing a field that another manager owns is a conflict. With any other write, a
manager owns the fields that it changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from front.applying.fields import FieldSet, Json, Path, text_of
from front.applying.owners import FieldManager
from front.applying.shapes import Shape
from front.applying.trees import compared, fields_of, merged, with_parents, without

Fields = Mapping[FieldManager, FieldSet]
# Every object has these fields, so nobody owns them.
_NOBODYS: FieldSet = frozenset({("f:metadata",), ("f:metadata", "f:name")})


@dataclass(frozen=True)
class FieldConflict:
    """A field that an apply would change although another manager owns it."""

    owner: FieldManager
    path: Path

    @property
    def field(self) -> str:
        """The path of the field as users write it."""
        return text_of(self.path)


class Conflicts(Exception):
    """An apply would change fields of other managers."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        super().__init__(
            ", ".join(f"{each.owner.name} {each.field}" for each in conflicts)
        )
        self.conflicts = tuple(conflicts)


def updated(
    shape: Shape, before: Json, after: Json, fields: Fields, owner: FieldManager
) -> tuple[Fields, bool]:
    """Return the owners after a write other than an apply.

    Also returns whether the manager changed anything.
    """
    found = compared(shape, before, after)
    written = found.written - _NOBODYS
    others = {each: held - written - found.removed for each, held in fields.items()}
    own = (fields.get(owner, frozenset()) - found.removed) | written
    return {**others, owner: own}, bool(written)


@dataclass(frozen=True)
class Terms:
    """The conditions of an apply.

    With `force`, it may take over all fields of other managers, else only those in
    `allowed`. `stored` returns an object in its stored form. An apply does not take
    over a field if it writes the same value differently, for example without its
    default.
    """

    force: bool = False
    allowed: FieldSet = frozenset()
    stored: Callable[[Json], Json] = lambda tree: tree


def applied(
    shape: Shape,
    live: Json,
    config: Json,
    fields: Fields,
    owner: FieldManager,
    *,
    terms: Terms,
) -> tuple[Json, Fields]:
    """Apply a configuration; return the object and its owners. Raises Conflicts."""
    before = fields.get(owner, frozenset())
    now = {**fields, owner: fields_of(shape, config) - _NOBODYS}
    owned = frozenset[Path]().union(*now.values())
    result = _pruned(shape, merged(shape, live, config), before, owned)
    changes = compared(shape, live, result)
    written = changes.written
    others = {each: held for each, held in fields.items() if each != owner}
    if any(held & written for held in others.values()):
        as_stored = compared(shape, live, terms.stored(result))
        written -= changes.modified - as_stored.modified
    conflicts: list[FieldConflict] = []
    for other, held in sorted(others.items()):
        taken = held & written - terms.allowed
        conflicts += [FieldConflict(other, path) for path in sorted(taken)]
    if conflicts and not terms.force:
        raise Conflicts(conflicts)
    left = {each: held - written - changes.removed for each, held in others.items()}
    return result, {**left, owner: now[owner]}


def _pruned(shape: Shape, whole: Json, before: FieldSet, owned: FieldSet) -> Json:
    """Remove fields that only this manager owned, through its last apply.

    A map or item is removed with its content if nobody owns anything in it.
    """
    if not before:
        return whole
    mine, theirs = with_parents(shape, before), with_parents(shape, owned | _NOBODYS)
    everything = with_parents(shape, fields_of(shape, whole))
    left = with_parents(shape, fields_of(shape, without(shape, whole, mine)))
    left = with_parents(
        shape, fields_of(shape, without(shape, whole, everything - left - theirs))
    )
    result: Json = without(shape, whole, (everything - left) & mine)
    return result
