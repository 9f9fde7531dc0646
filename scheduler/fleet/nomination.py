"""Nodes of preempted replicas are nominated for the preemptor until the preempted replicas are gone.

The words are those of kube-scheduler's nominated node name. A preemptor may be preempted itself by a still higher priority before it got
its nodes: then the nodes that were nominated for it are nominated for the new preemptor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from scheduler.fleet.charged_nodes import reusing_group
from scheduler.fleet.ledger import Ledger
from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RELEASING


@dataclass(frozen=True, slots=True)
class Gone:
    """Replicas of one cluster that are taken for gone, and the nodes per pool that a deployment gets with them."""

    uids: frozenset[str] = frozenset()
    entries: tuple[LedgerEntry, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)


NONE_GONE = Gone()


def gone_with(ledger: Ledger, victims: Iterable[LedgerEntry]) -> Gone:
    """Say what is gone when replicas of one cluster are preempted in this order: they, and what was nominated for them."""
    entries: dict[str, LedgerEntry] = {}
    nodes: Counter[str] = Counter()
    for victim in victims:
        moved = [victim, *_nominated_with(ledger, victim, entries)]
        for entry in moved:
            entries[entry.uid] = entry
            nodes.update(charges(entry.engines))
        # They were counted with the replicas that still hold them.
        nodes.subtract(dict(victim.reuse))
    return Gone(frozenset(entries), tuple(entries.values()), nodes)


def nominate(ledger: Ledger, victim: LedgerEntry, preemptor: Owner, now: int) -> list[LedgerEntry]:
    """Release a preempted replica and nominate its nodes for the preemptor, with those nominated for the victim itself; `now` in ms.

    Returns:
        The entries that were changed, as they were before: putting them back undoes it.

    """
    changed = [*_nominated_with(ledger, victim), victim]
    for entry in changed[:-1]:
        ledger.put(replace(entry, nominated_for=preemptor))
    ledger.put(replace(victim.as_releasing(now), nominated_for=preemptor))
    return changed


def _nominated_with(ledger: Ledger, victim: LedgerEntry, gone: Mapping[str, LedgerEntry] = MappingProxyType({})) -> Iterator[LedgerEntry]:
    """Give the releasing replicas whose nodes a replica was to reuse, unless others of its deployment are to reuse them as well.

    `gone` are by uid those that were preempted before, and what went with them.
    """
    promised = Counter(dict(victim.reuse))
    if not promised:
        return
    group = reusing_group(victim)
    left = Counter({pool: nodes.nodes - nodes.reused for pool, nodes in ledger.releasing(*group).items()})
    left.update(promised)
    for entry in gone.values():
        if reusing_group(entry) == group:
            left.update(dict(entry.reuse))
            left.subtract(charges(entry.engines) if entry.state == RELEASING else {})
    for entry in sorted(ledger.leaving_for(group[:2]), key=lambda entry: entry.uid):
        nodes = charges(entry.engines)
        if entry.cluster != victim.cluster or entry.uid in gone or not any(promised[pool] > 0 for pool in nodes):
            continue
        if all(left[pool] >= count for pool, count in nodes.items()):
            left.subtract(nodes)
            promised.subtract(nodes)
            yield entry
