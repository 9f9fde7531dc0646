"""Preempt replicas of lower priority for replicas of higher priority.

Preemption is the last resort. The deployment must allow it, and it evicts as little as
possible. Of all sets of victims on one cluster, the search prefers the set whose
highest priority is lowest, then the fewest victims, the lowest sum of priorities, the
least surplus and the youngest victims. A set is tried like any placement, so no quota,
queue or network rejects it afterwards. Capacity that remains after one victim is used
before another victim is chosen, and victims that the placements do not need are spared
at the end. The nodes of victims are nominated for the preemptor immediately. Its pods
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

# Limit of the work of sparing victims in one decision, in changes of the ledger of up
# to 10 µs each. Beyond the limit, superfluous victims are accepted.
SPARING_STEPS_MAX = 60_000
# Limit of the victims of one decision. They are about 700 KB of its wire form, and it
# must fit into one payload.
VICTIMS_MAX = 10_000
# Steps of one change where devices are counted.
_STEPS_PER_DEVICE_CHANGE = 8
# Work of one step of the search, in the unit of the work limit of a batch.
_WORK_PER_STEP = 8


@dataclass(frozen=True, slots=True)
class Victim:
    """A preempted replica, and the previous versions of all changed entries."""

    entry: LedgerEntry
    changed: tuple[LedgerEntry, ...]


class Preemption:
    """Places the replicas of one decision that fit only by preemption."""

    def __init__(self, placer: ReplicaPlacer, missing: int) -> None:
        self._placer = placer
        self._overlay = placer.overlay
        self._owner: Owner = (placer.deployment.namespace, placer.deployment.name)
        self._victims: list[Victim] = []
        self._search = VictimSearch(placer, missing)
        self._sparing_steps = SPARING_STEPS_MAX
        # Whether the last unit would have needed more victims than a decision may have.
        self._is_too_large = False

    @property
    def evictions(self) -> list[Eviction]:
        """Return the evictions of the victims."""
        return [self._eviction(victim.entry) for victim in self._victims]

    def _eviction(self, entry: LedgerEntry) -> Eviction:
        return Eviction(
            entry.uid,
            entry.name,
            entry.cluster,
            reasons.PREEMPTED,
            f"Preempted by {named_in(entry.namespace, self._owner)}",
            entry.namespace,
            entry.deployment,
        )

    @property
    def is_cut_short(self) -> bool:
        """Return whether the search ended before it visited every cluster."""
        if self._is_too_large:
            return bool(self._victims)
        return self._search.is_cut_short

    @property
    def unfinished(self) -> int:
        """Return how many decisions before this one ended with an unfinished search."""
        return self._search.unfinished

    @property
    def unfinished_next(self) -> int:
        """Return that number including this decision, or 0 if the search ends here."""
        return self._search.unfinished + 1 if self._search.goes_on else 0

    @property
    def work(self) -> int:
        """Return the work of the search, in steps of selectors."""
        return self._search.steps_taken * _WORK_PER_STEP

    @property
    def refusal(self) -> str:
        """Return why the last unit was not placed."""
        if not self._is_too_large:
            return self._search.refusal
        if self._victims:
            return (
                "the search for replicas to preempt continues: one decision preempts "
                f"at most {VICTIMS_MAX} replicas"
            )
        return (
            f"preemption would evict more than {VICTIMS_MAX} replicas at once, which is "
            "the limit (use a smaller gang)"
        )

    def place(self, size: int, placed: list[Placement]) -> int:
        """Place `size` more replicas together, or none of them.

        Args:
            size: size of the gang; 1 without one.
            placed: placements of the decision; new ones are added, and some are renewed
                when a victim is spared.

        Returns:
            The number of placed replicas.

        """
        # Without a gang the count is made once, because it reads many clusters.
        is_counted = size > 1 or not self._search.steps_taken
        if is_counted and not self._search.has_room(size):
            return 0
        before = len(self._victims)
        done: list[Placement] = []
        for _ in range(size):
            placement = self._placer.place() or self._place_by_victims()
            if placement is not None:
                done.append(placement)
            self._is_too_large = len(self._victims) > VICTIMS_MAX
            if placement is None or self._is_too_large:
                for made in reversed(done):
                    self._placer.undo(made)
                while len(self._victims) > before:
                    self._restore(self._victims.pop())
                return 0
        placed += done
        if len(self._victims) > before:
            # A quota covers several clusters, so the quota that one victim frees may
            # make a victim on another cluster superfluous.
            asked = (
                self._victims if self._placer.quota.limits else self._victims[before:]
            )
            for cluster in dict.fromkeys(victim.entry.cluster for victim in asked):
                self._spare_unneeded(cluster, placed)
        # Wait until the unit is complete, because it may take several replicas of one
        # deployment.
        self._search.bar({owner_of(victim.entry) for victim in self._victims})
        return size

    def finish(self) -> None:
        """Record the preempted deployments, which are not preempted again for a while."""
        for victim in self._victims:
            self._overlay.preempted_at[owner_of(victim.entry)] = self._overlay.now

    def _place_by_victims(self) -> Placement | None:
        allowed = ClusterSet(
            self._placer.passing & self._placer.constraints.allowed(self._placer.own)
        )
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
        """Spare victims of one cluster, the highest priority first.

        A victim is spared if all placements there still fit without it.
        """
        own = [n for n, placement in enumerate(placed) if placement.cluster == cluster]
        chosen = [
            victim.entry for victim in self._victims if victim.entry.cluster == cluster
        ]
        if len(chosen) == 1 and not self._placer.quota.limits:
            return
        for spared in sorted(chosen, key=lambda e: (-e.priority, e.since, e.name)):
            if self._sparing_steps <= 0:
                return
            if sum(charges(spared.charged).values()) > self._left_over(cluster):
                continue
            # All placements are undone and redone, and undone once more if the
            # remaining victims are not enough.
            each = _STEPS_PER_DEVICE_CHANGE if counts_devices(self._overlay) else 1
            self._sparing_steps -= 4 * each * (len(chosen) + len(own))
            taken = self._placer.trials.budget.taken
            before = [placed[n] for n in own]
            self._undo_all(before)
            rest = [entry for entry in chosen if entry is not spared]
            self._take_instead(cluster, rest)
            again = self._place_all(cluster, len(own))
            self._sparing_steps -= (
                self._placer.trials.budget.taken - taken
            ) // SEARCH_STEPS
            if again is None:
                self._take_instead(cluster, chosen)
                for placement in before:
                    self._placer.put_back(placement)
                continue
            chosen = rest
            for n, placement in zip(own, again, strict=True):
                placed[n] = placement

    def _left_over(self, cluster: str) -> float:
        """Return the unused nodes of a cluster, or infinity if not known."""
        info = self._overlay.clusters[cluster]
        left = self._overlay.free(info)
        reusable = self._overlay.reusable(info, *self._owner)
        for p, nodes in enumerate(reusable or ()):
            left[p] += nodes
        is_known = (
            not info.observed
            and not counts_devices(self._overlay)
            and min(left, default=0) >= 0
        )
        return sum(left) if is_known else math.inf

    def _take_instead(self, cluster: str, victims: Sequence[LedgerEntry]) -> None:
        """Preempt these victims on a cluster instead of the present ones.

        Later nominations may depend on earlier ones, so all are repeated in the same
        order.
        """
        here = [victim for victim in self._victims if victim.entry.cluster == cluster]
        elsewhere = [v for v in self._victims if v.entry.cluster != cluster]
        for known in reversed(here):
            self._restore(known)
        self._victims = elsewhere + [self._take(entry) for entry in victims]

    def _place_all(self, cluster: str, count: int) -> list[Placement] | None:
        """Place `count` replicas on a cluster, or none."""
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
