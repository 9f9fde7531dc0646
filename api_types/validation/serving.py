"""What contradicts itself in how a replica is served: public names of adapters, and precise prefix caching.

Admission and rendering say it in the same words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from api_types.validation.endpoint_url import read_url


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


def precise_problem(*, disaggregated: bool, ranks: int) -> str:
    """Say why a replica of this shape cannot have it; empty if it can."""
    if disaggregated:
        return "mode Precise is for serving.mode Unified: what decides about prefill reads the approximate cache; use mode Approximate"
    if ranks > 1:
        return f"mode Precise follows one stream of events per pod, and engines have {ranks} ranks; use mode Approximate"
    return ""


def url_problem(url: str) -> str:
    """Say why the endpoint picker cannot use the address of a tokenizer; empty if it can."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "must be printable ASCII without spaces"
    found = read_url(url)
    if found.scheme not in ("http", "https"):
        return "must be an address that begins with http:// or https://"
    return found.errors[0] if found.errors else ""
