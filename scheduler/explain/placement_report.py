"""Why each placed replica has its place.

For a new replica the reason names the next best cluster; for a kept replica it says why
it was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from scheduler.explain.cluster_report import failed_filters
from scheduler.explain.refusals import refusal
from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.hardware.node_fitting import Trial
from scheduler.model import reasons
from scheduler.model.decision import Placement
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.filters import run_filters
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.retain import RetainedReplica
from scheduler.placement.score import CACHE_PHASES, UNKNOWN_PRICE

# Limit of new replicas per decision that are compared with the next best cluster.
_COMPARED_MAX = 200
_NAME = "name"
_PHASE_OF = {value: phase for phase, value in CACHE_PHASES.items()}


@dataclass(frozen=True, slots=True)
class PlacementReason:
    """Why a replica is on its cluster.

    Attributes:
        text: the reason as text.
        next_best: the cluster that would have been chosen otherwise; "" if no other cluster
            fits or the replica is kept.
        score: the first scoring function in which the two clusters differ; `name` if none does.
        value: score of its cluster; lower is better.
        other: score of the next best cluster.

    """

    text: str
    next_best: str = ""
    score: str = ""
    value: int = 0
    other: int = 0


def placement_reasons(
    cycle: SchedulingCycle, placer: ReplicaPlacer | None
) -> dict[str, PlacementReason]:
    """Explain the placements of a cycle by uid.

    Each placement is compared against the fleet in its state before that placement.
    """
    found = {
        kept.entry.uid: PlacementReason(text) for kept, text in _kept(cycle, placer)
    }
    if placer is not None and cycle.placed:
        found |= _placed(cycle, placer)
    return found


def _kept(
    cycle: SchedulingCycle, placer: ReplicaPlacer | None
) -> Iterator[tuple[RetainedReplica, str]]:
    results = run_filters(
        cycle.overlay, cycle.deployment, placer.compiled if placer else None
    )
    for kept in cycle.kept:
        info = cycle.overlay.clusters.get(kept.entry.cluster)
        refused: list[str] = []
        if info is not None:
            failed = failed_filters(cycle, info, results, placer)
            refused = [text for _, text in failed]
        text = "placed replicas are not moved"
        if refused:
            text = f"{text}; its cluster would reject a new one: {', '.join(refused)}"
        yield kept, text


def _placed(
    cycle: SchedulingCycle, placer: ReplicaPlacer
) -> dict[str, PlacementReason]:
    """Remove the new replicas on a fork, last first, and rank the clusters again."""
    overlay = cycle.overlay.fork()
    placed = [overlay.ledger.get(placement.uid) for placement in cycle.placed]
    existing = [kept.entry for kept in cycle.kept]
    existing += [entry for entry in placed if entry is not None]
    other = ReplicaPlacer(
        overlay,
        cycle.request,
        placer.compiled,
        existing,
        QuotaGate(overlay, cycle.deployment, cycle.priority),
    )
    found = {}
    for placement in islice(reversed(cycle.placed), _COMPARED_MAX):
        other.undo(placement)
        found[placement.uid] = _reason(other, placement)
    return found


def _reason(placer: ReplicaPlacer, placement: Placement) -> PlacementReason:
    prefix = (
        "recreated on its cluster"
        if placement.action == reasons.REPLACE
        else "placed here"
    )
    info = placer.overlay.clusters.get(placement.cluster)
    trial = placer.trial(info) if info else None
    if info is None or trial is None or trial.failed >= 0:
        return PlacementReason(prefix)
    second = _next_best(placer, info)
    if second is None:
        return PlacementReason(f"{prefix}: no other cluster fits one")
    name, value, other = _difference(placer, (info, trial), second)
    if name == _NAME:
        return PlacementReason(
            f"{prefix} and not on {second[0].name}: equal scores, first by name",
            second[0].name,
            name,
        )
    words = _in_words(placer, name, value, other)
    return PlacementReason(
        f"{prefix} and not on {second[0].name}: {words}",
        second[0].name,
        name,
        value,
        other,
    )


def _next_best(
    placer: ReplicaPlacer, chosen: ClusterInfo
) -> tuple[ClusterInfo, Trial] | None:
    allowed = placer.constraints.allowed(placer.own)
    for info, trial in placer.candidates(
        ClusterSet(placer.passing & allowed & ~(1 << chosen.rank))
    ):
        if refusal(placer, info, trial, allowed) is None:
            return info, trial
    return None


def _difference(
    placer: ReplicaPlacer,
    first: tuple[ClusterInfo, Trial],
    second: tuple[ClusterInfo, Trial],
) -> tuple[str, int, int]:
    """Return the first score in which two clusters differ, with both values."""
    own, others = placer.scorer.scores(*first), placer.scorer.scores(*second)
    differing = [name for name, value in own.items() if others[name] != value]
    if not differing:
        return _NAME, 0, 0
    # If a weighted sum decides, choose a score in which the cluster is better.
    name = differing[0]
    if placer.scorer.adds_up:
        name = next((n for n in differing if own[n] < others[n]), name)
    return name, own[name], others[name]


def _in_words(placer: ReplicaPlacer, name: str, value: int, other: int) -> str:
    text = _text(placer, name, value, other)
    return f"{text}, in the weighted sum" if placer.scorer.adds_up else text


def _text(placer: ReplicaPlacer, name: str, value: int, other: int) -> str:
    if ":" in name:
        label = name.split(":", 1)[1]
        return (
            f"{value} replicas of this deployment are in its {label}, "
            f"{other} in the other one"
        )
    if name == "cost":
        return f"its nodes cost {_price(value)} per hour, {_price(other)} there"
    if name == "locality":
        cache = placer.deployment.cache.name
        return f"ModelCache {cache} is {_phase(value)} here, {_phase(other)} there"
    if name == "free":
        value, other = abs(value) // 10, abs(other) // 10
    return _TEXTS[name].format(value, other)


_TEXTS: Mapping[str, str] = {
    "spread": "{} replicas of this deployment are here, {} there",
    "free": "{}% of the nodes stay free, {}% there",
    "binpack": "{} nodes stay free in its pools, {} there",
    "networks": "its engines share one network here, but not there",
    "preferences": "preferred affinity and spread are met better ({} against {}, lower is better)",
}


def _price(milli: int) -> str:
    return (
        "an unknown price"
        if milli >= UNKNOWN_PRICE
        else f"{milli // 1000}.{milli % 1000 // 10:02}"
    )


def _phase(value: int) -> str:
    return _PHASE_OF.get(value) or "not staged"
