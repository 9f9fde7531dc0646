"""Which clusters the deployment's own rules leave: topology spread, affinity, anti-affinity.

A rule becomes a set of clusters, computed anew for every replica because each placement changes the counts. Anti-affinity is symmetric:
the required terms that other deployments had when their replicas were placed are checked too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.model.decision import AntiAffinity
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import AffinityTerm, TopologySpread

# Replicas of the deployment per cluster.
ReplicaCounts = Mapping[str, int]


class Constraints:
    """The rules and preferences of one deployment.

    `eligible` are the clusters that pass every filter on the cluster alone: their label values are the domains to spread over.
    """

    def __init__(self, overlay: FleetOverlay, deployment: DeploymentView, eligible: ClusterSet) -> None:
        self._overlay = overlay
        self._deployment = deployment
        self._eligible = eligible
        policy = deployment.policy
        self._required_spreads = [rule for rule in policy.topology_spread if rule.when_unsatisfiable == "DoNotSchedule"]
        self._preferred_spreads = [rule for rule in policy.topology_spread if rule.when_unsatisfiable != "DoNotSchedule"]
        self._required_affinity = [term for term in policy.affinity if not term.weight]
        self._required_anti_affinity = [term for term in policy.anti_affinity if not term.weight]
        self._preferences = [(term, -term.weight) for term in policy.affinity if term.weight]
        self._preferences += [(term, term.weight) for term in policy.anti_affinity if term.weight]
        self.has_preferences = bool(self._preferences or self._preferred_spreads)
        self._forbidden = self._excluded_by_others()

    def allowed(self, own: ReplicaCounts) -> ClusterSet:
        """Give the clusters where one more replica breaks no rule; `own` are the replicas of the deployment per cluster."""
        found: int = self._overlay.index.everything & ~self._forbidden
        for rule in self._required_spreads:
            found &= self._within_skew(rule, own)
        for term in self._required_anti_affinity:
            found &= ~self._domains(term, own)
        for term in self._required_affinity:
            found &= self._affinity_domains(term, own)
        if self._deployment.policy.cache_required and self._deployment.cache.state == "Present":
            found &= self._with_cache()
        return ClusterSet(found)

    def violated(self, info: ClusterInfo, own: ReplicaCounts) -> str:
        """Name the first rule that a cluster breaks."""
        bit = 1 << info.rank
        if self._forbidden & bit:
            return "another deployment's anti-affinity"
        for rule in self._required_spreads:
            if not self._within_skew(rule, own) & bit:
                return f"topology spread over {rule.topology_key}"
        for term in self._required_anti_affinity:
            if self._domains(term, own) & bit:
                return f"anti-affinity to {_text(term)}"
        for term in self._required_affinity:
            if not self._affinity_domains(term, own) & bit:
                return f"affinity to {_text(term)}"
        return f"cacheRequired: ModelCache {self._deployment.cache.name} is not {self._deployment.policy.cache_required}"

    def preference_penalty(self, info: ClusterInfo, own: ReplicaCounts) -> int:
        """Say how little a cluster meets the preferences; lower is better."""
        bit = 1 << info.rank
        value = sum(weight for term, weight in self._preferences if self._domains(term, own) & bit)
        for rule in self._preferred_spreads:
            counts = self._counts(rule.topology_key, own)
            value += counts.get(info.view.labels.get(rule.topology_key, ""), 0)
        return value

    def _counts(self, key: str, own: ReplicaCounts) -> dict[str, int]:
        """Count the own replicas per value of a cluster label."""
        counts: dict[str, int] = {}
        for name, number in own.items():
            info = self._overlay.clusters.get(name)
            if info is not None and number and key in info.view.labels:
                value = info.view.labels[key]
                counts[value] = counts.get(value, 0) + number
        return counts

    def _within_skew(self, rule: TopologySpread, own: ReplicaCounts) -> ClusterSet:
        values = self._overlay.index.label_values.get(rule.topology_key, {})
        domains = {value: clusters for value, clusters in values.items() if clusters & self._eligible}
        counts = self._counts(rule.topology_key, own)
        lowest = min((counts.get(value, 0) for value in domains), default=0)
        if rule.min_domains and len(domains) < rule.min_domains:
            lowest = 0
        found = 0
        for value, clusters in domains.items():
            if counts.get(value, 0) + 1 - lowest <= rule.max_skew:
                found |= clusters
        return ClusterSet(found)

    def _affinity_domains(self, term: AffinityTerm, own: ReplicaCounts) -> ClusterSet:
        found = self._domains(term, own)
        # The first replica of a group that has affinity to itself has no other to join yet.
        if not found and self._matches_self(term):
            return self._overlay.index.everything
        return found

    def _matches_self(self, term: AffinityTerm) -> bool:
        deployment = self._deployment
        return deployment.namespace in _namespaces(term, deployment.namespace) and _has(deployment.labels, term.match_labels)

    def _domains(self, term: AffinityTerm, own: ReplicaCounts) -> ClusterSet:
        """Give the clusters whose domain has a replica that the term selects."""
        found = 0
        for name in self._matching_clusters(term, own):
            info = self._overlay.clusters.get(name)
            if info is not None:
                found |= _domain(self._overlay, info, term.topology_key)
        return ClusterSet(found)

    def _matching_clusters(self, term: AffinityTerm, own: ReplicaCounts) -> Iterator[str]:
        deployment = self._deployment
        requester = (deployment.namespace, deployment.name)
        if self._matches_self(term):
            yield from (name for name, number in own.items() if number)
        for owner in self._overlay.ledger.owners(_namespaces(term, deployment.namespace)):
            if owner == requester:
                continue
            for entry in self._overlay.ledger.owned(*owner).values():
                if _has(dict(entry.labels), term.match_labels):
                    yield entry.cluster

    def _excluded_by_others(self) -> ClusterSet:
        """Give the clusters whose domain is excluded by the anti-affinity of a replica of another deployment."""
        deployment = self._deployment
        found = 0
        for entry in self._overlay.ledger.with_anti_affinity():
            if (entry.namespace, entry.deployment) == (deployment.namespace, deployment.name):
                continue
            for key, namespaces, wanted in entry.avoids:
                info = self._overlay.clusters.get(entry.cluster)
                if info is None or deployment.namespace not in (namespaces or (entry.namespace,)):
                    continue
                if _has(deployment.labels, dict(wanted)):
                    found |= _domain(self._overlay, info, key)
        return ClusterSet(found)

    def _with_cache(self) -> ClusterSet:
        found = 0
        for name, phase in self._deployment.cache.phases.items():
            info = self._overlay.clusters.get(name)
            if info is not None and phase == self._deployment.policy.cache_required:
                found |= 1 << info.rank
        return ClusterSet(found)


def required_anti_affinity(deployment: DeploymentView) -> AntiAffinity:
    """Give the required anti-affinity of a deployment as its replicas carry it."""
    return tuple(
        (term.topology_key, term.namespaces, tuple(sorted(term.match_labels.items())))
        for term in deployment.policy.anti_affinity
        if not term.weight
    )


def _domain(overlay: FleetOverlay, info: ClusterInfo, key: str) -> ClusterSet:
    """Give the clusters of one domain: those with the same label value, or the cluster alone."""
    value = info.view.labels.get(key) if key else None
    return ClusterSet(1 << info.rank) if value is None else overlay.index.label_values[key][value]


def _namespaces(term: AffinityTerm, own: str) -> tuple[str, ...]:
    return term.namespaces or (own,)


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _text(term: AffinityTerm) -> str:
    pairs = ",".join(f"{key}={value}" for key, value in sorted(term.match_labels.items()))
    return f"{pairs} per {term.topology_key or 'cluster'}"
