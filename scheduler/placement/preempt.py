"""Free capacity for a replica of higher priority by preempting whole replicas of lower priority.

Only when there is no other way, only if the deployment allows it, and as little as possible: of all sets of victims the one whose highest
priority is lowest, then the fewest, then the lowest sum, then the least surplus, then the youngest. The nodes of victims are nominated for
the preemptor at once; its pods wait until the victims are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.fleet.nomination import nominate
from scheduler.hardware.node_fitting import CUT_SHORT, fit_nodes
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.decision import Eviction, Placement
from scheduler.model.inputs import LedgerEntry
from scheduler.placement.placer import ReplicaPlacer

# Sets of victims tried on one cluster; beyond that a good set is taken instead of the best.
_SETS_MAX = 2_000
# What it takes to try one of them, in steps of the search for an arrangement.
_STEPS_PER_SET = 12
Cost = tuple[int, int, int, int, tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A set of victims on one cluster; lower cost is better."""

    cost: Cost
    info: ClusterInfo
    victims: tuple[LedgerEntry, ...]


def place_by_preemption(placer: ReplicaPlacer) -> tuple[Placement, list[Eviction]] | str:
    """Place one more replica on the nodes of victims, and name them; or say why that is not possible."""
    policy = placer.deployment.policy
    if policy.preemption != "LowerPriority":
        return f"preemption is off (preemptionPolicy {policy.preemption})"
    allowed = ClusterSet(placer.passing & placer.constraints.allowed(placer.own))
    best: Choice | None = None
    seen = Counter[str]()
    for info in placer.overlay.index.each(allowed):
        if placer.trials.budget.is_spent:
            break
        candidates = list(_candidates(placer, info, seen))
        if candidates:
            choice = _cheapest(placer, info, candidates, best)
            if choice is not None and (best is None or choice.cost < best.cost):
                best = choice
    if best is None:
        return f"preemption was cut short by {CUT_SHORT}" if placer.trials.budget.is_spent else _refusal(seen)
    overlay, deployment = placer.overlay, placer.deployment
    requester = (deployment.namespace, deployment.name)
    evictions = []
    before = list(overlay.ledger.on_cluster(best.info.name).values())
    for victim in best.victims:
        nominate(overlay.ledger, victim, requester, overlay.now)
        overlay.preempted_at[victim.namespace, victim.deployment] = overlay.now
        detail = f"Preempted by {deployment.namespace}/{deployment.name}"
        evictions.append(Eviction(victim.uid, victim.name, victim.cluster, reasons.PREEMPTED, detail, victim.namespace, victim.deployment))
    placement = placer.place_on(best.info)
    if placement is None:
        for entry in before:
            overlay.ledger.put(entry)
        return "preemption would not help: the namespace's quota is used up"
    return placement, evictions


def _candidates(placer: ReplicaPlacer, info: ClusterInfo, seen: Counter[str]) -> Iterator[LedgerEntry]:
    overlay = placer.overlay
    requester = (placer.deployment.namespace, placer.deployment.name)
    cooldown = overlay.options.preemption_cooldown_seconds * 1000
    for entry in overlay.ledger.on_cluster(info.name).values():
        owner = (entry.namespace, entry.deployment)
        if owner == requester or entry.state == reasons.RELEASING:
            continue
        if entry.priority >= placer.priority:
            seen["priority"] += 1
            continue
        last = max(overlay.preempted_at.get(owner, -1), overlay.fleet.preempted_at.get(owner, -1))
        if last >= 0 and overlay.now - last < cooldown:
            seen["cooldown"] += 1
            continue
        if _spare(placer, entry) < 1:
            seen["minAvailable"] += 1
            continue
        yield entry


def _spare(placer: ReplicaPlacer, entry: LedgerEntry) -> int:
    """Give how many replicas the entry's deployment can lose."""
    owned = placer.overlay.ledger.owned(entry.namespace, entry.deployment).values()
    return sum(e.state != reasons.RELEASING for e in owned) - entry.min_available


def _cheapest(placer: ReplicaPlacer, info: ClusterInfo, candidates: Sequence[LedgerEntry], best: Choice | None) -> Choice | None:
    for highest in sorted({entry.priority for entry in candidates}):
        if best is not None and highest > best.cost[0]:
            return None
        within = sorted((e for e in candidates if e.priority <= highest), key=lambda e: (e.priority, -e.since, e.name))
        whole_set = _limited(placer, within)
        if not _fits(placer, info, whole_set):
            continue
        for size in range(1, len(whole_set) + 1):
            sets = list(islice(combinations(within, size), _SETS_MAX + 1))
            if len(sets) > _SETS_MAX:
                break
            fitting = [chosen for chosen in sets if len(_limited(placer, chosen)) == size and _fits(placer, info, chosen)]
            if fitting:
                return min((_choice(placer, info, chosen) for chosen in fitting), key=lambda c: c.cost)
        return _choice(placer, info, _pruned(placer, info, whole_set))
    return None


def _limited(placer: ReplicaPlacer, chosen: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Leave out what would take a deployment below its `minAvailable`."""
    taken: Counter[tuple[str, str]] = Counter()
    kept = []
    for entry in chosen:
        owner = (entry.namespace, entry.deployment)
        if taken[owner] < _spare(placer, entry):
            taken[owner] += 1
            kept.append(entry)
    return kept


def _pruned(placer: ReplicaPlacer, info: ClusterInfo, chosen: list[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Leave out victims one by one, the highest priority first, as long as the rest still frees enough."""
    kept = list(chosen)
    for entry in sorted(chosen, key=lambda e: (-e.priority, e.since, e.name)):
        rest = [e for e in kept if e is not entry]
        if _fits(placer, info, rest):
            kept = rest
    return tuple(kept)


def _fits(placer: ReplicaPlacer, info: ClusterInfo, victims: Sequence[LedgerEntry]) -> bool:
    placer.trials.budget.charge(_STEPS_PER_SET + len(victims))
    freed: Counter[str] = Counter()
    for victim in victims:
        freed.update(_freed_by(victim))
    free = [nodes + freed[pool.name] for nodes, pool in zip(placer.reserved.left(info, placer.overlay.free(info)), info.pools, strict=True)]
    return fit_nodes(placer.compiled.on(info.layout), free, budget=placer.trials.budget).failed < 0


def _choice(placer: ReplicaPlacer, info: ClusterInfo, victims: Sequence[LedgerEntry]) -> Choice:
    freed = sum(sum(_freed_by(victim).values()) for victim in victims)
    needed = sum(engine.cost for engine in placer.compiled.on(info.layout).engines)
    cost = (
        max(victim.priority for victim in victims),
        len(victims),
        sum(victim.priority for victim in victims),
        freed - needed,
        tuple(sorted(-victim.since for victim in victims)),
        tuple(sorted(f"{victim.cluster}/{victim.namespace}/{victim.name}" for victim in victims)),
    )
    return Choice(cost, info, tuple(victims))


def _freed_by(entry: LedgerEntry) -> Mapping[str, int]:
    """Give the nodes that are freed with an entry: its own, or those that were nominated for it and are nominated again."""
    return charges(entry.engines)


def _refusal(seen: Counter[str]) -> str:
    if not seen:
        return "preemption would not help: no replicas of lower priority free enough nodes"
    texts = {
        "priority": "have no lower priority",
        "cooldown": "belong to deployments that were preempted a moment ago",
        "minAvailable": "are needed for minAvailable",
    }
    parts = [f"{count} replicas {texts[reason]}" for reason, count in sorted(seen.items(), key=lambda item: (-item[1], item[0]))]
    return f"preemption would not help: {', '.join(parts)}"
