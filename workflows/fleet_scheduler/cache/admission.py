"""Replicas that wait for the admission of their cluster (Kueue, KAI), or that it evicted: their deployments request placements again."""

from collections.abc import Callable, Collection
from datetime import timedelta

from api_types import names
from scheduler import ClusterView, Fleet, Owner, evicted_workloads, next_timeouts

# In ms. A cluster may report a time in any year, and no timer reaches that; to wake up early does no harm.
_LONGEST_WAIT = 30 * 24 * 3600 * 1000


class AdmissionTimeouts:
    """When which replica will have waited too long for its cluster's admission; `now` gives the time in ms."""

    def __init__(self, fleet: Fleet, now: Callable[[], int]) -> None:
        self._fleet = fleet
        self._now = now
        # Cluster -> workload -> the ms at which it will have waited too long.
        self._due: dict[str, dict[str, int]] = {}

    def update(self, view: ClusterView) -> None:
        """Read from a report which replicas a cluster has not admitted."""
        self.forget(view.name)
        waiting = dict(next_timeouts(view, self._fleet.options))
        if waiting:
            self._due[view.name] = waiting

    def forget(self, cluster: str) -> None:
        """Forget a cluster."""
        self._due.pop(cluster, None)

    def take_overdue(self) -> list[Owner]:
        """Give the deployments whose replicas have waited too long by now, each replica once."""
        now = self._now()
        owners: list[Owner] = []
        for cluster in [name for name, waiting in self._due.items() if min(waiting.values()) <= now]:
            overdue = {workload for workload, due in self._due[cluster].items() if due <= now}
            self._due[cluster] = {workload: due for workload, due in self._due[cluster].items() if due > now}
            if not self._due[cluster]:
                del self._due[cluster]
            owners += owners_of(self._fleet, cluster, overdue)
        return owners

    def delays(self) -> list[timedelta]:
        """Give the time until the next replica of each cluster has waited too long."""
        return [timedelta(milliseconds=min(max(1, min(waiting.values()) - self._now()), _LONGEST_WAIT)) for waiting in self._due.values()]


def evicted_or_readmitted(fleet: Fleet, view: ClusterView) -> list[Owner]:
    """Give the deployments whose pods an admission has evicted, or admitted again, since the last report: it changes their answer."""
    old = fleet.cluster(view.name)
    changed = evicted_workloads(view) ^ (evicted_workloads(old) if old else frozenset())
    return owners_of(fleet, view.name, changed) if changed else []


def owners_of(fleet: Fleet, cluster: str, workloads: Collection[str]) -> list[Owner]:
    """Give the deployments of replicas on a cluster, by the base names of the replicas' objects."""
    return [
        (entry.namespace, entry.deployment)
        for entry in fleet.on_cluster(cluster).values()
        if names.workload_name(entry.namespace, entry.name) in workloads
    ]
