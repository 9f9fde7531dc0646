"""Choose the replicas to preempt on one cluster for one more replica.

The result is the best set of victims, or a good one if the step budget is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, islice
from math import comb

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.nomination import gone_with
from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.placer import ReplicaPlacer

# Limit of the sets of victims that are tried on one cluster.
_SETS_MAX = 2_000
# Steps of a full trial. The search for an arrangement is added: `SEARCH_STEPS` of its
# steps count as one.
_STEPS_PER_TRIAL = 10
SEARCH_STEPS = 2
# Steps of removing a victim where devices are counted.
_STEPS_PER_LOAD = 3
# The number of replicas that a quick search tries first.
_FIRST_MANY = 16
Spare = Callable[[LedgerEntry], int]
Cost = tuple[int, int, int, int, tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of victims on one cluster; lower cost is better."""

    cost: Cost
    info: ClusterInfo
    victims: tuple[LedgerEntry, ...]


class ClusterSearch:
    """The search for the best victims on one cluster."""

    def __init__(
        self,
        placer: ReplicaPlacer,
        info: ClusterInfo,
        candidates: Sequence[LedgerEntry],
        spare: Spare,
        most: int,
        *,
        is_quick: bool,
    ) -> None:
        self._placer = placer
        self._info = info
        self._candidates = candidates
        self.steps = 0
        # Half of the remaining steps are for comparing sets, and the rest for reducing
        # a good one.
        self._most = most
        # The rule that rejects even the largest set.
        self.violation = ""
        self._spare = spare
        self._is_quick = is_quick
        by_device = counts_devices(placer.overlay)
        self._steps_per_victim = _STEPS_PER_LOAD if by_device else 1
        # With one engine on whole nodes, the sum of the nodes of one pool decides.
        simple = not any(entry.reuse for entry in candidates)
        self._short = _nodes_short(placer, info) if simple else None
        # Per pool that may get enough free nodes, the replicas that hold nodes of it
        # and how many. A quick search does not need them.
        self._holders: dict[str, list[tuple[LedgerEntry, int]]] = {
            pool: [] for pool in self._short or ()
        }
        for entry in candidates if self._holders and not is_quick else ():
            for pool, nodes in charges(entry.charged).items():
                if pool in self._holders:
                    self._holders[pool].append((entry, nodes))

    def best(self, known: Cost | None) -> Choice | None:
        """Return the best set if it is better than a known cost."""
        if self._is_quick:
            choice = self._good_choice()
            return choice if choice and (known is None or choice.cost < known) else None
        for highest in dict.fromkeys(entry.priority for entry in self._candidates):
            if known is not None and highest > known[0]:
                break
            most = None
            if known is not None and known[0] == highest:
                most = known[1]
            choice = self._best_of(highest, most)
            if choice is not None:
                return choice if known is None or choice.cost < known else None
        return None

    def _best_of(self, highest: int, most: int | None) -> Choice | None:
        """Return the best set with this highest priority and at most `most` replicas."""
        if self._short is not None:
            only = self._one_that_frees_enough(self._short, highest)
            if only is not None:
                return self._choice((only,))
            found = [
                self._best_of_pool(pool, missing, highest, most)
                for pool, missing in self._short.items()
            ]
            return min(
                (choice for choice in found if choice),
                key=lambda choice: choice.cost,
                default=None,
            )
        within = [entry for entry in self._candidates if entry.priority <= highest]
        if self._fits(within):
            return self._best_within(within, 1, most)
        self.violation = self.violation or self._refused_by(within)
        return None

    def _one_that_frees_enough(
        self, short: Mapping[str, int], priority: int
    ) -> LedgerEntry | None:
        """Return the best single replica of one priority that frees enough nodes."""
        enough: set[int] = set()
        for pool, missing in short.items():
            for entry, nodes in self._holders[pool]:
                if nodes >= missing and entry.priority == priority:
                    enough.add(id(entry))
        if not enough:
            return None
        # In the order of the candidates, so the youngest replica comes first.
        ordered = (entry for entry in self._candidates if id(entry) in enough)
        return min(
            ordered,
            key=lambda entry: sum(charges(entry.charged).values()),
            default=None,
        )

    def _best_of_pool(
        self, pool: str, missing: int, highest: int, most: int | None
    ) -> Choice | None:
        """Return the best set of replicas that hold nodes of one pool.

        Any other victim would be superfluous.
        """
        holders = [
            (entry, nodes)
            for entry, nodes in self._holders[pool]
            if entry.priority <= highest
        ]
        self.steps += 1 + len(holders)
        freed = accumulate(sorted((nodes for _, nodes in holders), reverse=True))
        fewest = next(
            (size for size, nodes in enumerate(freed, 1) if nodes >= missing), None
        )
        if fewest is None:
            return None
        return self._best_within([entry for entry, _ in holders], fewest, most)

    def _best_within(
        self, within: list[LedgerEntry], fewest: int, most: int | None
    ) -> Choice | None:
        for size in range(fewest, (len(within) if most is None else most) + 1):
            sets = list(islice(self._sets(within, size), _SETS_MAX + 1))
            if len(sets) > _SETS_MAX:
                break
            lawful = (
                chosen for chosen in sets if len(limited(chosen, self._spare)) == size
            )
            fitting = [
                chosen
                for chosen in lawful
                if self.steps <= self._most // 2 and self._fits(chosen)
            ]
            if self.steps > self._most // 2:
                break
            if fitting:
                return min(
                    (self._choice(chosen) for chosen in fitting),
                    key=lambda choice: choice.cost,
                )
        else:
            return None
        return self._good_within(within)

    def _good_choice(self) -> Choice | None:
        """Return a good set, preferably of replicas that hold nodes of one pool."""
        fit = self._placer.compiled.on(self._info.layout)
        found = []
        for p in fit.engines[0].positions if len(fit.engines) == 1 else ():
            pool = self._info.pools[p].name
            holders = (e for e in self._candidates if pool in charges(e.charged))
            victims = self._fewest(holders)
            if victims:
                found.append(self._choice(victims))
                if found[-1].cost[0] == self._candidates[0].priority:
                    return found[-1]
        if not found:
            victims = self._fewest(self._candidates)
            if victims:
                return self._choice(victims)
            if self._short is None:
                self.violation = self._refused_by(self._candidates)
        return min(found, key=lambda choice: choice.cost, default=None)

    def _fewest(self, ordered: Iterable[LedgerEntry]) -> list[LedgerEntry]:
        """Return the fewest first replicas that free enough nodes, or none.

        A gang of many replicas searches a cluster once for each of them, so the steps
        depend on the number of victims and not on the number of replicas there.
        """
        left = iter(ordered)
        begun: list[LedgerEntry] = []
        few, many = 0, 0
        while not many:
            few = len(begun)
            begun += islice(left, max(_FIRST_MANY, few))
            if len(begun) == few:
                return []
            if self._fits(limited(begun, self._spare)):
                many = len(begun)
        while many - few > 1:
            middle = (few + many) // 2
            if self._fits(limited(begun[:middle], self._spare)):
                many = middle
            else:
                few = middle
        return limited(begun[:many], self._spare)

    def _good_within(self, within: Sequence[LedgerEntry]) -> Choice | None:
        """Return a set that frees enough nodes and has no superfluous replica."""
        whole = limited(within, self._spare)
        victims = self._pruned(whole) if self._fits(whole) else []
        return self._choice(victims) if victims else None

    def _sets(
        self, within: list[LedgerEntry], size: int
    ) -> Iterator[tuple[LedgerEntry, ...]]:
        """Yield the sets of one size that are worth a trial."""
        if (
            len(limited(within, self._spare)) < len(within)
            and comb(len(within), size) <= _SETS_MAX
        ):
            yield from combinations(within, size)
            return
        # Replicas that free the same nodes are interchangeable, so the youngest are
        # taken first.
        groups: dict[object, list[LedgerEntry]] = {}
        for entry in within:
            groups.setdefault(_alike(entry), []).append(entry)
        yield from _prefixes(list(groups.values()), size)

    def _pruned(self, chosen: list[LedgerEntry]) -> list[LedgerEntry]:
        """Drop superfluous victims, the highest priority first.

        A victim is superfluous if the other victims free enough nodes.
        """
        ordered = sorted(chosen, key=lambda e: (-e.priority, e.since, e.name))
        # Find by bisection how many victims at the start can be dropped together,
        # because there may be thousands.
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
        self.steps += 1 + self._steps_per_victim * len(victims)
        if self._short is not None:
            nodes = [charges(victim.charged) for victim in victims]
            return any(
                sum(freed.get(pool, 0) for freed in nodes) >= missing
                for pool, missing in self._short.items()
            )
        budget = self._placer.trials.budget
        before = budget.taken
        trial = self._placer.trials.on(
            self._info, gone_with(self._placer.overlay.ledger, victims)
        )
        self.steps += _STEPS_PER_TRIAL + (budget.taken - before) // SEARCH_STEPS
        return trial.failed < 0

    def _refused_by(self, victims: Sequence[LedgerEntry]) -> str:
        """Return the rule that rejects the replica despite enough nodes."""
        return self._placer.trials.on(
            self._info, gone_with(self._placer.overlay.ledger, victims)
        ).violation

    def _choice(self, victims: Sequence[LedgerEntry]) -> Choice:
        freed = sum(sum(charges(victim.charged).values()) for victim in victims)
        fit = self._placer.compiled.on(self._info.layout)
        needed = sum(engine.cost for engine in fit.engines)
        names = [
            f"{victim.cluster}/{victim.namespace}/{victim.name}" for victim in victims
        ]
        cost = (
            max(victim.priority for victim in victims),
            len(victims),
            sum(victim.priority for victim in victims),
            freed - needed,
            tuple(sorted(-victim.since for victim in victims)),
            tuple(sorted(names)),
        )
        return Choice(cost, self._info, tuple(victims))


def owner_of(entry: LedgerEntry) -> Owner:
    return (entry.namespace, entry.deployment)


def limited(chosen: Sequence[LedgerEntry], spare: Spare) -> list[LedgerEntry]:
    """Drop victims whose loss would take their deployment below `minAvailable`."""
    left: dict[Owner, int] = {}
    kept = []
    for entry in chosen:
        if entry.min_available:
            owner = owner_of(entry)
            if owner not in left:
                left[owner] = spare(entry)
            left[owner] -= 1
            if left[owner] < 0:
                continue
        kept.append(entry)
    return kept


def _nodes_short(placer: ReplicaPlacer, info: ClusterInfo) -> Mapping[str, int] | None:
    """Return the nodes that the only engine lacks per pool.

    Return None if the nodes alone do not decide and a full trial is needed.
    """
    if not placer.trials.is_simple or info.observed:
        return None
    engine = placer.compiled.on(info.layout).engines[0]
    free = placer.overlay.free(info)
    reusable = placer.overlay.reusable(
        info, placer.deployment.namespace, placer.deployment.name
    ) or [0] * len(free)
    return {
        info.pools[p].name: engine.cost - free[p] - reusable[p]
        for p in engine.positions
    }


def _alike(entry: LedgerEntry) -> object:
    """Return a key that is equal for replicas that are interchangeable as victims."""
    return (entry.priority, entry.charged, entry.reuse, entry.nominated_for)


def _prefixes(
    groups: Sequence[Sequence[LedgerEntry]], size: int
) -> Iterator[tuple[LedgerEntry, ...]]:
    """Yield the sets of `size` that take the first members of each group.

    Sets with most members of the first groups come first.
    """
    # The number of replicas in all groups from each group on. A set that cannot reach
    # the size is dropped.
    left = [0]
    for group in reversed(groups):
        left.append(left[-1] + len(group))
    left.reverse()
    # Not recursive, because there may be more groups than Python's recursion limit.
    begun: list[tuple[int, tuple[LedgerEntry, ...]]] = []
    if size <= left[0]:
        begun.append((0, ()))
    while begun:
        g, chosen = begun.pop()
        missing = size - len(chosen)
        if not missing:
            yield chosen
            continue
        least = max(0, missing - left[g + 1])
        begun += [
            (g + 1, (*chosen, *groups[g][:count]))
            for count in range(least, min(missing, len(groups[g])) + 1)
        ]
