"""Place all engines of a replica on the pools of one cluster, counting nodes.

Engines are tried in deployment order on the first pool with enough free nodes. Only if
that fails, an exact search tries every arrangement. A replica is placed as a whole or
not at all. This module does not charge nodes.

A quota or an admission queue limits several pools together, and engines may have to
share a network. The search takes these rules into account: if some arrangements fit the
nodes, it finds one that satisfies every rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from scheduler.hardware.template import LayoutFit

STEPS_MAX = 10_000
# Limit of all searches of one decision, in steps of about 2 µs. A fleet can have ten
# thousand clusters.
DECISION_STEPS_MAX = 500_000
CUT_SHORT = (
    f"the limit of {DECISION_STEPS_MAX} search steps for one decision "
    "(use fewer engines, or fewer devices per engine)"
)
PoolOrder = Callable[[int, Sequence[int]], Sequence[int]]


class SearchBudget:
    """The remaining search steps of one decision.

    An arrangement that is not found within them counts as absent. `taken` also includes
    the steps of attempts without a search.
    """

    __slots__ = ("left", "taken")

    def __init__(self) -> None:
        self.left = DECISION_STEPS_MAX
        self.taken = 0

    @property
    def is_spent(self) -> bool:
        """Return whether no further search may start."""
        return self.left <= 0

    @property
    def is_exhausted(self) -> bool:
        """Return whether nothing more may be tried, not even without backtracking."""
        return self.taken >= 2 * DECISION_STEPS_MAX > 0

    def charge(self, steps: int) -> None:
        """Subtract the steps of a search."""
        self.left -= steps
        self.taken += steps

    def charge_straight(self, steps: int) -> None:
        """Subtract steps without backtracking.

        They do not reduce the steps for searches. Their limit is twice the limit of all
        searches.
        """
        self.taken += steps


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a placement attempt on one cluster.

    Attributes:
        positions: the pool of each engine, empty if the replica does not fit.
        failed: the first engine without a pool, -1 if all have one.
        undecided: the exact search was cut short.
        violation: the rule that rejects the cluster although its capacity would
            suffice.
        over_quota: whether that rule is a quota of the namespace.

    """

    positions: tuple[int, ...] = ()
    failed: int = -1
    undecided: bool = False
    violation: str = ""
    over_quota: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `left` units on several pools together.

    `units` has, per engine, the units that it takes by pool position. Pools without a
    number are not limited.
    """

    left: int
    units: tuple[Mapping[int, int], ...]


@dataclass(frozen=True, slots=True)
class Networks:
    """The network domain of each pool, and the group of each engine.

    All engines of a group must be in one network. An engine with a negative group may
    be in any.
    """

    domains: tuple[str, ...]
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FitRules:
    """Rules for an arrangement in addition to free capacity.

    `refused` are positions of pools that must not be used.
    """

    refused: Collection[int] = ()
    limits: Sequence[Limit] = ()
    networks: Networks | None = None


NO_RULES = FitRules()


class Room:
    """The remaining capacity under the rules while engines are placed one by one."""

    __slots__ = ("_inside", "_left", "_limits", "_networks", "_refused")

    def __init__(self, rules: FitRules) -> None:
        self._refused = rules.refused
        self._limits = rules.limits
        self._left = [limit.left for limit in rules.limits]
        self._networks = rules.networks
        # By group: the network of each engine that was placed.
        self._inside: dict[int, list[str]] = {}

    def takes(self, i: int, p: int) -> bool:
        """Return whether the rules allow engine i on pool p."""
        if p in self._refused:
            return False
        networks = self._networks
        if networks is not None:
            inside = self._inside.get(networks.groups[i])
            if inside and inside[0] != networks.domains[p]:
                return False
        for limit, left in zip(self._limits, self._left, strict=True):
            units = limit.units[i].get(p, 0)
            if units and units > left:
                return False
        return True

    def add(self, i: int, p: int) -> None:
        self._count(i, p, 1)
        if self._networks is not None and self._networks.groups[i] >= 0:
            self._inside.setdefault(self._networks.groups[i], []).append(
                self._networks.domains[p]
            )

    def remove(self, i: int, p: int) -> None:
        self._count(i, p, -1)
        if self._networks is not None and self._networks.groups[i] >= 0:
            self._inside[self._networks.groups[i]].pop()

    def _count(self, i: int, p: int, sign: int) -> None:
        for n, limit in enumerate(self._limits):
            self._left[n] -= sign * limit.units[i].get(p, 0)

    def signature(self, p: int) -> tuple[object, ...]:
        """Return the values that the rules read of a pool.

        Pools with equal signatures are interchangeable under the rules.
        """
        domain = self._networks.domains[p] if self._networks else ""
        return (
            domain,
            *(
                tuple(units.get(p, 0) for units in limit.units)
                for limit in self._limits
            ),
        )


def fit_nodes(
    fit: LayoutFit,
    free: Sequence[int],
    rules: FitRules = NO_RULES,
    *,
    budget: SearchBudget,
    exact: bool = True,
    order: PoolOrder | None = None,
) -> Trial:
    """Find pools with enough free nodes for every engine.

    Args:
        fit: the engines on this cluster's layout.
        free: free nodes per pool; negative counts as none.
        rules: further rules for the arrangement.
        budget: budget of the decision; once it is spent, only the greedy pass runs.
        exact: run the exact search if the greedy pass fails.
        order: returns the pools of an engine in the order to try them; default is
            published order.

    """
    engines = fit.engines
    room = Room(rules)
    if len(engines) == 1:
        only = engines[0]
        for p in only.positions if order is None else order(0, only.positions):
            if free[p] >= only.cost and room.takes(0, p):
                return Trial((p,))
        return Trial(failed=0)
    left = list(free)
    chosen: list[int] = []
    choices = [
        engine.positions if order is None else order(i, engine.positions)
        for i, engine in enumerate(engines)
    ]
    for i, (engine, pools) in enumerate(zip(engines, choices, strict=True)):
        found = next(
            (p for p in pools if left[p] >= engine.cost and room.takes(i, p)), -1
        )
        if found < 0:
            break
        left[found] -= engine.cost
        room.add(i, found)
        chosen.append(found)
    else:
        return Trial(tuple(chosen))
    if not exact or _is_too_small(fit, free):
        return Trial(failed=len(chosen))
    return _search(fit, free, Room(rules), budget, choices, failed=len(chosen))


def _is_too_small(fit: LayoutFit, free: Sequence[int]) -> bool:
    """Return whether counting alone shows that no arrangement fits.

    The engines need more nodes than are free, or too few pools can hold the large
    engines.
    """
    usable = dict.fromkeys(p for engine in fit.engines for p in engine.positions)
    nodes = [free[p] for p in usable if free[p] > 0]
    costs = sorted((engine.cost for engine in fit.engines), reverse=True)
    if sum(costs) > sum(nodes):
        return True
    return any(
        sum(n // cost for n in nodes) < count
        for count, cost in enumerate(costs, 1)
        if cost
    )


def _search(  # noqa: PLR0917  # one caller
    fit: LayoutFit,
    free: Sequence[int],
    room: Room,
    budget: SearchBudget,
    choices: Sequence[Sequence[int]],
    failed: int,
) -> Trial:
    if budget.is_spent:
        return Trial(failed=failed, undecided=True, violation=CUT_SHORT)
    costs = [engine.cost for engine in fit.engines]
    # Engines with the fewest pools and the largest cost come first, so dead ends are
    # found early.
    search_order = sorted(
        range(len(costs)), key=lambda i: (len(choices[i]), -costs[i], i)
    )
    left = list(free)
    chosen = [-1] * len(costs)
    steps = 0

    def descend(depth: int) -> bool:
        nonlocal steps
        if depth == len(search_order):
            return True
        i = search_order[depth]
        tried: set[tuple[object, ...]] = set()
        for p in choices[i]:
            steps += 1
            if steps > STEPS_MAX:
                return False
            if left[p] < costs[i] or not room.takes(i, p):
                continue
            # Two pools with equal capacity and rules that fit the same later engines
            # have the same outcome.
            twin = (
                left[p],
                tuple(j for j in search_order[depth + 1 :] if p in choices[j]),
                room.signature(p),
            )
            if twin in tried:
                continue
            tried.add(twin)
            left[p] -= costs[i]
            room.add(i, p)
            chosen[i] = p
            if descend(depth + 1):
                return True
            room.remove(i, p)
            left[p] += costs[i]
        return False

    found = descend(0)
    budget.charge(steps)
    if found:
        return Trial(tuple(chosen))
    return Trial(failed=failed, undecided=steps > STEPS_MAX)
