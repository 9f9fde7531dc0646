"""The limits of a cluster's own admission.

Two things are limited: queues that would admit no more, and pools where a replica
waited too long. A queue counts devices, and the ledger counts nodes; a node counts as
all claimable devices of its pool. The queue itself subtracts workloads that it has
admitted, so only charges that it has not admitted yet are subtracted here. An old
observation is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from api_types.names import tenant_queue, workload_name
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.nomination import NONE_GONE, AssumedGone
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import pods_on
from scheduler.hardware.node_fitting import Limit
from scheduler.hardware.template import CompiledTemplate, charges
from scheduler.model.decision import EnginePlacement
from scheduler.model.identity import Owner
from scheduler.model.inputs import (
    AdmissionView,
    ClusterView,
    LedgerEntry,
    PoolView,
    QueueView,
)
from scheduler.model.policy import WHOLE_NODES, SchedulerOptions
from scheduler.placement.limits.device_accounting import accounting_of, counts_devices

ADMITTED = "Admitted"
PENDING = "Pending"
EVICTED = "Evicted"
# The timeout applies to evicted pods too, which wait for admission again.
_IN_QUEUES = frozenset({"DRA", "DevicePlugin"})
_WAITING_STATES = frozenset({PENDING, EVICTED})


def is_old(view: ClusterView, now: int, options: SchedulerOptions) -> bool:
    """Return whether the observation of a cluster is missing or too old to be used."""
    return now - view.observed_at > options.observed_limit_seconds * 1000


def devices_of(pool: PoolView) -> int:
    """Return the claimable devices of one node, at least 1."""
    entries = pool.device_set.entries
    counts = (max(0, entry.count) for entry in entries if entry.claim in _IN_QUEUES)
    return max(1, sum(counts))


class QueueLimits:
    """The devices that the queues of one tenant would still admit on one cluster.

    `gone` are replicas that are assumed gone. The admitted devices of a replica that
    leaves for the deployment become free, like its nodes.
    """

    def __init__(
        self,
        overlay: FleetOverlay,
        info: ClusterInfo,
        owner: Owner,
        gone: AssumedGone = NONE_GONE,
    ) -> None:
        tenant = tenant_queue(owner[0])
        usable = not is_old(info.view, overlay.now, overlay.options)
        self._overlay = overlay
        self._info = info
        queues = [
            queue
            for queue in info.view.queues
            if usable and queue.free >= 0 and tenant in queue.tenants
        ]
        leaving: dict[str, LedgerEntry] = {}
        if queues:
            own = overlay.ledger.leaving_on(owner, info.name)
            leaving |= {entry.uid: entry for entry in own}
        leaving |= {entry.uid: entry for entry in gone.entries}
        self._left = {
            queue: queue.free + _admitted_balance(overlay, info, queue, leaving)
            for queue in queues
        }

    def on(self, compiled: CompiledTemplate) -> list[Limit]:
        """Return the limits of the queues for engines on the pools of the cluster."""
        fits = compiled.on(self._info.layout).engines
        limits = []
        for queue, left in self._left.items():
            units = tuple(
                {p: self._needed(queue, compiled, i, p) for p in fit.positions}
                for i, fit in enumerate(fits)
            )
            limits.append(Limit(max(0, left), units))
        return limits

    def exceeded(self, engines: tuple[EnginePlacement, ...]) -> str:
        """Return the queue that would not admit placed engines, or "" if all would."""
        for queue, left in self._left.items():
            needed = _devices_in(self._overlay, queue, self._info, engines)
            if needed > max(0, left):
                return (
                    f"queue {queue.name}: needs {needed} devices, {max(0, left)} left"
                )
        return ""

    def nodes(self, free: Sequence[int]) -> list[int]:
        """Return the free nodes per pool that the queues would admit."""
        limited = list(free)
        for queue, left in self._left.items():
            for p in range(len(limited)):
                devices = self._devices(queue, p)
                if devices:
                    limited[p] = min(limited[p], max(0, left) // devices)
        return limited

    def _needed(
        self, queue: QueueView, compiled: CompiledTemplate, i: int, p: int
    ) -> int:
        pool = self._info.pools[p]
        return _devices_in(
            self._overlay,
            queue,
            self._info,
            (compiled.place(i, pool.name, pool.device_set),),
        )

    def _devices(self, queue: QueueView, p: int) -> int:
        """Return the devices of one node of a pool that a queue counts."""
        pool = self._info.pools[p]
        return devices_of(pool) if not queue.pools or pool.name in queue.pools else 0


def _admitted_balance(
    overlay: FleetOverlay,
    info: ClusterInfo,
    queue: QueueView,
    leaving: Mapping[str, LedgerEntry],
) -> int:
    """Return the devices that leaving replicas give back to a queue.

    These are devices of leaving replicas that the queue has admitted, minus devices of
    staying replicas that it has not admitted yet.
    """
    admitted = {seen.workload for seen in info.view.admission if seen.state == ADMITTED}
    balance = 0
    for entry in overlay.ledger.on_cluster(info.name).values():
        if tenant_queue(entry.namespace) not in queue.tenants:
            continue
        is_admitted = workload_name(entry.namespace, entry.name) in admitted
        leaves = entry.uid in leaving
        if is_admitted == leaves:
            devices = _devices_in(overlay, queue, info, entry.engines)
            balance += devices if leaves else -devices
    return balance


def _devices_in(
    overlay: FleetOverlay,
    queue: QueueView,
    info: ClusterInfo,
    engines: tuple[EnginePlacement, ...],
) -> int:
    """Return the devices that a queue counts for placed engines.

    If nodes are charged whole, all devices of each node count.
    """
    total = 0
    for name, nodes in charges(engines).items():
        p = info.positions.get(name)
        if p is None or (queue.pools and name not in queue.pools):
            continue
        pool = info.pools[p]
        if counts_devices(overlay) and accounting_of(overlay, pool) != WHOLE_NODES:
            total += sum(
                sum(group.size) * group.count for group in pods_on(engines, pool)
            )
        else:
            total += nodes * devices_of(pool)
    return total


def not_admitted(overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry) -> str:
    """Return why a replica without traffic has waited too long for admission, or ""."""
    if entry.serving or entry.ready:
        return ""
    seen = _unadmitted_workload(overlay, info, entry)
    if seen is None or not seen.since:
        return ""
    waited = (overlay.now - seen.since) // 1000
    if waited <= overlay.options.admission_timeout_seconds:
        return ""
    if seen.state == EVICTED:
        return (
            f"its pods were evicted from {_where(info, entry)} {waited} s ago and have "
            f"not been admitted again: {seen.reason}"
        )
    return (
        f"its pods have waited {waited} s for admission on {_where(info, entry)}: "
        f"{seen.reason}"
    )


def eviction_text(overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry) -> str:
    """Return why the cluster's admission evicted pods of a replica, or "".

    Such an eviction alone does not move the replica.
    """
    seen = _unadmitted_workload(overlay, info, entry)
    if seen is None or seen.state != EVICTED:
        return ""
    return f"its pods were evicted from {_where(info, entry)}: {seen.reason}"


def evicted_workloads(view: ClusterView) -> frozenset[str]:
    """Return the names of the workloads that a cluster's admission evicted."""
    return frozenset(seen.workload for seen in view.admission if seen.state == EVICTED)


def _unadmitted_workload(
    overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry
) -> AdmissionView | None:
    """Return the report on a replica whose pods are not all admitted, if there is one."""
    if not info.view.admission or is_old(info.view, overlay.now, overlay.options):
        return None
    workload = workload_name(entry.namespace, entry.name)
    seen = next(
        (seen for seen in info.view.admission if seen.workload == workload), None
    )
    return seen if seen and seen.state in _WAITING_STATES else None


def _where(info: ClusterInfo, entry: LedgerEntry) -> str:
    return f"{info.name}/{', '.join(sorted(charges(entry.engines)))}"


def refused_positions(
    overlay: FleetOverlay, info: ClusterInfo, namespace: str, deployment: str
) -> frozenset[int]:
    """Return the pools of a cluster that a deployment must not use for a while.

    One of its replicas waited there too long.
    """
    if not overlay.refused:
        return frozenset()
    limit = overlay.now - overlay.options.refusal_seconds * 1000
    return frozenset(
        p
        for p, pool in enumerate(info.pools)
        if overlay.refused.get((namespace, deployment, info.name, pool.name), -1)
        > limit
    )


def next_timeouts(
    view: ClusterView, options: SchedulerOptions
) -> Iterator[tuple[str, int]]:
    """Yield (workload, ms) for every waiting workload: the time when it times out."""
    for seen in view.admission:
        if seen.state in _WAITING_STATES and seen.since:
            yield (
                seen.workload,
                seen.since + (options.admission_timeout_seconds + 1) * 1000,
            )
