"""What a cluster's own admission allows: queues that would admit no more, and pools that let a replica wait too long.

A queue counts devices, the ledger nodes; a node counts as all the claimable devices of its pool. What a queue has admitted is subtracted by
the queue itself, so only charges that it has not admitted yet are subtracted here. An old observation is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from api_types.names import tenant_queue, workload_name
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import charges
from scheduler.model.inputs import AdmissionView, ClusterView, LedgerEntry, PoolView, QueueView
from scheduler.model.policy import SchedulerOptions

ADMITTED = "Admitted"
PENDING = "Pending"
EVICTED = "Evicted"
# Evicted pods wait for admission again, and may wait as long as pending ones.
_WAITING_STATES = frozenset({PENDING, EVICTED})


def is_old(view: ClusterView, now: int, options: SchedulerOptions) -> bool:
    """Whether what the adapter saw of a cluster is too old to be used, or was never seen."""
    return now - view.observed_at > options.observed_limit_seconds * 1000


def devices_of(pool: PoolView) -> int:
    """Give the claimable devices of one node, at least 1."""
    return max(1, sum(max(0, entry.count) for entry in pool.device_set.entries if entry.claim != "Synthetic"))


class QueueLimits:
    """What the queues of one tenant would still admit on one cluster."""

    def __init__(self, overlay: FleetOverlay, info: ClusterInfo, namespace: str) -> None:
        tenant = tenant_queue(namespace)
        usable = not is_old(info.view, overlay.now, overlay.options)
        self._slot = info
        self._left = {
            queue: queue.free - _waiting(overlay, info, queue)
            for queue in info.view.queues
            if usable and queue.free >= 0 and tenant in queue.tenants
        }

    def nodes(self, free: Sequence[int]) -> list[int]:
        """Give the free nodes per pool that the queues would admit."""
        limited = list(free)
        for queue, left in self._left.items():
            for p, pool in enumerate(self._slot.pools):
                if not queue.pools or pool.name in queue.pools:
                    limited[p] = min(limited[p], max(0, left) // devices_of(pool))
        return limited

    def exceeded(self, costs: Mapping[int, int]) -> str:
        """Name the queue that would not admit so many nodes per pool position together, "" if all would."""
        for queue, left in self._left.items():
            asked = sum(
                nodes * devices_of(self._slot.pools[p])
                for p, nodes in costs.items()
                if not queue.pools or self._slot.pools[p].name in queue.pools
            )
            if asked > max(0, left):
                return f"queue {queue.name}: needs {asked} devices, {max(0, left)} left"
        return ""


def _waiting(overlay: FleetOverlay, info: ClusterInfo, queue: QueueView) -> int:
    """Count the devices that are charged for tenants of a queue and that it has not admitted yet."""
    admitted = {seen.workload for seen in info.view.admission if seen.state == ADMITTED}
    total = 0
    for entry in overlay.ledger.on_cluster(info.name).values():
        if tenant_queue(entry.namespace) not in queue.tenants or workload_name(entry.namespace, entry.name) in admitted:
            continue
        for name, nodes in charges(entry.engines).items():
            p = info.positions.get(name)
            if p is not None and (not queue.pools or name in queue.pools):
                total += nodes * devices_of(info.pools[p])
    return total


def not_admitted(overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry) -> str:
    """Say why a replica that serves no traffic has waited too long for admission, "" if it has not."""
    seen = None if entry.serving or entry.ready else _unadmitted_workload(overlay, info, entry)
    if seen is None or not seen.since:
        return ""
    waited = (overlay.now - seen.since) // 1000
    if waited <= overlay.options.admission_timeout_seconds:
        return ""
    if seen.state == EVICTED:
        return f"its pods were evicted from {_where(info, entry)} {waited} s ago and are not admitted again: {seen.reason}"
    return f"its pods are not admitted on {_where(info, entry)} for {waited} s: {seen.reason}"


def eviction_text(overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry) -> str:
    """Say why the cluster's admission evicted pods of a replica, "" if it did not; nothing is moved for that yet."""
    seen = _unadmitted_workload(overlay, info, entry)
    return f"pods of it were evicted from {_where(info, entry)}: {seen.reason}" if seen and seen.state == EVICTED else ""


def evicted_workloads(view: ClusterView) -> frozenset[str]:
    """Name the workloads that a cluster's admission evicted."""
    return frozenset(seen.workload for seen in view.admission if seen.state == EVICTED)


def _unadmitted_workload(overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry) -> AdmissionView | None:
    """Give what an observed cluster reports of a replica whose pods are not all admitted."""
    if not info.view.admission or is_old(info.view, overlay.now, overlay.options):
        return None
    workload = workload_name(entry.namespace, entry.name)
    seen = next((seen for seen in info.view.admission if seen.workload == workload), None)
    return seen if seen and seen.state in _WAITING_STATES else None


def _where(info: ClusterInfo, entry: LedgerEntry) -> str:
    return f"{info.name}/{', '.join(sorted(charges(entry.engines)))}"


def refused_positions(overlay: FleetOverlay, info: ClusterInfo, namespace: str, deployment: str) -> frozenset[int]:
    """Give the pools of a cluster that are refused to a deployment, because they let one of its replicas wait too long."""
    if not overlay.refused:
        return frozenset()
    limit = overlay.now - overlay.options.refusal_seconds * 1000
    return frozenset(
        p for p, pool in enumerate(info.pools) if overlay.refused.get((namespace, deployment, info.name, pool.name), -1) > limit
    )


def next_timeouts(view: ClusterView, options: SchedulerOptions) -> Iterator[tuple[str, int]]:
    """Give (workload, ms) for every workload of a cluster that waits: when it has waited too long."""
    for seen in view.admission:
        if seen.state in _WAITING_STATES and seen.since:
            yield seen.workload, seen.since + (options.admission_timeout_seconds + 1) * 1000
