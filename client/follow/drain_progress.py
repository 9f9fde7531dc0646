"""Following a drain: which replicas are still on the cluster, what each waits for, and how their deployments stand.

A deployment asks for placements when something of its own changes, and else only now and then. So those with replicas on the cluster are
told to ask again, once the cluster itself has taken the taint, and again while their replicas stay.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from activities.messaging import NAME, NAMESPACE, visibility_query
from api_types.labels import DEPLOYMENT
from api_types.messages.signals import ModelDeploymentSignals
from api_types.resources.kinds import BY_KIND
from client.errors import NoAnswer, NotFound, TimedOut
from client.follow.waiting import standing
from client.output.progress import Progress, Row
from client.refs.targets import Target, target
from client.refs.tree import Tree, at_path, deleting, labels
from client.temporal.control_plane import ControlPlane
from scheduler import MAINTENANCE, deployment_view, untolerated

_LOOK_EVERY_SECONDS = 0.5
_ASK_EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class Standing:
    """A replica on the cluster. `stays`: its deployment tolerates the drain. `owner` is set while it has no order to leave."""

    target: Target
    state: str
    stays: bool = False
    owner: Target | None = None


async def until_drained(plane: ControlPlane, cluster: str, seconds: float, progress: Progress) -> None:
    """Wait until no replica is left but those whose deployment tolerates the taint. Raises `TimedOut` that says what is waited for."""
    deadline = time.monotonic() + seconds
    moved: dict[Target, str] = {}
    ask_at = 0.0
    while True:
        found = await _on_cluster(plane, cluster)
        leaving = [one for one in found if not one.stays]
        if time.monotonic() >= ask_at:
            await _ask_again(plane, leaving)
            ask_at = time.monotonic() + _ASK_EVERY_SECONDS
        moved |= dict.fromkeys((one.target for one in leaving), "")
        rows = [Row(one.target.label, "stays: its deployment tolerates the drain" if one.stays else one.state, one.stays) for one in found]
        here = {one.target for one in found}
        progress.show([*rows, *(Row(gone.label, "gone", done=True) for gone in moved if gone not in here)])
        if not leaving:
            return
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"InferenceCluster {cluster} is not empty after {seconds:g} s; the drain goes on",
                details=[f"{one.target.title}: {one.state}" for one in leaving],
                next_step=f"wait on with `modelplane drain {cluster} --wait`, or give up with `modelplane uncordon {cluster}`",
            )
        await asyncio.sleep(_LOOK_EVERY_SECONDS)


async def order_moves(plane: ControlPlane, cluster: Target, generation: int) -> None:
    """Have the deployments with replicas there ask for placements anew, once the cluster acts on that generation of its spec."""
    deadline = time.monotonic() + _ASK_EVERY_SECONDS
    while time.monotonic() < deadline:
        tree = await plane.describe(cluster)
        if int(at_path(tree, ".status.observedGeneration") or 0) >= generation:
            break
        await asyncio.sleep(_LOOK_EVERY_SECONDS)
    await _ask_again(plane, await _on_cluster(plane, cluster.name))


async def _ask_again(plane: ControlPlane, replicas: Sequence[Standing]) -> None:
    for owner in dict.fromkeys(one.owner for one in replicas if one.owner and not one.stays):
        with suppress(NotFound):  # it went in the meantime, and its replicas with it
            await plane.signal(owner, ModelDeploymentSignals.RESYNC, None)


async def _on_cluster(plane: ControlPlane, cluster: str) -> list[Standing]:
    kind = BY_KIND["ModelReplica"]
    rows = [row.typed_search_attributes async for row in plane.rows(visibility_query([kind.kind], cluster=cluster))]
    targets = sorted((target(kind, row.get(NAMESPACE), row.get(NAME) or "") for row in rows), key=lambda one: one.workflow_id)
    found = await asyncio.gather(*(_standing(plane, one) for one in targets))
    return [one for one in found if one]


async def _standing(plane: ControlPlane, replica: Target) -> Standing | None:
    """Say how a replica leaves; None once it is gone."""
    try:
        tree = await plane.describe(replica)
        if deleting(tree):
            return Standing(replica, "; ".join(await plane.waiting(replica)) or "being deleted")
        return await _before_leaving(plane, replica, tree)
    except NotFound:
        return None
    except NoAnswer:
        return Standing(replica, "no worker answers for it")


async def _before_leaving(plane: ControlPlane, replica: Target, tree: Tree) -> Standing:
    owner = target(BY_KIND["ModelDeployment"], replica.namespace, labels(tree).get(DEPLOYMENT, ""))
    try:
        deployment = await plane.describe(owner)
    except NotFound:
        return Standing(replica, "waits for the order to leave")
    stays = untolerated([MAINTENANCE], deployment_view(deployment).tolerations) is None
    return Standing(replica, f"waits for the order to leave; {owner.label}: {standing(deployment)}", stays, owner)
