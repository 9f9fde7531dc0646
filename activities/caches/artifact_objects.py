"""The objects of one artifact on a cluster: existence, owners and conflicts.

Objects of an earlier run of the same cache are adopted once that run has ended. An object
that must be deleted before the apply continues is an `Obstacle`.
"""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from temporalio import activity

from activities.caches.claims import can_never_bind
from activities.caches.predecessors import ended_uids, other_claims
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import list_served
from activities.cluster_objects.ownership import ObjectOwner, conflict, owner_of
from activities.observe.cache import MODEL_CACHE
from api_types import labels, names
from api_types.errors import NameConflict
from api_types.messages.caches import ApplyCache, EarlierClaim


class ArtifactObjects(NamedTuple):
    """The objects of one artifact, all named after its claim."""

    volume: ObjectId
    credential: ObjectId
    job: ObjectId

    @classmethod
    def of(cls, claim: str, namespace: str) -> "ArtifactObjects":
        return cls(
            ObjectId(kinds.VOLUME_CLAIM, namespace, claim),
            ObjectId(kinds.SECRET, namespace, names.cache_credential_name(claim)),
            ObjectId(kinds.JOB, namespace, names.cache_job_name(claim)),
        )


class LiveObjects(NamedTuple):
    """The objects of an artifact that exist."""

    volume: Json | None
    credential: Json | None
    job: Json | None


class Obstacle(NamedTuple):
    """An object that must be deleted before the apply continues.

    `owner_uid` is the uid of its owner. `adopted` lists the earlier runs whose objects
    the cache adopts.
    """

    target: ObjectId
    owner_uid: str
    adopted: list[str]


async def further_copies(
    cluster: ClusterApi, targets: ArtifactObjects
) -> list[ObjectId]:
    """Return the artifact's Secrets other than its credential.

    Their number depends on the spec with which they were applied.
    """
    selector = f"{labels.CACHE}={targets.volume.name}"
    listed = await list_served(
        cluster,
        Selection(kinds.SECRET, targets.volume.namespace, selector, metadata_only=True),
    )
    return [found for found in map(ObjectId.of, listed) if found != targets.credential]


async def read_live(cluster: ClusterApi, targets: ArtifactObjects) -> LiveObjects:
    """Read the objects of an artifact."""
    return LiveObjects(
        *await asyncio.gather(*(cluster.get(target) for target in targets))
    )


async def adoptable(live: LiveObjects, order: ApplyCache) -> set[str]:
    """Return the uids of ended runs of this cache whose objects exist.

    Raises NameConflict if an object has any other owner.
    """
    own = ObjectOwner(MODEL_CACHE, order.namespace, order.name, order.uid)
    foreign = [item for item in live if item and conflict(item, order.uid)]
    asked = set()
    for owner in map(owner_of, foreign):
        if owner.uid and owner._replace(uid=own.uid) == own:
            asked.add(owner.uid)
    ended = await ended_uids(activity.client(), own, asked) if asked else set[str]()
    conflicts = [
        conflict(item, order.uid) for item in foreign if owner_of(item).uid not in ended
    ]
    if conflicts:
        raise NameConflict(
            f"cluster {order.cluster}: {'; '.join(conflicts)}; "
            "delete it there or choose another name"
        )
    return ended


async def earlier_claims(
    cluster: ClusterApi, targets: ArtifactObjects, own: ObjectOwner
) -> list[EarlierClaim]:
    """Return the claims for other artifacts that a cache or its ended runs made."""
    found = await other_claims(cluster, own, targets.volume)
    others = set(found.values()) - {own.uid}
    ended = await ended_uids(activity.client(), own, others) if others else set[str]()
    return [
        EarlierClaim(claim=claim, uid=uid)
        for claim, uid in sorted(found.items())
        if uid in ended or uid == own.uid
    ]


async def obstacle_of(
    cluster: ClusterApi,
    targets: ArtifactObjects,
    live: LiveObjects,
    order: ApplyCache,
    adopted: Collection[str],
) -> Obstacle | None:
    """Return the object that must be deleted before anything is applied, if any.

    A Job is deleted before the claim that its pods mount.
    """
    volume, job = live.volume, live.job
    if job and owner_of(job).uid in adopted:
        return Obstacle(targets.job, owner_of(job).uid, list(adopted))
    if volume is None:
        # The Job filled a claim that no longer exists. Its state does not apply to the
        # next claim, which is empty.
        return Obstacle(targets.job, owner_of(job).uid, list(adopted)) if job else None
    # An apply to a claim that is being deleted would be lost when the deletion ends.
    deleted = bool(volume["metadata"].get("deletionTimestamp"))
    if not deleted and not await can_never_bind(
        cluster, volume, order.storage_class_name
    ):
        return None
    if job and not deleted:
        return Obstacle(targets.job, owner_of(job).uid, list(adopted))
    return Obstacle(targets.volume, owner_of(volume).uid, list(adopted))
