"""Delete load balancers and volumes from within a cluster, before its cloud deletes it.

Only the controllers of the cluster delete these, so this must happen while the cluster
exists. Leftovers would cost money, and block the deletion of the cluster's network.
Users own the objects that they created, with the data. Such objects are listed and
waited for, but never deleted.
"""

import asyncio
from collections.abc import Callable

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import (
    list_served,
    poll_intervals,
    remaining_object,
)
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.observe.balancers import is_of_gateway
from api_types.messages.cluster_work import (
    EmptyCluster,
    RemainingObject,
    TeardownStepResult,
)

NOT_OURS = "Modelplane did not create it and does not delete it"
_VOLUME = GroupVersionKind(kinds.VOLUME_CLAIM.api_version, "PersistentVolume")
# A volume in another phase was never used, and no controller deletes it.
_USED = ("Bound", "Released", "Failed")
_SHOWN_MAX = 20


async def empty(
    cluster: ClusterApi, order: EmptyCluster, report: Callable[[Progress], None]
) -> TeardownStepResult:
    """Delete Modelplane's LoadBalancer Services and volume claims.

    Returns all remaining Services, claims and volumes at the time limit, including
    objects of users.
    """
    deadline = asyncio.get_running_loop().time() + order.wait_seconds
    remaining: list[RemainingObject] = []
    async for _ in poll_intervals():
        services = [
            each
            for each in await list_served(cluster, Selection(kinds.SERVICE))
            if _is_load_balancer(each)
        ]
        claims = await list_served(cluster, Selection(kinds.VOLUME_CLAIM))
        volumes = [
            each
            for each in await list_served(cluster, Selection(_VOLUME))
            if _goes_with_claim(each)
        ]
        for each in filter(_is_ours, [*services, *claims]):
            if not each["metadata"].get("deletionTimestamp"):
                await cluster.delete(
                    ObjectId.of(each),
                    uid=each["metadata"].get("uid", ""),
                    propagation="Background",
                )
        remaining = [
            *map(_explained, [*services, *claims]),
            *map(remaining_object, _without_claim(volumes, claims)),
        ]
        if not remaining or asyncio.get_running_loop().time() >= deadline:
            break
        report({"remaining": [str(item) for item in remaining[:_SHOWN_MAX]]})
    return TeardownStepResult(remaining=remaining[:_SHOWN_MAX])


def _is_ours(item: Json) -> bool:
    return bool(owner_of(item).uid) or is_of_gateway(item)


def _explained(item: Json) -> RemainingObject:
    found = remaining_object(item)
    if _is_ours(item) or item["metadata"].get("deletionTimestamp"):
        return found
    why = f"{NOT_OURS}; {found.why}" if found.why else NOT_OURS
    return found.model_copy(update={"why": why})


def _is_load_balancer(service: Json) -> bool:
    return bool((service.get("spec") or {}).get("type") == "LoadBalancer")


def _goes_with_claim(volume: Json) -> bool:
    policy = (volume.get("spec") or {}).get("persistentVolumeReclaimPolicy")
    phase = (volume.get("status") or {}).get("phase")
    return policy == "Delete" and phase in _USED


def _without_claim(volumes: list[Json], claims: list[Json]) -> list[Json]:
    """Return the volumes whose claims are not in the list themselves."""
    named = {each["metadata"].get("uid") for each in claims}
    return [
        each
        for each in volumes
        if (each["spec"].get("claimRef") or {}).get("uid") not in named
    ]
