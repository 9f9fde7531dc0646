"""How the scheduler sends signals: in batches, and those that answer no request."""

from collections.abc import Sequence

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types.messages.delivery import SignalBatch, SignalRequest
from api_types.messages.scheduling import Revoked
from api_types.messages.signals import FleetSchedulerSignals
from workflows.entity import activity_options
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.inbox import Inbox


async def send(requests: Sequence[SignalRequest], summary: str) -> set[str]:
    """Send signals and give the workflow ids that do not exist; without any signal nothing is done."""
    missing: set[str] = set()
    for batch in outgoing.batches(requests):
        result = await workflow.execute_activity_method(
            EntityClient.signal_many, SignalBatch(signals=batch), **activity_options.remote(activity_options.ENTITY_BATCH, summary)
        )
        missing |= set(result.missing)
    return missing


async def report_occupied(cache: SchedulerCache) -> None:
    """Report to clusters that are being deleted which replicas are charged there, when that changes."""
    state = cache.state
    requests: list[SignalRequest] = []
    for cluster, reported in state.deleting_clusters.items():
        charged = sorted(f"{entry.namespace}/{entry.name}" for entry in cache.fleet.on_cluster(cluster).values())
        if charged != reported:
            state.deleting_clusters[cluster] = charged
            requests.append(outgoing.occupied(cluster, state.clusters[cluster], charged))
    await send(requests, f"report their replicas to {len(requests)} clusters that are being deleted")


async def send_resyncs(cache: SchedulerCache) -> None:
    """Have those deployments request placements again that a taint or an admission concerns."""
    deployments, cache.resyncs = cache.resyncs, {}
    requests = [outgoing.resync(*deployment) for deployment in sorted(deployments)]
    await send(requests, f"have {len(requests)} deployments request placements again")


async def revoke_expired(cache: SchedulerCache, inbox: Inbox) -> None:
    """Ask the deployments of old reservations whether they are still wanted. Those of a deployment that is gone are not."""
    expired = cache.expired_reservations()
    requests = [outgoing.revoke(entry, cache.state.epoch) for entry in expired]
    missing = await send(requests, f"revoke {len(requests)} reservations")
    for entry, request in zip(expired, requests, strict=True):
        if request.workflow_id in missing:
            inbox.append(FleetSchedulerSignals.REVOKED, Revoked(uid=entry.uid).wire())
