"""Quotas of namespaces, checked when something is placed or grows, never for what runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scheduler.cel import SelectorError, compile_selector
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.model import reasons
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView, PoolView
from scheduler.model.policy import Quota


class Amount(NamedTuple):
    """What is used of a quota."""

    nodes: int = 0
    devices: int = 0


class QuotaGate:
    """The quotas of one deployment's namespace, and what is used of them."""

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
            more, used = _amount(quota, info, engines), self._used[i]
            self._used[i] = Amount(used.nodes + sign * more.nodes, used.devices + sign * more.devices)

    def _refusals(self, info: ClusterInfo, before: Sequence[EnginePlacement], after: Sequence[EnginePlacement]) -> Iterator[str]:
        for quota, used in zip(self._quotas, self._used, strict=True):
            old, new = _amount(quota, info, before), _amount(quota, info, after)
            more = Amount(new.nodes - old.nodes, new.devices - old.devices)
            if more.nodes <= 0 and more.devices <= 0:
                continue
            if quota.priority_floor is not None and self.priority < quota.priority_floor:
                yield f"priority {self.priority} is below {quota.priority_floor}"
            if 0 <= quota.max_nodes < used.nodes + more.nodes:
                yield f"used {used.nodes} of {quota.max_nodes} nodes, needs {more.nodes} more"
            if 0 <= quota.max_devices < used.devices + more.devices:
                yield f"used {used.devices} of {quota.max_devices} devices, needs {more.devices} more"

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
                nodes, devices = nodes + held.nodes, devices + held.devices
        return Amount(nodes, devices)


def _amount(quota: Quota, info: ClusterInfo, engines: Sequence[EnginePlacement]) -> Amount:
    """Count the nodes and claimed devices of engines on the pools that a quota is about."""
    if any(info.view.labels.get(key) != value for key, value in quota.match_labels.items()):
        return Amount()
    nodes = devices = 0
    for engine in engines:
        for member in engine.members:
            p = info.positions.get(member.pool)
            if p is None or not member.requests or not _concerns(quota, info.pools[p]):
                continue
            pods = member.pods * engine.copies
            nodes += pods
            devices += pods * sum(request.count for request in member.requests)
    return Amount(nodes, devices)


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
