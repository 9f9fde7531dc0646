"""Delete what holds things at a cloud from within a cluster that is to be deleted: load balancers and volumes (provisioning.md 9.2, D4).

Only the controllers of the cluster delete these, so it is done while it is there. What is left then would cost, and block its network.
"""

import asyncio
from collections.abc import Callable

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, ObjectId, Selection
from activities.cluster_objects.deletion import list_served, poll_intervals, remaining_object
from activities.heartbeat import Progress
from api_types.messages.cluster_work import EmptyCluster, RemainingObject, TeardownStepResult

_VOLUME = Kind(kinds.VOLUME_CLAIM.api_version, "PersistentVolume")
_SHOWN_MAX = 20


async def empty(cluster: ClusterApi, order: EmptyCluster, report: Callable[[Progress], None]) -> TeardownStepResult:
    """Delete every Service with a load balancer and every volume claim; gives those that are left, and volumes that go with them."""
    deadline = asyncio.get_running_loop().time() + order.wait_seconds
    remaining: list[RemainingObject] = []
    async for _ in poll_intervals():
        found = [
            *[each for each in await list_served(cluster, Selection(kinds.SERVICE)) if _is_load_balancer(each)],
            *await list_served(cluster, Selection(kinds.VOLUME_CLAIM)),
        ]
        for each in found:
            if not each["metadata"].get("deletionTimestamp"):
                await cluster.delete(ObjectId.of(each), uid=each["metadata"].get("uid", ""), propagation="Background")
        found += [each for each in await list_served(cluster, Selection(_VOLUME)) if _goes_with_claim(each)]
        remaining = [item for item in map(remaining_object, found) if item.id not in order.skipped]
        if not remaining or asyncio.get_running_loop().time() >= deadline:
            break
        report({"remaining": [str(item) for item in remaining[:_SHOWN_MAX]]})
    return TeardownStepResult(remaining=remaining[:_SHOWN_MAX])


def _is_load_balancer(service: Json) -> bool:
    return bool((service.get("spec") or {}).get("type") == "LoadBalancer")


def _goes_with_claim(volume: Json) -> bool:
    return bool((volume.get("spec") or {}).get("persistentVolumeReclaimPolicy") == "Delete")
