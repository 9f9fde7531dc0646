"""Why the next replica of a deployment is not placed, in one sentence.

The diagnosis counts every cluster once, under the first filter that rejects it, and
adds the nearest miss. It is cheap enough for every decision with a shortfall.
`cluster_report` has the reasons per cluster and pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from api_types.pins.features import known
from scheduler.explain.fleet_names import absent_labels, unpublished_text
from scheduler.explain.gang import gang_begun
from scheduler.explain.near_miss import NearestMiss
from scheduler.explain.refusals import SYNTHETIC_TEXT, filter_text, refused_by
from scheduler.explain.selector_gap import selector_gap
from scheduler.explain.suggestions import Suggestions
from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterSet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.device_matching import MemberNeed
from scheduler.hardware.template import CompiledTemplate
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.decision import Diagnosis, ReasonGroup
from scheduler.model.inputs import DeploymentView, DeviceSet
from scheduler.placement.filters import missing_features, run_filters
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import taint_text

MESSAGE_MAX = 2_000
# For clusters that no filter rejects: the decision ended before it tried them, and the
# next decision will try them.
NOT_TRIED = "have room for the next decision"
# Number of clusters in which the class is searched that does not exist.
_CLUSTERS_READ = 100
# Number of clusters whose devices are compared with a request that no pool satisfies.
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
    """Count the clusters by the reason why one more replica does not fit.

    For a gang, count why the rest of the gang does not fit. Without a placer only the
    cluster filters run. `held` is the reason why no replica may be placed at all, and
    `missing` is the number of missing replicas.
    """
    if placer is None or compiled is None:
        return Diagnosis(
            len(overlay.index.ranked),
            _groups(*_refused(overlay, deployment, compiled)[:2]),
            held,
        )
    with gang_begun(placer, missing) as gang:
        counts, best, remaining = _refused(overlay, deployment, compiled)
        nearest = _count_full(placer, remaining, counts)
        miss = nearest.miss
        if miss is not None:
            if gang.size > 1:
                text = gang.text(miss)
            else:
                text = f"best: {miss.text}" if miss.text else ""
            group = filter_text(reasons.INSUFFICIENT_NODES, deployment, nearest.group)
            best[group] = text
        suggestions = Suggestions(placer, gang.size - gang.placed)
        found = suggestions.first(miss)
        suggestion = suggestions.shortage(miss) if miss is not None else ""
    if found:
        subject = "the gang" if gang.size > 1 else "one more replica"
        suggestion = f"{subject} would fit with {found.text}"
    tail = ""
    if gang.size > 1 and miss is None:
        tail = (
            f"a gang of {gang.size} replicas is placed as a whole, "
            f"and {gang.placed} would fit"
        )
    return Diagnosis(
        len(overlay.index.ranked),
        _groups(counts, best),
        held,
        gang=tail,
        suggestion=suggestion,
    )


def _refused(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate | None
) -> tuple[Counts, dict[str, str], ClusterSet]:
    """Run the filters.

    Return the counts of rejected clusters, a hint about the closest cluster by text,
    and the clusters that pass all filters.
    """
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
        elif result.code == reasons.FEATURE_MISSING:
            _count_lacking(overlay, deployment, refused, counts, best)
        elif result.code == reasons.NO_POOL_MATCHES and compiled is not None:
            _count_unmatched(overlay, compiled, refused, counts)
            if not remaining:
                best |= _closest_device(overlay, compiled, refused)
        else:
            text = filter_text(result.code, deployment)
            counts[result.code, text] += refused.bit_count()
            best[text] = _missing_name(overlay, deployment, result.code, refused)
    return counts, best, remaining


def _closest_device(
    overlay: FleetOverlay, compiled: CompiledTemplate, refused: ClusterSet
) -> dict[str, str]:
    """Return the closest device of the first clusters, keyed by the headline text.

    This applies if no cluster has a pool for the first blocked engine.
    """
    found: tuple[tuple[int, int, str, str], str, str] | None = None
    for info in islice(overlay.index.each(refused), _DEVICES_READ):
        blocked = compiled.on(info.layout).blocked
        for pool in info.pools:
            if not pool.takes_new:
                continue
            for need in compiled.needs[blocked]:
                near = _nearness(need, pool.device_set)
                if near is None:
                    continue
                nearness, detail = near
                rank = (*nearness, info.name, pool.name)
                if found is None or rank < found[0]:
                    text = f"had no pool for engine {compiled.engines[blocked].name}"
                    found = rank, text, f"best: {info.name}/{pool.name}, {detail}"
    return {found[1]: found[2]} if found else {}


def _nearness(
    need: MemberNeed, devices: DeviceSet
) -> tuple[tuple[int, int], str] | None:
    """Return a sort key and the difference to a request, or None if it is unknown."""
    fit = need.fit(devices)
    if need.requests and fit.fits and not fit.resolved:
        return (-1, 0), SYNTHETIC_TEXT
    gap = selector_gap(need, fit.request, devices)
    if gap:
        return ((gap.differences, gap.distance), gap.detail) if gap.detail else None
    # Without a gap such devices exist, but too few of them on one node.
    if fit.code != reasons.DEVICE_COUNT_SHORT or not fit.detail:
        return None
    most = max(entry.count for entry in devices.entries)
    return (0, -most), fit.detail


def _missing_name(
    overlay: FleetOverlay, deployment: DeploymentView, code: str, refused: ClusterSet
) -> str:
    """Return a hint about a missing label or class that explains the filter."""
    if code == reasons.LABEL_MISMATCH:
        return absent_labels(overlay, deployment.match_labels)
    if code == reasons.CACHE_FOOTPRINT:
        return absent_labels(overlay, deployment.cache.match_labels)
    if code == reasons.NO_POOLS:
        for info in islice(overlay.index.each(refused), _CLUSTERS_READ):
            if info.view.unpublished:
                return unpublished_text(overlay, info, f"{info.name}: ")
    return ""


def _groups(counts: Counts, best: Mapping[str, str]) -> tuple[ReasonGroup, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][1]))
    return tuple(
        ReasonGroup(code, text, count, best.get(text, ""))
        for (code, text), count in ordered
    )


def _count_taints(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    refused: ClusterSet,
    counts: Counts,
) -> None:
    for taints, clusters in overlay.index.tainted.items():
        number = (clusters & refused).bit_count()
        taint = untolerated(taints, deployment.tolerations) if number else None
        if taint is not None:
            text = filter_text(
                reasons.TAINTED,
                deployment,
                taint_text(taint.key, taint.value, taint.effect),
            )
            counts[reasons.TAINTED, text] += number


def _count_lacking(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    refused: ClusterSet,
    counts: Counts,
    best: dict[str, str],
) -> None:
    for missing, clusters in overlay.index.lacking.items():
        number = (clusters & refused).bit_count()
        keys = missing_features(missing, deployment) if number else ()
        if keys:
            text = filter_text(reasons.FEATURE_MISSING, deployment, ", ".join(keys))
            counts[reasons.FEATURE_MISSING, text] += number
            best[text] = "; ".join(each.lacking() for each in known(keys))


def _count_unmatched(
    overlay: FleetOverlay,
    compiled: CompiledTemplate,
    refused: ClusterSet,
    counts: Counts,
) -> None:
    for engine, clusters in overlay.blocked(compiled).items():
        number = (clusters & refused).bit_count()
        if number:
            name = compiled.engines[engine].name
            counts[reasons.NO_POOL_MATCHES, f"had no pool for engine {name}"] += number


def _count_full(
    placer: ReplicaPlacer, remaining: ClusterSet, counts: Counts
) -> NearestMiss:
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
    for text, broken in placer.constraints.violations(
        ClusterSet(fitting & ~allowed), own
    ):
        counts[reasons.POLICY, filter_text(reasons.POLICY, deployment, text)] += (
            broken.bit_count()
        )
    return nearest


def headline(diagnosis: Diagnosis, limit: int = MESSAGE_MAX) -> str:
    """Write a diagnosis as one sentence of at most `limit` characters.

    A long sentence is cut between reasons.
    """
    if diagnosis.held:
        return diagnosis.held
    start = f"0/{diagnosis.clusters} clusters are available"
    sentences = (diagnosis.gang, diagnosis.preemption, diagnosis.suggestion)
    tail = "".join(f" {text[0].upper()}{text[1:]}." for text in sentences if text)
    if len(tail) > limit // 2:
        tail = f"{tail[: limit // 2 - 3]}..."
    limit -= len(tail)
    if not diagnosis.groups:
        return f"{start}.{tail}"
    parts = [
        f"{g.count} {g.text} ({g.best})" if g.best else f"{g.count} {g.text}"
        for g in diagnosis.groups
    ]
    return f"{start}: {joined(parts, limit - len(start) - 3)}.{tail}"


def joined(parts: Sequence[str], limit: int, separator: str = ", ") -> str:
    """Join texts up to `limit` characters; the rest is counted as "and n more"."""
    whole = separator.join(parts)
    if len(whole) <= limit:
        return whole
    text = ""
    for i, part in enumerate(parts):
        longer = f"{text}{separator}{part}" if text else part
        rest = len(parts) - i - 1
        tail = f"{separator}and {rest} more" if rest else ""
        if len(longer) + len(tail) > limit:
            return (
                f"{text}{separator}and {rest + 1} more"
                if text
                else part[: max(0, limit)]
            )
        text = longer
    return text


def named(names: Iterable[str], limit: int = 10) -> str:
    """Join at most `limit` replica names, sorted; the rest is counted as "and n more"."""
    ordered = sorted(names)
    rest = len(ordered) - limit
    return ", ".join(ordered[:limit]) + (f" and {rest} more" if rest > 0 else "")
