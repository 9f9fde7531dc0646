"""What contradicts itself in how a replica is served: adapters of several engines, their public names, and precise prefix caching.

Admission and rendering say it in the same words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from api_types.limits import ENGINE_PORT, EVENTS_PORT
from api_types.text.endpoint_url import read_url


class EngineAdapters(NamedTuple):
    """An engine and its adapters, as pairs of a name and its ModelCache."""

    engine: str
    adapters: Sequence[tuple[str, str]]


class AdapterProblem(NamedTuple):
    """What is wrong with one adapter, by the places of its engine and of the adapter there."""

    engine: int
    at: int
    text: str


def adapter_cache_problems(engines: Sequence[EngineAdapters]) -> Iterator[AdapterProblem]:
    """Check that a name means the same weights in all engines: a request does not say by which of them it is served."""
    first: dict[str, tuple[str, str]] = {}
    for index, (engine, adapters) in enumerate(engines):
        for at, (adapter, cache) in enumerate(adapters):
            of, meant = first.setdefault(adapter, (engine, cache))
            if cache != meant:
                text = f'adapter "{adapter}" of engine {of} has cache "{meant}", got "{cache}"; use one cache, or another name'
                yield AdapterProblem(index, at, text)


def missing_adapters(engines: Sequence[EngineAdapters]) -> Iterator[tuple[int, str]]:
    """Give the place of each engine that lacks adapters of another one, and the warning about it."""
    of_any = dict.fromkeys(adapter for engine in engines for adapter, _ in engine.adapters)
    for index, engine in enumerate(engines):
        if missing := [adapter for adapter in of_any if adapter not in dict(engine.adapters)]:
            text = (
                f"has no adapter {', '.join(missing)}, which another engine has: pods with an adapter are preferred and no more, so this "
                "engine gets requests for it too, and does not know the model; give all engines the same adapters"
            )
            yield index, text


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
            elif name in public[:at]:
                yield ModelNameProblem(index, at, f'"{name}" is there twice; leave it out once')
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


def events_port_problem(port: int, *, ranks: int) -> str:
    """Say why engines cannot publish their events on a port; empty if they can."""
    if 0 <= port - ENGINE_PORT < ranks:
        return f"{port} is a port on which the engines take requests; use another one, such as {EVENTS_PORT}"
    return ""


def url_problem(url: str) -> str:
    """Say why the endpoint picker cannot use the address of a tokenizer; empty if it can."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "must be printable ASCII without spaces"
    found = read_url(url)
    if found.scheme not in ("http", "https"):
        return "must be an address that begins with http:// or https://"
    return found.errors[0] if found.errors else ""
