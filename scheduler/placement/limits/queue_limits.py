"""What a cluster's own admission allows: queues that would admit no more, and pools that let a replica wait too long.

A queue counts devices, the ledger nodes; a node counts as all the claimable devices of its pool. What a queue has admitted is subtracted by
the queue itself, so only charges that it has not admitted yet are subtracted here. An old observation is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from api_types.names import tenant_queue, workload_name
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.nomination import NONE_GONE, Gone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import pods_on
from scheduler.hardware.node_fitting import Limit
from scheduler.hardware.template import CompiledTemplate, charges
from scheduler.model.decision import EnginePlacement
from scheduler.model.identity import Owner
from scheduler.model.inputs import AdmissionView, ClusterView, LedgerEntry, PoolView, QueueView
from scheduler.model.policy import WHOLE_NODES, SchedulerOptions
from scheduler.placement.limits.device_accounting import accounting_of, counts_devices

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
    """What the queues of one tenant would still admit on one cluster; `gone` are replicas that are taken for gone.

    A replica that leaves for the deployment gives back what the queue has admitted for it, as it gives back its nodes.
    """

    def __init__(self, overlay: FleetOverlay, info: ClusterInfo, owner: Owner, gone: Gone = NONE_GONE) -> None:
        tenant = tenant_queue(owner[0])
        usable = not is_old(info.view, overlay.now, overlay.options)
        self._overlay = overlay
        self._info = info
        queues = [queue for queue in info.view.queues if usable and queue.free >= 0 and tenant in queue.tenants]
        leaving = {entry.uid: entry for entry in overlay.ledger.leaving_on(owner, info.name)} if queues else {}
        leaving |= {entry.uid: entry for entry in gone.entries}
        self._left = {queue: queue.free + _admitted_balance(overlay, info, queue, leaving) for queue in queues}

    def on(self, compiled: CompiledTemplate) -> list[Limit]:
        """Give what the queues would admit of engines on the pools of the cluster."""
        fits = compiled.on(self._info.layout).engines
        return [
            Limit(max(0, left), tuple({p: self._needed(queue, compiled, i, p) for p in fit.positions} for i, fit in enumerate(fits)))
            for queue, left in self._left.items()
        ]

    def exceeded(self, engines: tuple[EnginePlacement, ...]) -> str:
        """Name the queue that would not admit placed engines, "" if all would."""
        for queue, left in self._left.items():
            needed = _devices_in(self._overlay, queue, self._info, engines)
            if needed > max(0, left):
                return f"queue {queue.name}: needs {needed} devices, {max(0, left)} left"
        return ""

    def nodes(self, free: Sequence[int]) -> list[int]:
        """Give the free nodes per pool that the queues would admit."""
        limited = list(free)
        for queue, left in self._left.items():
            for p in range(len(limited)):
                devices = self._devices(queue, p)
                if devices:
                    limited[p] = min(limited[p], max(0, left) // devices)
        return limited

    def _needed(self, queue: QueueView, compiled: CompiledTemplate, i: int, p: int) -> int:
        pool = self._info.pools[p]
        return _devices_in(self._overlay, queue, self._info, (compiled.place(i, pool.name, pool.device_set),))

    def _devices(self, queue: QueueView, p: int) -> int:
        """Give the devices of one node of a pool that a queue counts."""
        pool = self._info.pools[p]
        return devices_of(pool) if not queue.pools or pool.name in queue.pools else 0


def _admitted_balance(overlay: FleetOverlay, info: ClusterInfo, queue: QueueView, leaving: Mapping[str, LedgerEntry]) -> int:
    """Count devices that leave with replicas which the queue has admitted, less those of staying replicas that it has not admitted yet."""
    admitted = {seen.workload for seen in info.view.admission if seen.state == ADMITTED}
    balance = 0
    for entry in overlay.ledger.on_cluster(info.name).values():
        if tenant_queue(entry.namespace) not in queue.tenants:
            continue
        is_admitted = workload_name(entry.namespace, entry.name) in admitted
        leaves = entry.uid in leaving
        if is_admitted == leaves:
            balance += _devices_in(overlay, queue, info, entry.engines) * (1 if leaves else -1)
    return balance


def _devices_in(overlay: FleetOverlay, queue: QueueView, info: ClusterInfo, engines: tuple[EnginePlacement, ...]) -> int:
    """Count the devices that a queue counts for placed engines; where nodes are charged whole, all devices of each node."""
    total = 0
    for name, nodes in charges(engines).items():
        p = info.positions.get(name)
        if p is None or (queue.pools and name not in queue.pools):
            continue
        pool = info.pools[p]
        if counts_devices(overlay) and accounting_of(overlay, pool) != WHOLE_NODES:
            total += sum(sum(group.size) * group.count for group in pods_on(engines, pool))
        else:
            total += nodes * devices_of(pool)
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
