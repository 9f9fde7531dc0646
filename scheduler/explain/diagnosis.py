"""Why the next replica of a deployment is not placed, in one sentence.

It counts every cluster once, under the first filter that rejects it, and adds the nearest miss; it is cheap enough for every decision with
a shortfall. The reasons per cluster and pool are in `cluster_report`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduler.explain.near_miss import NearestMiss
from scheduler.fleet.cluster_index import ClusterSet
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


def diagnose(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate | None, placer: ReplicaPlacer | None, held: str = ""
) -> Diagnosis:
    """Count the clusters by the reason why one more replica does not fit there.

    Without a placer only the filters of clusters run; `held` says why nothing may be placed at all.
    """
    counts: Counter[tuple[str, str]] = Counter()
    remaining = overlay.index.everything
    nearest: NearestMiss | None = None
    for result in run_filters(overlay, deployment, compiled):
        refused = ClusterSet(remaining & ~result.passing)
        remaining = ClusterSet(remaining & result.passing)
        if not refused:
            continue
        if result.code == reasons.TAINTED:
            _count_taints(overlay, deployment, refused, counts)
        elif result.code == reasons.NO_POOL_MATCHES and compiled is not None:
            _count_unmatched(overlay, compiled, refused, counts)
        else:
            counts[result.code, filter_text(result.code, deployment)] += refused.bit_count()
    if placer is not None and compiled is not None:
        nearest = _count_full(overlay, placer, remaining, counts)
    closest = filter_text(reasons.INSUFFICIENT_NODES, deployment, nearest.group) if nearest else ""
    groups = tuple(
        ReasonGroup(code, text, count, nearest.text if nearest and text == closest else "")
        for (code, text), count in sorted(counts.items(), key=lambda item: (-item[1], item[0][1]))
    )
    return Diagnosis(clusters=len(overlay.index.ranked), groups=groups, held=held)


def filter_text(code: str, deployment: DeploymentView, what: str = "") -> str:
    """Write a filter code as the headline has it; `what` is the engine, taint or rule."""
    return {
        reasons.LABEL_MISMATCH: "didn't match clusterSelector",
        reasons.CACHE_FOOTPRINT: f"are outside ModelCache {deployment.cache.name}'s footprint",
        reasons.CACHE_INCAPABLE: "can't stage ModelCache",
        reasons.DELETING: "are being deleted",
        reasons.NOT_READY: "aren't Ready",
        reasons.NO_GATEWAY: "have no gateway address",
        reasons.TAINTED: f"had untolerated taint {{{what}}}",
        reasons.NO_POOLS: "publish no pools",
        reasons.NO_POOL_MATCHES: f"had no pool for engine {what}",
        reasons.INSUFFICIENT_NODES: f"had too few free nodes for engine {what}",
        reasons.QUOTA_EXCEEDED: f"were over quota {what}".rstrip(),
        reasons.POLICY: f"violated {what}",
    }[code]


def _count_taints(overlay: FleetOverlay, deployment: DeploymentView, refused: ClusterSet, counts: Counter[tuple[str, str]]) -> None:
    for taints, clusters in overlay.index.tainted.items():
        number = (clusters & refused).bit_count()
        taint = untolerated(taints, deployment.tolerations) if number else None
        if taint is not None:
            text = filter_text(reasons.TAINTED, deployment, taint_text(taint.key, taint.value, taint.effect))
            counts[reasons.TAINTED, text] += number


def _count_unmatched(overlay: FleetOverlay, compiled: CompiledTemplate, refused: ClusterSet, counts: Counter[tuple[str, str]]) -> None:
    for layout, clusters in overlay.index.layouts.items():
        number = (clusters & refused).bit_count()
        if number:
            engine = compiled.engines[compiled.on(layout).blocked].name
            counts[reasons.NO_POOL_MATCHES, f"had no pool for engine {engine}"] += number


def _count_full(overlay: FleetOverlay, placer: ReplicaPlacer, remaining: ClusterSet, counts: Counter[tuple[str, str]]) -> NearestMiss:
    compiled, deployment = placer.compiled, placer.deployment
    nearest = NearestMiss(placer)
    allowed = placer.constraints.allowed(placer.own)
    full: Counter[int] = Counter()
    for info in overlay.index.each(remaining):
        missing = nearest.missing_nodes(info)
        if missing:
            full[0] += 1
            nearest.remember(missing, info, 0)
            continue
        trial = placer.trial(info)
        if trial.violation:
            counts[reasons.POLICY, filter_text(reasons.POLICY, deployment, trial.violation)] += 1
        elif trial.failed >= 0:
            full[trial.failed] += 1
            nearest.measure(info, trial.failed)
        elif not allowed >> info.rank & 1:
            violated = placer.constraints.violated(info, placer.own)
            counts[reasons.POLICY, filter_text(reasons.POLICY, deployment, violated)] += 1
        else:
            refusal = placer.quota.refuses(info, placer.trials.placed_engines(info, trial))
            if refusal:
                counts[reasons.POLICY, filter_text(reasons.QUOTA_EXCEEDED, deployment, f"({refusal})")] += 1
    for engine, number in full.items():
        counts[reasons.INSUFFICIENT_NODES, filter_text(reasons.INSUFFICIENT_NODES, deployment, compiled.engines[engine].name)] += number
    return nearest


def headline(diagnosis: Diagnosis, limit: int = MESSAGE_MAX) -> str:
    """Write a diagnosis as one sentence of at most `limit` characters, cut between reasons."""
    if diagnosis.held:
        return diagnosis.held
    start = f"0/{diagnosis.clusters} clusters are available"
    if not diagnosis.groups:
        return f"{start}."
    if diagnosis.preemption:
        tail = f" {diagnosis.preemption[0].upper()}{diagnosis.preemption[1:]}."
        return headline(replace(diagnosis, preemption=""), limit - len(tail)) + tail
    parts = [f"{g.count} {g.text} ({g.best})" if g.best else f"{g.count} {g.text}" for g in diagnosis.groups]
    return f"{start}: {joined(parts, limit - len(start) - 3)}."


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
