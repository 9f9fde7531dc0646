"""The clusters that the deployment's own rules allow.

The rules are topology spread, affinity and anti-affinity. A rule becomes a set of
clusters, which is computed for every replica because each placement changes the counts.
The part that depends on other deployments is computed once per cycle, because their
replicas do not move during the cycle. Anti-affinity is symmetric: the required terms of
other deployments are checked too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import or_

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet
from scheduler.fleet.neighbours import AvoidingGroup, LabelGroup
from scheduler.fleet.overlay import FleetOverlay
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import AffinityTerm, SpreadConstraint
from scheduler.placement.ranking import WeightedSums

# Replicas of the deployment per cluster.
ReplicaCounts = Mapping[str, int]


class Constraints:
    """The rules and preferences of one deployment.

    `eligible` are the clusters that pass every cluster filter; their label values are
    the domains to spread over.
    """

    def __init__(
        self, overlay: FleetOverlay, deployment: DeploymentView, eligible: ClusterSet
    ) -> None:
        self._overlay = overlay
        self._deployment = deployment
        self._eligible = eligible
        policy = deployment.policy
        self._required_spreads = [
            rule
            for rule in policy.topology_spread
            if rule.when_unsatisfiable == "DoNotSchedule"
        ]
        self._preferred_spreads = [
            rule
            for rule in policy.topology_spread
            if rule.when_unsatisfiable != "DoNotSchedule"
        ]
        self._required_affinity = [term for term in policy.affinity if not term.weight]
        self._required_anti_affinity = [
            term for term in policy.anti_affinity if not term.weight
        ]
        self._preferences = [
            (term, -term.weight) for term in policy.affinity if term.weight
        ]
        self._preferences += [
            (term, term.weight) for term in policy.anti_affinity if term.weight
        ]
        self._has_terms = bool(policy.affinity or policy.anti_affinity)
        self.has_preferences = bool(self._preferences or self._preferred_spreads)
        self._forbidden = self._excluded_by_others()
        # Per label, the clusters of each domain to spread over, and their union.
        self._spread_over: dict[str, tuple[dict[str, ClusterSet], ClusterSet]] = {}
        # Per term, the clusters whose domain has a replica of another deployment that
        # it selects.
        self._domains_of_others: dict[int, ClusterSet] = {}
        # The clusters of own replicas, and values derived from them. Most placements
        # add a replica to a domain that already has one.
        self._occupied = NO_CLUSTERS
        self._domains_of_own: dict[str, ClusterSet] = {}
        self._penalties: dict[int, int] = {}
        # The replicas that the values below count, and per label to spread over, their
        # number in each domain that has any.
        self._own: ReplicaCounts = {}
        self._counts: dict[str, dict[str, int]] = {
            rule.topology_key: {} for rule in policy.topology_spread
        }
        # The penalties of all clusters, and the clusters of each preferred term that
        # they contain.
        self._sums = WeightedSums()
        self._added: list[ClusterSet] = [NO_CLUSTERS] * len(self._preferences)
        for _, weight in self._preferences:
            if weight < 0:
                self._sums.add(overlay.index.everything, -weight)

    def allowed(self, own: ReplicaCounts) -> ClusterSet:
        """Return the clusters where one more replica breaks no rule.

        `own` is the number of the deployment's replicas per cluster.
        """
        self._catch_up(own)
        found: int = self._overlay.index.everything
        for _, allowed in self._rules():
            found &= allowed
        return ClusterSet(found)

    def violated(self, info: ClusterInfo, own: ReplicaCounts) -> str:
        """Return the first rule that a cluster breaks."""
        return next(
            text for text, _ in self.violations(ClusterSet(1 << info.rank), own)
        )

    def violations(
        self, clusters: ClusterSet, own: ReplicaCounts
    ) -> Iterator[tuple[str, ClusterSet]]:
        """Yield the clusters that break a rule, by the first rule that each one breaks."""
        self._catch_up(own)
        left: int = clusters
        for text, allowed in self._rules():
            broken = ClusterSet(left & ~allowed)
            if broken:
                yield text, broken
                left &= allowed
            if not left:
                return

    def _rules(self) -> Iterator[tuple[str, int]]:
        """Yield each rule as text, with the clusters that respect it."""
        yield "another deployment's anti-affinity", ~self._forbidden
        for rule in self._required_spreads:
            yield (
                f"topology spread over {rule.topology_key}",
                self._within_skew(rule),
            )
        for term in self._required_anti_affinity:
            yield f"anti-affinity to {_text(term)}", ~self._domains(term)
        for term in self._required_affinity:
            yield f"affinity to {_text(term)}", self._affinity_domains(term)
        policy = self._deployment.policy
        if policy.cache_required and self._deployment.cache.state == "Present":
            cache = f"cacheRequired: ModelCache {self._deployment.cache.name}"
            yield f"{cache} is not {policy.cache_required}", self._with_cache()

    def penalties(self, own: ReplicaCounts) -> Callable[[ClusterInfo], int]:
        """Return a function from a cluster to its penalty for unmet preferences.

        Lower is better.
        """
        self._catch_up(own)
        counted = [
            (rule.topology_key, self._counts[rule.topology_key])
            for rule in self._preferred_spreads
        ]
        weighed = [(self._domains(term), weight) for term, weight in self._preferences]
        known = self._penalties

        def penalty(info: ClusterInfo) -> int:
            value = known.get(info.rank)
            if value is None:
                bit = 1 << info.rank
                value = known[info.rank] = sum(
                    weight for domains, weight in weighed if domains & bit
                )
            return value + sum(
                counts.get(info.view.labels.get(key, ""), 0) for key, counts in counted
            )

        return penalty

    def by_preference(
        self, clusters: ClusterSet, own: ReplicaCounts
    ) -> Iterator[ClusterSet]:
        """Split clusters into groups of equal preference, the best first."""
        self._catch_up(own)
        for n, (term, weight) in enumerate(self._preferences):
            domains, before = self._domains(term), self._added[n]
            if domains != before:
                self._sums.add(ClusterSet(domains & ~before), weight)
                self._sums.add(ClusterSet(before & ~domains), -weight)
                self._added[n] = domains
        yield from self._sums.ascending(clusters)

    def _catch_up(self, own: ReplicaCounts) -> None:
        """Count the replicas that were added or removed since the last call."""
        if own == self._own or not (self._has_terms or self._counts):
            return
        for name in sorted({name for name, _ in own.items() ^ self._own.items()}):
            info = self._overlay.clusters.get(name)
            before, after = self._own.get(name, 0), own.get(name, 0)
            if info is not None and before != after:
                self._count(info, after - before)
                if self._has_terms and bool(before) != bool(after):
                    self._occupy(info, is_occupied=bool(after))
        self._own = dict(own)

    def _count(self, info: ClusterInfo, change: int) -> None:
        """Count more or fewer own replicas in the domains of a cluster."""
        for key, counts in self._counts.items():
            value = info.view.labels.get(key)
            if value is not None:
                counts[value] = counts.get(value, 0) + change
                if not counts[value]:
                    del counts[value]
        for rule in self._preferred_spreads:
            value = info.view.labels.get(rule.topology_key)
            if value is not None:
                values = self._overlay.index.label_values[rule.topology_key]
                self._sums.add(values[value], change)

    def _occupy(self, info: ClusterInfo, *, is_occupied: bool) -> None:
        """Record that a cluster has its first own replica, or lost its last."""
        here = ClusterSet(1 << info.rank)
        self._penalties.clear()
        if is_occupied:
            self._occupied = ClusterSet(self._occupied | here)
            for key, domains in self._domains_of_own.items():
                if not domains & here:
                    more = self._expanded(here, key)
                    self._domains_of_own[key] = ClusterSet(domains | more)
        else:
            self._occupied = ClusterSet(self._occupied & ~here)
            self._domains_of_own.clear()

    def _within_skew(self, rule: SpreadConstraint) -> ClusterSet:
        known = self._spread_over.get(rule.topology_key)
        if known is None:
            values = self._overlay.index.label_values.get(rule.topology_key, {})
            domains = {
                value: clusters
                for value, clusters in values.items()
                if clusters & self._eligible
            }
            known = self._spread_over[rule.topology_key] = (
                domains,
                ClusterSet(reduce(or_, domains.values(), 0)),
            )
        domains, found = known
        counts = {
            value: count
            for value, count in self._counts[rule.topology_key].items()
            if value in domains
        }
        is_scarce = rule.min_domains and len(domains) < rule.min_domains
        has_empty_domain = is_scarce or len(counts) < len(domains)
        lowest = 0 if has_empty_domain else min(counts.values(), default=0)
        # A domain without own replicas never violates the maximum skew.
        for value, count in counts.items():
            if count + 1 - lowest > rule.max_skew:
                found = ClusterSet(found & ~domains[value])
        return found

    def _affinity_domains(self, term: AffinityTerm) -> ClusterSet:
        found = self._domains(term)
        # The first replica of a group with affinity to itself has no other replica to
        # be placed with.
        if not found and self._matches_self(term):
            return self._overlay.index.everything
        return found

    def _matches_self(self, term: AffinityTerm) -> bool:
        deployment = self._deployment
        return deployment.namespace in _namespaces(term, deployment.namespace) and _has(
            deployment.labels, term.match_labels
        )

    def _domains(self, term: AffinityTerm) -> ClusterSet:
        """Return the clusters whose domain has a replica that the term selects."""
        found = self._domains_of_others.get(id(term))
        if found is None:
            found = self._domains_of_others[id(term)] = self._with_others(term)
        if not self._matches_self(term):
            return found
        inside = self._domains_of_own.get(term.topology_key)
        if inside is None:
            inside = self._domains_of_own[term.topology_key] = self._expanded(
                self._occupied, term.topology_key
            )
        return ClusterSet(found | inside)

    def _with_others(self, term: AffinityTerm) -> ClusterSet:
        """Return the clusters whose domain has another deployment's selected replica."""
        deployment, neighbours = self._deployment, self._overlay.ledger.neighbours
        found: int = NO_CLUSTERS
        for namespace in _namespaces(term, deployment.namespace):
            if term.match_labels:
                for group in neighbours.selected(namespace, term.match_labels):
                    found |= self._of_others(group)
            else:
                found |= self._overlay.index.named(self._of_anybody_else(namespace))
        return self._expanded(ClusterSet(found), term.topology_key)

    def _of_others(self, group: LabelGroup | AvoidingGroup) -> ClusterSet:
        """Return the clusters where a group has replicas of other deployments."""
        deployment, ledger, index = (
            self._deployment,
            self._overlay.ledger,
            self._overlay.index,
        )
        found = ledger.neighbours.clusters(group, index)
        own = Counter[str]()
        if group[0] == deployment.namespace:
            entries = ledger.owned(deployment.namespace, deployment.name).values()
            own.update(
                entry.cluster
                for entry in entries
                if group[1] in (entry.labels, entry.avoids)
            )
        count = ledger.neighbours.count
        alone = [name for name, number in own.items() if number == count(group, name)]
        return ClusterSet(found & ~index.named(alone))

    def _of_anybody_else(self, namespace: str) -> dict[str, None]:
        deployment, ledger = self._deployment, self._overlay.ledger
        clusters: dict[str, None] = {}
        for owner in ledger.owners((namespace,)):
            if owner != (deployment.namespace, deployment.name):
                entries = ledger.owned(*owner).values()
                clusters |= dict.fromkeys(entry.cluster for entry in entries)
        return clusters

    def _expanded(self, clusters: ClusterSet, key: str) -> ClusterSet:
        """Return all clusters of the domains of some clusters.

        A cluster without the label is a domain of its own.
        """
        domains = self._overlay.index.label_values.get(key, {}) if key else {}
        found: int = clusters
        if clusters.bit_count() > len(domains):
            for domain in domains.values():
                if domain & clusters:
                    found |= domain
            return ClusterSet(found)
        for info in self._overlay.index.each(clusters):
            value = info.view.labels.get(key)
            if value is not None:
                found |= domains[value]
        return ClusterSet(found)

    def _excluded_by_others(self) -> ClusterSet:
        """Return the clusters that other deployments' anti-affinity excludes."""
        deployment = self._deployment
        excluded: dict[str, int] = {}
        for group in self._overlay.ledger.neighbours.avoiding(
            deployment.labels.items()
        ):
            keys = dict.fromkeys(
                key
                for key, namespaces, wanted in group[1]
                if deployment.namespace in (namespaces or (group[0],))
                and _has(deployment.labels, dict(wanted))
            )
            others = self._of_others(group) if keys else NO_CLUSTERS
            for key in keys:
                excluded[key] = excluded.get(key, 0) | others
        expanded = (
            self._expanded(ClusterSet(others), key) for key, others in excluded.items()
        )
        return ClusterSet(reduce(or_, expanded, 0))

    def _with_cache(self) -> ClusterSet:
        found = 0
        for name, phase in self._deployment.cache.phases.items():
            info = self._overlay.clusters.get(name)
            if info is not None and phase == self._deployment.policy.cache_required:
                found |= 1 << info.rank
        return ClusterSet(found)


def _namespaces(term: AffinityTerm, own: str) -> tuple[str, ...]:
    return term.namespaces or (own,)


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _text(term: AffinityTerm) -> str:
    pairs = ",".join(
        f"{key}={value}" for key, value in sorted(term.match_labels.items())
    )
    return f"{pairs} per {term.topology_key or 'cluster'}"
