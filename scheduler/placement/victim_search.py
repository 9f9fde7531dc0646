"""Which replicas of lower priority to preempt for one more replica: the best set over all clusters.

The clusters are visited once, those with the lowest priorities first, and what was found on each is kept: the next replica of the same
decision starts with the best of the others. Only a cluster where something changed since, or one that was not searched to its end because
another one was better, is searched again. A search has a budget that depends neither on the number of clusters nor on that of replicas.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.fleet.nomination import gone_with
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.placer import ReplicaPlacer

# What the searches for victims of one decision may take together, in replicas that are looked at, of about 2 µs each; beyond that a good
# set is taken instead of the best.
PREEMPTION_STEPS_MAX = 10_000
# Sets of victims tried on one cluster.
_SETS_MAX = 2_000
# A trial of a set that is more than an addition of nodes, in those steps; its search for an arrangement comes on top, of which so many
# steps count as one.
_STEPS_PER_TRIAL = 10
SEARCH_STEPS = 2
# Of the deployment's own replicas.
_OWN = "own"
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


class VictimSearch:
    """The search for victims of one decision, replica after replica."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        self._steps = PREEMPTION_STEPS_MAX
        self._preempted: set[Owner] = set()
        # Why no replica of a deployment may be preempted, "" if one may.
        self._barred: dict[Owner, str] = {}
        self._unvisited: list[tuple[int, ClusterSet]] | None = None
        self._visited: dict[str, ClusterInfo] = {}
        # The best choice of each cluster; None: nothing there is better than the cost.
        self._heap: list[tuple[Cost, int, int, Choice | None]] = []
        # Makes each item of the heap different from every other.
        self._searches = 0
        self._current: dict[int, Cost] = {}
        self._read = placer.overlay.ledger.changes.end
        self._violation = ""

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended before every cluster was looked at."""
        return self._steps <= 0

    def bar(self, owners: set[Owner]) -> None:
        """Take no replicas of these deployments any more."""
        self._preempted = owners
        self._barred.clear()

    def best(self, allowed: ClusterSet) -> Choice | None:
        """Find the best victims for one more replica on one of the allowed clusters."""
        self._follow_changes()
        aside = []
        found: Choice | None = None
        while found is None:
            self._visit()
            if not self._heap:
                break
            item = heapq.heappop(self._heap)
            cost, rank, _, choice = item
            if self._current.get(rank) != cost:
                continue
            if not allowed >> rank & 1 or (choice is None and self.is_cut_short):
                aside.append(item)
            elif choice is None or not self._is_lawful(choice.victims):
                self._search(self._overlay.index.ranked[rank], None)
            else:
                found = choice
                aside.append(item)
        for item in aside:
            heapq.heappush(self._heap, item)
        return found

    @property
    def refusal(self) -> str:
        """Say why nothing was found."""
        if self.is_cut_short:
            return f"preemption was cut short after {PREEMPTION_STEPS_MAX} replicas were looked at"
        seen = self._seen()
        if seen:
            texts = {
                "priority": "have no lower priority",
                "cooldown": "belong to deployments that were preempted a moment ago",
                "minAvailable": "are needed for minAvailable",
            }
            counted = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
            return f"preemption would not help: {', '.join(f'{count} replicas {texts[reason]}' for reason, count in counted)}"
        if self._violation:
            return f"preemption would not help: {self._violation}"
        return "preemption would not help: no replicas of lower priority free enough nodes"

    def _seen(self) -> Counter[str]:
        """Count the replicas that may not be preempted, by the reason."""
        seen: Counter[str] = Counter()
        for info in self._overlay.index.each(self._placer.passing):
            for entry in self._overlay.replicas_by_priority(info.name):
                reason = "priority" if entry.priority >= self._placer.priority else self._why_barred(entry)
                if reason and owner_of(entry) != self._owner:
                    seen[reason] += 1
        return seen

    def _visit(self) -> None:
        """Search the clusters on which something may be as good as the best so far."""
        if self._unvisited is None:
            lower = {p: found for p, found in self._overlay.lowest_priorities().items() if p < self._placer.priority}
            self._unvisited = [(p, ClusterSet(lower[p] & self._placer.passing)) for p in sorted(lower, reverse=True)]
        while self._unvisited and not self.is_cut_short and (not self._heap or self._unvisited[-1][0] <= self._heap[0][0][0]):
            for info in self._from_some_start(self._unvisited.pop()[1]):
                if self.is_cut_short:
                    return
                self._visited[info.name] = info
                self._search(info, self._heap[0][0] if self._heap else None)

    def _from_some_start(self, clusters: ClusterSet) -> Iterator[ClusterInfo]:
        """Give all clusters, those first that an earlier search may not have come to."""
        index = self._overlay.index
        start = self._overlay.now * _STRIDE % len(index.ranked) if clusters.bit_count() > PREEMPTION_STEPS_MAX // 10 else 0
        before = ClusterSet(clusters & ((1 << start) - 1))
        yield from index.each(ClusterSet(clusters ^ before))
        yield from index.each(before)

    def _follow_changes(self) -> None:
        """Search again where nodes were taken or freed since the last replica."""
        changes = self._overlay.ledger.changes
        changed: dict[str, None] = {}
        for pair in changes.since(self._read) or ():
            for entry in pair:
                if entry is not None:
                    self._barred.pop(owner_of(entry), None)
                    changed[entry.cluster] = None
        self._read = changes.end
        for name in changed:
            if name in self._visited:
                self._search(self._visited[name], None)

    def _search(self, info: ClusterInfo, known: Cost | None) -> None:
        """Search one cluster for a set better than a known cost, and keep what is found."""
        self._current.pop(info.rank, None)
        candidates = [] if self.is_cut_short else self._candidates(info)
        if not candidates:
            return
        search = _ClusterSearch(self._placer, info, candidates, self._spare, self._steps)
        choice = search.best(known)
        self._steps -= search.steps
        self._violation = self._violation or search.violation
        cost = choice.cost if choice else known
        if cost is not None:
            self._current[info.rank] = cost
            self._searches += 1
            heapq.heappush(self._heap, (cost, info.rank, self._searches, choice))

    def _candidates(self, info: ClusterInfo) -> list[LedgerEntry]:
        """Give the replicas of a cluster that may be preempted, the lowest priority first."""
        rows = self._overlay.replicas_by_priority(info.name)
        self._steps -= len(rows)
        priority = self._placer.priority
        found = []
        for entry in rows:
            if entry.priority >= priority:
                break
            barred = self._barred.get((entry.namespace, entry.deployment))
            if barred is None:
                barred = self._why_barred(entry)
            if not barred:
                found.append(entry)
        return found

    def _is_lawful(self, victims: Sequence[LedgerEntry]) -> bool:
        return not any(self._why_barred(entry) for entry in victims) and len(_limited(victims, self._spare)) == len(victims)

    def _why_barred(self, entry: LedgerEntry) -> str:
        """Say why no replica of an entry's deployment may be preempted, "" if one may."""
        owner = owner_of(entry)
        known = self._barred.get(owner)
        if known is None:
            known = self._barred[owner] = self._find_why_barred(owner, entry)
        return known

    def _find_why_barred(self, owner: Owner, entry: LedgerEntry) -> str:
        if owner == self._owner:
            return _OWN
        last = max(self._overlay.fleet.preempted_at.get(owner, -1), self._overlay.preempted_at.get(owner, -1))
        cooldown = self._overlay.options.preemption_cooldown_seconds * 1000
        last = self._overlay.now if owner in self._preempted else last
        if last >= 0 and self._overlay.now - last < cooldown:
            return "cooldown"
        return "minAvailable" if self._spare(entry) < 1 else ""

    def _spare(self, entry: LedgerEntry) -> int:
        """Give how many replicas the entry's deployment can lose."""
        owned = self._overlay.ledger.owned(entry.namespace, entry.deployment)
        if not entry.min_available:
            return len(owned)
        return sum(e.state != reasons.RELEASING for e in owned.values()) - entry.min_available


class _ClusterSearch:
    """The search for the best victims on one cluster."""

    def __init__(self, placer: ReplicaPlacer, info: ClusterInfo, candidates: Sequence[LedgerEntry], spare: _Spare, most: int) -> None:
        self._placer = placer
        self._info = info
        self._candidates = candidates
        self.steps = 0
        # Half of the steps that are left are for comparing sets, the rest for making a good one smaller.
        self._most = most
        # What refuses even the largest set.
        self.violation = ""
        self._spare = spare
        # One engine on whole nodes: then adding up nodes decides.
        simple = not any(entry.reuse for entry in candidates)
        self._short = _nodes_short(placer, info) if simple else None

    def best(self, known: Cost | None) -> Choice | None:
        """Find the best set, if it is better than a known cost."""
        for highest in dict.fromkeys(entry.priority for entry in self._candidates):
            if known is not None and highest > known[0]:
                break
            choice = self._best_of(highest, known[1] if known is not None and known[0] == highest else None)
            if choice is not None:
                return choice if known is None or choice.cost < known else None
        return None

    def _best_of(self, highest: int, most: int | None) -> Choice | None:
        """Find the best set whose highest priority is given, of at most so many replicas."""
        if self._short is not None:
            only = self._one_that_frees_enough(self._short, highest)
            if only is not None:
                return self._choice((only,))
        within = [entry for entry in self._candidates if entry.priority <= highest]
        if self._fits(within):
            return self._best_within(within, len(within) if most is None else most)
        self.violation = self.violation or self._refused_by(within)
        return None

    def _one_that_frees_enough(self, short: Mapping[str, int], priority: int) -> LedgerEntry | None:
        """Find the best of the replicas of one priority that frees enough nodes alone."""
        best, least = None, 0
        for entry in self._candidates:
            if entry.priority != priority:
                continue
            nodes = charges(entry.engines)
            for pool, count in nodes.items():
                if pool in short and count >= short[pool]:
                    freed = sum(nodes.values())
                    if best is None or freed < least:
                        best, least = entry, freed
                    break
        return best

    def _best_within(self, within: list[LedgerEntry], most: int) -> Choice | None:
        for size in range(self._fewest(within), most + 1):
            sets = list(islice(self._sets(within, size), _SETS_MAX + 1))
            if len(sets) > _SETS_MAX:
                break
            lawful = (chosen for chosen in sets if len(_limited(chosen, self._spare)) == size)
            fitting = [chosen for chosen in lawful if self.steps <= self._most // 2 and self._fits(chosen)]
            if self.steps > self._most // 2:
                break
            if fitting:
                return min((self._choice(chosen) for chosen in fitting), key=lambda choice: choice.cost)
        else:
            return None
        whole = _limited(within, self._spare)
        return self._choice(self._pruned(whole)) if self._fits(whole) else None

    def _fewest(self, within: list[LedgerEntry]) -> int:
        """Give the size below which no set frees enough nodes."""
        if self._short is None:
            return 1
        sizes = [len(within)]
        for pool, missing in self._short.items():
            freed = 0
            for size, nodes in enumerate(sorted((charges(entry.engines).get(pool, 0) for entry in within), reverse=True), 1):
                freed += nodes
                if freed >= missing:
                    sizes.append(size)
                    break
        return max(1, min(sizes))

    def _sets(self, within: list[LedgerEntry], size: int) -> Iterator[tuple[LedgerEntry, ...]]:
        """Give the sets of one size that are worth trying."""
        if len(_limited(within, self._spare)) < len(within) and comb(len(within), size) <= _SETS_MAX:
            yield from combinations(within, size)
            return
        # Of replicas that free the same, the youngest go first: which of them does not matter otherwise.
        groups: dict[object, list[LedgerEntry]] = {}
        for entry in within:
            groups.setdefault(_alike(entry), []).append(entry)
        yield from _prefixes(list(groups.values()), size)

    def _pruned(self, chosen: list[LedgerEntry]) -> list[LedgerEntry]:
        """Leave out victims one by one, the highest priority first, as long as the rest still frees enough."""
        ordered = sorted(chosen, key=lambda e: (-e.priority, e.since, e.name))
        # So many of the first can be left out together: found by halves, because there may be thousands.
        few, many = 0, len(ordered)
        while few < many:
            middle = (few + many + 1) // 2
            if self._fits(ordered[middle:]):
                few = middle
            else:
                many = middle - 1
        kept = ordered[few:]
        for entry in list(kept):
            if self.steps > self._most:
                break
            rest = [e for e in kept if e is not entry]
            if self._fits(rest):
                kept = rest
        return kept

    def _fits(self, victims: Sequence[LedgerEntry]) -> bool:
        self.steps += 1 + len(victims)
        if self._short is not None:
            nodes = [charges(victim.engines) for victim in victims]
            return any(sum(freed.get(pool, 0) for freed in nodes) >= missing for pool, missing in self._short.items())
        budget = self._placer.trials.budget
        before = budget.taken
        trial = self._placer.trials.on(self._info, gone_with(self._placer.overlay.ledger, victims))
        self.steps += _STEPS_PER_TRIAL + (budget.taken - before) // SEARCH_STEPS
        return trial.failed < 0

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


def owner_of(entry: LedgerEntry) -> Owner:
    """Give the deployment of a replica."""
    return (entry.namespace, entry.deployment)


def _limited(chosen: Sequence[LedgerEntry], spare: _Spare) -> list[LedgerEntry]:
    """Leave out what would take a deployment below its `minAvailable`."""
    taken: Counter[Owner] = Counter()
    kept = []
    for entry in chosen:
        if entry.min_available:
            owner = owner_of(entry)
            taken[owner] += 1
            if taken[owner] > spare(entry):
                continue
        kept.append(entry)
    return kept


def _nodes_short(placer: ReplicaPlacer, info: ClusterInfo) -> Mapping[str, int] | None:
    """Give per pool how many nodes the only engine lacks; None where only a full trial can tell."""
    if not placer.trials.is_simple or info.observed:
        return None
    engine = placer.compiled.on(info.layout).engines[0]
    free = placer.overlay.free(info)
    reusable = placer.overlay.reusable(info, placer.deployment.namespace, placer.deployment.name) or [0] * len(free)
    return {info.pools[p].name: engine.cost - free[p] - reusable[p] for p in engine.positions}


def _alike(entry: LedgerEntry) -> object:
    """Give what makes two replicas equal as victims."""
    return (entry.priority, entry.engines, entry.reuse, entry.nominated_for)


def _prefixes(groups: Sequence[Sequence[LedgerEntry]], size: int) -> Iterator[tuple[LedgerEntry, ...]]:
    """Give the sets of `size` that take the first ones of each group, those with the most of the first groups first."""
    # How many replicas there are from each group on: what cannot reach the size any more is not followed.
    left = [0]
    for group in reversed(groups):
        left.append(left[-1] + len(group))
    left.reverse()
    # Not a recursion: there may be more groups than Python allows calls within each other.
    begun: list[tuple[int, tuple[LedgerEntry, ...]]] = [(0, ())] if size <= left[0] else []
    while begun:
        g, chosen = begun.pop()
        missing = size - len(chosen)
        if not missing:
            yield chosen
            continue
        least = max(0, missing - left[g + 1])
        begun += [(g + 1, (*chosen, *groups[g][:count])) for count in range(least, min(missing, len(groups[g])) + 1)]
