"""Assign devices to the requests of one pod: first greedily, then by exact search.

Sizes are tiny (16 requests, 16 entries), yet the exact search is bounded: a hostile class must not stop the fleet.

Entries differ in how doubtful it is that the pod gets their devices (0: it is bound to them). Of all assignments the one is wanted that
takes the fewest devices from the most doubtful entries, then from the next; of equal ones the first in the order of the entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

Taken = list[list[tuple[int, int]]]
# For each request that has something, how much of each entry.
Flow = dict[int, dict[int, int]]
_STEPS_MAX = 10_000
# As many more once an assignment is known, to find a better one.
_BETTER_STEPS_MAX = 1_000


def assign_greedily(matrix: Sequence[Sequence[bool]], counts: Sequence[int], left: Sequence[int], order: Sequence[int]) -> Taken | None:
    """Give each request, in order, the first single entry that matches and has enough left; None if one finds none."""
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
    """Find the least doubtful assignment; a request draws on entries of one group only, on as many of them as it needs.

    Args:
        matrix: for each request, which entries it accepts.
        counts: devices per request.
        left: devices per entry.
        groups: for each entry what it is claimed as; entries of one group are interchangeable, and equally doubtful.
        doubts: for each entry how doubtful it is.
        known: an assignment that is taken unless another is less doubtful.

    Returns:
        For each request its (entry, count) parts, or None when there is no assignment or the search grew too long; and its steps.

    """
    if known is not None and not any(doubts[j] for parts in known for j, _ in parts):
        return known, 0
    search = _Search(matrix, counts, left, groups, doubts)
    if known is not None:
        search.found(known)
    search.run(0, 0, dict(enumerate(left)), {}, [])
    return search.best, search.steps


class _Search:
    """Backtracking over the group of each request; inside a group, augmenting paths assign the entries."""

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
        # A device of one doubt costs more than all devices of less doubt together.
        self._total = sum(counts)
        self._prices = [(self._total + 1) ** (doubt - 1) if doubt else 0 for doubt in doubts]
        # For each request the last one before it that is the same.
        kinds = [(tuple(row), count) for row, count in zip(matrix, counts, strict=True)]
        self._twins = [max((k for k in range(i) if kinds[k] == kinds[i]), default=-1) for i in range(len(kinds))]
        # For each request what it and those after it cost at least.
        self._rest = [0] * (len(counts) + 1)
        for i in range(len(counts) - 1, -1, -1):
            self._rest[i] = self._rest[i + 1] + self._least(i, left)
        self._bound = self._least_together(left)
        self._limit = _STEPS_MAX
        self._cost = 0
        self.best: Taken | None = None
        self.steps = len(counts)

    def _least(self, request: int, left: Sequence[int]) -> int:
        """Give what a request costs that has the entries alone."""
        count = self._counts[request]
        able = [group for group in self._groups if sum(left[j] for j in group if self._matrix[request][j]) >= count]
        return min((count * self._prices[group[0]] for group in able), default=0)

    def _least_together(self, left: Sequence[int]) -> int:
        """Give what all requests would cost if each could draw on entries of several groups."""
        missing, cost = self._total, 0
        for doubt in sorted(set(self._doubts), reverse=True):
            less = [j for j in self._order if self._doubts[j] < doubt]
            free, flow = dict(enumerate(left)), Flow()
            short = max(0, missing - sum(self._give(i, less, free, flow) for i in range(len(self._counts))))
            missing -= short
            cost += short * ((self._total + 1) ** (doubt - 1) if doubt else 0)
        return cost

    def found(self, taken: Taken) -> None:
        """Remember an assignment that costs less than the one before."""
        self.best = taken
        self._cost = sum(count * self._prices[j] for parts in taken for j, count in parts)
        self._limit = min(self._limit, self.steps + _BETTER_STEPS_MAX)

    def run(self, request: int, cost: int, free: dict[int, int], flow: Flow, chosen: list[int]) -> None:
        """Try the groups of a request, after those that are chosen for the requests before it and cost so much."""
        if request == len(self._counts):
            # A request for no device is put down under the first entry that it accepts.
            self.found([[(j, n) for j, n in flow[i].items() if n] or [(self._accepted(i, g)[0], 0)] for i, g in enumerate(chosen)])
            return
        count, twin = self._counts[request], self._twins[request]
        # Requests that are the same may be exchanged: the first has the first group.
        for g in range(chosen[twin] if twin >= 0 else 0, len(self._groups)):
            if self.steps > self._limit or (self.best is not None and self._cost <= self._bound):
                return
            self.steps += 1
            group = self._groups[g]
            with_group = cost + count * self._prices[group[0]]
            if self.best is not None and with_group + self._rest[request + 1] >= self._cost:
                continue
            if sum(free[j] for j in group) < count or not self._accepted(request, g):
                continue
            trial_free = dict(free)
            trial_flow = {i: dict(parts) for i, parts in flow.items()}
            if self._give(request, group, trial_free, trial_flow) == count:
                self.run(request + 1, with_group, trial_free, trial_flow, [*chosen, g])

    def _accepted(self, request: int, g: int) -> list[int]:
        return [j for j in self._groups[g] if self._matrix[request][j]]

    def _give(self, request: int, entries: Sequence[int], free: dict[int, int], flow: Flow) -> int:
        """Give a request what it needs of some entries, as far as they have it, and say how much that is."""
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
        """Move up to `amount` devices to the request, pushing others to entries that only they can use."""
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
                moved = self._augment(other, entries, min(amount, parts[j]), free, flow, seen)
                if moved:
                    parts[j] -= moved
                    flow[request][j] = flow[request].get(j, 0) + moved
                    return moved
        return 0
