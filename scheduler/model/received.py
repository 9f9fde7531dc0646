"""Validation of requests and ledger entries that other workflows send.

Senders validate their data. These checks protect the singleton scheduler from a sender
that did not: they reject data that cannot be decided or that would corrupt the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from api_types.limits import (
    AFFINITY_TERMS_MAX,
    ENGINES_MAX,
    MEMBERS_MAX,
    REPLICAS_MAX,
    REQUESTS_MAX,
    SELECTORS_BYTES_MAX,
    SPREADS_MAX,
)
from scheduler.model.decision import EnginePlacement
from scheduler.model.fields import FieldError, wrong
from scheduler.model.inputs import DeploymentView, EngineView, LedgerEntry
from scheduler.model.wire import from_wire

# The limit of Kubernetes for the names of most kinds.
_NAME_MAX = 253
_COUNT_MAX = 1_000_000

EngineT = TypeVar("EngineT", EngineView, EnginePlacement)


def read_need(tree: Mapping[str, Any]) -> DeploymentView:
    """Read a deployment from its wire form; raise ValueError that names the field."""
    view = from_wire(DeploymentView, tree)
    check_names((("namespace", view.namespace), ("name", view.name)))
    _check_count("replicas", view.replicas, most=REPLICAS_MAX)
    _check_length("engines", view.engines, ENGINES_MAX)
    for at, engine, member in _members(view.engines):
        _check_engine(at, engine.copies, member.worker_nodes, member.pods_per_node)
        _check_length(f"{at}.requests", member.requests, REQUESTS_MAX)
        for request in member.requests:
            _check_count(f"{at}.requests: count of {request.name!r}", request.count)
    policy = view.policy
    _check_length("policy.topologySpread", policy.topology_spread, SPREADS_MAX)
    for at, terms in (
        ("policy.affinity", policy.affinity),
        ("policy.antiAffinity", policy.anti_affinity),
    ):
        _check_length(at, terms, 2 * AFFINITY_TERMS_MAX)
    _check_selectors_size(view.engines)
    return view


def _check_selectors_size(engines: Iterable[EngineView]) -> None:
    size = 0
    for _, _, member in _members(engines):
        for request in member.requests:
            size += sum(
                len(text.encode(errors="surrogatepass")) for text in request.selectors
            )
    if size > SELECTORS_BYTES_MAX:
        raise FieldError(
            "engines",
            f"all selectors together must be at most {SELECTORS_BYTES_MAX} bytes, "
            f"got {size}",
        )


def read_entry(tree: Mapping[str, Any]) -> LedgerEntry:
    """Read a replica's ledger entry from its wire form.

    Raise ValueError that names the field.
    """
    entry = from_wire(LedgerEntry, tree)
    check_names(
        (
            ("namespace", entry.namespace),
            ("deployment", entry.deployment),
            ("name", entry.name),
            ("cluster", entry.cluster),
        )
    )
    for pool, nodes in entry.reuse:
        _check_count(f"reuse: nodes of {pool!r}", nodes)
    for at, engine, member in (*_members(entry.engines), *_members(entry.held, "held")):
        _check_engine(at, engine.copies, member.worker_nodes, member.pods_per_node)
        for device, drawn in member.draw:
            _check_count(f"{at}.draw: count of {device!r}", drawn)
    return entry


def check_names(names: Iterable[tuple[str, str]]) -> None:
    """Check (field, name) pairs, because each name becomes part of a workflow id.

    Raise ValueError that names the field.
    """
    for at, name in names:
        if not name or len(name) > _NAME_MAX or not name.isprintable() or "/" in name:
            raise wrong(at, f"a name of 1 to {_NAME_MAX} characters", name)


def _members(
    engines: Iterable[EngineT], field: str = "engines"
) -> Iterator[tuple[str, EngineT, Any]]:
    for e, engine in enumerate(engines):
        _check_length(f"{field}[{e}].members", engine.members, MEMBERS_MAX)
        for m, member in enumerate(engine.members):
            yield f"{field}[{e}].members[{m}]", engine, member


def _check_length(at: str, items: Sequence[object], most: int) -> None:
    if len(items) > most:
        raise FieldError(at, f"must have at most {most} items, got {len(items)}")


def _check_engine(at: str, copies: int, worker_nodes: int, pods_per_node: int) -> None:
    _check_count(f"{at}: copies", copies)
    _check_count(f"{at}.workerNodes", worker_nodes)
    _check_count(f"{at}.podsPerNode", pods_per_node, least=1)


def _check_count(at: str, count: int, least: int = 0, most: int = _COUNT_MAX) -> None:
    if not least <= count <= most:
        raise FieldError(at, f"must be between {least} and {most}, got {count}")
