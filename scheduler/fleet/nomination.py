"""Nominate the nodes of preempted replicas for the preemptor.

The nomination ends when the preempted replicas are gone. The term follows
kube-scheduler's `nominatedNodeName`. A deployment of still higher priority may preempt
the preemptor before it has its nodes. The nodes nominated for the first preemptor are
then nominated for the second.
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
class AssumedGone:
    """Replicas of one cluster that are assumed gone, and the freed nodes per pool."""

    uids: frozenset[str] = frozenset()
    entries: tuple[LedgerEntry, ...] = ()
    nodes: Mapping[str, int] = field(default_factory=dict)


NONE_GONE = AssumedGone()


def gone_with(ledger: Ledger, victims: Iterable[LedgerEntry]) -> AssumedGone:
    """Return the replicas that are gone after victims of a cluster are preempted.

    They are the victims and the replicas that were nominated for the victims.
    """
    entries: dict[str, LedgerEntry] = {}
    nodes: Counter[str] = Counter()
    for victim in victims:
        moved = [victim, *_nominated_with(ledger, victim, entries)]
        for entry in moved:
            entries[entry.uid] = entry
            nodes.update(charges(entry.charged))
        # These nodes were counted with the replicas that still hold them.
        nodes.subtract(dict(victim.reuse))
    return AssumedGone(frozenset(entries), tuple(entries.values()), nodes)


def nominate(
    ledger: Ledger, victim: LedgerEntry, preemptor: Owner, now: int
) -> list[LedgerEntry]:
    """Release a preempted replica and nominate its nodes; `now` is in ms.

    Nodes that were nominated for the victim itself are nominated for the preemptor as
    well.

    Returns:
        The previous versions of the changed entries; putting them back undoes the
        change.

    """
    changed = [*_nominated_with(ledger, victim), victim]
    for entry in changed[:-1]:
        ledger.put(replace(entry, nominated_for=preemptor))
    ledger.put(replace(victim.as_releasing(now), nominated_for=preemptor))
    return changed


def _nominated_with(
    ledger: Ledger,
    victim: LedgerEntry,
    gone: Mapping[str, LedgerEntry] = MappingProxyType({}),
) -> Iterator[LedgerEntry]:
    """Yield the releasing replicas whose nodes a victim was going to reuse.

    Replicas whose nodes will also be reused by another replica of that deployment are
    left out. `gone` has, by uid, the replicas that were preempted before and the
    replicas nominated for them.
    """
    promised = Counter(dict(victim.reuse))
    if not promised:
        return
    group = reusing_group(victim)
    left = Counter(
        {
            pool: nodes.nodes - nodes.reused
            for pool, nodes in ledger.releasing(*group).items()
        }
    )
    left.update(promised)
    for entry in gone.values():
        if reusing_group(entry) == group:
            left.update(dict(entry.reuse))
            left.subtract(charges(entry.charged) if entry.state == RELEASING else {})
    for entry in sorted(ledger.leaving_for(group[:2]), key=lambda entry: entry.uid):
        nodes = charges(entry.charged)
        if (
            entry.cluster != victim.cluster
            or entry.uid in gone
            or not any(promised[pool] > 0 for pool in nodes)
        ):
            continue
        if all(left[pool] >= count for pool, count in nodes.items()):
            left.subtract(nodes)
            promised.subtract(nodes)
            yield entry
