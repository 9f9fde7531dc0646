"""The clusters of replicas, by the labels and the anti-affinity of their deployments.

Affinity terms are checked against this index, because the cost of scanning all replicas
would grow with the fleet. Replicas are counted as they come and go, so a query takes as
many steps as its result has clusters. Deployments without labels and without
anti-affinity are not counted. A fork reads through to its parent and stores only its
own counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from scheduler.fleet.cluster_index import ClusterIndex, ClusterSet
from scheduler.model.decision import AntiAffinity
from scheduler.model.inputs import LedgerEntry

K = TypeVar("K")
G = TypeVar("G")
Pair = tuple[str, str]
Labels = tuple[Pair, ...]
# A namespace, and the labels or the anti-affinity that some of its replicas share.
LabelGroup = tuple[str, Labels]
AvoidingGroup = tuple[str, AntiAffinity]
# A term without labels selects every replica; it is indexed under a pair that no label
# has.
_ANY: Pair = ("", "")


class Neighbours:
    """Replicas per cluster, for each group with equal labels or equal anti-affinity."""

    __slots__ = ("_avoiding", "_counts", "_labelled", "_parent", "_sets")

    def __init__(self, parent: Neighbours | None = None) -> None:
        self._parent = parent
        self._counts: dict[LabelGroup | AvoidingGroup, Counter[str]] = {}
        # The clusters of groups, with the epoch of their ranks. A set is dropped when a
        # replica of its group comes or goes.
        self._sets: dict[LabelGroup | AvoidingGroup, tuple[int, ClusterSet]] = {}
        # The groups that a label pair may select. A fork adds to those of its parent.
        self._labelled: dict[tuple[str, Pair], dict[LabelGroup, None]] = {}
        self._avoiding: dict[Pair, dict[AvoidingGroup, None]] = {}

    def move(self, old: LedgerEntry | None, new: LedgerEntry | None) -> None:
        """Count an entry that replaces another; None if there is none."""
        before, after = _place(old), _place(new)
        if before != after:
            self._count(before, -1)
            self._count(after, 1)

    def _count(
        self, place: tuple[str, str, Labels, AntiAffinity] | None, sign: int
    ) -> None:
        if place is None:
            return
        namespace, cluster, labels, avoids = place
        if labels:
            group = (namespace, labels)
            if self._add(group, cluster, sign):
                for pair in labels:
                    self._labelled.setdefault((namespace, pair), {})[group] = None
            elif group not in self._counts:
                for pair in labels:
                    _discard(self._labelled, (namespace, pair), group)
        if avoids:
            avoiding = (namespace, avoids)
            if self._add(avoiding, cluster, sign):
                for pair in _found_by(avoids):
                    self._avoiding.setdefault(pair, {})[avoiding] = None
            elif avoiding not in self._counts:
                for pair in _found_by(avoids):
                    _discard(self._avoiding, pair, avoiding)

    def _add(self, group: LabelGroup | AvoidingGroup, cluster: str, sign: int) -> bool:
        """Count a replica of a group; return True if the group is new here.

        Empty groups are dropped.
        """
        self._sets.pop(group, None)
        counts = self._counts.get(group)
        is_new = counts is None
        if counts is None:
            counts = self._counts[group] = Counter()
        counts[cluster] += sign
        if not counts[cluster]:
            del counts[cluster]
            if not counts:
                del self._counts[group]
        return is_new

    @property
    def any_avoiding(self) -> bool:
        """Return whether any replica avoids others.

        A fork may still return True after its last such replica is gone.
        """
        return bool(self._avoiding) or (
            self._parent is not None and self._parent.any_avoiding
        )

    def on(self, group: LabelGroup | AvoidingGroup) -> Mapping[str, int]:
        """Return the replicas of a group per cluster."""
        counts = self._counts.get(group)
        below = self._parent.on(group) if self._parent else {}
        if counts is None:
            return below
        if not below:
            return counts
        total = dict(below)
        for cluster, change in counts.items():
            total[cluster] = total.get(cluster, 0) + change
        return {cluster: number for cluster, number in total.items() if number}

    def clusters(
        self, group: LabelGroup | AvoidingGroup, index: ClusterIndex
    ) -> ClusterSet:
        """Return the clusters with a replica of a group."""
        if group not in self._counts and self._parent:
            return self._parent.clusters(group, index)
        known = self._sets.get(group)
        if known is None or known[0] != index.epoch:
            known = self._sets[group] = (index.epoch, index.named(self.on(group)))
        return known[1]

    def count(self, group: LabelGroup | AvoidingGroup, cluster: str) -> int:
        """Return the replicas of a group on one cluster."""
        counts = self._counts.get(group)
        below = self._parent.count(group, cluster) if self._parent else 0
        return below + (counts[cluster] if counts else 0)

    def selected(
        self, namespace: str, wanted: Mapping[str, str]
    ) -> Iterator[LabelGroup]:
        """Yield the groups of a namespace with all of these labels (at least one)."""
        rarest = min(
            (self._groups_with(namespace, pair) for pair in wanted.items()), key=len
        )
        for group in rarest:
            if wanted.items() <= dict(group[1]).items():
                yield group

    def _groups_with(self, namespace: str, pair: Pair) -> Mapping[LabelGroup, None]:
        own = self._labelled.get((namespace, pair), {})
        if self._parent is None:
            return own
        below = self._parent._groups_with(namespace, pair)  # noqa: SLF001  # same class
        return {**below, **own} if own and below else own or below

    def avoiding(self, labels: Iterable[Pair]) -> dict[AvoidingGroup, None]:
        """Return the groups that may avoid a deployment with these labels.

        The groups' terms determine which of them do.
        """
        found = self._parent.avoiding(labels) if self._parent else {}
        for pair in (_ANY, *labels):
            found |= self._avoiding.get(pair, {})
        return found

    def differences(self, other: Neighbours) -> list[str]:
        """Return one sentence per group whose counts differ."""
        return [
            f"replicas like {group}: {dict(self.on(group))} counted, "
            f"{dict(other.on(group))} by recount"
            for group in sorted({*self._counts, *other._counts}, key=repr)
            if dict(self.on(group)) != dict(other.on(group))
        ]


def _place(entry: LedgerEntry | None) -> tuple[str, str, Labels, AntiAffinity] | None:
    """Return the values of an entry that are counted."""
    if entry is None or not (entry.labels or entry.avoids):
        return None
    return (entry.namespace, entry.cluster, entry.labels, entry.avoids)


def _found_by(avoids: AntiAffinity) -> dict[Pair, None]:
    """Return one label pair per term; every replica that the term selects has it."""
    return {(wanted[0] if wanted else _ANY): None for _, _, wanted in avoids}


def _discard(index: dict[K, dict[G, None]], key: K, group: G) -> None:
    groups = index.get(key)
    if groups is not None:
        groups.pop(group, None)
        if not groups:
            del index[key]
