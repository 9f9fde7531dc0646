"""Replicas that wait for the admission of their cluster (Kueue, KAI).

Their deployments request placements again after a timeout or an eviction.
"""

from collections.abc import Callable, Collection
from datetime import timedelta

from api_types import names
from scheduler import ClusterView, Fleet, Owner, evicted_workloads, next_timeouts

# The longest wait, in milliseconds. A cluster may report a time in any year, which no
# timer can reach. Waking up early does no harm.
_LONGEST_WAIT = 30 * 24 * 3600 * 1000


class AdmissionTimeouts:
    """The times at which replicas have waited too long for admission.

    `now` returns the time in milliseconds.
    """

    def __init__(self, fleet: Fleet, now: Callable[[], int]) -> None:
        self._fleet = fleet
        self._now = now
        # By cluster and workload, the time in milliseconds at which it has waited too
        # long.
        self._due: dict[str, dict[str, int]] = {}

    def update(self, view: ClusterView) -> None:
        """Read the replicas without admission from the report of a cluster."""
        self.forget(view.name)
        waiting = dict(next_timeouts(view, self._fleet.options))
        if waiting:
            self._due[view.name] = waiting

    def forget(self, cluster: str) -> None:
        self._due.pop(cluster, None)

    def take_overdue(self) -> list[Owner]:
        """Return the deployments of replicas that have waited too long.

        Each replica is returned once.
        """
        now = self._now()
        owners: list[Owner] = []
        for cluster in [
            name for name, waiting in self._due.items() if min(waiting.values()) <= now
        ]:
            overdue = {
                workload for workload, due in self._due[cluster].items() if due <= now
            }
            self._due[cluster] = {
                workload: due
                for workload, due in self._due[cluster].items()
                if due > now
            }
            if not self._due[cluster]:
                del self._due[cluster]
            owners += owners_of(self._fleet, cluster, overdue)
        return owners

    def delays(self) -> list[timedelta]:
        """Return the times until the next replica of each cluster has waited too long."""
        return [
            timedelta(
                milliseconds=min(
                    max(1, min(waiting.values()) - self._now()), _LONGEST_WAIT
                )
            )
            for waiting in self._due.values()
        ]


def evicted_or_readmitted(fleet: Fleet, view: ClusterView) -> list[Owner]:
    """Return deployments with pods that were evicted or admitted since the last report.

    The change affects their answer.
    """
    old = fleet.cluster(view.name)
    changed = evicted_workloads(view) ^ (evicted_workloads(old) if old else frozenset())
    return owners_of(fleet, view.name, changed) if changed else []


def owners_of(fleet: Fleet, cluster: str, workloads: Collection[str]) -> list[Owner]:
    """Return the deployments of replicas on a cluster, by the names of their workloads."""
    return [
        (entry.namespace, entry.deployment)
        for entry in fleet.on_cluster(cluster).values()
        if names.workload_name(entry.namespace, entry.name) in workloads
    ]
