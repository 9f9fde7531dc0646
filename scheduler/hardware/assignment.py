"""Assign devices to the requests of one pod: first greedily, then by exact search.

Sizes are tiny (16 requests, 16 entries), yet the exact search is bounded: a hostile class must not stop the fleet.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

Taken = list[list[tuple[int, int]]]
_STEPS_MAX = 10_000


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
    order: Sequence[int],
    groups: Sequence[Hashable],
) -> tuple[Taken | None, int]:
    """Find an assignment if one exists; a request draws on entries of one group only, on as many of them as it needs.

    Args:
        matrix: for each request, which entries it accepts.
        counts: devices per request.
        left: devices per entry.
        order: entries from most to least preferred.
        groups: for each entry what it is claimed as; entries of one group are interchangeable.

    Returns:
        For each request its (entry, count) parts, or None when there is no assignment or the search grew too long; and its steps.

    """
    preferred = list(dict.fromkeys(groups[j] for j in order))
    search = _Search(matrix, counts, order, groups, preferred)
    return search.run(0, dict(enumerate(left)), {}), search.steps


class _Search:
    """Backtracking over the group of each request; inside a group, augmenting paths assign the entries."""

    def __init__(
        self,
        matrix: Sequence[Sequence[bool]],
        counts: Sequence[int],
        order: Sequence[int],
        groups: Sequence[Hashable],
        preferred: Sequence[Hashable],
    ) -> None:
        self.matrix = matrix
        self.counts = counts
        self.order = order
        self.groups = groups
        self.preferred = preferred
        self.steps = 0

    def run(self, request: int, free: dict[int, int], flow: dict[int, dict[int, int]]) -> Taken | None:
        if request == len(self.counts):
            return [[(j, n) for j, n in flow[i].items() if n] for i in range(request)]
        for group in self.preferred:
            self.steps += 1
            if self.steps > _STEPS_MAX:
                return None
            if sum(free[j] for j in self.order if self.groups[j] == group) < self.counts[request]:
                continue
            trial_free = dict(free)
            trial_flow = {i: dict(parts) for i, parts in flow.items()}
            if not self._fill(request, group, trial_free, trial_flow):
                continue
            found = self.run(request + 1, trial_free, trial_flow)
            if found is not None:
                return found
        return None

    def _fill(self, request: int, group: Hashable, free: dict[int, int], flow: dict[int, dict[int, int]]) -> bool:
        flow[request] = {}
        missing = self.counts[request]
        while missing:
            moved = self._augment(request, group, missing, free, flow, set())
            if not moved:
                return False
            missing -= moved
        return True

    def _augment(  # noqa: PLR0917  # one step of a recursion, called from two places
        self,
        request: int,
        group: Hashable,
        amount: int,
        free: dict[int, int],
        flow: dict[int, dict[int, int]],
        seen: set[int],
    ) -> int:
        """Move up to `amount` devices to the request, pushing others to entries that only they can use."""
        for j in self.order:
            if j in seen or self.groups[j] != group or not self.matrix[request][j]:
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
                moved = self._augment(other, group, min(amount, parts[j]), free, flow, seen)
                if moved:
                    parts[j] -= moved
                    flow[request][j] = flow[request].get(j, 0) + moved
                    return moved
        return 0
