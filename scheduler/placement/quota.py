"""Quotas of namespaces, checked when something is placed or grows, never for what runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.cel import SelectorError, compile_selector
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.model import reasons
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView, PoolView
from scheduler.model.policy import Quota

Amount = tuple[int, int]


class QuotaGate:
    """The quotas of one deployment's namespace and what is used of them, in (nodes, devices)."""

    def __init__(self, overlay: FleetOverlay, deployment: DeploymentView, priority: int) -> None:
        self._overlay = overlay
        self._deployment = deployment
        self.priority = priority
        self._quotas = [quota for quota in overlay.options.quotas if quota.namespace == deployment.namespace]
        self._used = [self._count(quota) for quota in self._quotas]

    @property
    def limits(self) -> bool:
        """Whether the namespace has any quota."""
        return bool(self._quotas)

    def refuses(self, info: ClusterInfo, engines: Sequence[EnginePlacement]) -> str:
        """Say which quota a placement would exceed, "" if none."""
        return next((text for text in self._refusals(info, (), engines) if text), "")

    def refuses_growth(self, info: ClusterInfo, before: Sequence[EnginePlacement], after: Sequence[EnginePlacement]) -> str:
        """Say which quota a growing replica would exceed, "" if none or if it does not grow."""
        return next((text for text in self._refusals(info, before, after) if text), "")

    def charge(self, info: ClusterInfo, engines: Sequence[EnginePlacement], sign: int) -> None:
        """Count a placement, or with sign -1 remove it."""
        for i, quota in enumerate(self._quotas):
            nodes, devices = _amount(quota, info, engines)
            self._used[i] = (self._used[i][0] + sign * nodes, self._used[i][1] + sign * devices)

    def _refusals(self, info: ClusterInfo, before: Sequence[EnginePlacement], after: Sequence[EnginePlacement]) -> Iterator[str]:
        for quota, (used_nodes, used_devices) in zip(self._quotas, self._used, strict=True):
            old, new = _amount(quota, info, before), _amount(quota, info, after)
            more_nodes, more_devices = new[0] - old[0], new[1] - old[1]
            if more_nodes <= 0 and more_devices <= 0:
                continue
            if quota.priority_floor is not None and self.priority < quota.priority_floor:
                yield f"priority {self.priority} is below {quota.priority_floor}"
            if 0 <= quota.max_nodes < used_nodes + more_nodes:
                yield f"used {used_nodes} of {quota.max_nodes} nodes, needs {more_nodes} more"
            if 0 <= quota.max_devices < used_devices + more_devices:
                yield f"used {used_devices} of {quota.max_devices} devices, needs {more_devices} more"

    def _count(self, quota: Quota) -> Amount:
        """Count what the namespace uses; releasing replicas of this deployment do not count against it."""
        nodes = devices = 0
        requester = self._deployment.name
        for owner in self._overlay.ledger.owners((quota.namespace,)):
            for entry in self._overlay.ledger.owned(*owner).values():
                info = self._overlay.clusters.get(entry.cluster)
                if info is None or (entry.state == reasons.RELEASING and entry.deployment == requester):
                    continue
                held = _amount(quota, info, entry.engines)
                nodes, devices = nodes + held[0], devices + held[1]
        return nodes, devices


def _amount(quota: Quota, info: ClusterInfo, engines: Sequence[EnginePlacement]) -> Amount:
    """Count the nodes and claimed devices of engines on the pools that a quota is about."""
    if any(info.view.labels.get(key) != value for key, value in quota.match_labels.items()):
        return 0, 0
    nodes = devices = 0
    for engine in engines:
        for member in engine.members:
            p = info.positions.get(member.pool)
            if p is None or not member.requests or not _concerns(quota, info.pools[p]):
                continue
            pods = member.pods * engine.copies
            nodes += pods
            devices += pods * sum(request.count for request in member.requests)
    return nodes, devices


def _concerns(quota: Quota, pool: PoolView) -> bool:
    if quota.class_name and quota.class_name != pool.class_name:
        return False
    if not quota.device_selector:
        return True
    try:
        selector = compile_selector(quota.device_selector)
    except SelectorError:
        return True  # a quota whose selector cannot be read applies to every pool
    return any(selector.match(entry).matched for entry in pool.device_set.entries)
