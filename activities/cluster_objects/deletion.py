"""Delete, and wait until it is really gone.

An object with a deletion time still holds its pods, and a pod its GPUs. Deletion is asked for in the foreground and then looked at until
nothing answers any more, or until patience ends; what remains is told in every heartbeat, so that the Temporal UI shows what a teardown
waits for, and in the answer, with the reason why it is still there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, ObjectId, Propagation, Selection
from activities.cluster_objects.kinds import DEPLOYMENT, LEADER_WORKER_SET, LWS_NAME_LABEL, POD, resolve_all
from activities.cluster_objects.ownership import conflict
from activities.heartbeat import Progress
from activities.render.objects.teardown import STEPS
from api_types import labels
from api_types.clock import utc_now
from api_types.errors import StackMissing
from api_types.messages.cluster_work import RemainingObject

_LOOK_SECONDS = (0.2, 5.0)
_SHOWN_MAX = 10
_ENGINES = next(step for step in STEPS if step.inventory_prefixes == ("model-serving-",))
# What the garbage collector writes while it waits for dependents; those are named themselves.
_COLLECTOR = frozenset({"foregroundDeletion", "orphan"})


class DeletionResult(NamedTuple):
    """How far objects have left: `remaining` are still there, `skipped` says why others were left alone."""

    skipped: list[str]
    remaining: list[RemainingObject]


async def looks() -> AsyncIterator[None]:
    """Come back at growing intervals, for ever."""
    wait_seconds, longest = _LOOK_SECONDS
    while True:
        yield
        await asyncio.sleep(wait_seconds)
        wait_seconds = min(wait_seconds * 1.5, longest)


class Deleter:
    """Takes objects of one owner off one cluster; `tell` hears what is waited for.

    `force_after`: pods that are still there this long after their time was up are deleted without grace (None: never).
    """

    def __init__(self, cluster: ClusterApi, uid: str, tell: Callable[[Progress], None], force_after: timedelta | None) -> None:
        self.cluster = cluster
        self.uid = uid
        self._tell = tell
        self._force_after = force_after

    async def until_gone(self, targets: Sequence[ObjectId], within: timedelta | None = None) -> DeletionResult:
        """Delete objects and wait until they, and all that controllers made from them, are gone (`within` None: however long it takes)."""
        skipped: dict[ObjectId, str] = {}
        remaining: list[RemainingObject] = []
        ends_at = None if within is None else asyncio.get_running_loop().time() + within.total_seconds()
        async for _ in looks():
            remaining = []
            for target in targets:
                if target in skipped:
                    continue
                found = await self.cluster.get(target)
                if found and (reason := conflict(found, self.uid)):
                    skipped[target] = reason
                    continue
                if found and (left := await _ask(self.cluster, target, found)):
                    remaining.append(awaited(left))
                made = await made_from(self.cluster, target)
                remaining += map(awaited, made)
                if self._force_after is not None:
                    await _force(self.cluster, made, self._force_after)
            if not remaining or (ends_at is not None and asyncio.get_running_loop().time() >= ends_at):
                break
            self._tell({"waitingFor": [str(item) for item in remaining[:_SHOWN_MAX]], "more": max(0, len(remaining) - _SHOWN_MAX)})
        return DeletionResult(list(skipped.values()), remaining)


def awaited(item: Json) -> RemainingObject:
    """Say which object is still there, and what holds it as far as the object itself tells."""
    metadata = item["metadata"]
    reasons = [f"finalizer {name}" for name in metadata.get("finalizers") or () if name not in _COLLECTOR]
    if since := metadata.get("deletionTimestamp"):
        # The deletion time of a pod is when its grace ends; whatever is there after that does not leave by itself.
        reasons.append(f"to be gone by {since}" if item["kind"] == POD.kind else f"deleted at {since}")
    return RemainingObject(id=str(ObjectId.of(item)), why=", ".join(reasons))


async def _ask(cluster: ClusterApi, target: ObjectId, found: Json) -> Json | None:
    """Ask once for the deletion of an object that was found; give what is still there under its name and uid."""
    metadata = found["metadata"]
    if metadata.get("deletionTimestamp"):
        return found
    # Only workloads have dependents worth waiting for; for all others the collector's detour would cost a look.
    propagation: Propagation = "Foreground" if target.kind in {DEPLOYMENT, LEADER_WORKER_SET} else "Background"
    await cluster.delete(target, uid=metadata["uid"], propagation=propagation)
    # The answer alone proves nothing: a server that is busy with the object says the same as one that has another under this name.
    left = await cluster.get(target)
    return left if left and left["metadata"]["uid"] == metadata["uid"] else None


async def made_from(cluster: ClusterApi, workload: ObjectId) -> list[Json]:
    """List what controllers made from a workload of an engine; nothing for any other object.

    Pods hold the sets above them and the claims below them, so while there are pods only they are looked for.
    """
    selector = _pods_of(workload)
    if not selector:
        return []
    made = resolve_all(_ENGINES.wait_kinds, await cluster.resources())
    for kind in sorted(made, key=lambda kind: kind != POD):
        claims = kind.kind == "ResourceClaim"
        items = await list_served(cluster, Selection(kind, workload.namespace, "" if claims else selector, metadata_only=True))
        if found := [item for item in items if not claims or _is_claim_of(item, workload.name)]:
            return found
    return []


async def list_served(cluster: ClusterApi, selection: Selection) -> list[Json]:
    """List objects; a kind that went away in between has none."""
    try:
        return (await cluster.list(selection)).items
    except StackMissing:
        return []


def _pods_of(workload: ObjectId) -> str:
    if workload.kind == DEPLOYMENT:
        return f"{labels.WORKLOAD}={workload.name}"
    return f"{LWS_NAME_LABEL}={workload.name}" if workload.kind == LEADER_WORKER_SET else ""


def _is_claim_of(claim: Json, workload: str) -> bool:
    """Tell a claim by the pod that it was made for: claims carry no label, and pods are named after their workload."""
    owners: Iterable[Json] = claim["metadata"].get("ownerReferences") or []
    return any(owner["kind"] == POD.kind and owner["name"].startswith(f"{workload}-") for owner in owners)


async def _force(cluster: ClusterApi, made: Iterable[Json], force_after: timedelta) -> None:
    for item in made:
        metadata = item["metadata"]
        if Kind(item["apiVersion"], item["kind"]) != POD or not metadata.get("deletionTimestamp"):
            continue
        # The deletion time of a pod is when its grace ends.
        overdue = utc_now() - datetime.fromisoformat(metadata["deletionTimestamp"])
        if overdue > force_after:
            await cluster.delete(ObjectId.of(item), uid=metadata["uid"], grace_seconds=0)
