"""Why each replica that has a place is there: why its cluster came before the next best, or why it is kept."""

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

# New replicas of one decision that are compared with the next best cluster.
_COMPARED_MAX = 200
_NAME = "name"
_PHASE_OF = {value: phase for phase, value in CACHE_PHASES.items()}


@dataclass(frozen=True, slots=True)
class PlacementReason:
    """Why a replica is where it is.

    Attributes:
        text: in words.
        next_best: the cluster that it would have got otherwise, "" if no other takes it, or if it is kept.
        score: the scoring function in which the two differ first; `name` if in none.
        value: of its cluster; lower is better.
        other: of the next best.

    """

    text: str
    next_best: str = ""
    score: str = ""
    value: int = 0
    other: int = 0


def placement_reasons(cycle: SchedulingCycle, placer: ReplicaPlacer | None) -> dict[str, PlacementReason]:
    """Explain the placements of a cycle by uid. What is compared is the fleet as it was before each of them was placed."""
    found = {kept.entry.uid: PlacementReason(text) for kept, text in _kept(cycle, placer)}
    if placer is not None and cycle.placed:
        found |= _placed(cycle, placer)
    return found


def _kept(cycle: SchedulingCycle, placer: ReplicaPlacer | None) -> Iterator[tuple[RetainedReplica, str]]:
    results = run_filters(cycle.overlay, cycle.deployment, placer.compiled if placer else None)
    for kept in cycle.kept:
        info = cycle.overlay.clusters.get(kept.entry.cluster)
        refused = [] if info is None else [text for _, text in failed_filters(cycle, info, results, placer)]
        but = f"; its cluster would take no new one: {', '.join(refused)}" if refused else ""
        yield kept, f"placed replicas are not moved{but}"


def _placed(cycle: SchedulingCycle, placer: ReplicaPlacer) -> dict[str, PlacementReason]:
    """Take the new replicas out again on a fork, the last first, and rank the clusters each time."""
    overlay = cycle.overlay.fork()
    entries = [entry for placement in cycle.placed if (entry := overlay.ledger.get(placement.uid)) is not None]
    existing = [*(kept.entry for kept in cycle.kept), *entries]
    other = ReplicaPlacer(overlay, cycle.request, placer.compiled, existing, QuotaGate(overlay, cycle.deployment, cycle.priority))
    found = {}
    for placement in islice(reversed(cycle.placed), _COMPARED_MAX):
        other.undo(placement)
        found[placement.uid] = _reason(other, placement)
    return found


def _reason(placer: ReplicaPlacer, placement: Placement) -> PlacementReason:
    prefix = "created again where it was" if placement.action == reasons.REPLACE else "placed here"
    info = placer.overlay.clusters.get(placement.cluster)
    trial = placer.trial(info) if info else None
    if info is None or trial is None or trial.failed >= 0:
        return PlacementReason(prefix)
    second = _next_best(placer, info)
    if second is None:
        return PlacementReason(f"{prefix}: no other cluster takes one")
    name, value, other = _difference(placer, (info, trial), second)
    if name == _NAME:
        return PlacementReason(f"{prefix} and not on {second[0].name}: equal in all else, the first by name", second[0].name, name)
    words = _in_words(placer, name, value, other)
    return PlacementReason(f"{prefix} and not on {second[0].name}: {words}", second[0].name, name, value, other)


def _next_best(placer: ReplicaPlacer, chosen: ClusterInfo) -> tuple[ClusterInfo, Trial] | None:
    allowed = placer.constraints.allowed(placer.own)
    for info, trial in placer.candidates(ClusterSet(placer.passing & allowed & ~(1 << chosen.rank))):
        if refusal(placer, info, trial, allowed) is None:
            return info, trial
    return None


def _difference(placer: ReplicaPlacer, first: tuple[ClusterInfo, Trial], second: tuple[ClusterInfo, Trial]) -> tuple[str, int, int]:
    """Give the score in which two clusters differ first, with both values."""
    own, others = placer.scorer.scores(*first), placer.scorer.scores(*second)
    differing = [name for name, value in own.items() if others[name] != value]
    if not differing:
        return _NAME, 0, 0
    # Where a weighted sum decides, one of the scores in which the cluster is better is named.
    name = next((name for name in differing if own[name] < others[name]), differing[0]) if placer.scorer.adds_up else differing[0]
    return name, own[name], others[name]


def _in_words(placer: ReplicaPlacer, name: str, value: int, other: int) -> str:
    text = _text(placer, name, value, other)
    return f"{text}, in the weighted sum" if placer.scorer.adds_up else text


def _text(placer: ReplicaPlacer, name: str, value: int, other: int) -> str:
    if ":" in name:
        return f"{value} replicas of this deployment have its {name.split(':', 1)[1]}, {other} that of the other"
    if name == "cost":
        return f"its nodes cost {_price(value)} per hour, {_price(other)} there"
    if name == "locality":
        return f"ModelCache {placer.deployment.cache.name} is {_phase(value)} here, {_phase(other)} there"
    return _TEXTS[name].format(abs(value) // 10 if name == "free" else value, abs(other) // 10 if name == "free" else other)


_TEXTS: Mapping[str, str] = {
    "spread": "{} replicas of this deployment are here, {} there",
    "free": "{}% of the nodes stay free, {}% there",
    "binpack": "{} nodes stay free in its pools, {} there",
    "networks": "its engines are in one network, there in several",
    "preferences": "preferred affinity and spread are met better ({} against {}, lower is better)",
}


def _price(milli: int) -> str:
    return "an unknown price" if milli >= UNKNOWN_PRICE else f"{milli // 1000}.{milli % 1000 // 10:02}"


def _phase(value: int) -> str:
    return _PHASE_OF.get(value) or "not staged"
