"""Why each cluster and each of its pools fits one more replica of a deployment, or does not.

It visits every pool of the fleet, so it is computed for explanations and plans, not for every decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.explain.fleet_names import class_text, label_texts, unpublished_text
from scheduler.explain.gang import gang_begun
from scheduler.explain.near_miss import Miss, capacity_miss, device_text
from scheduler.explain.refusals import filter_text, refusal
from scheduler.explain.selector_gap import SelectorGap, selector_gap
from scheduler.explain.whole_replica import PoolCapacity, PoolNeed, unit_name
from scheduler.fleet.capacity import is_stale
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.hardware.node_fitting import STEPS_MAX
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.filters import FilterResult, run_filters
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import taint_text

_NO_NEEDS: tuple[PoolNeed, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineGap:
    """Why the devices of a pool match no request of an engine: the member, and its selector with the closest device."""

    engine: str
    member: str
    gap: SelectorGap


@dataclass(frozen=True, slots=True)
class PoolDetail:
    """Why a pool fits none of the engines; the reason is empty when it fits at least one."""

    reason: str = ""
    detail: str = ""
    selectors: tuple[EngineGap, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    """Why a cluster fits no further replica; the reason is a filter code, empty when it would fit one.

    `needs` is what the whole replica needs of each pool it could use, where every engine has a pool with its devices.
    """

    reason: str = ""
    detail: str = ""
    pools: dict[str, PoolDetail] = field(default_factory=dict)
    needs: tuple[PoolNeed, ...] = ()


def placer_after(cycle: SchedulingCycle) -> ReplicaPlacer | None:
    """Give what places one more replica at the end of a cycle, also where nothing may be placed; None if selectors cannot be used."""
    if cycle.placer is not None or cycle.compiled is None:
        return cycle.placer
    quota = cycle.quota or QuotaGate(cycle.overlay, cycle.deployment, cycle.priority)
    entries = [kept.entry for kept in cycle.kept]
    return ReplicaPlacer(cycle.overlay, cycle.request, cycle.compiled_for_placing(cycle.compiled), entries, quota)


def cluster_details(cycle: SchedulingCycle, placer: ReplicaPlacer | None) -> dict[str, ClusterDetail]:
    """Explain the clusters, in name order, as one more replica of the deployment would find them at the end of a scheduling cycle."""
    if placer is None:
        found = run_filters(cycle.overlay, cycle.deployment, None)
        return {info.name: ClusterDetail(*next(failed_filters(cycle, info, found, None), ("", ""))) for info in cycle.overlay.index.ranked}
    missing = cycle.deployment.replicas - len(cycle.kept) - len(cycle.placed)
    with gang_begun(placer, missing) as gang:
        report = _Report(cycle, placer, f" beside {gang.placed} of {gang.size} replicas of its gang" if gang.placed else "")
        return {info.name: report.of(info) for info in cycle.overlay.index.ranked}


class _Report:
    """Explains clusters one by one."""

    def __init__(self, cycle: SchedulingCycle, placer: ReplicaPlacer, beside: str) -> None:
        self._beside = beside
        self._cycle = cycle
        self._placer = placer
        self._found = run_filters(cycle.overlay, cycle.deployment, placer.compiled)
        self._allowed: ClusterSet = placer.constraints.allowed(placer.own)
        self._pools = _PoolDetails(placer)

    def of(self, info: ClusterInfo) -> ClusterDetail:
        """Explain one cluster with its pools."""
        capacity = PoolCapacity(self._placer, info)
        pools = self._pools.of(info, capacity)
        # A second pool of a name has a row of its own: the first is used, and may have a reason too.
        again = PoolDetail(reasons.DUPLICATE_POOL, "another pool of this name comes first")
        pools |= {f"{name} (duplicate)": again for name in info.duplicates}
        failed = next(failed_filters(self._cycle, info, self._found, self._placer), None)
        if failed:
            return ClusterDetail(*failed, pools)
        trial = self._placer.trial(info)
        refused = refusal(self._placer, info, trial, self._allowed)
        needs = _NO_NEEDS
        if refused and trial.failed >= 0 and not trial.violation:
            miss = capacity_miss(self._placer, info, trial.failed)
            needs = miss.needs
            short = f" (best: {miss.text})" if miss.text else ""
            cut = "; the search for an arrangement was cut short" if trial.undecided else ""
            refused = refused[0], f"{refused[1]}{short}{cut}"
            pools |= dict(_short_together(info, pools, miss))
        return ClusterDetail(refused[0], f"{refused[1]}{self._beside}", pools, needs) if refused else ClusterDetail(pools=pools)


def _short_together(info: ClusterInfo, pools: dict[str, PoolDetail], miss: Miss) -> Iterator[tuple[str, PoolDetail]]:
    """Give the pools that fit each engine alone, and not all that the replica would put there."""
    for need in miss.needs:
        if need.gap and not pools[need.pool].reason:
            text = need.text(info.name).replace(f"of {info.name}/{need.pool} ", "").replace(f" on {info.name}/{need.pool}", "")
            of = f"{text} of {info.nodes[info.positions[need.pool]]}"
            yield need.pool, replace(pools[need.pool], reason=reasons.INSUFFICIENT_NODES, detail=of)
    if miss.pool and not pools[miss.pool].reason:
        yield miss.pool, replace(pools[miss.pool], reason=reasons.INSUFFICIENT_NODES, detail=miss.text)


def failed_filters(
    cycle: SchedulingCycle, info: ClusterInfo, found: list[FilterResult], placer: ReplicaPlacer | None
) -> Iterator[tuple[str, str]]:
    """Give code and text of the filters that a cluster fails, with what it lacks, in their order."""
    for result in found:
        if not result.passing >> info.rank & 1:
            yield result.code, _static_text(result.code, cycle, info, placer)


def _static_text(code: str, cycle: SchedulingCycle, info: ClusterInfo, placer: ReplicaPlacer | None) -> str:
    deployment = cycle.deployment
    if code == reasons.TAINTED:
        taint = untolerated(info.taints, deployment.tolerations)
        return filter_text(code, deployment, taint_text(taint.key, taint.value, taint.effect)) if taint else ""
    if code == reasons.LABEL_MISMATCH:
        return f"wants {', '.join(label_texts(info, deployment.match_labels))}"
    if code == reasons.CACHE_FOOTPRINT:
        cache = deployment.cache
        return f"ModelCache {cache.name} wants {', '.join(label_texts(info, cache.match_labels))}"
    if code == reasons.NO_POOLS:
        return f"{filter_text(code, deployment)}{unpublished_text(cycle.overlay, info, '; ')}"
    if code == reasons.NO_POOL_MATCHES and placer is not None:
        return filter_text(code, deployment, placer.compiled.engines[placer.compiled.on(info.layout).blocked].name)
    return filter_text(code, deployment)


class _PoolDetails:
    """Details of pools; equal pools share one, because a fleet has few kinds of pools."""

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._known: dict[tuple[Any, ...], PoolDetail] = {}
        self._gaps: dict[tuple[int, int, str], SelectorGap | None] = {}
        # Quotas depend on the cluster, device counts on the pods of the pool, reserved capacity on who waits: those details differ by pool.
        self._alike = not (placer.reserved or placer.overlay.refused or placer.quota.limits or counts_devices(placer.overlay))

    def of(self, info: ClusterInfo, capacity: PoolCapacity) -> dict[str, PoolDetail]:
        """Explain the pools of a cluster."""
        placer = self._placer
        found = {pool.name: self._known_detail(info, p, capacity) for p, pool in enumerate(info.pools)}
        if len(placer.compiled.engines) > 1 and placer.trial(info).undecided:
            cut = PoolDetail(reasons.UNDECIDED, f"no arrangement of the engines was found within {STEPS_MAX} steps")
            found = {name: cut if detail == PoolDetail() else detail for name, detail in found.items()}
        return found

    def _known_detail(self, info: ClusterInfo, p: int, capacity: PoolCapacity) -> PoolDetail:
        pool = info.pools[p]
        if not self._alike or pool.observed is not None or pool.class_missing:
            return self._detail(info, p, capacity)
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
            known = self._known[key] = self._detail(info, p, capacity)
        return known

    def _detail(self, info: ClusterInfo, p: int, capacity: PoolCapacity) -> PoolDetail:
        pool, placer = info.pools[p], self._placer
        if pool.class_missing:
            text = f"{class_text(placer.overlay, pool.class_name)}: only running replicas keep the pool"
            return PoolDetail(reasons.SELECTOR_NO_MATCH, text)
        engines = placer.compiled.engines
        # By position: the members of an engine that may span pools are placed one by one, and have its name.
        failures = {i: failure for i in range(len(engines)) if (failure := self._failure(info, p, i, capacity)) is not None}
        text = "; ".join(f"engine {engines[i].name}: {failure.detail}" for i, failure in failures.items())
        gaps = tuple(gap for failure in failures.values() for gap in failure.selectors)
        if pool.observed is not None and is_stale(pool.observed, placer.overlay.now, placer.overlay.options):
            text = f"{text}; the observed capacity is stale and ignored".lstrip("; ")
        if len(failures) == len(engines):
            return PoolDetail(next(iter(failures.values())).reason, text, gaps)
        placed = [placer.compiled.place(i, pool.name, pool.device_set) for i in range(len(engines)) if i not in failures]
        over = [placer.quota.refuses(info, (engine,)) for engine in placed]
        return PoolDetail(reasons.QUOTA_EXCEEDED, over[0], gaps) if all(over) else PoolDetail("", text, gaps)

    def _failure(self, info: ClusterInfo, p: int, i: int, capacity: PoolCapacity) -> PoolDetail | None:
        """Say why a pool does not fit one engine, None if it does."""
        placer = self._placer
        fit = placer.compiled.on(info.layout).engines[i]
        if p not in fit.positions:
            return self._mismatch(info, p, i, fit.claims)
        if counts_devices(placer.overlay):
            if placer.trials.admits_alone(info, p, i):
                return None
            return PoolDetail(reasons.INSUFFICIENT_NODES, device_text(placer, info, p, i))
        return _short(placer, info, p, fit.cost, capacity) if fit.cost > capacity.free[p] else None

    def _mismatch(self, info: ClusterInfo, p: int, i: int, claims: tuple[bool, ...]) -> PoolDetail:
        compiled = self._placer.compiled
        devices = info.pools[p].device_set
        fits = [need.fit(devices) for need in compiled.needs[i]]
        for m, (member, fit) in enumerate(zip(compiled.engines[i].members, fits, strict=True)):
            if not fit.fits:
                gap = self._gap(i, m, info, p)
                text = f"{member.role}: {fit.detail}{f'; {gap.detail}' if gap and gap.detail else ''}"
                return PoolDetail(fit.code, text, (EngineGap(unit_name(compiled, i), member.role, gap),) if gap else ())
        for member, fit, can_claim in zip(compiled.engines[i].members, fits, claims, strict=True):
            if can_claim and not fit.resolved:
                text = f"{member.role} could claim devices on another pool of this cluster, here it would get none"
                return PoolDetail(reasons.STRANDED, text)
        return PoolDetail(reasons.SYNTHETIC_ONLY, "its requests match synthetic devices only, so nothing would be claimed")

    def _gap(self, i: int, m: int, info: ClusterInfo, p: int) -> SelectorGap | None:
        devices = info.pools[p].device_set
        key = (i, m, devices.digest)
        if key not in self._gaps:
            need = self._placer.compiled.needs[i][m]
            self._gaps[key] = selector_gap(need, need.fit(devices).request, devices)
        return self._gaps[key]


def _short(placer: ReplicaPlacer, info: ClusterInfo, p: int, needed: int, capacity: PoolCapacity) -> PoolDetail:
    pool = info.pools[p]
    free = max(capacity.free[p], 0)
    declared = pool.nodes - capacity.used.get(pool.name, 0)
    waits = placer.reserved.violated(info) if declared >= needed else ""
    if waits:
        return PoolDetail(reasons.INSUFFICIENT_NODES, f"needs {needed}, {declared} free of {pool.nodes}, reserved for others ({waits})")
    if declared >= needed:
        return PoolDetail(reasons.OBSERVED_CAPACITY, f"needs {needed}, {free} observed free of {declared} declared free")
    held = capacity.reserved.get(pool.name, 0)
    reserved = f", reserved {held}" if held else ""
    return PoolDetail(reasons.INSUFFICIENT_NODES, f"needs {needed}, {free} free of {pool.nodes}{reserved}")
