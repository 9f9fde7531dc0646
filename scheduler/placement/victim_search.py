"""Choose the replicas to preempt for one more replica: the best set over all clusters.

The search visits each cluster once, starting with the lowest priorities, and keeps its
result. The next replica of the same decision starts with the best remaining result. A
cluster is searched again only if it changed, or if its search was stopped early because
another cluster was better. The budget of a search depends neither on the number of
clusters nor on the number of replicas. A search that ends without a result continues in
the next decision, with a budget four times as large, and accepts good sets instead of
the best.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet
from scheduler.hardware.charged_devices import ClusterLoad, pods_on
from scheduler.hardware.node_fitting import CUT_SHORT
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.cluster_victims import (
    Choice,
    ClusterSearch,
    Cost,
    limited,
    owner_of,
)
from scheduler.placement.limits.device_accounting import (
    accounting_of,
    charged_load,
    counts_devices,
    most_beside,
)
from scheduler.placement.placer import ReplicaPlacer

# Limit of all searches for victims of one decision, in visited replicas of about 2 µs
# each. Beyond the limit, a good set is accepted instead of the best.
PREEMPTION_STEPS_MAX = 10_000
# After this many consecutive decisions without victims, the search ends. The last
# search takes about a second.
UNFINISHED_MAX = 3
_GROWTH = 4
# For this time after that, changes of the fleet start no search longer than the first
# one. A deployment that fits nowhere must not delay other decisions.
SEARCH_AGAIN_MS = 10 * 60 * 1000
# Steps of removing a replica from the load of a cluster.
_STEPS_PER_LOAD = 8
# Reason why the deployment's own replicas are not preempted.
_OWN = "own"
# Varies the start of a search that cannot visit every cluster, so that the next search
# visits other clusters.
_STRIDE = 2_654_435_761


class VictimSearch:
    """The search for victims of one decision, replica after replica."""

    def __init__(self, placer: ReplicaPlacer, missing: int) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        # Several replicas need several clusters, so one good cluster does not end the
        # search.
        self._finds_one = missing == 1
        self.unfinished = self._overlay.unfinished_searches.get(self._owner, 0)
        ended = self._overlay.ended_searches.get(self._owner)
        self._may_go_on = ended is None or self._overlay.now - ended >= SEARCH_AGAIN_MS
        # A continued search takes the first good set.
        self._is_quick = self.unfinished > 0
        self._steps_max: int = PREEMPTION_STEPS_MAX * _GROWTH**self.unfinished
        self._steps: int = self._steps_max
        self._room = ""
        # By the pools of a cluster, whether it has room for each engine when empty.
        self._large_enough: dict[tuple[object, ...], bool] = {}
        self._preempted: set[Owner] = set()
        # Why no replica of a deployment may be preempted, or "".
        self._barred: dict[Owner, str] = {}
        self._unvisited: list[tuple[int, ClusterSet]] | None = None
        self._visited: dict[str, ClusterInfo] = {}
        # The preemptable replicas of each cluster that a quick search has read, by uid.
        self._candidates_left: dict[str, dict[str, LedgerEntry]] = {}
        # The best choice of each cluster. None if no set there is better than the cost.
        self._heap: list[tuple[Cost, int, int, Choice | None]] = []
        # Clusters without a result, with the position in the ledger's log when they
        # were searched.
        self._fruitless: dict[str, int] = {}
        # Makes each item of the heap unique.
        self._searches = 0
        self._current: dict[int, Cost] = {}
        self._read = placer.overlay.ledger.changes.end
        self._violation = ""

    @property
    def is_cut_short(self) -> bool:
        """Return whether the search ended before it tried everything."""
        budget = self._placer.trials.budget
        return self._is_over or budget.is_spent or budget.is_exhausted

    @property
    def _is_over(self) -> bool:
        """Return whether no further replica may be visited."""
        return self._steps <= 0

    @property
    def goes_on(self) -> bool:
        """Return whether the next decision may continue the search."""
        return self._may_go_on and self.unfinished < UNFINISHED_MAX

    @property
    def steps_taken(self) -> int:
        """Return the number of visited replicas."""
        return self._steps_max - self._steps

    def has_room(self, size: int) -> bool:
        """Return whether `size` replicas may fit once all preemptable ones are gone.

        A search that cannot succeed does not start. It starts as well if this shows
        only after reading more replicas than a first search may visit.
        """
        by_device = counts_devices(self._overlay)
        # Removing the devices of a replica takes several times as long as its nodes.
        readable = PREEMPTION_STEPS_MAX // (_STEPS_PER_LOAD if by_device else 1)
        reachable = self._placer.passing
        # A quota that victims return has room on every cluster.
        if not self._placer.quota.limits:
            reachable = ClusterSet(reachable & (self._placer.open | self._lower()))
        found, read = 0.0, 0
        for info in self._overlay.index.each(reachable):
            if not self._is_large_enough(info):
                continue
            found += (
                self._most_by_device(info) if by_device else self._most_replicas(info)
            )
            read += len(self._overlay.ledger.on_cluster(info.name))
            if found >= size or read > readable:
                return True
        if size > 1:
            self._room = (
                "preemption would not help: replicas of lower priority make room for "
                f"{found:.0f} of {size} replicas of the gang"
            )
        return False

    def _most_by_device(self, info: ClusterInfo) -> float:
        """Return an upper bound of the replicas whose devices fit without the victims."""
        victims = self._preemptable(info)
        if any(entry.reuse for entry in victims):
            return math.inf
        gone = {entry.uid for entry in victims}
        return self._most_beside(
            info, charged_load(self._overlay, info, self._owner, gone)
        )

    def _most_beside(self, info: ClusterInfo, load: ClusterLoad) -> float:
        """Return an upper bound: each replica needs the devices of each of its engines."""
        compiled = self._placer.compiled
        bounds = []
        for i, engine in enumerate(compiled.on(info.layout).engines):
            most = 0.0
            for pool in (info.pools[p] for p in engine.positions):
                added = pods_on((compiled.place(i, pool.name, pool.device_set),), pool)
                most += most_beside(self._overlay, pool, load.on(pool), added)
            bounds.append(most)
        return min(bounds)

    def _is_large_enough(self, info: ClusterInfo) -> bool:
        """Return whether an empty cluster has the room for each engine alone."""
        # Many clusters have the same pools.
        key = (id(info.layout), info.nodes, self._accounting_of_pools(info))
        known = self._large_enough.get(key)
        if known is None:
            known = self._large_enough[key] = (
                self._most_beside(info, ClusterLoad(info.pools, ())) >= 1
                if counts_devices(self._overlay)
                else self._has_nodes_for_each(info)
            )
        return known

    def _accounting_of_pools(self, info: ClusterInfo) -> tuple[str, ...]:
        if not self._overlay.options.class_accounting:
            return ()
        return tuple(accounting_of(self._overlay, pool) for pool in info.pools)

    def _has_nodes_for_each(self, info: ClusterInfo) -> bool:
        return all(
            any(info.nodes[p] >= engine.cost for p in engine.positions)
            for engine in self._placer.compiled.on(info.layout).engines
        )

    def _most_replicas(self, info: ClusterInfo) -> float:
        """Return an upper bound of the replicas that fit without the victims.

        The bound is infinity if a victim reuses nodes.
        """
        room = self._overlay.free(info)
        reusable = self._overlay.reusable(info, *self._owner) or ()
        for p, nodes in enumerate(reusable):
            room[p] += nodes
        for entry in self._preemptable(info):
            if entry.reuse:
                return math.inf
            for pool, nodes in charges(entry.charged).items():
                if pool in info.positions:
                    room[info.positions[pool]] += nodes
        engines = self._placer.compiled.on(info.layout).engines
        if len(engines) == 1:
            return sum(max(0, room[p]) // engines[0].cost for p in engines[0].positions)
        usable = {p for engine in engines for p in engine.positions}
        return sum(max(0, room[p]) for p in usable) // sum(
            engine.cost for engine in engines
        )

    def _lower(self) -> ClusterSet:
        """Return the clusters that have a replica of lower priority."""
        found = NO_CLUSTERS
        for priority, clusters in self._overlay.lowest_priorities().items():
            if priority < self._placer.priority:
                found = ClusterSet(found | clusters)
        return found

    def bar(self, owners: set[Owner]) -> None:
        """Do not preempt further replicas of these deployments."""
        self._preempted = owners
        self._barred.clear()
        self._candidates_left.clear()

    def best(self, allowed: ClusterSet) -> Choice | None:
        """Return the best victims for one more replica on one of the allowed clusters."""
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
            if not allowed >> rank & 1 or (choice is None and self._is_over):
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
        """Return why nothing was found."""
        if self._room:
            return self._room
        if self.is_cut_short:
            count = self._steps_max
            if self.goes_on:
                so_far = f"examined {count} replicas so far"
                if not self._is_over:
                    so_far = f"reached {CUT_SHORT}"
                return f"the search for replicas to preempt continues: it has {so_far}"
            end = (
                f"after examining {count} replicas"
                if self._is_over
                else f"at {CUT_SHORT}"
            )
            return (
                f"the search for replicas to preempt stopped {end}; "
                "it runs again when the fleet changes"
            )
        seen, is_complete = self._seen()
        at_least = "" if is_complete else "at least "
        if seen:
            texts = {
                "priority": "have no lower priority",
                "cooldown": "belong to deployments that were preempted recently",
                "minAvailable": "are needed for minAvailable",
            }
            counted = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
            barred = [
                f"{at_least}{count} replicas {texts[reason]}"
                for reason, count in counted
            ]
            return f"preemption would not help: {', '.join(barred)}"
        if self._violation:
            return f"preemption would not help: {self._violation}"
        return (
            "preemption would not help: no replicas of lower priority free enough nodes"
        )

    def _seen(self) -> tuple[Counter[str], bool]:
        """Count the replicas that may not be preempted, by the reason.

        Return False in addition if there are more than a first search may visit.
        """
        seen: Counter[str] = Counter()
        read = 0
        for info in self._overlay.index.each(self._placer.passing):
            entries = self._overlay.replicas_by_priority(info.name)
            read += len(entries)
            for entry in entries:
                if entry.priority >= self._placer.priority:
                    reason = "priority"
                else:
                    reason = self._why_barred(entry)
                if reason and owner_of(entry) != self._owner:
                    seen[reason] += 1
            if read > PREEMPTION_STEPS_MAX:
                return seen, False
        return seen, True

    def _visit(self) -> None:
        """Search the clusters that may be as good as the best so far."""
        if self._unvisited is None:
            levels = self._overlay.lowest_priorities()
            lower = [p for p in levels if p < self._placer.priority]
            self._unvisited = [
                (p, ClusterSet(levels[p] & self._placer.passing))
                for p in sorted(lower, reverse=True)
            ]
        while (
            self._unvisited
            and not self._is_over
            and (not self._heap or self._unvisited[-1][0] <= self._heap[0][0][0])
        ):
            priority, clusters = self._unvisited.pop()
            for info in self._from_some_start(clusters):
                if self._is_over:
                    return
                if self._heap and self._is_quick:
                    self._unvisited.append((priority, clusters))
                    return
                clusters = ClusterSet(clusters & ~(1 << info.rank))
                self._visited[info.name] = info
                known = None
                if self._heap and self._finds_one:
                    known = self._heap[0][0]
                self._search(info, known)

    def _from_some_start(self, clusters: ClusterSet) -> Iterator[ClusterInfo]:
        """Yield all clusters, first those that an earlier search may not have reached."""
        index = self._overlay.index
        start = 0
        if clusters.bit_count() > PREEMPTION_STEPS_MAX // 10:
            start = self._overlay.now * _STRIDE % len(index.ranked)
        elif self.unfinished:
            start = len(index.ranked) * self.unfinished // (UNFINISHED_MAX + 1)
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
            self._follow_candidate(pair[1] or pair[0])
        self._read = changes.end
        for name in changed:
            if name in self._visited:
                self._search(self._visited[name], None)

    def _follow_candidate(self, entry: LedgerEntry | None) -> None:
        """Drop a new victim from the candidates, or read its cluster again if spared."""
        if entry is None or owner_of(entry) == self._owner:
            return
        if entry.state == reasons.RELEASING:
            self._candidates_left.get(entry.cluster, {}).pop(entry.uid, None)
        else:
            self._candidates_left.pop(entry.cluster, None)

    def _search_fruitless(self) -> bool:
        """Search clusters without a result again, because quota was freed elsewhere.

        Return False if there is none.
        """
        end = self._overlay.ledger.changes.end
        if not self._placer.quota.limits:
            return False
        again = [name for name, at in self._fruitless.items() if at < end]
        for name in again:
            self._search(self._visited[name], None)
        return bool(again)

    def _search(self, info: ClusterInfo, known: Cost | None) -> None:
        """Search one cluster for a set better than a known cost, and store the result."""
        self._current.pop(info.rank, None)
        self._fruitless.pop(info.name, None)
        candidates = [] if self._is_over else self._candidates(info)
        if not candidates:
            return
        search = ClusterSearch(
            self._placer,
            info,
            candidates,
            self._spare,
            self._steps,
            is_quick=self._is_quick,
        )
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
        """Return the preemptable replicas of a cluster, the lowest priority first."""
        left = self._candidates_left.get(info.name)
        if left is None:
            self._steps -= len(self._overlay.replicas_by_priority(info.name))
            found = self._preemptable(info)
            if self._is_quick:
                self._candidates_left[info.name] = {entry.uid: entry for entry in found}
            return found
        return list(left.values())

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
        if any(self._why_barred(entry) for entry in victims):
            return False
        return len(limited(victims, self._spare)) == len(victims)

    def _why_barred(self, entry: LedgerEntry) -> str:
        """Return why no replica of an entry's deployment may be preempted, or ""."""
        owner = owner_of(entry)
        known = self._barred.get(owner)
        if known is None:
            known = self._barred[owner] = self._find_why_barred(owner, entry)
        return known

    def _find_why_barred(self, owner: Owner, entry: LedgerEntry) -> str:
        if owner == self._owner:
            return _OWN
        last = max(
            self._overlay.fleet.preempted_at.get(owner, -1),
            self._overlay.preempted_at.get(owner, -1),
        )
        cooldown = self._overlay.options.preemption_cooldown_seconds * 1000
        last = self._overlay.now if owner in self._preempted else last
        if last >= 0 and self._overlay.now - last < cooldown:
            return "cooldown"
        return "minAvailable" if self._spare(entry) < 1 else ""

    def _spare(self, entry: LedgerEntry) -> int:
        """Return how many replicas the entry's deployment can lose."""
        owned = self._overlay.ledger.owned(entry.namespace, entry.deployment)
        if not entry.min_available:
            return len(owned)
        return (
            sum(e.state != reasons.RELEASING for e in owned.values())
            - entry.min_available
        )
