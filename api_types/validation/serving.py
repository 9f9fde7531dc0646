"""Contradictions in adapters, their public names, and precise prefix caching.

Admission and rendering use the same error texts.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from api_types.limits import ENGINE_PORT, EVENTS_PORT, PORT_MAX
from api_types.text.endpoint_url import read_url


class EngineAdapters(NamedTuple):
    """An engine and its adapters, as pairs of a name and its ModelCache."""

    engine: str
    adapters: Sequence[tuple[str, str]]


class AdapterProblem(NamedTuple):
    """A problem with one adapter, with the indices of its engine and of the adapter."""

    engine: int
    at: int
    text: str


def adapter_cache_problems(
    engines: Sequence[EngineAdapters],
) -> Iterator[AdapterProblem]:
    """Check that a name means the same weights in all engines.

    A request does not select the engine that serves it.
    """
    first: dict[str, tuple[str, str]] = {}
    for index, (engine, adapters) in enumerate(engines):
        for at, (adapter, cache) in enumerate(adapters):
            of, meant = first.setdefault(adapter, (engine, cache))
            if cache != meant:
                text = (
                    f'adapter "{adapter}" of engine {of} has cache "{meant}", got '
                    f'"{cache}"; use one cache, or another name'
                )
                yield AdapterProblem(index, at, text)


def missing_adapters(engines: Sequence[EngineAdapters]) -> Iterator[tuple[int, str]]:
    """Yield the index of each engine that lacks adapters of another, and a warning."""
    of_any: dict[str, None] = {}
    for engine in engines:
        of_any |= dict.fromkeys(adapter for adapter, _ in engine.adapters)
    for index, engine in enumerate(engines):
        own = dict(engine.adapters)
        missing = [adapter for adapter in of_any if adapter not in own]
        if missing:
            names = ", ".join(missing)
            text = (
                f"has no adapter {names}, which another engine has: the picker "
                "only prefers pods with the adapter, so this engine also gets "
                "requests for it, and does not know the model; give all "
                "engines the same adapters"
            )
            yield index, text


class ModelNameProblem(NamedTuple):
    """A problem with a public name.

    `adapter` is the index among all adapters of a replica, `at` the index in its names.
    """

    adapter: int
    at: int
    text: str


def model_name_problems(
    adapters: Sequence[tuple[str, Sequence[str]]],
) -> Iterator[ModelNameProblem]:
    """Check the names of all adapters of a replica.

    `adapters` are pairs of an adapter's name and its public names. Engines of one
    replica may have the same adapter, with the same public names.
    """
    own = {adapter for adapter, _ in adapters}
    meant: dict[str, str] = {}
    for index, (adapter, public) in enumerate(adapters):
        for at, name in enumerate(public):
            if not (name.isascii() and name.isprintable()) or " " in name:
                yield ModelNameProblem(
                    index, at, f"{name!r} must be printable ASCII without spaces"
                )
            elif name in public[:at]:
                yield ModelNameProblem(
                    index, at, f'"{name}" is listed twice; remove one'
                )
            elif name in own:
                yield ModelNameProblem(
                    index,
                    at,
                    f'"{name}" is already the name of an adapter; remove it',
                )
            elif meant.setdefault(name, adapter) != adapter:
                yield ModelNameProblem(
                    index,
                    at,
                    f'"{name}" already means adapter "{meant[name]}"; give each adapter its own',
                )


def port_problem(engines: Sequence[tuple[str, str | None, int, int]]) -> str:
    """Return the reason why engines cannot share the ports of one pool, or "".

    `engines` are names, phases, `profile.port` and numbers of ports. The sidecar of a Decode engine
    listens on the default port, and sends requests to any other port of its engine.
    """
    for name, phase, port, count in engines:
        if port + count - 1 > PORT_MAX:
            return (
                f"engine {name} has profile.port {port}, which leaves no port for each of "
                f"{count} ranks; use at most {PORT_MAX - count + 1}"
            )
        if phase == "Prefill" and port != ENGINE_PORT:
            return (
                f"engine {name} has profile.port {port}, and requests reach Prefill pods "
                f"on {ENGINE_PORT}; remove profile.port"
            )
    ports = {name: port for name, phase, port, _ in engines if not phase}
    if len(set(ports.values())) > 1:
        shown = ", ".join(f"{name}: {port}" for name, port in ports.items())
        return (
            f"engines have different ports ({shown}), yet share one pool; give each the "
            "same profile.port"
        )
    return ""


def precise_problem(*, disaggregated: bool, ranks: int) -> str:
    """Return the reason why a replica of this shape cannot use mode Precise, or ""."""
    if disaggregated:
        return (
            "mode Precise is for serving.mode Unified: the prefill decision reads "
            "the approximate cache; use mode Approximate"
        )
    if ranks > 1:
        return (
            "mode Precise follows one stream of events per pod, and engines have "
            f"{ranks} ranks; use mode Approximate"
        )
    return ""


def events_port_problem(port: int, *, ranks: int) -> str:
    """Return the reason why engines cannot publish their events on a port, or ""."""
    if 0 <= port - ENGINE_PORT < ranks:
        return (
            f"{port} is a port on which the engines accept requests; use another "
            f"one, such as {EVENTS_PORT}"
        )
    return ""


def url_problem(url: str) -> str:
    """Return the reason why the endpoint picker cannot use a tokenizer's URL, or ""."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "must be printable ASCII without spaces"
    found = read_url(url)
    if found.scheme not in ("http", "https"):
        return "must be an address that begins with http:// or https://"
    return found.errors[0] if found.errors else ""
