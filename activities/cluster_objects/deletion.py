"""Delete objects, and wait until they are gone.

An object with a deletion timestamp still has its pods, and a pod has its GPUs. So
deletion is requested and then polled, until all objects are gone or a time limit has
passed. Every heartbeat lists the remaining objects, so the Temporal UI shows what a
teardown waits for. The result lists them too, with the reason why each still exists.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Propagation,
    Selection,
)
from activities.cluster_objects.kinds import (
    DEPLOYMENT,
    JOB,
    JOB_NAME_LABEL,
    LEADER_WORKER_SET,
    LWS_NAME_LABEL,
    POD,
    resolve_all,
)
from activities.cluster_objects.ownership import conflict
from activities.heartbeat import Progress
from activities.render.objects.components import PICKER
from activities.render.objects.teardown import ENGINES, step_of_number
from api_types import labels
from api_types.clock import utc_now
from api_types.errors import PermissionDenied, StackMissing
from api_types.messages.cluster_work import RemainingObject

_POLL_SECONDS = (0.2, 5.0)
_SHOWN_MAX = 10
_PICKER_SECONDS = 5
# The API server truncates the base of a generated name to this length: it appends five
# characters, and a name has at most 63.
_GENERATED_FROM_MAX = 58
_ENGINES = step_of_number(ENGINES)
# The garbage collector sets these finalizers while it waits for dependents. Dependents
# are listed themselves, so these finalizers explain nothing.
_COLLECTOR_FINALIZERS = frozenset({"foregroundDeletion", "orphan"})


class DeletionResult(NamedTuple):
    """`remaining` lists objects that still exist.

    `skipped` lists the reasons why other objects were not deleted.
    """

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
    """Deletes objects of one owner from one cluster.

    `report` receives the progress of each poll.

    `force_after`: pods that still exist this long after their grace period are deleted
    without grace. None means never. `refusal` returns the reason not to delete an
    object, or an empty string. By default it refuses objects with another owner uid.
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

    async def until_gone(
        self, targets: Sequence[ObjectId], within: timedelta | None = None
    ) -> DeletionResult:
        """Delete objects, and wait until they and their dependents are gone.

        Dependents are the objects that controllers created from them. With `within`
        None there is no time limit.
        """
        skipped: dict[ObjectId, str] = {}
        remaining: list[RemainingObject] = []
        deadline = (
            None
            if within is None
            else asyncio.get_running_loop().time() + within.total_seconds()
        )
        async for _ in poll_intervals():
            remaining = []
            for target in targets:
                if target in skipped:
                    continue
                found = await self.cluster.get(target)
                if found and (reason := self._refusal(found)):
                    skipped[target] = reason
                    continue
                left = (
                    await _request_deletion(self.cluster, target, found)
                    if found
                    else None
                )
                if left:
                    remaining.append(remaining_object(left))
                    if target.kind == DEPLOYMENT:
                        await _end_pickers(self.cluster, target, left)
                dependents = await dependents_of(self.cluster, target)
                remaining += map(remaining_object, dependents)
                if self._force_after is not None:
                    await _force_delete(self.cluster, dependents, self._force_after)
            if not remaining or (
                deadline is not None and asyncio.get_running_loop().time() >= deadline
            ):
                break
            self._report(
                {
                    "waitingFor": [str(item) for item in remaining[:_SHOWN_MAX]],
                    "more": max(0, len(remaining) - _SHOWN_MAX),
                }
            )
        return DeletionResult(list(skipped.values()), remaining)


def remaining_object(item: Json) -> RemainingObject:
    """Describe an object that still exists, with the reasons that its metadata shows."""
    metadata = item["metadata"]
    reasons = [
        f"finalizer {name}"
        for name in metadata.get("finalizers") or ()
        if name not in _COLLECTOR_FINALIZERS
    ]
    if since := metadata.get("deletionTimestamp"):
        # The deletion timestamp of a pod is the end of its grace period. A pod that
        # exists after that does not end by itself.
        reasons.append(
            f"to be gone by {since}"
            if item["kind"] == POD.kind
            else f"deleted at {since}"
        )
    return RemainingObject(id=str(ObjectId.of(item)), why=", ".join(reasons))


async def _request_deletion(
    cluster: ClusterApi, target: ObjectId, found: Json
) -> Json | None:
    """Request the deletion of an object unless it was requested before.

    Returns the object if it still exists.
    """
    metadata = found["metadata"]
    if metadata.get("deletionTimestamp"):
        return found
    # Only workloads have dependents that the deletion waits for. For other kinds a
    # foreground deletion would cost one more poll.
    propagation: Propagation = (
        "Foreground"
        if target.kind in {DEPLOYMENT, LEADER_WORKER_SET, JOB}
        else "Background"
    )
    await cluster.delete(target, uid=metadata["uid"], propagation=propagation)
    # The response does not prove that the object is gone: a conflict on this object
    # looks the same as another object with its name.
    left = await cluster.get(target)
    return left if left and left["metadata"]["uid"] == metadata["uid"] else None


async def _end_pickers(cluster: ClusterApi, target: ObjectId, found: Json) -> None:
    """Shorten the termination of endpoint pickers whose Deployment is being deleted.

    Their grace period is as long as a request may last. The engines are deleted before
    them, so no request needs them any more, and the namespace of a tenant must not wait
    for them. Without the permission to delete pods, they end by themselves, and the
    deletion does not wait for them.
    """
    metadata = found["metadata"]
    if (metadata.get("labels") or {}).get(labels.COMPONENT) != PICKER:
        return
    selected = found["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in sorted(selected.items()))
    pods = await list_served(
        cluster,
        Selection(POD, target.namespace, selector, metadata_only=True),
    )
    try:
        for pod in pods:
            about = pod["metadata"]
            if (about.get("deletionGracePeriodSeconds") or 0) > _PICKER_SECONDS:
                await cluster.delete(
                    ObjectId.of(pod), uid=about["uid"], grace_seconds=_PICKER_SECONDS
                )
    except PermissionDenied:
        await cluster.delete(target, uid=metadata["uid"], propagation="Background")


async def dependents_of(cluster: ClusterApi, workload: ObjectId) -> list[Json]:
    """List the objects that controllers created from an engine's workload or a Job.

    Returns an empty list for other kinds. While there are pods, their owners (such as
    ReplicaSets) and their claims exist too, so only pods are listed.
    """
    if workload.kind == JOB:
        return await _pods_of_job(cluster, workload)
    selector = _pods_of(workload)
    if not selector:
        return []
    served = resolve_all(_ENGINES.wait_kinds, await cluster.resources())
    for kind in sorted(served, key=lambda kind: kind != POD):
        claims = kind.kind == "ResourceClaim"
        items = await list_served(
            cluster,
            Selection(
                kind, workload.namespace, "" if claims else selector, metadata_only=True
            ),
        )
        if claims:
            items = await _claims_left(cluster, workload, items)
        if items:
            return items
    return []


async def list_served(cluster: ClusterApi, selection: Selection) -> list[Json]:
    """List objects. Returns an empty list if the kind is not served."""
    try:
        return (await cluster.list(selection)).items
    except StackMissing:
        return []


async def _pods_of_job(cluster: ClusterApi, job: ObjectId) -> list[Json]:
    """List the pods that a Job owns, also after the Job is gone.

    Pods that a user orphaned may stay for good, so they are left out.
    """
    pods = await list_served(
        cluster,
        Selection(
            POD, job.namespace, f"{JOB_NAME_LABEL}={job.name}", metadata_only=True
        ),
    )
    return [pod for pod in pods if JOB.kind in _owner_kinds(pod)]


def _owner_kinds(item: Json) -> set[str]:
    owners: Iterable[Json] = item["metadata"].get("ownerReferences") or []
    return {owner["kind"] for owner in owners}


def _pods_of(workload: ObjectId) -> str:
    if workload.kind == DEPLOYMENT:
        return f"{labels.WORKLOAD}={workload.name}"
    return (
        f"{LWS_NAME_LABEL}={workload.name}"
        if workload.kind == LEADER_WORKER_SET
        else ""
    )


async def _claims_left(
    cluster: ClusterApi, workload: ObjectId, claims: Iterable[Json]
) -> list[Json]:
    """Return the claims of a workload whose pods are gone.

    Claims have no label of Modelplane, and only the name of a deleted pod is known. The
    API server may truncate that name in the name of a claim, so it can match a pod of
    another workload. While such a pod exists, its uid shows that it owns the claim.
    """
    found: list[tuple[Json, Json]] = []
    for claim in claims:
        owner = _pod_owner(claim)
        if owner and _is_named_after(owner["name"], workload.name):
            found.append((claim, owner))
    if not found:
        return []
    pods = await list_served(
        cluster, Selection(POD, workload.namespace, metadata_only=True)
    )
    present = {pod["metadata"]["uid"] for pod in pods}
    return [claim for claim, owner in found if owner["uid"] not in present]


def _pod_owner(claim: Json) -> Json | None:
    owners: Iterable[Json] = claim["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner["kind"] == POD.kind), None)


def _is_named_after(pod: str, workload: str) -> bool:
    return pod.startswith(f"{workload}-"[:_GENERATED_FROM_MAX])


async def _force_delete(
    cluster: ClusterApi, dependents: Iterable[Json], force_after: timedelta
) -> None:
    for item in dependents:
        metadata = item["metadata"]
        deleted_at = metadata.get("deletionTimestamp")
        if GroupVersionKind(item["apiVersion"], item["kind"]) != POD or not deleted_at:
            continue
        overdue = utc_now() - datetime.fromisoformat(deleted_at)
        if overdue > force_after:
            await cluster.delete(
                ObjectId.of(item), uid=metadata["uid"], grace_seconds=0
            )
