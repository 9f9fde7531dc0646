"""Why each cluster and each of its pools fits one more replica of a deployment, or does not.

It visits every pool of the fleet, so it is computed for explanations and plans, not for every decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.explain.diagnosis import filter_text
from scheduler.explain.near_miss import capacity_miss
from scheduler.fleet.capacity import is_stale
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.hardware.node_fitting import STEPS_MAX
from scheduler.hardware.template import CompiledTemplate, charges
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.inputs import DeploymentView
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.filters import FilterResult, run_filters
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.limits.queue_limits import QueueLimits
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import taint_text


@dataclass(frozen=True, slots=True)
class PoolDetail:
    """Why a pool fits none of the engines; the reason is empty when it fits at least one."""

    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    """Why a cluster fits no further replica; the reason is a filter code, empty when it would fit one."""

    reason: str = ""
    detail: str = ""
    pools: dict[str, PoolDetail] = field(default_factory=dict)


def cluster_details(cycle: SchedulingCycle) -> dict[str, ClusterDetail]:
    """Explain the clusters, in name order, as one more replica of the deployment would find them at the end of a scheduling cycle."""
    overlay, deployment = cycle.overlay, cycle.deployment
    placer = cycle.placer
    if placer is None and cycle.compiled is not None:
        quota = cycle.quota or QuotaGate(overlay, deployment, cycle.priority)
        placer = ReplicaPlacer(overlay, cycle.request, cycle.compiled_for_placing(cycle.compiled), [k.entry for k in cycle.kept], quota)
    found = run_filters(overlay, deployment, placer.compiled if placer else None)
    pool_details = _PoolDetails(placer) if placer else None
    details: dict[str, ClusterDetail] = {}
    for info in overlay.index.ranked:
        reason, text = _cluster_reason(deployment, info, found, placer)
        pools = {} if pool_details is None else pool_details.of(info)
        pools |= {name: PoolDetail(reasons.DUPLICATE_POOL, "another pool of this name comes first") for name in info.duplicates}
        details[info.name] = ClusterDetail(reason, text, pools)
    return details


def _cluster_reason(
    deployment: DeploymentView, info: ClusterInfo, found: list[FilterResult], placer: ReplicaPlacer | None
) -> tuple[str, str]:
    for result in found:
        if not result.passing >> info.rank & 1:
            return result.code, _static_text(result.code, deployment, info, placer)
    if placer is None:
        return "", ""
    trial = placer.trial(info)
    if trial.violation:
        return reasons.POLICY, filter_text(reasons.POLICY, deployment, trial.violation)
    if trial.failed >= 0:
        engine = placer.compiled.engines[trial.failed].name
        text = filter_text(reasons.INSUFFICIENT_NODES, deployment, engine)
        cut = "; the search for an arrangement was cut short" if trial.undecided else ""
        return reasons.INSUFFICIENT_NODES, f"{text} ({capacity_miss(placer, info, trial.failed).text}){cut}"
    if not placer.constraints.allowed(placer.own) >> info.rank & 1:
        return reasons.POLICY, filter_text(reasons.POLICY, deployment, placer.constraints.violated(info, placer.own))
    refusal = placer.quota.refuses(info, placer.trials.placed_engines(info, trial))
    return (reasons.POLICY, refusal) if refusal else ("", "")


def _static_text(code: str, deployment: DeploymentView, info: ClusterInfo, placer: ReplicaPlacer | None) -> str:
    if code == reasons.TAINTED:
        taint = untolerated(info.taints, deployment.tolerations)
        return filter_text(code, deployment, taint_text(taint.key, taint.value, taint.effect)) if taint else ""
    if code == reasons.LABEL_MISMATCH:
        return f"wants {_missing(deployment.match_labels, info)}"
    if code == reasons.CACHE_FOOTPRINT:
        return f"ModelCache {deployment.cache.name} wants {_missing(deployment.cache.match_labels, info)}"
    if code == reasons.NO_POOL_MATCHES and placer is not None:
        return filter_text(code, deployment, placer.compiled.engines[placer.compiled.on(info.layout).blocked].name)
    return filter_text(code, deployment)


def _missing(wanted: Mapping[str, str], info: ClusterInfo) -> str:
    have = info.view.labels
    unmet = sorted((key, value) for key, value in wanted.items() if have.get(key) != value)
    return ", ".join(f"{key}={value}, has {have[key]}" if key in have else f"{key}={value}" for key, value in unmet)


class _PoolDetails:
    """Details of pools; equal pools share one, because a fleet has few kinds of pools."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._known: dict[tuple[Any, ...], PoolDetail] = {}
        # Quotas depend on the cluster, device counts on the pods of the pool, reserved capacity on who waits: those details differ by pool.
        self._alike = not (placer.reserved or placer.overlay.refused or placer.quota.limits or counts_devices(placer.overlay))

    def of(self, info: ClusterInfo) -> dict[str, PoolDetail]:
        """Explain the pools of a cluster."""
        placer = self._placer
        capacity = _PoolCapacity(placer, info)
        found = {pool.name: self._detail(info, p, capacity) for p, pool in enumerate(info.pools)}
        if len(placer.compiled.engines) > 1 and placer.trial(info).undecided:
            cut = PoolDetail(reasons.UNDECIDED, f"no arrangement of the engines was found within {STEPS_MAX} steps")
            found = {name: cut if detail == PoolDetail() else detail for name, detail in found.items()}
        return found

    def _detail(self, info: ClusterInfo, p: int, capacity: _PoolCapacity) -> PoolDetail:
        pool = info.pools[p]
        if not self._alike or pool.observed is not None or pool.class_missing:
            return _pool_detail(self._placer, info, p, capacity)
        fits = tuple((p in fit.positions, fit.cost, fit.claims) for fit in self._placer.compiled.on(info.layout).engines)
        key = (
            pool.device_set.digest,
            pool.nodes,
            capacity.free[p],
            capacity.used.get(pool.name, 0),
            capacity.reserved.get(pool.name, 0),
            fits,
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _pool_detail(self._placer, info, p, capacity)
        return known


class _PoolCapacity:
    """The nodes of a cluster's pools as one more replica finds them: free by position, used and reserved by name."""

    def __init__(self, placer: ReplicaPlacer, info: ClusterInfo) -> None:
        self.free = placer.reserved.left(info, placer.overlay.free(info))
        if info.view.queues:
            self.free = QueueLimits(placer.overlay, info, placer.deployment.namespace).nodes(self.free)
        reusable = placer.overlay.reusable(info, placer.deployment.namespace, placer.deployment.name)
        if reusable:
            self.free = [a + b for a, b in zip(self.free, reusable, strict=True)]
        self.used = placer.overlay.ledger.used(info.name)
        self.reserved: dict[str, int] = {}
        for entry in placer.overlay.ledger.on_cluster(info.name).values():
            if entry.state == reasons.RESERVED:
                for name, nodes in charges(entry.engines).items():
                    self.reserved[name] = self.reserved.get(name, 0) + nodes


def _pool_detail(placer: ReplicaPlacer, info: ClusterInfo, p: int, capacity: _PoolCapacity) -> PoolDetail:
    pool = info.pools[p]
    if pool.class_missing:
        return PoolDetail(reasons.SELECTOR_NO_MATCH, f"class {pool.class_name} no longer exists: only running replicas keep the pool")
    failures = list(_engine_failures(placer, info, p, capacity))
    text = "; ".join(f"engine {placer.compiled.engines[i].name}: {detail}" for i, _, detail in failures)
    if pool.observed is not None and is_stale(pool.observed, placer.overlay.now, placer.overlay.options):
        text = f"{text}; the observed capacity is stale and ignored".lstrip("; ")
    if len(failures) == len(placer.compiled.engines):
        return PoolDetail(failures[0][1], text)
    # By position: the members of an engine that may span pools are placed one by one, and have its name.
    unfit = {i for i, _, _ in failures}
    over = [
        placer.quota.refuses(info, (placer.compiled.place(i, pool.name, pool.device_set),))
        for i in range(len(placer.compiled.engines))
        if i not in unfit
    ]
    return PoolDetail(reasons.QUOTA_EXCEEDED, over[0]) if all(over) else PoolDetail("", text)


def _engine_failures(placer: ReplicaPlacer, info: ClusterInfo, p: int, capacity: _PoolCapacity) -> Iterator[tuple[int, str, str]]:
    """Give (position, code, detail) for each engine that the pool does not fit."""
    compiled = placer.compiled
    fits = compiled.on(info.layout).engines
    for i, fit in enumerate(fits):
        if p not in fit.positions:
            code, detail = _mismatch(compiled, i, info, p, fit.claims)
            yield i, code, detail
        elif counts_devices(placer.overlay):
            if not placer.trials.admits_alone(info, p, i):
                yield i, reasons.INSUFFICIENT_NODES, f"needs {capacity_miss(placer, info, i).text.removeprefix('best: needs ')}"
        elif fit.cost > capacity.free[p]:
            yield i, *_short(placer, info, p, fit.cost, capacity)


def _mismatch(compiled: CompiledTemplate, i: int, info: ClusterInfo, p: int, claims: tuple[bool, ...]) -> tuple[str, str]:
    devices = info.pools[p].device_set
    fits = [need.fit(devices) for need in compiled.needs[i]]
    for member, fit in zip(compiled.engines[i].members, fits, strict=True):
        if not fit.fits:
            return fit.code, f"{member.role}: {fit.detail}"
    for member, fit, can_claim in zip(compiled.engines[i].members, fits, claims, strict=True):
        if can_claim and not fit.resolved:
            return reasons.STRANDED, f"{member.role} could claim devices on another pool of this cluster, here it would get none"
    return reasons.SYNTHETIC_ONLY, "its requests match synthetic devices only, so nothing would be claimed"


def _short(placer: ReplicaPlacer, info: ClusterInfo, p: int, needed: int, capacity: _PoolCapacity) -> tuple[str, str]:
    pool = info.pools[p]
    free = max(capacity.free[p], 0)
    declared = pool.nodes - capacity.used.get(pool.name, 0)
    waits = placer.reserved.violated(info) if declared >= needed else ""
    if waits:
        return reasons.INSUFFICIENT_NODES, f"needs {needed}, {declared} free of {pool.nodes}, reserved for others ({waits})"
    if declared >= needed:
        return reasons.OBSERVED_CAPACITY, f"needs {needed}, {free} observed free of {declared} declared free"
    held = capacity.reserved.get(pool.name, 0)
    reserved = f", reserved {held}" if held else ""
    return reasons.INSUFFICIENT_NODES, f"needs {needed}, {free} free of {pool.nodes}{reserved}"
