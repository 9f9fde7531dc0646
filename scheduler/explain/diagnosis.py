"""Why the next replica of a deployment is not placed, in one sentence.

It counts every cluster once, under the first filter that rejects it, and adds the nearest miss; it is cheap enough for every decision with
a shortfall. The reasons per cluster and pool are in `cluster_report`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from scheduler.explain.fleet_names import absent_labels, unpublished_text
from scheduler.explain.gang import gang_begun
from scheduler.explain.near_miss import NearestMiss
from scheduler.explain.refusals import filter_text, refused_by
from scheduler.explain.selector_gap import selector_gap
from scheduler.explain.suggestions import Suggestions
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterSet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import CompiledTemplate
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.decision import Diagnosis, ReasonGroup
from scheduler.model.inputs import DeploymentView
from scheduler.placement.filters import run_filters
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import taint_text

MESSAGE_MAX = 2_000
# A cluster that refuses nothing: the decision ended before it was tried, and the next one takes it.
NOT_TRIED = "have room for the next decision"
# Clusters in which a class that does not exist is looked for.
_CLUSTERS_READ = 100
# Clusters whose devices are compared with a request that no pool of the fleet satisfies.
_DEVICES_READ = 16
Counts = Counter[tuple[str, str]]


def diagnose(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    compiled: CompiledTemplate | None,
    placer: ReplicaPlacer | None,
    *,
    held: str = "",
    missing: int = 1,
) -> Diagnosis:
    """Count the clusters by the reason why one more replica, or the rest of a gang, does not fit there.

    Without a placer only the filters of clusters run; `held` says why nothing may be placed at all, `missing` how many replicas are.
    """
    if placer is None or compiled is None:
        return Diagnosis(len(overlay.index.ranked), _groups(*_refused(overlay, deployment, compiled)[:2]), held)
    with gang_begun(placer, missing) as gang:
        counts, best, remaining = _refused(overlay, deployment, compiled)
        nearest = _count_full(placer, remaining, counts)
        miss = nearest.miss
        if miss is not None:
            text = gang.text(miss) if gang.size > 1 else f"best: {miss.text}" if miss.text else ""
            best[filter_text(reasons.INSUFFICIENT_NODES, deployment, nearest.group)] = text
        found = Suggestions(placer, gang.size - gang.placed).first(miss)
    suggestion = f"{'the gang' if gang.size > 1 else 'one more replica'} would fit with {found.text}" if found else ""
    tail = f"a gang of {gang.size} replicas is placed as a whole, and {gang.placed} would fit" if gang.size > 1 and miss is None else ""
    return Diagnosis(len(overlay.index.ranked), _groups(counts, best), held, gang=tail, suggestion=suggestion)


def _refused(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate | None
) -> tuple[Counts, dict[str, str], ClusterSet]:
    """Count the clusters that fail a filter, say by text what the closest of them lacks, and give those that pass all."""
    counts: Counts = Counter()
    best: dict[str, str] = {}
    remaining = overlay.index.everything
    for result in run_filters(overlay, deployment, compiled):
        refused = ClusterSet(remaining & ~result.passing)
        remaining = ClusterSet(remaining & result.passing)
        if not refused:
            continue
        if result.code == reasons.TAINTED:
            _count_taints(overlay, deployment, refused, counts)
        elif result.code == reasons.NO_POOL_MATCHES and compiled is not None:
            _count_unmatched(overlay, compiled, refused, counts)
            if not remaining:
                best |= _closest_device(overlay, compiled, refused)
        else:
            text = filter_text(result.code, deployment)
            counts[result.code, text] += refused.bit_count()
            best[text] = _missing_name(overlay, deployment, result.code, refused)
    return counts, best, remaining


def _closest_device(overlay: FleetOverlay, compiled: CompiledTemplate, refused: ClusterSet) -> dict[str, str]:
    """Say by text what the closest device of the first clusters has, where no cluster has one for the first engine without a pool."""
    found: tuple[tuple[int, int, str, str], str, str] | None = None
    for info in islice(overlay.index.each(refused), _DEVICES_READ):
        blocked = compiled.on(info.layout).blocked
        for pool in info.pools:
            for need in compiled.needs[blocked] if not pool.class_missing else ():
                fit = need.fit(pool.device_set)
                gap = selector_gap(need, fit.request, pool.device_set)
                # Without a gap there are such devices, but too few of them on a node.
                detail = gap.detail if gap else fit.detail if fit.code == reasons.DEVICE_COUNT_SHORT else ""
                if not detail:
                    continue
                nearness = (gap.differences, gap.distance) if gap else (0, -max(entry.count for entry in pool.device_set.entries))
                rank = (*nearness, info.name, pool.name)
                if found is None or rank < found[0]:
                    text = f"had no pool for engine {compiled.engines[blocked].name}"
                    found = rank, text, f"best: {info.name}/{pool.name}, {detail}"
    return {found[1]: found[2]} if found else {}


def _missing_name(overlay: FleetOverlay, deployment: DeploymentView, code: str, refused: ClusterSet) -> str:
    """Say what is named and does not exist, if that is why clusters fail a filter."""
    if code == reasons.LABEL_MISMATCH:
        return absent_labels(overlay, deployment.match_labels)
    if code == reasons.CACHE_FOOTPRINT:
        return absent_labels(overlay, deployment.cache.match_labels)
    if code == reasons.NO_POOLS:
        first = next((info for info in islice(overlay.index.each(refused), _CLUSTERS_READ) if info.view.unpublished), None)
        return unpublished_text(overlay, first, f"{first.name}: ") if first else ""
    return ""


def _groups(counts: Counts, best: Mapping[str, str]) -> tuple[ReasonGroup, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][1]))
    return tuple(ReasonGroup(code, text, count, best.get(text, "")) for (code, text), count in ordered)


def _count_taints(overlay: FleetOverlay, deployment: DeploymentView, refused: ClusterSet, counts: Counts) -> None:
    for taints, clusters in overlay.index.tainted.items():
        number = (clusters & refused).bit_count()
        taint = untolerated(taints, deployment.tolerations) if number else None
        if taint is not None:
            text = filter_text(reasons.TAINTED, deployment, taint_text(taint.key, taint.value, taint.effect))
            counts[reasons.TAINTED, text] += number


def _count_unmatched(overlay: FleetOverlay, compiled: CompiledTemplate, refused: ClusterSet, counts: Counts) -> None:
    for engine, clusters in overlay.blocked(compiled).items():
        number = (clusters & refused).bit_count()
        if number:
            name = compiled.engines[engine].name
            counts[reasons.NO_POOL_MATCHES, f"had no pool for engine {name}"] += number


def _count_full(placer: ReplicaPlacer, remaining: ClusterSet, counts: Counts) -> NearestMiss:
    nearest = NearestMiss(placer)
    deployment, own = placer.deployment, placer.own
    fitting: int = NO_CLUSTERS
    lacking = []
    for outcomes, clusters in placer.trials.tried(remaining):
        short: int = NO_CLUSTERS
        for trial, failing in outcomes.failing.items():
            failed = ClusterSet(clusters & failing)
            if not failed:
                continue
            counts[refused_by(placer, trial)] += failed.bit_count()
            short |= NO_CLUSTERS if trial.violation else failed
        lacking.append((outcomes, ClusterSet(short)))
        fitting |= clusters & outcomes.fitting
    nearest.measure(lacking)
    allowed = placer.constraints.allowed(own)
    if fitting & allowed:
        counts[reasons.UNDECIDED, NOT_TRIED] += (fitting & allowed).bit_count()
    for text, broken in placer.constraints.violations(ClusterSet(fitting & ~allowed), own):
        counts[reasons.POLICY, filter_text(reasons.POLICY, deployment, text)] += broken.bit_count()
    return nearest


def headline(diagnosis: Diagnosis, limit: int = MESSAGE_MAX) -> str:
    """Write a diagnosis as one sentence of at most `limit` characters, cut between reasons."""
    if diagnosis.held:
        return diagnosis.held
    start = f"0/{diagnosis.clusters} clusters are available"
    tail = "".join(f" {text[0].upper()}{text[1:]}." for text in (diagnosis.gang, diagnosis.preemption, diagnosis.suggestion) if text)
    if len(tail) > limit // 2:
        tail = f"{tail[: limit // 2 - 3]}..."
    limit -= len(tail)
    if not diagnosis.groups:
        return f"{start}.{tail}"
    parts = [f"{g.count} {g.text} ({g.best})" if g.best else f"{g.count} {g.text}" for g in diagnosis.groups]
    return f"{start}: {joined(parts, limit - len(start) - 3)}.{tail}"


def joined(parts: Sequence[str], limit: int, separator: str = ", ") -> str:
    """Join texts; what would not fit is counted as "and n more"."""
    whole = separator.join(parts)
    if len(whole) <= limit:
        return whole
    text = ""
    for i, part in enumerate(parts):
        longer = f"{text}{separator}{part}" if text else part
        rest = len(parts) - i - 1
        tail = f"{separator}and {rest} more" if rest else ""
        if len(longer) + len(tail) > limit:
            return f"{text}{separator}and {rest + 1} more" if text else part[: max(0, limit)]
        text = longer
    return text


def named(names: Iterable[str], limit: int = 10) -> str:
    """Join replica names, at most `limit`, then "and n more"."""
    ordered = sorted(names)
    rest = len(ordered) - limit
    return ", ".join(ordered[:limit]) + (f" and {rest} more" if rest > 0 else "")
