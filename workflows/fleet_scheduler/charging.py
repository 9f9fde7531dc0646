"""How a decision changes the cache, and the signals that follow from it. Pure."""

from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import PlacementRequest
from scheduler import (
    Decision,
    DeploymentView,
    LedgerEntry,
    apply,
    from_wire,
    reasons,
)
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache


def charge(
    cache: SchedulerCache, place: PlacementRequest, decision: Decision, version: str
) -> list[SignalRequest]:
    """Charge a decision to the ledger, and return its signals, the answer last."""
    if decision.waiting_since < 0:
        cache.end_queue_reservation(place.namespace, place.name)
    waiting = (
        from_wire(DeploymentView, place.need) if decision.waiting_since >= 0 else None
    )
    apply(cache.fleet, decision, waiting)
    for placement in decision.placements:
        if placement.action == "Update":
            # An update that an older scheduler decided frees nodes at once.
            cache.hints.add_cluster(placement.cluster)
    cache.state.decided += 1
    cache.state.placed += sum(
        1
        for placement in decision.placements
        if placement.action in ("Create", "Replace")
    )
    response = outgoing.placement_response(
        place, decision, cache.fleet, cache.state.epoch, version
    )
    answer = response.model_copy(
        update={"sequence": cache.answers.next_sequence(place.request_id, cache.now())}
    ).wire()
    is_new = cache.answers.record(place.request_id, answer)
    if decision.search_goes_on:
        cache.queue.decide_again(place)
    elif decision.waits_for_capacity:
        cache.queue.wait_for_capacity(place)
    for placement in decision.placements:
        entry = cache.fleet.replica(placement.uid)
        if entry is not None and entry.state == reasons.RESERVED:
            cache.reservations.reserve(placement.uid)
    cache.unanswered |= dict.fromkeys(
        (victim.uid for victim in decision.victims), cache.now()
    )
    requests = [
        outgoing.eviction(victim, cache.state.epoch, cache.started_entry(victim.uid))
        for victim in decision.victims
    ]
    # A deployment forgets replicas that it has not started, or does not know them. Only
    # its reply confirms that their nodes are free.
    revoked: list[LedgerEntry] = []
    for eviction in (*decision.evictions, *decision.victims):
        entry = cache.reservations.entry(eviction.uid)
        if entry is not None:
            revoked.append(entry)
    cache.reservations.asked((entry.uid for entry in revoked), cache.now())
    requests += [outgoing.revoke(entry, cache.state.epoch) for entry in revoked]
    return [*requests, outgoing.answer_to(place, answer)] if is_new else requests
