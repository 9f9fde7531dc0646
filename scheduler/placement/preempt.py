"""Free capacity for replicas of higher priority by preempting whole replicas of lower priority.

Only when there is no other way, only if the deployment allows it, and as little as possible: of all sets of victims on one cluster the one
whose highest priority is lowest, then the fewest, then the lowest sum, then the least surplus, then the youngest. What a set frees is tried
as every placement is tried, so no quota, queue or network refuses it afterwards. Room that a victim left over is used before another one is
taken, and at the end a victim stays that the placements do not need. The nodes of victims are nominated for the preemptor at once; its pods
wait until the victims are gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.fleet.cluster_index import ClusterSet
from scheduler.fleet.nomination import nominate
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.decision import Eviction, Placement
from scheduler.model.identity import Owner, named_in
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.cluster_victims import SEARCH_STEPS, owner_of
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.victim_search import VictimSearch

# What sparing victims may take in one decision, in changes of the ledger of up to 10 µs each; beyond that a victim too many is taken.
SPARING_STEPS_MAX = 60_000
# A step of the search takes as long as so many of those in which the work of a batch is counted.
_WORK_PER_STEP = 8


@dataclass(frozen=True, slots=True)
class Victim:
    """A preempted replica, as it was, and all entries that its nomination changed, as they were."""

    entry: LedgerEntry
    changed: tuple[LedgerEntry, ...]


class Preemption:
    """Places the replicas of one decision that find no room otherwise."""

    def __init__(self, placer: ReplicaPlacer, size: int, missing: int) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        self._victims: list[Victim] = []
        self._search = VictimSearch(placer, size, missing)
        self._sparing_steps = SPARING_STEPS_MAX

    @property
    def evictions(self) -> list[Eviction]:
        """The victims."""
        return [
            Eviction(
                e.uid, e.name, e.cluster, reasons.PREEMPTED, f"Preempted by {named_in(e.namespace, self._owner)}", e.namespace, e.deployment
            )
            for e in (victim.entry for victim in self._victims)
        ]

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended before every cluster was looked at."""
        return self._search.is_cut_short

    @property
    def unfinished(self) -> int:
        """How many decisions before this one ended before their search did."""
        return self._search.unfinished

    @property
    def unfinished_next(self) -> int:
        """How many did with this one, 0 if the search will not be continued."""
        return self._search.unfinished + 1 if self._search.goes_on else 0

    @property
    def work(self) -> int:
        """The work of the search, in steps of selectors."""
        return self._search.steps_taken * _WORK_PER_STEP

    @property
    def refusal(self) -> str:
        """Say why the last unit was not placed."""
        return self._search.refusal

    def place(self, size: int, placed: list[Placement]) -> int:
        """Place `size` more replicas together, or none of them.

        Args:
            size: of the gang; 1 without one.
            placed: what the decision has placed; placements are added, and renewed where a victim was spared.

        Returns:
            How many were placed.

        """
        if size > 1 and not self._search.has_room(size):
            return 0
        before = len(self._victims)
        done: list[Placement] = []
        for _ in range(size):
            placement = self._placer.place() or self._place_by_victims()
            if placement is None:
                for made in reversed(done):
                    self._placer.undo(made)
                while len(self._victims) > before:
                    self._restore(self._victims.pop())
                return 0
            done.append(placement)
        placed += done
        if len(self._victims) > before:
            # A quota reaches over clusters: what a victim gives back of it may make one elsewhere unneeded.
            asked = self._victims if self._placer.quota.limits else self._victims[before:]
            for cluster in dict.fromkeys(victim.entry.cluster for victim in asked):
                self._spare_unneeded(cluster, placed)
        # Not before the unit is complete: it may take several replicas of one deployment.
        self._search.bar({owner_of(victim.entry) for victim in self._victims})
        return size

    def finish(self) -> None:
        """Record who was preempted: they are not preempted again for a while."""
        for victim in self._victims:
            self._overlay.preempted_at[owner_of(victim.entry)] = self._overlay.now

    def _place_by_victims(self) -> Placement | None:
        allowed = ClusterSet(self._placer.passing & self._placer.constraints.allowed(self._placer.own))
        choice = self._search.best(allowed)
        if choice is None:
            return None
        victims = [self._take(entry) for entry in choice.victims]
        placement = self._placer.place_on(choice.info)
        if placement is None:
            for victim in reversed(victims):
                self._restore(victim)
            return None
        self._victims += victims
        return placement

    def _take(self, entry: LedgerEntry) -> Victim:
        changed = nominate(self._overlay.ledger, entry, self._owner, self._overlay.now)
        self._placer.mark_open(entry.cluster)
        return Victim(entry, tuple(changed))

    def _restore(self, victim: Victim) -> None:
        for entry in victim.changed:
            self._overlay.ledger.put(entry)
        self._placer.mark_open(victim.entry.cluster)

    def _spare_unneeded(self, cluster: str, placed: list[Placement]) -> None:
        """Keep victims of one cluster where they are, the highest priority first, as long as all placements there still fit."""
        own = [n for n, placement in enumerate(placed) if placement.cluster == cluster]
        chosen = [victim.entry for victim in self._victims if victim.entry.cluster == cluster]
        if len(chosen) == 1 and not self._placer.quota.limits:
            return
        for spared in sorted(chosen, key=lambda e: (-e.priority, e.since, e.name)):
            if self._sparing_steps <= 0:
                return
            if sum(charges(spared.engines).values()) > self._left_over(cluster):
                continue
            # All are undone and done again, and where the rest is not enough a second time.
            self._sparing_steps -= 4 * (len(chosen) + len(own))
            taken = self._placer.trials.budget.taken
            before = [placed[n] for n in own]
            self._undo_all(before)
            rest = [entry for entry in chosen if entry is not spared]
            self._take_instead(cluster, rest)
            again = self._place_all(cluster, len(own))
            self._sparing_steps -= (self._placer.trials.budget.taken - taken) // SEARCH_STEPS
            if again is None:
                self._take_instead(cluster, chosen)
                for placement in before:
                    self._placer.put_back(placement)
                continue
            chosen = rest
            for n, placement in zip(own, again, strict=True):
                placed[n] = placement

    def _left_over(self, cluster: str) -> float:
        """Return the nodes that are left on a cluster beside the placements, or infinity if nodes alone do not decide."""
        info = self._overlay.clusters[cluster]
        free = self._overlay.free(info)
        left = [a + b for a, b in zip(free, self._overlay.reusable(info, *self._owner) or [0] * len(free), strict=True)]
        is_known = not info.observed and not counts_devices(self._overlay) and min(left, default=0) >= 0
        return sum(left) if is_known else math.inf

    def _take_instead(self, cluster: str, victims: Sequence[LedgerEntry]) -> None:
        """Preempt these victims on a cluster instead of those so far.

        What was nominated later may rest on what was nominated before, so all are taken anew, in the same order.
        """
        for known in reversed([victim for victim in self._victims if victim.entry.cluster == cluster]):
            self._restore(known)
        self._victims = [victim for victim in self._victims if victim.entry.cluster != cluster] + [self._take(entry) for entry in victims]

    def _place_all(self, cluster: str, count: int) -> list[Placement] | None:
        """Place so many replicas on a cluster, or none."""
        made: list[Placement] = []
        for _ in range(count):
            placement = self._placer.place_on(self._overlay.clusters[cluster])
            if placement is None:
                self._undo_all(made)
                return None
            made.append(placement)
        return made

    def _undo_all(self, placements: Sequence[Placement]) -> None:
        for placement in reversed(placements):
            self._placer.undo(placement)
