"""Free capacity for replicas of higher priority by preempting whole replicas of lower priority.

Only when there is no other way, only if the deployment allows it, and as little as possible: of all sets of victims on one cluster the one
whose highest priority is lowest, then the fewest, then the lowest sum, then the least surplus, then the youngest. What a set frees is tried
as every placement is tried, so no quota, queue or network refuses it afterwards. Room that a victim left over is used before another one is
taken, and at the end a victim stays that the placements do not need. The nodes of victims are nominated for the preemptor at once; its pods
wait until the victims are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.fleet.nomination import gone_with, nominate
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.decision import Eviction, Placement
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.placer import ReplicaPlacer

# What all searches for victims of one decision may take together, in replicas that are looked at, about 1 µs each: a cluster more or less
# does not matter, and beyond it a good set is taken instead of the best.
PREEMPTION_STEPS_MAX = 30_000
# Sets of victims tried on one cluster.
_SETS_MAX = 2_000
# Spreads the start of a search that cannot visit every cluster, so that the next one sees others.
_STRIDE = 2_654_435_761
_Spare = Callable[[LedgerEntry], int]
Cost = tuple[int, int, int, int, tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of victims on one cluster; lower cost is better."""

    cost: Cost
    info: ClusterInfo
    victims: tuple[LedgerEntry, ...]


@dataclass(frozen=True, slots=True)
class Victim:
    """A preempted replica, as it was, and all entries that its nomination changed, as they were."""

    entry: LedgerEntry
    changed: tuple[LedgerEntry, ...]


class Preemption:
    """Places the replicas of one decision that find no room otherwise."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        self._steps = PREEMPTION_STEPS_MAX
        self._victims: list[Victim] = []
        # Deployments that lost a replica to an earlier unit of this decision.
        self._preempted: set[Owner] = set()
        self._seen: Counter[str] = Counter()
        self._violation = ""

    @property
    def evictions(self) -> list[Eviction]:
        """The victims."""
        detail = f"Preempted by {'/'.join(self._owner)}"
        return [
            Eviction(e.uid, e.name, e.cluster, reasons.PREEMPTED, detail, e.namespace, e.deployment)
            for e in (victim.entry for victim in self._victims)
        ]

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended before every cluster was looked at."""
        return self._steps <= 0

    @property
    def refusal(self) -> str:
        """Say why the last unit was not placed."""
        if self.is_cut_short:
            return f"preemption was cut short after {PREEMPTION_STEPS_MAX} replicas were looked at"
        if self._seen:
            texts = {
                "priority": "have no lower priority",
                "cooldown": "belong to deployments that were preempted a moment ago",
                "minAvailable": "are needed for minAvailable",
            }
            counted = sorted(self._seen.items(), key=lambda item: (-item[1], item[0]))
            return f"preemption would not help: {', '.join(f'{count} replicas {texts[reason]}' for reason, count in counted)}"
        if self._violation:
            return f"preemption would not help: {self._violation}"
        return "preemption would not help: no replicas of lower priority free enough nodes"

    def place(self, size: int, placed: list[Placement]) -> int:
        """Place `size` more replicas together, or none of them.

        Args:
            size: of the gang; 1 without one.
            placed: what the decision has placed; placements are added, and renewed where a victim was spared.

        Returns:
            How many were placed.

        """
        before = len(self._victims)
        done: list[Placement] = []
        for _ in range(size):
            placement = self._placer.place() or self._place_by_victims()
            if placement is None:
                for made in reversed(done):
                    self._placer.undo(made)
                while len(self._victims) > before:
                    self._restore(self._victims.pop())
                return 0
            done.append(placement)
        placed += done
        for cluster in dict.fromkeys(victim.entry.cluster for victim in self._victims[before:]):
            self._spare_unneeded(cluster, placed)
        self._preempted |= {_owner_of(victim.entry) for victim in self._victims[before:]}
        return size

    def finish(self) -> None:
        """Record who was preempted: they are not preempted again for a while."""
        for victim in self._victims:
            self._overlay.preempted_at[_owner_of(victim.entry)] = self._overlay.now

    def _place_by_victims(self) -> Placement | None:
        refused: set[int] = set()
        while True:
            choice = self._best(refused)
            if choice is None:
                return None
            victims = [self._take(entry) for entry in choice.victims]
            placement = self._placer.place_on(choice.info)
            if placement is not None:
                self._victims += victims
                return placement
            for victim in reversed(victims):
                self._restore(victim)
            refused.add(choice.info.rank)

    def _take(self, entry: LedgerEntry) -> Victim:
        changed = nominate(self._overlay.ledger, entry, self._owner, self._overlay.now)
        self._placer.mark_open(entry.cluster)
        return Victim(entry, tuple(changed))

    def _restore(self, victim: Victim) -> None:
        for entry in victim.changed:
            self._overlay.ledger.put(entry)
        self._placer.mark_open(victim.entry.cluster)

    def _spare_unneeded(self, cluster: str, placed: list[Placement]) -> None:
        """Keep victims of one cluster where they are, the highest priority first, as long as all placements there still fit."""
        own = [n for n, placement in enumerate(placed) if placement.cluster == cluster]
        chosen = [victim.entry for victim in self._victims if victim.entry.cluster == cluster]
        for spared in sorted(chosen, key=lambda e: (-e.priority, e.since, e.name)) if len(chosen) > 1 else ():
            rest = [entry for entry in chosen if entry is not spared]
            self._undo_all([placed[n] for n in own])
            again = self._place_with(cluster, rest, len(own))
            if again is None:
                again = self._place_with(cluster, chosen, len(own))
            else:
                chosen = rest
            for n, placement in zip(own, again or (), strict=True):
                placed[n] = placement

    def _place_with(self, cluster: str, victims: Sequence[LedgerEntry], count: int) -> list[Placement] | None:
        """Place so many replicas on a cluster with these victims instead of those so far; none if not all fit.

        What was nominated later may rest on what was nominated before, so all victims of the cluster are taken anew, in the same order.
        """
        for known in reversed([victim for victim in self._victims if victim.entry.cluster == cluster]):
            self._restore(known)
        self._victims = [victim for victim in self._victims if victim.entry.cluster != cluster] + [self._take(entry) for entry in victims]
        made: list[Placement] = []
        for _ in range(count):
            placement = self._placer.place_on(self._overlay.clusters[cluster])
            if placement is None:
                self._undo_all(made)
                return None
            made.append(placement)
        return made

    def _undo_all(self, placements: Sequence[Placement]) -> None:
        for placement in reversed(placements):
            self._placer.undo(placement)

    def _best(self, refused: set[int]) -> Choice | None:
        """Find the best victims for one more replica; `refused` are ranks of clusters that are left out."""
        placer = self._placer
        self._seen.clear()
        allowed = ClusterSet(placer.passing & placer.constraints.allowed(placer.own))
        by_lowest: dict[int, list[ClusterInfo]] = {}
        for info in self._overlay.index.each(allowed):
            rows = self._overlay.replicas_by_priority(info.name)
            if rows and info.rank not in refused:
                by_lowest.setdefault(rows[0].priority, []).append(info)
        best: Choice | None = None
        for lowest in sorted(by_lowest):
            if lowest >= placer.priority:
                self._seen["priority"] += sum(len(self._overlay.replicas_by_priority(info.name)) for info in by_lowest[lowest])
                continue
            if best is not None and lowest > best.cost[0]:
                break
            for info in self._from_some_start(by_lowest[lowest]):
                if self._steps <= 0:
                    return best
                candidates = list(self._candidates(info))
                if candidates:
                    found = _ClusterSearch(placer, info, candidates, self._spare).best(best)
                    self._steps -= found.steps
                    self._violation = self._violation or found.violation
                    best = found.choice or best
        return best

    def _from_some_start(self, clusters: list[ClusterInfo]) -> Iterator[ClusterInfo]:
        """Give all clusters, those first that an earlier search may not have come to."""
        start = self._overlay.now * _STRIDE % len(clusters) if len(clusters) > PREEMPTION_STEPS_MAX // 10 else 0
        yield from clusters[start:]
        yield from clusters[:start]

    def _candidates(self, info: ClusterInfo) -> Iterator[LedgerEntry]:
        """Give the replicas of a cluster that may be preempted, the lowest priority first."""
        rows = self._overlay.replicas_by_priority(info.name)
        self._steps -= len(rows)
        cooldown = self._overlay.options.preemption_cooldown_seconds * 1000
        for n, entry in enumerate(rows):
            if entry.priority >= self._placer.priority:
                self._seen["priority"] += sum(_owner_of(other) != self._owner for other in rows[n:])
                return
            owner = _owner_of(entry)
            if owner == self._owner:
                continue
            last = self._overlay.fleet.preempted_at.get(owner, -1)
            last = max(last, self._overlay.preempted_at.get(owner, -1))
            if owner in self._preempted or (last >= 0 and self._overlay.now - last < cooldown):
                self._seen["cooldown"] += 1
            elif self._spare(entry) < 1:
                self._seen["minAvailable"] += 1
            else:
                yield entry

    def _spare(self, entry: LedgerEntry) -> int:
        """Give how many replicas the entry's deployment can lose."""
        if not entry.min_available:
            return len(self._overlay.ledger.owned(entry.namespace, entry.deployment))
        owned = self._overlay.ledger.owned(entry.namespace, entry.deployment).values()
        return sum(e.state != reasons.RELEASING for e in owned) - entry.min_available


@dataclass(frozen=True, slots=True)
class _Found:
    """The better choice on a cluster, if there is one; what finding out took, and what refuses even the largest set."""

    choice: Choice | None
    steps: int
    violation: str = ""


class _ClusterSearch:
    """The search for the best victims on one cluster."""

    def __init__(self, placer: ReplicaPlacer, info: ClusterInfo, candidates: Sequence[LedgerEntry], spare: _Spare) -> None:
        self._placer = placer
        self._info = info
        self._candidates = candidates
        self._steps = 0
        self._spares = {_owner_of(entry): spare(entry) for entry in candidates}
        # One engine on whole nodes: then adding up nodes decides.
        self._short = _nodes_short(placer, info)

    def best(self, known: Choice | None) -> _Found:
        """Find the best set that is better than a known one."""
        violation = ""
        for highest in dict.fromkeys(entry.priority for entry in self._candidates):
            if known is not None and highest > known.cost[0]:
                break
            within = [entry for entry in self._candidates if entry.priority <= highest]
            if not self._fits(within):
                violation = violation or self._refused_by(within)
                continue
            most = known.cost[1] if known is not None and known.cost[0] == highest else len(within)
            choice = self._best_within(within, most)
            if choice is not None:
                return _Found(choice if known is None or choice.cost < known.cost else None, self._steps)
        return _Found(None, self._steps, violation)

    def _best_within(self, within: list[LedgerEntry], most: int) -> Choice | None:
        for size in range(self._fewest(within), most + 1):
            sets = list(islice(self._sets(within, size), _SETS_MAX + 1))
            if len(sets) > _SETS_MAX:
                break
            fitting = [chosen for chosen in sets if self._is_lawful(chosen) and self._fits(chosen)]
            if fitting:
                return min((self._choice(chosen) for chosen in fitting), key=lambda choice: choice.cost)
        else:
            return None
        whole = self._limited(within)
        return self._choice(self._pruned(whole)) if self._fits(whole) else None

    def _fewest(self, within: list[LedgerEntry]) -> int:
        """Give the size below which no set frees enough nodes."""
        if self._short is None:
            return 1
        sizes = [len(within)]
        for pool, missing in self._short.items():
            freed = 0
            for size, nodes in enumerate(sorted((_with_reuse(entry, pool) for entry in within), reverse=True), 1):
                freed += nodes
                if freed >= missing:
                    sizes.append(size)
                    break
        return max(1, min(sizes))

    def _sets(self, within: list[LedgerEntry], size: int) -> Iterator[tuple[LedgerEntry, ...]]:
        """Give the sets of one size that are worth trying."""
        wanted = Counter(_owner_of(entry) for entry in within)
        if any(wanted[owner] > self._spares[owner] for owner in wanted) and comb(len(within), size) <= _SETS_MAX:
            yield from combinations(within, size)
            return
        # Of replicas that free the same, the youngest go first: which of them does not matter otherwise.
        groups: dict[object, list[LedgerEntry]] = {}
        for entry in within:
            groups.setdefault(_alike(entry), []).append(entry)
        yield from _prefixes(list(groups.values()), size)

    def _is_lawful(self, chosen: Sequence[LedgerEntry]) -> bool:
        return len(self._limited(chosen)) == len(chosen)

    def _limited(self, chosen: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """Leave out what would take a deployment below its `minAvailable`."""
        taken: Counter[Owner] = Counter()
        kept = []
        for entry in chosen:
            owner = _owner_of(entry)
            if taken[owner] < self._spares[owner]:
                taken[owner] += 1
                kept.append(entry)
        return kept

    def _pruned(self, chosen: list[LedgerEntry]) -> list[LedgerEntry]:
        """Leave out victims one by one, the highest priority first, as long as the rest still frees enough."""
        kept = list(chosen)
        for entry in sorted(chosen, key=lambda e: (-e.priority, e.since, e.name)):
            rest = [e for e in kept if e is not entry]
            if self._fits(rest):
                kept = rest
        return kept

    def _fits(self, victims: Sequence[LedgerEntry]) -> bool:
        self._steps += 1 + len(victims)
        if self._short is not None and not any(victim.reuse for victim in victims):
            freed: Counter[str] = Counter()
            for victim in victims:
                freed.update(charges(victim.engines))
            return any(freed[pool] >= missing for pool, missing in self._short.items())
        self._steps += 10
        return self._placer.trials.on(self._info, gone_with(self._placer.overlay.ledger, victims)).failed < 0

    def _refused_by(self, victims: Sequence[LedgerEntry]) -> str:
        """Name what refuses the replica although the nodes of all victims would be enough."""
        if self._short is not None:
            return ""
        return self._placer.trials.on(self._info, gone_with(self._placer.overlay.ledger, victims)).violation

    def _choice(self, victims: Sequence[LedgerEntry]) -> Choice:
        freed = sum(sum(charges(victim.engines).values()) for victim in victims)
        needed = sum(engine.cost for engine in self._placer.compiled.on(self._info.layout).engines)
        cost = (
            max(victim.priority for victim in victims),
            len(victims),
            sum(victim.priority for victim in victims),
            freed - needed,
            tuple(sorted(-victim.since for victim in victims)),
            tuple(sorted(f"{victim.cluster}/{victim.namespace}/{victim.name}" for victim in victims)),
        )
        return Choice(cost, self._info, tuple(victims))


def _owner_of(entry: LedgerEntry) -> Owner:
    return (entry.namespace, entry.deployment)


def _nodes_short(placer: ReplicaPlacer, info: ClusterInfo) -> Mapping[str, int] | None:
    """Give per pool how many nodes the only engine lacks; None where only a full trial can tell."""
    if not placer.trials.is_simple or info.observed:
        return None
    engine = placer.compiled.on(info.layout).engines[0]
    free = placer.overlay.free(info)
    reusable = placer.overlay.reusable(info, placer.deployment.namespace, placer.deployment.name) or [0] * len(free)
    return {info.pools[p].name: engine.cost - free[p] - reusable[p] for p in engine.positions}


def _with_reuse(entry: LedgerEntry, pool: str) -> int:
    """Give the most nodes of a pool that a victim can free: what was nominated for it is freed with it."""
    return charges(entry.engines).get(pool, 0) + dict(entry.reuse).get(pool, 0)


def _alike(entry: LedgerEntry) -> object:
    """Give what makes two replicas equal as victims."""
    return (entry.priority, entry.engines, entry.reuse, entry.nominated_for)


def _prefixes(groups: list[list[LedgerEntry]], size: int) -> Iterator[tuple[LedgerEntry, ...]]:
    """Give the sets of `size` that take the first ones of each group."""
    if not size:
        yield ()
    elif groups:
        first, rest = groups[0], groups[1:]
        for count in range(min(size, len(first)), -1, -1):
            for others in _prefixes(rest, size - count):
                yield (*first[:count], *others)
