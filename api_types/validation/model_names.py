"""Public names of LoRA adapters: what of them contradicts itself. Admission and rendering say it in the same words."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class ModelNameProblem(NamedTuple):
    """What is wrong with one name, by the places of its adapter among all of a replica and of the name in its list."""

    adapter: int
    at: int
    text: str


def model_name_problems(adapters: Sequence[tuple[str, Sequence[str]]]) -> Iterator[ModelNameProblem]:
    """Check the names of all adapters of a replica, given as pairs of an adapter's name and its public ones.

    Engines of one replica may have the same adapter, with the same public names.
    """
    own = {adapter for adapter, _ in adapters}
    meant: dict[str, str] = {}
    for index, (adapter, public) in enumerate(adapters):
        for at, name in enumerate(public):
            if not (name.isascii() and name.isprintable()) or " " in name:
                yield ModelNameProblem(index, at, f"{name!r} must be printable ASCII without spaces")
            elif name in own:
                yield ModelNameProblem(index, at, f'"{name}" is the name of an adapter already; leave it out')
            elif meant.setdefault(name, adapter) != adapter:
                yield ModelNameProblem(index, at, f'"{name}" already means adapter "{meant[name]}"; give each adapter its own')
