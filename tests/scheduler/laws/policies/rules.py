"""Rules about places for one more replica: topology spread, affinity, anti-affinity.

The documentation leaves open whether a releasing replica still counts. In the strict
reading it blocks others and no other replica can join it; in the lenient reading
neither holds. A decision must obey the lenient reading and may not miss what is
possible in the strict one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from scheduler.model.inputs import ClusterView, DeploymentView, LedgerEntry
from scheduler.model.policy import AffinityTerm, SpreadConstraint
from tests.scheduler.laws.policies.books import Owner, State, nominee_of, owner_of
from tests.scheduler.laws.policies.matching import Match, first_failing, has


def owner(view: DeploymentView) -> Owner:
    return view.namespace, view.name


def domain(state: State, cluster: str, key: str) -> Collection[str]:
    """Return the clusters of one domain: those with the same label value, or the
    cluster alone.
    """
    view = state.clusters.get(cluster)
    if view is None:
        return ()
    if not key or key not in view.labels:
        return (cluster,)
    return [
        name
        for name, other in state.clusters.items()
        if other.labels.get(key) == view.labels[key]
    ]


class Places:
    """The room for one more replica under a deployment's rules; `without` are removed
    entries.
    """

    def __init__(
        self,
        state: State,
        view: DeploymentView,
        matches: dict[str, Match],
        without: Collection[str] = (),
    ) -> None:
        self.state = state
        self.view = view
        self.me = owner(view)
        self.without = without
        self.eligible = [
            name
            for name, cluster in state.clusters.items()
            if first_failing(view, cluster, matches[name]) in ("", "NoPoolMatches")
        ]
        self.own = Counter(
            e.cluster for e in state.of(self.me) if e.state != "Releasing"
        )

    def allows(self, cluster: str, *, strict: bool) -> bool:
        return not any(self.broken(cluster, strict=strict))

    def broken(self, cluster: str, *, strict: bool) -> Iterator[str]:
        """Return the rules that one more replica on a cluster would break."""
        policy = self.view.policy
        for rule in policy.topology_spread:
            if rule.when_unsatisfiable == "DoNotSchedule" and not self.within_skew(
                rule, self.state.clusters[cluster]
            ):
                yield f"spread over {rule.topology_key}"
        for term in policy.anti_affinity:
            if not term.weight and any(
                self._near(e, cluster, term)
                for e in self._matching(term, strict=strict)
            ):
                yield f"anti-affinity to {dict(term.match_labels)}"
        for entry in self.state.entries.values():
            if (
                owner_of(entry) != self.me
                and not self._leaving(entry, strict=strict)
                and self._avoids(entry, cluster)
            ):
                yield f"anti-affinity of {entry.deployment}"
        for term in policy.affinity:
            if not term.weight and not self._joins(term, cluster, strict=strict):
                yield f"affinity to {dict(term.match_labels)}"
        if (
            policy.cache_required
            and self.view.cache.state == "Present"
            and self.view.cache.phases.get(cluster) != policy.cache_required
        ):
            yield "cacheRequired"

    def within_skew(
        self,
        rule: SpreadConstraint,
        cluster: ClusterView,
        own: Counter[str] | None = None,
    ) -> bool:
        if rule.topology_key not in cluster.labels:
            return False
        counts: Counter[str] = Counter()
        for name, number in (self.own if own is None else own).items():
            value = (
                self.state.clusters[name].labels.get(rule.topology_key)
                if name in self.state.clusters
                else None
            )
            if value is not None:
                counts[value] += number
        domains = {
            self.state.clusters[name].labels.get(rule.topology_key)
            for name in self.eligible
        } - {None}
        if cluster.labels[rule.topology_key] not in domains:
            return False
        lowest = (
            0
            if len(domains) < rule.min_domains
            else min(counts[value or ""] for value in domains)
        )
        return counts[cluster.labels[rule.topology_key]] + 1 - lowest <= rule.max_skew

    def selects(self, term: AffinityTerm, entry: LedgerEntry) -> bool:
        if owner_of(entry) == self.me:
            return self.selects_self(term)
        return entry.namespace in (term.namespaces or (self.view.namespace,)) and has(
            entry.labels, term.match_labels
        )

    def selects_self(self, term: AffinityTerm) -> bool:
        return self.view.namespace in (
            term.namespaces or (self.view.namespace,)
        ) and has(self.view.labels, term.match_labels)

    def _leaving(self, entry: LedgerEntry, *, strict: bool) -> bool:
        """Return whether an entry is ignored where it would block others."""
        if strict:
            return False
        return entry.uid in self.without or (
            entry.state == "Releasing"
            and self.me in (nominee_of(entry), owner_of(entry))
        )

    def _matching(self, term: AffinityTerm, *, strict: bool) -> list[LedgerEntry]:
        return [
            e
            for e in self.state.entries.values()
            if self.selects(term, e) and not self._leaving(e, strict=strict)
        ]

    def _near(self, entry: LedgerEntry, cluster: str, term: AffinityTerm) -> bool:
        return cluster in domain(self.state, entry.cluster, term.topology_key)

    def _avoids(self, entry: LedgerEntry, cluster: str) -> bool:
        for key, namespaces, wanted in entry.avoids:
            selected = self.view.namespace in (
                namespaces or (entry.namespace,)
            ) and has(self.view.labels, wanted)
            if selected and cluster in domain(self.state, entry.cluster, key):
                return True
        return False

    def _joins(self, term: AffinityTerm, cluster: str, *, strict: bool) -> bool:
        selected = [e for e in self.state.entries.values() if self.selects(term, e)]
        there = [
            e for e in selected if e.state != "Releasing" and e.uid not in self.without
        ]
        if any(self._near(e, cluster, term) for e in (there if strict else selected)):
            return True
        # The first replica of a group that selects itself has no other replica to join.
        first = not any(
            e.cluster in self.state.clusters for e in (selected if strict else there)
        )
        return first and self.selects_self(term)
