"""Which releasing replicas a new replica waits for.

Usually a new replica waits for all replicas on its cluster whose nodes its deployment
may reuse. If one decision preempts thousands of replicas for hundreds of new ones,
these lists are larger than any message, so each new replica then waits for its own part
of the victims only. Where nodes are counted, the parts of some new replicas together
free the nodes that these replicas reuse. Where devices are counted, the pods of a
replica may stay pending until other victims are gone as well, because any pod may take
their devices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from scheduler.fleet.charged_nodes import NO_RELEASING_NODES
from scheduler.fleet.ledger import Ledger
from scheduler.hardware.template import charges
from scheduler.model.decision import Placement
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RESERVED

# Limit of the uids in the `after` of all placements of a decision before the victims are
# divided. They are about 200 KB of its wire form.
WAITS_MAX = 20_000


def waits_for(ledger: Ledger, entry: LedgerEntry) -> tuple[str, ...]:
    """Return the replicas that must be gone before a reserved replica may start.

    The deployment may never have read the decision that placed the replica, so the
    decision repeats the list. When several placements compete for the nodes of one
    removed replica, the deployment resolves that from the decisions that placed them.
    The ledger only counts nodes, so it cannot say which replica's nodes a placement
    uses.
    """
    if entry.state != RESERVED:
        return ()
    found = ledger.predecessors((entry.namespace, entry.deployment), entry.cluster)
    if not entry.after:
        return found
    own = set(entry.after)
    return tuple(uid for uid in found if uid in own)


def divide_waits(
    ledger: Ledger, owner: Owner, placed: Sequence[Placement], victims: Iterable[str]
) -> list[Placement]:
    """Return the new placements of a decision, each with its part of the victims.

    The ledger records the parts. Nothing changes if all lists together are small.

    Args:
        ledger: the ledger, with the placements and the releasing victims.
        owner: namespace and name of the deployment.
        placed: the new placements.
        victims: uids of the victims, in the order in which they were preempted.

    """
    if sum(len(placement.after) for placement in placed) <= WAITS_MAX:
        return list(placed)
    by_cluster: dict[str, list[LedgerEntry]] = defaultdict(list)
    for uid in victims:
        entry = ledger.get(uid)
        if entry is not None:
            by_cluster[entry.cluster].append(entry)
    # Replicas that earlier placements wait for.
    taken: set[str] = set()
    for entry in ledger.owned(*owner).values():
        taken.update(entry.after)
    divided = list(placed)
    for cluster in dict.fromkeys(placement.cluster for placement in placed):
        here = [n for n, placement in enumerate(placed) if placement.cluster == cluster]
        gone = by_cluster[cluster]
        divisible = taken.union(entry.uid for entry in gone)
        parts = _parts(ledger, owner, [placed[n] for n in here], gone)
        for n, part in zip(here, parts, strict=True):
            common = [uid for uid in placed[n].after if uid not in divisible]
            divided[n] = replace(
                placed[n], after=tuple(sorted({*common, *part})), waits_for_part=True
            )
            entry = ledger.get(divided[n].uid)
            if entry is not None:
                ledger.put(replace(entry, after=divided[n].after))
    return divided


def _parts(
    ledger: Ledger,
    owner: Owner,
    placed: Sequence[Placement],
    victims: Sequence[LedgerEntry],
) -> list[set[str]]:
    """Divide the victims of a cluster among the placements there, pool by pool."""
    reuses = [dict(placement.reuse) for placement in placed]
    # Where devices are counted, no placement records which nodes it reuses.
    needs = reuses if any(reuses) else [charges(p.engines) for p in placed]
    total: Counter[str] = Counter()
    for need in needs:
        total.update(need)
    parts: list[set[str]] = [set() for _ in placed]
    for pool, needed in total.items():
        freed = [(entry.uid, charges(entry.charged).get(pool, 0)) for entry in victims]
        before = _reusable_before(ledger, owner, placed, pool, freed)
        at = 0
        intervals = []
        for need in needs:
            intervals.append((at, at + need.get(pool, 0)))
            at = intervals[-1][1]
        for n, uid in _overlaps(intervals, needed, [("", before), *freed]):
            if uid:
                parts[n].add(uid)
    return parts


def _reusable_before(
    ledger: Ledger,
    owner: Owner,
    placed: Sequence[Placement],
    pool: str,
    freed: Iterable[tuple[str, int]],
) -> int:
    """Return the nodes that the placements reuse of replicas that left earlier."""
    (cluster,) = {placement.cluster for placement in placed}
    nodes = ledger.releasing(*owner, cluster).get(pool, NO_RELEASING_NODES)
    reused = sum(dict(placement.reuse).get(pool, 0) for placement in placed)
    if not reused:
        return 0
    return max(
        0, nodes.nodes - nodes.reused + reused - sum(count for _, count in freed)
    )


def _overlaps(
    intervals: Sequence[tuple[int, int]],
    needed: int,
    freed: Sequence[tuple[str, int]],
) -> Iterator[tuple[int, str]]:
    """Lay needed and freed nodes beside each other; yield each pair that overlaps.

    Both are stretched to the same length, so that no victim is left over.
    """
    supply = sum(nodes for _, nodes in freed)
    n, at = 0, 0
    for uid, nodes in freed:
        end = at + nodes
        while n < len(intervals) and intervals[n][1] * supply <= at * needed:
            n += 1
        m = n
        while m < len(intervals) and intervals[m][0] * supply < end * needed:
            if intervals[m][1] > intervals[m][0]:
                yield m, uid
            m += 1
        at = end
