"""Brute force: every arrangement of engines on pools, every cluster, every lawful set
of victims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, product

from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView, LedgerEntry
from tests.scheduler.laws.policies.books import (
    Owner,
    Pods,
    State,
    admits,
    capacity_of,
    nodes_of,
    owner_of,
    packed,
    pods_of,
)
from tests.scheduler.laws.policies.matching import Match, first_failing, with_slots
from tests.scheduler.laws.policies.rules import Places, owner

Victims = tuple[LedgerEntry, ...]


class Filler:
    """The further placements of one deployment in a state."""

    def __init__(self, state: State, view: DeploymentView, priority: int) -> None:
        self.state = state
        self.view = view
        self.me: Owner = owner(view)
        self.priority = priority
        self.matches = {
            name: Match(view, cluster) for name, cluster in state.clusters.items()
        }
        self.candidates = [
            name
            for name in state.clusters
            if not first_failing(view, state.clusters[name], self.matches[name])
        ]

    def arrangements(
        self,
        state: State,
        cluster: str,
        without: Collection[str] = (),
        *,
        rules: bool = True,
    ) -> Iterator[tuple[int, ...]]:
        """Yield the arrangements of one more replica that a cluster takes under
        capacity and rules.
        """
        match = self.matches[cluster]
        assert match.units is not None
        view = state.clusters[cluster]
        by_device = state.counts_devices
        free = {} if by_device else state.free_nodes(cluster, self.me, without)
        charged = (
            [state.pods_on(cluster, pool, self.me, without) for pool in view.pools]
            if by_device
            else []
        )
        pools: list[int] = []

        def fits(p: int) -> bool:
            name = view.pools[p].name
            # The units placed so far; units without a pool are left out.
            members = [
                (
                    match.view.engines[u.engine].copies,
                    match.table[u.engine][m][q].placed,
                )
                for u, q in zip(match.units or (), pools, strict=False)
                for m in u.members
            ]
            engines = tuple(
                EnginePlacement("", (member,), copies) for copies, member in members
            )
            if not by_device:
                return nodes_of(engines)[name] <= max(0, free[name])
            return admits(
                state.accounting(view.pools[p]),
                view.pools[p],
                charged[p],
                pods_of(engines, view.pools[p]),
            )

        def descend(i: int) -> Iterator[tuple[int, ...]]:
            if match.units is None or i == len(match.units):
                yield tuple(pools)
                return
            for p in match.units[i].pools:
                pools.append(p)
                if fits(p):
                    yield from descend(i + 1)
                pools.pop()

        for found in descend(0):
            if not rules or (
                match.one_network(found)
                and not self.over_quota(state, cluster, match.engines(found), without)
            ):
                yield found

    def over_quota(
        self,
        state: State,
        cluster: str,
        engines: tuple[EnginePlacement, ...],
        without: Collection[str],
    ) -> bool:
        """Return whether a placement exceeds a quota or its priority floor.

        The placement takes over the use of victims.
        """
        for quota in state.options.quotas:
            if quota.namespace != self.view.namespace:
                continue
            nodes, devices = state.quota_amount(quota, cluster, engines)
            if nodes <= 0 and devices <= 0:
                continue
            if (
                quota.priority_floor is not None
                and self.priority < quota.priority_floor
            ):
                return True
            # Whether the use of victims elsewhere counts is not defined, so it counts.
            used = state.quota_used(
                quota,
                self.me,
                [uid for uid in without if state.entries[uid].cluster == cluster],
            )
            if (
                0 <= quota.max_nodes < used[0] + nodes
                or 0 <= quota.max_devices < used[1] + devices
            ):
                return True
        return False

    def placed(
        self, state: State, cluster: str, pools: Sequence[int], number: int
    ) -> LedgerEntry:
        """Return the entry of one more replica in an arrangement."""
        view = state.clusters[cluster]
        engines = self.matches[cluster].engines(pools)
        slots: dict[tuple[int, int], tuple[int, ...]] = {}
        for pool in view.pools:
            if state.accounting(pool) == "device-packed":
                keys = [
                    (e, m)
                    for e, eng in enumerate(engines)
                    for m, x in enumerate(eng.members)
                    if x.requests and x.pool == pool.name
                ]
                added: list[Pods] = pods_of(engines, pool)
                found = packed(
                    capacity_of(pool),
                    pool.nodes,
                    state.pods_on(cluster, pool, self.me),
                    added,
                )
                slots.update(zip(keys, found or [], strict=False))
        name = f"try-{number}"
        labels = tuple(sorted(self.view.labels.items()))
        return LedgerEntry(
            name,
            *self.me,
            cluster,
            1000 + number,
            name,
            with_slots(engines, slots),
            "Reserved",
            labels=labels,
        )

    def takes_one(
        self, cluster: str, without: Collection[str] = (), state: State | None = None
    ) -> bool:
        """Return whether a cluster takes one more replica under any reading of the
        rules.
        """
        now = state or self.state
        if cluster not in self.candidates or not Places(
            now, self.view, self.matches, without
        ).allows(cluster, strict=True):
            return False
        return next(self.arrangements(now, cluster, without), None) is not None

    def takes(
        self, size: int, without: Collection[str] = (), state: State | None = None
    ) -> bool:
        """Return whether replicas can be placed together."""
        now = state or self.state
        if size == 0:
            return True
        places = Places(now, self.view, self.matches, without)
        for cluster in self.candidates:
            if not places.allows(cluster, strict=True):
                continue
            for pools in self.arrangements(now, cluster, without):
                if size == 1 or self.takes(
                    size - 1,
                    without,
                    now.with_entries(self.placed(now, cluster, pools, size)),
                ):
                    return True
        return False

    # Preemption

    def lower(self, cluster: str = "") -> list[LedgerEntry]:
        """Return the replicas that may be preempted, each considered alone."""
        cooldown = self.state.options.preemption_cooldown_seconds * 1000
        found = []
        for entry in self.state.entries.values():
            last = self.state.preempted_at.get(owner_of(entry))
            if (
                entry.state == "Releasing"
                or owner_of(entry) == self.me
                or entry.priority >= self.priority
            ):
                continue
            if (last is not None and self.state.now - last < cooldown) or self.spare(
                owner_of(entry)
            ) < 1:
                continue
            if entry.cluster == cluster or (
                not cluster and entry.cluster in self.state.clusters
            ):
                found.append(entry)
        return sorted(found, key=lambda e: e.uid)

    def spare(self, of: Owner) -> int:
        """Return how many replicas a deployment can lose."""
        running = [entry for entry in self.state.of(of) if entry.state != "Releasing"]
        return len(running) - max((entry.min_available for entry in running), default=0)

    def largest_sets(self, entries: Iterable[LedgerEntry]) -> Iterator[Victims]:
        """Return the sets of victims that cannot grow."""
        groups: dict[Owner, list[LedgerEntry]] = {}
        for entry in entries:
            groups.setdefault(owner_of(entry), []).append(entry)
        choices = [
            list(combinations(group, min(len(group), self.spare(of))))
            for of, group in groups.items()
        ]
        for chosen in product(*choices):
            yield tuple(entry for part in chosen for entry in part)

    def sets(self, cluster: str) -> Iterator[Victims]:
        """Yield every lawful set of victims on a cluster, the smallest first."""
        entries = self.lower(cluster)
        for size in range(1, len(entries) + 1):
            for chosen in combinations(entries, size):
                taken = [owner_of(entry) for entry in chosen]
                if all(taken.count(of) <= self.spare(of) for of in set(taken)):
                    yield chosen
