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
from collections.abc import Iterator

from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.hardware.node_fitting import CUT_SHORT
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.cluster_victims import (
    Choice,
    ClusterSearch,
    Cost,
    owner_of,
)
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.victim_room import VictimRoom
from scheduler.placement.victim_rules import VictimRules

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
# The reasons of `VictimRules` in messages.
_BARRED = {
    "priority": "have no lower priority",
    "cooldown": "belong to deployments that were preempted recently",
    "minAvailable": "are needed for minAvailable",
}
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
        self._rules = VictimRules(placer)
        self._room = VictimRoom(placer, self._rules)
        # Why too few replicas of a gang would fit, or "".
        self._too_few = ""
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
        most = self._room.most_if_too_few(size, PREEMPTION_STEPS_MAX)
        if most is not None and size > 1:
            self._too_few = (
                "preemption would not help: replicas of lower priority make room for "
                f"{most:.0f} of {size} replicas of the gang"
            )
        return most is None

    def bar(self, owners: set[Owner]) -> None:
        """Do not preempt further replicas of these deployments."""
        self._rules.bar(owners)
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
            elif choice is None or not self._rules.permit(choice.victims):
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
        if self._too_few:
            return self._too_few
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
        clusters = self._overlay.index.each(self._placer.passing)
        counts, is_complete = self._rules.count_barred(clusters, PREEMPTION_STEPS_MAX)
        if counts:
            at_least = "" if is_complete else "at least "
            ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            barred = [
                f"{at_least}{count} replicas {_BARRED[reason]}"
                for reason, count in ordered
            ]
            return f"preemption would not help: {', '.join(barred)}"
        if self._violation:
            return f"preemption would not help: {self._violation}"
        return (
            "preemption would not help: no replicas of lower priority free enough nodes"
        )

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
                    self._rules.decide_again(owner_of(entry))
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
            self._rules.spare,
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
            found = self._rules.preemptable(info)
            if self._is_quick:
                self._candidates_left[info.name] = {entry.uid: entry for entry in found}
            return found
        return list(left.values())
