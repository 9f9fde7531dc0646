"""Delete objects, and wait until they are gone.

An object with a deletion timestamp still holds its pods, and a pod its GPUs. Deletion is requested and then polled until nothing is left,
or until a time limit; what remains is in every heartbeat, so that the Temporal UI shows what a teardown waits for, and in the result, with
the reason why it is still there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, ObjectId, Propagation, Selection
from activities.cluster_objects.kinds import DEPLOYMENT, JOB, JOB_NAME_LABEL, LEADER_WORKER_SET, LWS_NAME_LABEL, POD, resolve_all
from activities.cluster_objects.ownership import conflict
from activities.heartbeat import Progress
from activities.render.objects.teardown import ENGINES, step_of_number
from api_types import labels
from api_types.clock import utc_now
from api_types.errors import StackMissing
from api_types.messages.cluster_work import RemainingObject

_POLL_SECONDS = (0.2, 5.0)
_SHOWN_MAX = 10
# How much the API server takes of the name that it generates another one from: it adds five characters, and a name has 63.
_GENERATED_FROM_MAX = 58
_ENGINES = step_of_number(ENGINES)
# Finalizers of the garbage collector, which waits for dependents; those are named themselves.
_COLLECTOR_FINALIZERS = frozenset({"foregroundDeletion", "orphan"})


class DeletionResult(NamedTuple):
    """What a deletion left: `remaining` are still there, `skipped` says why others were not deleted."""

    skipped: list[str]
    remaining: list[RemainingObject]


async def poll_intervals() -> AsyncIterator[None]:
    """Yield at growing intervals, without end."""
    wait_seconds, longest = _POLL_SECONDS
    while True:
        yield
        await asyncio.sleep(wait_seconds)
        wait_seconds = min(wait_seconds * 1.5, longest)


class Deleter:
    """Deletes objects of one owner from one cluster; `report` is called with what it waits for.

    `force_after`: pods that are still there this long after their grace period are deleted without grace (None: never).
    `refusal` says why an object is not of this owner, by default because it has another uid.
    """

    def __init__(
        self,
        cluster: ClusterApi,
        uid: str,
        report: Callable[[Progress], None],
        force_after: timedelta | None,
        refusal: Callable[[Json], str] | None = None,
    ) -> None:
        self.cluster = cluster
        self.uid = uid
        self._report = report
        self._force_after = force_after
        self._refusal = refusal or partial(conflict, uid=uid)

    async def until_gone(self, targets: Sequence[ObjectId], within: timedelta | None = None) -> DeletionResult:
        """Delete objects and wait until they, and all that controllers made from them, are gone (`within` None: however long it takes)."""
        skipped: dict[ObjectId, str] = {}
        remaining: list[RemainingObject] = []
        deadline = None if within is None else asyncio.get_running_loop().time() + within.total_seconds()
        async for _ in poll_intervals():
            remaining = []
            for target in targets:
                if target in skipped:
                    continue
                found = await self.cluster.get(target)
                if found and (reason := self._refusal(found)):
                    skipped[target] = reason
                    continue
                if found and (left := await _request_deletion(self.cluster, target, found)):
                    remaining.append(remaining_object(left))
                dependents = await dependents_of(self.cluster, target)
                remaining += map(remaining_object, dependents)
                if self._force_after is not None:
                    await _force_delete(self.cluster, dependents, self._force_after)
            if not remaining or (deadline is not None and asyncio.get_running_loop().time() >= deadline):
                break
            self._report({"waitingFor": [str(item) for item in remaining[:_SHOWN_MAX]], "more": max(0, len(remaining) - _SHOWN_MAX)})
        return DeletionResult(list(skipped.values()), remaining)


def remaining_object(item: Json) -> RemainingObject:
    """Describe an object that is still there, and what holds it as far as the object itself says."""
    metadata = item["metadata"]
    reasons = [f"finalizer {name}" for name in metadata.get("finalizers") or () if name not in _COLLECTOR_FINALIZERS]
    if since := metadata.get("deletionTimestamp"):
        # The deletion timestamp of a pod is when its grace period ends; a pod that is there after that does not end by itself.
        reasons.append(f"to be gone by {since}" if item["kind"] == POD.kind else f"deleted at {since}")
    return RemainingObject(id=str(ObjectId.of(item)), why=", ".join(reasons))


async def _request_deletion(cluster: ClusterApi, target: ObjectId, found: Json) -> Json | None:
    """Request the deletion of an object that was found, once; give what is still there under its name and uid."""
    metadata = found["metadata"]
    if metadata.get("deletionTimestamp"):
        return found
    # Only workloads have dependents worth waiting for; for all others a foreground deletion would cost one more poll.
    propagation: Propagation = "Foreground" if target.kind in {DEPLOYMENT, LEADER_WORKER_SET, JOB} else "Background"
    await cluster.delete(target, uid=metadata["uid"], propagation=propagation)
    # The response alone proves nothing: a conflict on this object looks like another object under its name.
    left = await cluster.get(target)
    return left if left and left["metadata"]["uid"] == metadata["uid"] else None


async def dependents_of(cluster: ClusterApi, workload: ObjectId) -> list[Json]:
    """List what controllers made from a workload of an engine, or from a Job; nothing for any other object.

    Pods keep the sets above them and the claims below them, so while there are pods only they are listed.
    """
    if workload.kind == JOB:
        return await _pods_of_job(cluster, workload)
    selector = _pods_of(workload)
    if not selector:
        return []
    served = resolve_all(_ENGINES.wait_kinds, await cluster.resources())
    for kind in sorted(served, key=lambda kind: kind != POD):
        claims = kind.kind == "ResourceClaim"
        items = await list_served(cluster, Selection(kind, workload.namespace, "" if claims else selector, metadata_only=True))
        if found := await _claims_left(cluster, workload, items) if claims else items:
            return found
    return []


async def list_served(cluster: ClusterApi, selection: Selection) -> list[Json]:
    """List objects; a kind that is no longer served has none."""
    try:
        return (await cluster.list(selection)).items
    except StackMissing:
        return []


async def _pods_of_job(cluster: ClusterApi, job: ObjectId) -> list[Json]:
    """List the pods of a Job, also of one that is gone. Those that a user orphaned, which may stay for good, have no owner."""
    pods = await list_served(cluster, Selection(POD, job.namespace, f"{JOB_NAME_LABEL}={job.name}", metadata_only=True))
    return [pod for pod in pods if any(owner["kind"] == JOB.kind for owner in pod["metadata"].get("ownerReferences") or [])]


def _pods_of(workload: ObjectId) -> str:
    if workload.kind == DEPLOYMENT:
        return f"{labels.WORKLOAD}={workload.name}"
    return f"{LWS_NAME_LABEL}={workload.name}" if workload.kind == LEADER_WORKER_SET else ""


async def _claims_left(cluster: ClusterApi, workload: ObjectId, claims: Iterable[Json]) -> list[Json]:
    """Give the claims that were made for pods of a workload, none of which are left.

    Claims carry no label of ours, and of a pod that is gone only its name is known. A name that the API server cut may be that of another
    workload's pod; while that pod is there its uid tells.
    """
    found = [(claim, owner) for claim in claims if (owner := _pod_owner(claim)) and _is_named_after(owner["name"], workload.name)]
    if not found:
        return []
    pods = await list_served(cluster, Selection(POD, workload.namespace, metadata_only=True))
    present = {pod["metadata"]["uid"] for pod in pods}
    return [claim for claim, owner in found if owner["uid"] not in present]


def _pod_owner(claim: Json) -> Json | None:
    owners: Iterable[Json] = claim["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner["kind"] == POD.kind), None)


def _is_named_after(pod: str, workload: str) -> bool:
    return pod.startswith(f"{workload}-"[:_GENERATED_FROM_MAX])


async def _force_delete(cluster: ClusterApi, dependents: Iterable[Json], force_after: timedelta) -> None:
    for item in dependents:
        metadata = item["metadata"]
        if Kind(item["apiVersion"], item["kind"]) != POD or not metadata.get("deletionTimestamp"):
            continue
        overdue = utc_now() - datetime.fromisoformat(metadata["deletionTimestamp"])
        if overdue > force_after:
            await cluster.delete(ObjectId.of(item), uid=metadata["uid"], grace_seconds=0)
