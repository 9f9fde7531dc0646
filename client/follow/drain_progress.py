"""Following a drain: the replicas that are still on the cluster, and their state.

When the scheduler learns of the taint, every deployment on the cluster requests
placements again. Under a drain budget some replicas stay for a while. Their deployments
get a `resync` signal from time to time.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from activities.messaging.search_attributes import NAME, NAMESPACE, visibility_query
from api_types.labels import DEPLOYMENT
from api_types.messages.signals import ModelDeploymentSignals
from api_types.resources.kinds import BY_KIND
from client.follow.waiting import status_line
from client.output.progress import Progress, Row
from fleet_client.errors import NoAnswer, NotFound, TimedOut
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, deleting, labels
from fleet_client.temporal.control_plane import ControlPlane
from scheduler import MAINTENANCE, deployment_view, untolerated

_POLL_SECONDS = 0.5
_RESYNC_SECONDS = 5.0


@dataclass(frozen=True)
class DrainedReplica:
    """A replica on the cluster.

    `stays` means that its deployment tolerates the drain. `owner` is set until the
    scheduler has evicted the replica.
    """

    target: Target
    state: str
    stays: bool = False
    owner: Target | None = None


async def until_drained(
    plane: ControlPlane, cluster: str, seconds: float, progress: Progress
) -> None:
    """Wait until every replica left belongs to a deployment that tolerates the taint.

    Raise `TimedOut` with the state of every other replica.
    """
    deadline = time.monotonic() + seconds
    moved: dict[Target, str] = {}
    resync_at = 0.0
    while True:
        found = await _replicas_on(plane, cluster)
        moving = [one for one in found if not one.stays]
        if time.monotonic() >= resync_at:
            await _resync_owners(plane, moving)
            resync_at = time.monotonic() + _RESYNC_SECONDS
        moved |= dict.fromkeys((one.target for one in moving), "")
        present = {one.target for one in found}
        gone = [target for target in moved if target not in present]
        progress.show(
            [
                *(Row(one.target.label, _shown(one), one.stays) for one in found),
                *(Row(target.label, "gone", done=True) for target in gone),
            ]
        )
        if not moving:
            return
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"InferenceCluster {cluster} is not empty after {seconds:g} s; the drain continues",
                details=[f"{one.target.title}: {one.state}" for one in moving],
                next_step=(
                    f"wait longer with `modelplane drain {cluster} --wait`, or end "
                    f"the drain with `modelplane uncordon {cluster}`"
                ),
            )
        await asyncio.sleep(_POLL_SECONDS)


def _shown(replica: DrainedReplica) -> str:
    if replica.stays:
        return "stays: its deployment tolerates the drain"
    return replica.state


async def _resync_owners(
    plane: ControlPlane, replicas: Sequence[DrainedReplica]
) -> None:
    owners = [one.owner for one in replicas if not one.stays]
    for owner in dict.fromkeys(filter(None, owners)):
        with suppress(
            NotFound
        ):  # the deployment and its replicas were deleted in the meantime
            await plane.signal(owner, ModelDeploymentSignals.RESYNC, None)


async def _replicas_on(plane: ControlPlane, cluster: str) -> list[DrainedReplica]:
    kind = BY_KIND["ModelReplica"]
    rows = [
        row.typed_search_attributes
        async for row in plane.rows(visibility_query([kind.kind], cluster=cluster))
    ]
    targets = sorted(
        (Target.of(kind, row.get(NAMESPACE), row.get(NAME) or "") for row in rows),
        key=lambda one: one.workflow_id,
    )
    found = await asyncio.gather(*(_drained_replica(plane, one) for one in targets))
    return [one for one in found if one]


async def _drained_replica(
    plane: ControlPlane, replica: Target
) -> DrainedReplica | None:
    """Return a replica with its state, or None if it is gone."""
    try:
        tree = await plane.describe(replica)
        if deleting(tree):
            return DrainedReplica(
                replica, "; ".join(await plane.waiting(replica)) or "being deleted"
            )
        return await _not_evicted(plane, replica, tree)
    except NotFound:
        return None
    except NoAnswer:
        return DrainedReplica(replica, "no worker answers for it")


async def _not_evicted(
    plane: ControlPlane, replica: Target, tree: Tree
) -> DrainedReplica:
    owner = Target.of(
        BY_KIND["ModelDeployment"], replica.namespace, labels(tree).get(DEPLOYMENT, "")
    )
    try:
        deployment = await plane.describe(owner)
    except NotFound:
        return DrainedReplica(replica, "waits for its eviction")
    stays = untolerated([MAINTENANCE], deployment_view(deployment).tolerations) is None
    return DrainedReplica(
        replica,
        f"waits for its eviction; {owner.label}: {status_line(deployment)}",
        stays,
        owner,
    )
