"""Assign devices to the requests of one pod: first greedily, then by exact search.

The inputs are tiny (16 requests, 16 entries). The exact search is still bounded, so
that a malicious class cannot block the fleet. Each entry has a doubt: 0 means that its
devices are certainly bound to the pod. The best assignment takes the fewest devices
from the most doubtful entries, then from the next level. Ties are resolved by the order
of entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

Taken = list[list[tuple[int, int]]]
# Per request, the number of devices taken from each entry.
Flow = dict[int, dict[int, int]]
_STEPS_MAX = 10_000
# Additional steps to search for a better assignment after the first one is found.
_BETTER_STEPS_MAX = 1_000


def assign_greedily(
    matrix: Sequence[Sequence[bool]],
    counts: Sequence[int],
    left: Sequence[int],
    order: Sequence[int],
) -> Taken | None:
    """Assign each request, in order, to the first matching entry with enough devices.

    Return None if no entry matches a request.
    """
    free = list(left)
    taken: Taken = []
    for row, count in zip(matrix, counts, strict=True):
        for j in order:
            if row[j] and free[j] >= count:
                free[j] -= count
                taken.append([(j, count)])
                break
        else:
            return None
    return taken


def assign_exactly(
    matrix: Sequence[Sequence[bool]],
    counts: Sequence[int],
    left: Sequence[int],
    groups: Sequence[Hashable],
    doubts: Sequence[int],
    *,
    known: Taken | None = None,
) -> tuple[Taken | None, int]:
    """Find the least doubtful assignment.

    A request draws on entries of one group only, on as many of them as it needs.

    Args:
        matrix: for each request, which entries it accepts.
        counts: devices per request.
        left: devices per entry.
        groups: group of each entry; entries of one group are interchangeable and
            equally doubtful.
        doubts: doubt of each entry.
        known: a known assignment; it is returned unless another one is less doubtful.

    Returns:
        Per request its (entry, count) parts, or None if there is no assignment or the
        search grew too long; and the number of steps.

    """
    if known is not None and not any(doubts[j] for parts in known for j, _ in parts):
        return known, 0
    search = _Search(matrix, counts, left, groups, doubts)
    if known is not None:
        search.found(known)
    search.run(0, 0, dict(enumerate(left)), {}, [])
    return search.best, search.steps


class _Search:
    """Backtracking over the group of each request.

    Inside a group, augmenting paths assign the entries.
    """

    def __init__(
        self,
        matrix: Sequence[Sequence[bool]],
        counts: Sequence[int],
        left: Sequence[int],
        groups: Sequence[Hashable],
        doubts: Sequence[int],
    ) -> None:
        self._matrix = matrix
        self._counts = counts
        self._doubts = doubts
        self._order = sorted(range(len(groups)), key=lambda j: (doubts[j], j))
        members: dict[Hashable, list[int]] = {}
        for j in self._order:
            members.setdefault(groups[j], []).append(j)
        self._groups = list(members.values())
        # The cost of a device exceeds the cost of all less doubtful devices together.
        self._total = sum(counts)
        self._prices = [
            (self._total + 1) ** (doubt - 1) if doubt else 0 for doubt in doubts
        ]
        # Per request, the last earlier request that is identical.
        kinds = [(tuple(row), count) for row, count in zip(matrix, counts, strict=True)]
        self._twins = [
            max((k for k in range(i) if kinds[k] == kinds[i]), default=-1)
            for i in range(len(kinds))
        ]
        # Per request, a lower bound of the cost of that request and all later ones.
        self._rest = [0] * (len(counts) + 1)
        for i in range(len(counts) - 1, -1, -1):
            self._rest[i] = self._rest[i + 1] + self._least(i, left)
        self._bound = self._least_together(left)
        self._limit = _STEPS_MAX
        self._cost = 0
        self.best: Taken | None = None
        self.steps = len(counts)

    def _least(self, request: int, left: Sequence[int]) -> int:
        """Return the cost of a request if no other request used the entries."""
        count = self._counts[request]
        able = [
            group
            for group in self._groups
            if sum(left[j] for j in group if self._matrix[request][j]) >= count
        ]
        return min((count * self._prices[group[0]] for group in able), default=0)

    def _least_together(self, left: Sequence[int]) -> int:
        """Return the cost of all requests as if each could use several groups."""
        missing, cost = self._total, 0
        for doubt in sorted(set(self._doubts), reverse=True):
            less = [j for j in self._order if self._doubts[j] < doubt]
            free, flow = dict(enumerate(left)), Flow()
            requests = range(len(self._counts))
            assigned = sum(self._assign(i, less, free, flow) for i in requests)
            short = max(0, missing - assigned)
            missing -= short
            cost += short * ((self._total + 1) ** (doubt - 1) if doubt else 0)
        return cost

    def found(self, taken: Taken) -> None:
        """Record an assignment that costs less than the best so far."""
        self.best = taken
        self._cost = 0
        for parts in taken:
            self._cost += sum(count * self._prices[j] for j, count in parts)
        self._limit = min(self._limit, self.steps + _BETTER_STEPS_MAX)

    def run(
        self,
        request: int,
        cost: int,
        free: dict[int, int],
        flow: Flow,
        chosen: list[int],
    ) -> None:
        """Try the groups of a request.

        `chosen` are the groups of the earlier requests, and `cost` is their cost.
        """
        if request == len(self._counts):
            # A request for zero devices is recorded under the first entry that it
            # accepts.
            self.found(
                [
                    [(j, n) for j, n in flow[i].items() if n]
                    or [(self._accepted(i, g)[0], 0)]
                    for i, g in enumerate(chosen)
                ]
            )
            return
        count, twin = self._counts[request], self._twins[request]
        # Identical requests are interchangeable, so their groups ascend.
        for g in range(chosen[twin] if twin >= 0 else 0, len(self._groups)):
            if self.steps > self._limit or (
                self.best is not None and self._cost <= self._bound
            ):
                return
            self.steps += 1
            group = self._groups[g]
            with_group = cost + count * self._prices[group[0]]
            if (
                self.best is not None
                and with_group + self._rest[request + 1] >= self._cost
            ):
                continue
            if sum(free[j] for j in group) < count or not self._accepted(request, g):
                continue
            trial_free = dict(free)
            trial_flow = {i: dict(parts) for i, parts in flow.items()}
            if self._assign(request, group, trial_free, trial_flow) == count:
                self.run(request + 1, with_group, trial_free, trial_flow, [*chosen, g])

    def _accepted(self, request: int, g: int) -> list[int]:
        return [j for j in self._groups[g] if self._matrix[request][j]]

    def _assign(
        self, request: int, entries: Sequence[int], free: dict[int, int], flow: Flow
    ) -> int:
        """Assign devices of some entries to a request; return how many were assigned."""
        flow[request] = {}
        missing = self._counts[request]
        while missing:
            moved = self._augment(request, entries, missing, free, flow, set())
            if not moved:
                break
            missing -= moved
        return self._counts[request] - missing

    def _augment(  # noqa: PLR0917  # one step of a recursion, called from two places
        self,
        request: int,
        entries: Iterable[int],
        amount: int,
        free: dict[int, int],
        flow: Flow,
        seen: set[int],
    ) -> int:
        """Move up to `amount` devices to the request.

        Other requests are moved to entries that only they accept.
        """
        for j in entries:
            if j in seen or not self._matrix[request][j]:
                continue
            seen.add(j)
            if free[j] > 0:
                moved = min(amount, free[j])
                free[j] -= moved
                flow[request][j] = flow[request].get(j, 0) + moved
                return moved
            for other, parts in flow.items():
                if other == request or not parts.get(j):
                    continue
                moved = self._augment(
                    other, entries, min(amount, parts[j]), free, flow, seen
                )
                if moved:
                    parts[j] -= moved
                    flow[request][j] = flow[request].get(j, 0) + moved
                    return moved
        return 0
