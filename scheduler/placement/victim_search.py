"""Which replicas of lower priority to preempt for one more replica: the best set over all clusters.

The clusters are visited once, those with the lowest priorities first, and what was found on each is kept: the next replica of the same
decision starts with the best of the others. Only a cluster where something changed since, or one that was not searched to its end because
another one was better, is searched again. A search has a budget that depends neither on the number of clusters nor on that of replicas. One
that ends before it has found anything goes on in the next decision, with a budget four times as large and with good sets for the best.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, islice
from math import comb

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet
from scheduler.fleet.nomination import gone_with
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.placer import ReplicaPlacer

# What the searches for victims of one decision may take together, in replicas that are looked at, of about 2 µs each; beyond that a good
# set is taken instead of the best.
PREEMPTION_STEPS_MAX = 10_000
# So many decisions in a row may find nothing for a gang within their budget before the search ends; the last one takes about a second.
UNFINISHED_MAX = 3
_GROWTH = 4
# For so long after that, changes of the fleet lead to no search that is longer than the first: a gang that fits nowhere must not hold up
# the decisions about others.
SEARCH_AGAIN_MS = 10 * 60 * 1000
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

    def __init__(self, placer: ReplicaPlacer, size: int, missing: int) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        # Of several replicas each needs a cluster of its own, so whether one cluster is better than the best does not end its search.
        self._finds_one = missing == 1
        self.unfinished = self._overlay.unfinished_searches.get(self._owner, 0)
        ended = self._overlay.ended_searches.get(self._owner)
        self._may_go_on = size > 1 and (ended is None or self._overlay.now - ended >= SEARCH_AGAIN_MS)
        # A search that was not finished takes what it finds first.
        self._is_quick = self.unfinished > 0
        self._steps_max: int = PREEMPTION_STEPS_MAX * _GROWTH**self.unfinished
        self._steps: int = self._steps_max
        self._room = ""
        self._preempted: set[Owner] = set()
        # Why no replica of a deployment may be preempted, "" if one may.
        self._barred: dict[Owner, str] = {}
        self._unvisited: list[tuple[int, ClusterSet]] | None = None
        self._visited: dict[str, ClusterInfo] = {}
        # The best choice of each cluster; None: nothing there is better than the cost.
        self._heap: list[tuple[Cost, int, int, Choice | None]] = []
        # Clusters on which nothing was found, with the position in the ledger's log at which they were searched.
        self._fruitless: dict[str, int] = {}
        # Makes each item of the heap different from every other.
        self._searches = 0
        self._current: dict[int, Cost] = {}
        self._read = placer.overlay.ledger.changes.end
        self._violation = ""

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended before every cluster was looked at."""
        return self._steps <= 0

    @property
    def goes_on(self) -> bool:
        """Whether the next decision may look further."""
        return self._may_go_on and self.unfinished < UNFINISHED_MAX

    @property
    def steps_taken(self) -> int:
        """How many replicas were looked at."""
        return self._steps_max - self._steps

    def has_room(self, size: int) -> bool:
        """Tell whether a gang may fit once all replicas are gone that may be preempted; a search that cannot succeed does not begin."""
        if counts_devices(self._overlay):
            return True
        reachable = self._overlay.index.each(ClusterSet(self._placer.passing & (self._placer.open | self._lower())))
        found = 0.0
        for info in reachable:
            found += self._most_replicas(info)
            if found >= size:
                return True
        self._room = f"preemption would not help: replicas of lower priority make room for {found:.0f} of {size} replicas of the gang"
        return False

    def _most_replicas(self, info: ClusterInfo) -> float:
        """Give how many replicas a cluster takes at most without those that may be preempted; infinity where they reuse nodes."""
        room = self._overlay.free(info)
        reusable = self._overlay.reusable(info, *self._owner) or ()
        for p, nodes in enumerate(reusable):
            room[p] += nodes
        for entry in self._preemptable(info):
            if entry.reuse:
                return math.inf
            for pool, nodes in charges(entry.engines).items():
                if pool in info.positions:
                    room[info.positions[pool]] += nodes
        engines = self._placer.compiled.on(info.layout).engines
        if len(engines) == 1:
            return sum(max(0, room[p]) // engines[0].cost for p in engines[0].positions)
        usable = {p for engine in engines for p in engine.positions}
        return sum(max(0, room[p]) for p in usable) // sum(engine.cost for engine in engines)

    def _lower(self) -> ClusterSet:
        """Give the clusters that have a replica of lower priority."""
        found = NO_CLUSTERS
        for priority, clusters in self._overlay.lowest_priorities().items():
            if priority < self._placer.priority:
                found = ClusterSet(found | clusters)
        return found

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
                if self._search_fruitless():
                    continue
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
        if self._room:
            return self._room
        if self.is_cut_short:
            looked = f"{self._steps_max} replicas were looked at"
            if self.goes_on:
                return f"the search for replicas to preempt goes on: {looked} so far"
            return f"preemption was cut short after {looked}; it is tried again when the fleet changes"
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
            priority, clusters = self._unvisited.pop()
            for info in self._from_some_start(clusters):
                if self.is_cut_short:
                    return
                if self._heap and self._is_quick:
                    self._unvisited.append((priority, clusters))
                    return
                clusters = ClusterSet(clusters & ~(1 << info.rank))
                self._visited[info.name] = info
                self._search(info, self._heap[0][0] if self._heap and self._finds_one else None)

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

    def _search_fruitless(self) -> bool:
        """Search clusters again on which nothing was found before victims elsewhere gave back of a quota; False if there is none."""
        end = self._overlay.ledger.changes.end
        again = [name for name, searched_at in self._fruitless.items() if searched_at < end] if self._placer.quota.limits else []
        for name in again:
            self._search(self._visited[name], None)
        return bool(again)

    def _search(self, info: ClusterInfo, known: Cost | None) -> None:
        """Search one cluster for a set better than a known cost, and keep what is found."""
        self._current.pop(info.rank, None)
        self._fruitless.pop(info.name, None)
        candidates = [] if self.is_cut_short else self._candidates(info)
        if not candidates:
            return
        search = _ClusterSearch(self._placer, info, candidates, self._spare, self._steps, is_quick=self._is_quick)
        choice = search.best(known)
        self._steps -= search.steps
        self._violation = self._violation or search.violation
        cost = choice.cost if choice else known
        if cost is None:
            self._fruitless[info.name] = self._overlay.ledger.changes.end
        else:
            self._current[info.rank] = cost
            self._searches += 1
            heapq.heappush(self._heap, (cost, info.rank, self._searches, choice))

    def _candidates(self, info: ClusterInfo) -> list[LedgerEntry]:
        """Give the replicas of a cluster that may be preempted, the lowest priority first."""
        self._steps -= len(self._overlay.replicas_by_priority(info.name))
        return self._preemptable(info)

    def _preemptable(self, info: ClusterInfo) -> list[LedgerEntry]:
        priority = self._placer.priority
        found = []
        for entry in self._overlay.replicas_by_priority(info.name):
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

    def __init__(
        self, placer: ReplicaPlacer, info: ClusterInfo, candidates: Sequence[LedgerEntry], spare: _Spare, most: int, *, is_quick: bool
    ) -> None:
        self._placer = placer
        self._info = info
        self._candidates = candidates
        self.steps = 0
        # Half of the steps that are left are for comparing sets, the rest for making a good one smaller.
        self._most = most
        # What refuses even the largest set.
        self.violation = ""
        self._spare = spare
        self._is_quick = is_quick
        # One engine on whole nodes: then adding up the nodes of one pool decides.
        simple = not any(entry.reuse for entry in candidates)
        self._short = _nodes_short(placer, info) if simple else None
        # By pool that may become free enough: the replicas that hold nodes of it, and how many.
        self._holders: dict[str, list[tuple[LedgerEntry, int]]] = {pool: [] for pool in self._short or ()}
        for entry in candidates if self._holders else ():
            for pool, nodes in charges(entry.engines).items():
                if pool in self._holders:
                    self._holders[pool].append((entry, nodes))

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
            found = [self._best_of_pool(pool, missing, highest, most) for pool, missing in self._short.items()]
            return min((choice for choice in found if choice), key=lambda choice: choice.cost, default=None)
        within = [entry for entry in self._candidates if entry.priority <= highest]
        if self._is_quick and (good := self._good_of_one_pool(within)):
            return good
        if self._fits(within):
            return self._good_within(within) if self._is_quick else self._best_within(within, 1, most)
        self.violation = self.violation or self._refused_by(within)
        return None

    def _one_that_frees_enough(self, short: Mapping[str, int], priority: int) -> LedgerEntry | None:
        """Find the best of the replicas of one priority that frees enough nodes alone."""
        enough = {
            id(entry): entry
            for pool, missing in short.items()
            for entry, nodes in self._holders[pool]
            if nodes >= missing and entry.priority == priority
        }
        # In the order of the candidates, of which the first is the youngest.
        ordered = (entry for entry in self._candidates if id(entry) in enough) if enough else ()
        return min(ordered, key=lambda entry: sum(charges(entry.engines).values()), default=None)

    def _best_of_pool(self, pool: str, missing: int, highest: int, most: int | None) -> Choice | None:
        """Find the best set of replicas that hold nodes of one pool: any other victim would be one too many."""
        holders = [(entry, nodes) for entry, nodes in self._holders[pool] if entry.priority <= highest]
        self.steps += 1 + len(holders)
        freed = accumulate(sorted((nodes for _, nodes in holders), reverse=True))
        fewest = next((size for size, nodes in enumerate(freed, 1) if nodes >= missing), None)
        return None if fewest is None else self._best_within([entry for entry, _ in holders], fewest, most)

    def _best_within(self, within: list[LedgerEntry], fewest: int, most: int | None) -> Choice | None:
        for size in range(fewest, (len(within) if most is None else most) + 1):
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
        return self._good_within(within)

    def _good_of_one_pool(self, within: Sequence[LedgerEntry]) -> Choice | None:
        """Find a good set among the replicas that hold nodes of one pool: there are fewer of them to try."""
        fit = self._placer.compiled.on(self._info.layout)
        for p in fit.engines[0].positions if len(fit.engines) == 1 else ():
            holders = [entry for entry in within if self._info.pools[p].name in charges(entry.engines)]
            if holders and (good := self._good_within(holders)):
                return good
        return None

    def _good_within(self, within: Sequence[LedgerEntry]) -> Choice | None:
        """Find a set that frees enough and holds no replica too many."""
        whole = _limited(within, self._spare)
        victims = self._pruned(whole) if self._fits(whole) else []
        return self._choice(victims) if victims else None

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
        for entry in list(kept) if not self._is_quick else ():
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
