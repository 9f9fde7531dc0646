"""Deciding a batch of requests: in a local activity, over the cache as it is; then the decisions are charged and answered."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from api_types.errors import error_message
from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import PlacementRequest
from scheduler import Decision, DeploymentView, apply, from_wire, reasons
from workflows.entity import activity_options
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.decide_activity import DecideBatch, Decided, decide_batch


async def decide_requests(cache: SchedulerCache, places: list[PlacementRequest]) -> Decided:
    """Have requests decided. A batch that fails is halved until the request is found that cannot be decided: that one is dropped."""
    if not places:
        return Decided()
    batch = DecideBatch(run_id=workflow.info().run_id, version=cache.fleet.version, now=cache.now(), requests=places)
    try:
        decided: Decided = await workflow.execute_local_activity(
            decide_batch, batch, **activity_options.local(activity_options.DECIDE, f"decide {len(places)} requests")
        )
    except ActivityError as error:
        workflow.logger.exception("a decision failed", extra={"requests": [place.request_id for place in places]})
        if len(places) == 1:
            return Decided(problems={places[0].request_id: error_message(error)})
        half = len(places) // 2
        cache.queue.put_back(places[half:])
        return await decide_requests(cache, places[:half])
    return decided


def charge(cache: SchedulerCache, place: PlacementRequest, decision: Decision, version: str) -> list[SignalRequest]:
    """Charge a decision to the ledger and give the signals that follow from it, the answer last."""
    if decision.waiting_since < 0:
        cache.end_queue_reservation(place.namespace, place.name)
    waiting = from_wire(DeploymentView, place.need) if decision.waiting_since >= 0 else None
    apply(cache.fleet, decision, waiting)
    for placement in decision.placements:
        if placement.action == "Update":
            # A replica that became smaller freed nodes, also for the next decision about its own deployment.
            cache.hints.add_cluster(placement.cluster)
    cache.state.decided += 1
    cache.state.placed += sum(1 for placement in decision.placements if placement.action in ("Create", "Replace"))
    answer = outgoing.placement_response(place, decision, cache.fleet, cache.state.epoch, version).wire()
    is_new = cache.answers.record(place.request_id, answer)
    if decision.waits_for_capacity:
        cache.queue.wait_for_capacity(place)
    for placement in decision.placements:
        entry = cache.fleet.replica(placement.uid)
        if entry is not None and entry.state == reasons.RESERVED:
            cache.unbound[placement.uid] = None
    requests = [outgoing.eviction(victim, cache.state.epoch) for victim in decision.victims]
    # A deployment forgets replicas that it has not started, or does not know them: only its reply tells that their nodes are free.
    revoked = [entry for eviction in (*decision.evictions, *decision.victims) if (entry := cache.unbound_entry(eviction.uid))]
    requests += [outgoing.revoke(entry, cache.state.epoch) for entry in revoked]
    return [*requests, outgoing.answer_to(place, answer)] if is_new else requests
