"""Run the scheduling cycle for the live scheduler, for plans and for explanations.

All callers share this code, so an explanation or a plan cannot differ from the live
decision. A batch is decided in order on one overlay of the fleet: each request sees the
placements of the requests before it, as if every decision had been applied immediately.
Deciding changes only the caches of the fleet (ranks, clusters known to be full).
`apply` writes a decision into the fleet after it has been recorded.

The module does not choose the requests, and it does not build hypothetical fleets. The
callers do: the workflow that owns the fleet, and plans (`planning`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduler.cel.limits import BATCH_SECONDS_MAX, BATCH_WORK_MAX
from scheduler.explain import conditions
from scheduler.explain.cluster_report import (
    ClusterDetail,
    cluster_details,
    placer_after,
)
from scheduler.explain.diagnosis import diagnose
from scheduler.explain.gang import gang_begun
from scheduler.explain.placement_report import PlacementReason, placement_reasons
from scheduler.explain.suggestions import Suggestion, Suggestions
from scheduler.fleet.expiries import drop_expired
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.ledger import Ledger
from scheduler.fleet.nomination import nominate
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.queue_reservations import QueueReservation
from scheduler.fleet.reserved_entry import (
    EntryPolicy,
    ReservedFor,
    refresh_policy,
    reserved_entry,
)
from scheduler.fleet.waits import waits_for
from scheduler.model import reasons
from scheduler.model.decision import Decision, Diagnosis, Eviction, Placement
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import SchedulerOptions
from scheduler.model.version import SCHEDULER_VERSION
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.victim_search import SEARCH_AGAIN_MS


@dataclass(frozen=True, slots=True)
class ExplainedDecision:
    """A decision and, if requested, its explanation.

    Attributes:
        clusters: per cluster, the reason why one more replica does not fit.
        placements: per replica uid, the reason for its place.
        suggestions: changes that would make one more replica fit, the cheapest first;
            empty if no replica is missing.
        warnings: names in the deployment that do not exist in the fleet.

    """

    decision: Decision
    clusters: Mapping[str, ClusterDetail] = field(default_factory=dict)
    placements: Mapping[str, PlacementReason] = field(default_factory=dict)
    suggestions: tuple[Suggestion, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def owner(self) -> tuple[str, str]:
        return (self.decision.namespace, self.decision.deployment)


def decide(
    fleet: Fleet,
    requests: Sequence[ScheduleRequest],
    now: int,
    *,
    to_the_end: bool = False,
) -> list[Decision]:
    """Decide a batch in the given order.

    Args:
        fleet: the fleet; only its caches change.
        requests: usually at most one per deployment; more are allowed.
        now: milliseconds since 1970.
        to_the_end: finish a search for victims that the live scheduler would spread
            over several decisions.

    Returns:
        One decision per request, in the same order.

    """
    return [
        explained.decision
        for explained in decide_and_explain(
            fleet, requests, now, lambda _: False, to_the_end=to_the_end
        )
    ]


def decide_some(
    fleet: Fleet, requests: Sequence[ScheduleRequest], now: int
) -> list[Decision]:
    """Decide the requests of a batch until it has used up its work or its time.

    The function returns at least one decision. The caller puts the remaining requests
    into the next batch; their decisions do not depend on where this batch ends.
    """
    overlay = FleetOverlay(fleet, now)
    decisions = []
    until = time.thread_time() + BATCH_SECONDS_MAX
    for explained in _run_cycles(overlay, requests, lambda _: False):
        decisions.append(explained.decision)
        if overlay.work > BATCH_WORK_MAX or time.thread_time() > until:
            break
    return decisions


def decide_and_explain(
    fleet: Fleet,
    requests: Iterable[ScheduleRequest],
    now: int,
    is_explained: Callable[[Decision], bool] = lambda _: True,
    *,
    to_the_end: bool = False,
) -> list[ExplainedDecision]:
    """Decide a batch and explain the decisions that `is_explained` selects.

    An explanation visits every pool of the fleet, so it costs far more than its
    decision.
    """
    return list(
        _run_cycles(
            FleetOverlay(fleet, now), requests, is_explained, to_the_end=to_the_end
        )
    )


def in_queue_order(
    requests: Iterable[ScheduleRequest], options: SchedulerOptions
) -> list[ScheduleRequest]:
    """Sort requests by priority, and within a priority by arrival."""
    return sorted(
        requests,
        key=lambda request: (
            -options.priority_of(request.deployment.policy.priority_class)
        ),
    )


def _run_cycles(
    overlay: FleetOverlay,
    requests: Iterable[ScheduleRequest],
    is_explained: Callable[[Decision], bool],
    *,
    to_the_end: bool = False,
) -> Iterator[ExplainedDecision]:
    for request in requests:
        own = overlay.fork() if request.dry_run else overlay
        if to_the_end:
            _search_to_the_end(own, request)
        cycle, decision = _decided(own, request)
        explained = (
            _explained(cycle, decision)
            if is_explained(decision)
            else ExplainedDecision(decision)
        )
        _record_search(own, decision)
        if own.rules.reserve_for_queue:
            _reserve(own, cycle, decision)
        yield explained


def _decided(
    overlay: FleetOverlay, request: ScheduleRequest
) -> tuple[SchedulingCycle, Decision]:
    policy = EntryPolicy.of(request.deployment, overlay.options)
    refresh_policy(
        overlay.ledger, (request.deployment.namespace, request.deployment.name), policy
    )
    cycle = SchedulingCycle(overlay, request, policy.priority)
    cycle.run()
    return cycle, _build_decision(cycle, policy)


def _search_to_the_end(overlay: FleetOverlay, request: ScheduleRequest) -> None:
    """Record the unfinished searches as if the live scheduler had already made them."""
    while request.deployment.policy.preemption == "LowerPriority":
        other = overlay.fork()
        _, decision = _decided(other, request)
        if not decision.search_goes_on:
            return
        _record_search(overlay, decision)


def _explained(cycle: SchedulingCycle, decision: Decision) -> ExplainedDecision:
    placer = placer_after(cycle)
    placements = placement_reasons(cycle, placer)
    found: tuple[Suggestion, ...] = ()
    if (
        placer is not None
        and decision.shortfall
        and not cycle.held
        and not cycle.is_cut_short
    ):
        with gang_begun(placer, decision.shortfall) as gang:
            found = Suggestions(placer, gang.size - gang.placed).all()
    return ExplainedDecision(
        decision,
        cluster_details(cycle, placer),
        placements,
        found,
        conditions.warnings_of(cycle.deployment, cycle.overlay.options),
    )


def _reserve(overlay: FleetOverlay, cycle: SchedulingCycle, decision: Decision) -> None:
    """Reserve capacity for a waiting deployment against later requests of the batch."""
    owner = (decision.namespace, decision.deployment)
    overlay.reserved_pools.pop(owner, None)
    overlay.queue_reservations.pop(owner, None)
    if decision.waiting_since >= 0:
        overlay.queue_reservations[owner] = QueueReservation(
            cycle.deployment, cycle.priority, decision.waiting_since
        )


def apply(
    fleet: Fleet, decision: Decision, asked: DeploymentView | None = None
) -> None:
    """Write a decision into the fleet; a second call with the same decision is a no-op.

    `asked` is the deployment of the decision. It is needed only if the deployment waits
    with reserved capacity (`waiting_since`).
    """
    if decision.dry_run:
        return
    reservation = (
        QueueReservation(asked, decision.priority, decision.waiting_since)
        if asked and decision.waiting_since >= 0
        else None
    )
    owner = (decision.namespace, decision.deployment)
    refreshed = refresh_policy(fleet.ledger, owner, _policy_of(decision))
    changed = _apply_to_ledger(fleet.ledger, decision) or refreshed
    changed = fleet.set_queue_reservation(owner, reservation) or changed
    for cluster, pool in decision.refused:
        fleet.refused[decision.namespace, decision.deployment, cluster, pool] = (
            decision.now
        )
    for victim in decision.victims:
        fleet.preempted_at[(victim.namespace, victim.deployment)] = decision.now
    changed = _record_search(fleet, decision) or changed
    drop_expired(fleet, decision.now)
    _drop_expired_searches(fleet, decision.now)
    if changed or decision.victims or decision.refused:
        fleet.version += 1


def _record_search(known: Fleet | FleetOverlay, decision: Decision) -> bool:
    """Record how many decisions in a row ended with an unfinished search for victims.

    Return True if the number changed.
    """
    owner = (decision.namespace, decision.deployment)
    before = known.unfinished_searches.pop(owner, 0)
    if decision.unfinished:
        known.unfinished_searches[owner] = decision.unfinished
    if decision.search_ended:
        known.ended_searches[owner] = decision.now
    return before != decision.unfinished


def _drop_expired_searches(fleet: Fleet, now: int) -> None:
    for owner in [
        owner
        for owner, at in fleet.ended_searches.items()
        if now - at >= SEARCH_AGAIN_MS
    ]:
        del fleet.ended_searches[owner]


def _apply_to_ledger(ledger: Ledger, decision: Decision) -> bool:
    """Write a decision into a ledger; return True if the ledger changed."""
    changed = False
    for eviction in (*decision.evictions, *decision.victims):
        entry = ledger.get(eviction.uid)
        if entry is not None and entry.state != reasons.RELEASING:
            if eviction.reason == reasons.PREEMPTED:
                nominate(
                    ledger,
                    entry,
                    (decision.namespace, decision.deployment),
                    decision.now,
                )
            else:
                ledger.put(entry.as_releasing(decision.now))
            changed = True
    for placement in decision.placements:
        entry = ledger.get(placement.uid)
        if placement.action == reasons.KEEP:
            continue
        if placement.action == reasons.UPDATE:
            if entry is None or (entry.engines, entry.template) == (
                placement.engines,
                placement.template,
            ):
                continue
            ledger.put(
                replace(
                    entry,
                    engines=placement.engines,
                    template=placement.template,
                    ready=False,
                    held=placement.held,
                    held_until=placement.template if placement.held else "",
                )
            )
        elif entry is None:
            ledger.put(reserved_entry(placement, _reserved_for(decision)))
        else:
            continue
        changed = True
    return changed


def _reserved_for(decision: Decision) -> ReservedFor:
    return ReservedFor(
        namespace=decision.namespace,
        deployment=decision.deployment,
        since=decision.now,
        origin=(decision.deployment_uid, decision.request_id),
        policy=_policy_of(decision),
    )


def _policy_of(decision: Decision) -> EntryPolicy:
    return EntryPolicy(
        decision.priority,
        decision.priority_class,
        decision.labels,
        decision.min_available,
        decision.avoids,
    )


def _build_decision(cycle: SchedulingCycle, policy: EntryPolicy) -> Decision:
    deployment = cycle.deployment
    placements = sorted(
        [*_kept_placements(cycle), *cycle.placed],
        key=lambda p: (p.cluster, p.index, p.uid),
    )
    shortfall = max(0, deployment.replicas - len(placements))
    diagnosis = _diagnosis(cycle, shortfall) if shortfall else Diagnosis()
    observed = any(k.entry.state == reasons.BOUND for k in cycle.kept)
    condition = conditions.scheduled(
        deployment,
        len(placements),
        observed=observed,
        invalid=cycle.invalid,
        diagnosis=diagnosis,
    )
    named = (
        conditions.cache_condition(deployment),
        conditions.priority_class_condition(deployment, cycle.overlay.options),
    )
    evictions = tuple(sorted(cycle.evictions, key=lambda e: (e.replica_name, e.uid)))
    notes = tuple(sorted(cycle.notes, key=lambda n: (n.reason, n.replica_name)))
    return Decision(
        request_id=cycle.request.request_id,
        namespace=deployment.namespace,
        deployment=deployment.name,
        desired=deployment.replicas,
        placements=tuple(placements),
        evictions=evictions,
        victims=tuple(cycle.victims),
        shortfall=shortfall,
        diagnosis=diagnosis,
        notes=notes,
        conditions=(
            condition,
            conditions.fully_scheduled(
                deployment, len(placements), cycle.invalid, diagnosis
            ),
            *(found for found in named if found),
            *conditions.note_conditions(notes),
        ),
        more=cycle.more or _holds_more(cycle),
        drain_deadline=cycle.drain_deadline,
        digest=_digest(placements, (*evictions, *cycle.victims), condition.message),
        scheduler_version=SCHEDULER_VERSION,
        message=condition.message,
        now=cycle.overlay.now,
        dry_run=cycle.request.dry_run,
        deployment_uid=deployment.uid,
        refused=tuple(sorted(set(cycle.refused))),
        waiting_since=_waiting_since(cycle) if shortfall else -1,
        unfinished=cycle.unfinished,
        search_ended=cycle.search_ended,
        **policy._asdict(),
    )


def _diagnosis(cycle: SchedulingCycle, shortfall: int) -> Diagnosis:
    held = cycle.held
    if not held and cycle.invalid:
        held = conditions.INVALID_SELECTORS
    compiled = cycle.placer.compiled if cycle.placer else cycle.compiled
    diagnosis = diagnose(
        cycle.overlay,
        cycle.deployment,
        compiled,
        cycle.placer,
        held=held,
        missing=shortfall,
    )
    # Nodes cost money, so the message suggests none before the search has ended.
    suggestion = "" if cycle.is_cut_short else diagnosis.suggestion
    return replace(diagnosis, preemption=cycle.preemption, suggestion=suggestion)


def _waiting_since(cycle: SchedulingCycle) -> int:
    """Return the time since which the deployment reserves capacity, or -1.

    An existing reservation keeps its time.
    """
    if not cycle.overlay.rules.reserve_for_queue or cycle.held or cycle.invalid:
        return -1
    known = cycle.overlay.queue_reservations.get(
        (cycle.deployment.namespace, cycle.deployment.name)
    )
    return known.since if known else cycle.overlay.now


def _kept_placements(cycle: SchedulingCycle) -> list[Placement]:
    found = []
    for kept in cycle.kept:
        entry = kept.entry
        updated = cycle.updates.get(entry.uid)
        info = cycle.overlay.clusters.get(entry.cluster)
        becomes = updated or entry
        found.append(
            Placement(
                cluster=entry.cluster,
                index=entry.index,
                replica_name=entry.name,
                uid=entry.uid,
                action=reasons.UPDATE if updated else reasons.KEEP,
                engines=becomes.engines,
                gateway_address=info.view.gateway_address if info else "",
                template=becomes.template,
                name_counter=entry.name_counter,
                reuse=entry.reuse,
                after=waits_for(cycle.overlay.ledger, entry),
                held=updated.held if updated else (),
            )
        )
    return found


def _holds_more(cycle: SchedulingCycle) -> bool:
    """Return whether a kept replica will give up nodes when it is Ready."""
    return any((cycle.updates.get(k.entry.uid) or k.entry).held for k in cycle.kept)


def _digest(
    placements: Sequence[Placement], evictions: Sequence[Eviction], message: str
) -> str:
    parts = [message]
    for p in placements:
        pools: list[str] = []
        for engine in p.engines:
            pools += [member.pool for member in engine.members]
        parts.append(
            f"{p.cluster}/{p.index} {p.replica_name} {p.uid} {p.action} "
            f"{','.join(pools)}"
        )
    parts += [f"{e.uid} {e.reason}" for e in evictions]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
