"""Why each cluster and each of its pools fits one more replica, or does not.

The report visits every pool of the fleet, so it is computed for explanations and plans
only, not for every decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from api_types.pins.features import known
from scheduler.explain.fleet_names import class_text, label_texts, unpublished_text
from scheduler.explain.gang import gang_begun
from scheduler.explain.near_miss import Miss, capacity_miss, device_text
from scheduler.explain.refusals import SYNTHETIC_TEXT, filter_text, refusal
from scheduler.explain.selector_gap import SelectorGap, selector_gap
from scheduler.explain.whole_replica import PoolCapacity, PoolNeed, unit_name
from scheduler.fleet.capacity import is_stale
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.hardware.node_fitting import STEPS_MAX
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.filters import FilterResult, missing_features, run_filters
from scheduler.placement.limits.device_accounting import counts_devices
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import taint_text

_NO_NEEDS: tuple[PoolNeed, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineGap:
    """Why the devices of a pool match no request of an engine.

    The gap holds the member's selector and the closest device.
    """

    engine: str
    member: str
    gap: SelectorGap


@dataclass(frozen=True, slots=True)
class PoolDetail:
    """Why a pool fits none of the engines; the reason is empty if it fits at least one."""

    reason: str = ""
    detail: str = ""
    selectors: tuple[EngineGap, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    """Why a cluster fits no further replica.

    The reason is a filter code; it is empty if a replica would fit. `needs` is the
    whole replica's need of each pool. It is set only if every engine has a pool with
    its devices.
    """

    reason: str = ""
    detail: str = ""
    pools: dict[str, PoolDetail] = field(default_factory=dict)
    needs: tuple[PoolNeed, ...] = ()


def placer_after(cycle: SchedulingCycle) -> ReplicaPlacer | None:
    """Return the placer for one more replica at the end of a cycle.

    There is a placer even if nothing may be placed. Return None if selectors are
    invalid.
    """
    if cycle.placer is not None or cycle.compiled is None:
        return cycle.placer
    quota = cycle.quota or QuotaGate(cycle.overlay, cycle.deployment, cycle.priority)
    entries = [kept.entry for kept in cycle.kept]
    return ReplicaPlacer(
        cycle.overlay,
        cycle.request,
        cycle.compiled_for_placing(cycle.compiled),
        entries,
        quota,
    )


def cluster_details(
    cycle: SchedulingCycle, placer: ReplicaPlacer | None
) -> dict[str, ClusterDetail]:
    """Explain, in name order, whether each cluster fits one more replica.

    The clusters are explained in their state at the end of the scheduling cycle.
    """
    if placer is None:
        found = run_filters(cycle.overlay, cycle.deployment, None)
        return {
            info.name: ClusterDetail(
                *next(failed_filters(cycle, info, found, None), ("", ""))
            )
            for info in cycle.overlay.index.ranked
        }
    missing = cycle.deployment.replicas - len(cycle.kept) - len(cycle.placed)
    with gang_begun(placer, missing) as gang:
        after = ""
        if gang.placed:
            after = (
                f" after {gang.placed} of {gang.size} replicas of its gang were placed"
            )
        report = _Report(cycle, placer, after)
        return {info.name: report.of(info) for info in cycle.overlay.index.ranked}


class _Report:
    def __init__(
        self, cycle: SchedulingCycle, placer: ReplicaPlacer, after: str
    ) -> None:
        self._after = after
        self._cycle = cycle
        self._placer = placer
        self._found = run_filters(cycle.overlay, cycle.deployment, placer.compiled)
        self._allowed: ClusterSet = placer.constraints.allowed(placer.own)
        self._pools = _PoolDetails(placer)

    def of(self, info: ClusterInfo) -> ClusterDetail:
        capacity = PoolCapacity(self._placer, info)
        pools = self._pools.of(info, capacity)
        # A second pool of the same name has a separate row, because the first pool may
        # have a reason as well.
        again = PoolDetail(reasons.DUPLICATE_POOL, "an earlier pool has the same name")
        pools |= {f"{name} (duplicate)": again for name in info.duplicates}
        failed = next(
            failed_filters(self._cycle, info, self._found, self._placer), None
        )
        if failed:
            return ClusterDetail(*failed, pools)
        trial = self._placer.trial(info)
        refused = refusal(self._placer, info, trial, self._allowed)
        needs = _NO_NEEDS
        if refused and trial.failed >= 0 and not trial.violation:
            miss = capacity_miss(self._placer, info, trial.failed)
            needs = miss.needs
            short = f" (best: {miss.text})" if miss.text else ""
            cut = (
                "; the search for an arrangement was cut short"
                if trial.undecided
                else ""
            )
            refused = refused[0], f"{refused[1]}{short}{cut}"
            pools |= dict(_short_together(info, pools, miss))
        if not refused:
            return ClusterDetail(pools=pools)
        return ClusterDetail(refused[0], f"{refused[1]}{self._after}", pools, needs)


def _short_together(
    info: ClusterInfo, pools: dict[str, PoolDetail], miss: Miss
) -> Iterator[tuple[str, PoolDetail]]:
    """Yield pools that fit each engine alone, but not all engines together."""
    for need in miss.needs:
        if need.gap and not pools[need.pool].reason:
            text = (
                need.text(info.name)
                .replace(f"of {info.name}/{need.pool} ", "")
                .replace(f" on {info.name}/{need.pool}", "")
            )
            of = f"{text} of {info.nodes[info.positions[need.pool]]}"
            yield (
                need.pool,
                replace(pools[need.pool], reason=reasons.INSUFFICIENT_NODES, detail=of),
            )
    if miss.pool and not pools[miss.pool].reason:
        yield (
            miss.pool,
            replace(
                pools[miss.pool], reason=reasons.INSUFFICIENT_NODES, detail=miss.text
            ),
        )


def failed_filters(
    cycle: SchedulingCycle,
    info: ClusterInfo,
    found: list[FilterResult],
    placer: ReplicaPlacer | None,
) -> Iterator[tuple[str, str]]:
    """Yield code and text of each filter that the cluster fails, in filter order."""
    for result in found:
        if not result.passing >> info.rank & 1:
            yield result.code, _static_text(result.code, cycle, info, placer)


def _static_text(
    code: str, cycle: SchedulingCycle, info: ClusterInfo, placer: ReplicaPlacer | None
) -> str:
    deployment = cycle.deployment
    if code == reasons.TAINTED:
        taint = untolerated(info.taints, deployment.tolerations)
        if taint is None:
            return ""
        described = taint_text(taint.key, taint.value, taint.effect)
        return filter_text(code, deployment, described)
    if code == reasons.FEATURE_MISSING:
        missing = missing_features(info.view.missing_features, deployment)
        return "; ".join(each.lacking() for each in known(missing))
    if code == reasons.LABEL_MISMATCH:
        return f"wants {', '.join(label_texts(info, deployment.match_labels))}"
    if code == reasons.CACHE_FOOTPRINT:
        cache = deployment.cache
        wanted = ", ".join(label_texts(info, cache.match_labels))
        return f"ModelCache {cache.name} wants {wanted}"
    if code == reasons.NO_POOLS:
        unpublished = unpublished_text(cycle.overlay, info, "; ")
        return f"{filter_text(code, deployment)}{unpublished}"
    if code == reasons.NO_POOL_MATCHES and placer is not None:
        blocked = placer.compiled.on(info.layout).blocked
        return filter_text(code, deployment, placer.compiled.engines[blocked].name)
    return filter_text(code, deployment)


class _PoolDetails:
    """Details of pools.

    Equal pools share their details, because a fleet has few kinds of pools.
    """

    def __init__(self, placer: ReplicaPlacer) -> None:
        self._placer = placer
        self._known: dict[tuple[Any, ...], PoolDetail] = {}
        self._gaps: dict[tuple[int, int, str], SelectorGap | None] = {}
        # Pools do not share details in these cases: quotas depend on the cluster,
        # device counts on the pods of the pool, and reserved capacity on the waiting
        # deployments.
        self._alike = not (
            placer.reserved
            or placer.overlay.refused
            or placer.quota.limits
            or counts_devices(placer.overlay)
        )

    def of(self, info: ClusterInfo, capacity: PoolCapacity) -> dict[str, PoolDetail]:
        placer = self._placer
        found = {
            pool.name: self._known_detail(info, p, capacity)
            for p, pool in enumerate(info.pools)
        }
        if len(placer.compiled.engines) > 1 and placer.trial(info).undecided:
            cut = PoolDetail(
                reasons.UNDECIDED,
                f"no arrangement of the engines was found within {STEPS_MAX} steps",
            )
            found = {
                name: cut if detail == PoolDetail() else detail
                for name, detail in found.items()
            }
        return found

    def _known_detail(
        self, info: ClusterInfo, p: int, capacity: PoolCapacity
    ) -> PoolDetail:
        pool = info.pools[p]
        if not self._alike or pool.observed is not None or not pool.takes_new:
            return self._detail(info, p, capacity)
        fits = tuple(
            (p in fit.positions, fit.cost, fit.claims)
            for fit in self._placer.compiled.on(info.layout).engines
        )
        key = (
            pool.device_set.digest,
            pool.nodes,
            pool.shortage,
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
        if not pool.takes_new:
            missing = pool.unusable or class_text(placer.overlay, pool.class_name)
            text = f"{missing}; running replicas stay on the pool"
            return PoolDetail(reasons.SELECTOR_NO_MATCH, text)
        engines = placer.compiled.engines
        # Keyed by position, because members of an engine that spans pools have the same
        # name.
        failures: dict[int, PoolDetail] = {}
        gaps: tuple[EngineGap, ...] = ()
        for i in range(len(engines)):
            failure = self._failure(info, p, i, capacity)
            if failure is not None:
                failures[i] = failure
                gaps += failure.selectors
        text = "; ".join(
            f"engine {engines[i].name}: {failure.detail}"
            for i, failure in failures.items()
        )

        if pool.observed is not None and is_stale(
            pool.observed, placer.overlay.now, placer.overlay.options
        ):
            text = f"{text}; the observed capacity is stale and ignored".lstrip("; ")
        codes = [failure.reason for failure in failures.values()]
        if pool.shortage and reasons.INSUFFICIENT_NODES in codes:
            text = f"{text}; {pool.shortage}"
        if len(failures) == len(engines):
            return PoolDetail(codes[0], text, gaps)
        placed = [
            placer.compiled.place(i, pool.name, pool.device_set)
            for i in range(len(engines))
            if i not in failures
        ]
        over = [placer.quota.refuses(info, (engine,)) for engine in placed]
        if all(over):
            return PoolDetail(reasons.QUOTA_EXCEEDED, over[0], gaps)
        return PoolDetail("", text, gaps)

    def _failure(
        self, info: ClusterInfo, p: int, i: int, capacity: PoolCapacity
    ) -> PoolDetail | None:
        """Return why a pool does not fit one engine, or None if it does."""
        placer = self._placer
        fit = placer.compiled.on(info.layout).engines[i]
        if p not in fit.positions:
            return self._mismatch(info, p, i, fit.claims)
        if counts_devices(placer.overlay):
            if placer.trials.admits_alone(info, p, i):
                return None
            return PoolDetail(
                reasons.INSUFFICIENT_NODES, device_text(placer, info, p, i)
            )
        if fit.cost <= capacity.free[p]:
            return None
        return _short(placer, info, p, fit.cost, capacity)

    def _mismatch(
        self, info: ClusterInfo, p: int, i: int, claims: tuple[bool, ...]
    ) -> PoolDetail:
        compiled = self._placer.compiled
        devices = info.pools[p].device_set
        fits = [need.fit(devices) for need in compiled.needs[i]]
        for m, (member, fit) in enumerate(
            zip(compiled.engines[i].members, fits, strict=True)
        ):
            if fit.fits:
                continue
            text = f"{member.role}: {fit.detail}"
            gap = self._gap(i, m, info, p)
            if gap is None:
                return PoolDetail(fit.code, text)
            if gap.detail:
                text = f"{text}; {gap.detail}"
            engine_gap = EngineGap(unit_name(compiled, i), member.role, gap)
            return PoolDetail(fit.code, text, (engine_gap,))
        for member, fit, can_claim in zip(
            compiled.engines[i].members, fits, claims, strict=True
        ):
            if can_claim and not fit.resolved:
                text = (
                    f"{member.role} could claim devices on another pool of this cluster, "
                    "but would get none on this one"
                )
                return PoolDetail(reasons.STRANDED, text)
        return PoolDetail(
            reasons.SYNTHETIC_ONLY,
            SYNTHETIC_TEXT,
        )

    def _gap(self, i: int, m: int, info: ClusterInfo, p: int) -> SelectorGap | None:
        devices = info.pools[p].device_set
        key = (i, m, devices.digest)
        if key not in self._gaps:
            need = self._placer.compiled.needs[i][m]
            self._gaps[key] = selector_gap(need, need.fit(devices).request, devices)
        return self._gaps[key]


def _short(
    placer: ReplicaPlacer,
    info: ClusterInfo,
    p: int,
    needed: int,
    capacity: PoolCapacity,
) -> PoolDetail:
    pool = info.pools[p]
    free = max(capacity.free[p], 0)
    declared = pool.nodes - capacity.used.get(pool.name, 0)
    waits = placer.reserved.violated(info) if declared >= needed else ""
    if waits:
        return PoolDetail(
            reasons.INSUFFICIENT_NODES,
            f"needs {needed}, {declared} free of {pool.nodes}, reserved for others ({waits})",
        )
    if declared >= needed:
        return PoolDetail(
            reasons.OBSERVED_CAPACITY,
            f"needs {needed}, {free} observed free of {declared} declared free",
        )
    held = capacity.reserved.get(pool.name, 0)
    reserved = f", reserved {held}" if held else ""
    return PoolDetail(
        reasons.INSUFFICIENT_NODES,
        f"needs {needed}, {free} free of {pool.nodes}{reserved}",
    )
