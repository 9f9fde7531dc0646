"""Apply and delete one object on the control cluster, unless it belongs to another owner."""

from collections.abc import Sequence
from datetime import timedelta

from temporalio import activity

from activities.cluster_objects.answers import reading
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.ownership import owner_of
from activities.render.objects.manifest import Item, Owner
from api_types.errors import NameConflict, StillThere

# Nothing that is deleted here has finalizers of ours.
_GONE_WITHIN = timedelta(seconds=40)


async def apply_item(cluster: ClusterApi, item: Item, owner: Owner) -> Json:
    """Apply an object; gives what is stored. Raises NameConflict, and StillThere for one that is being deleted."""
    target = ObjectId.of(item.manifest)
    live = await cluster.get(target)
    with reading(target):
        if live is not None:
            found = owner_of(live)
            # One of an earlier object of this name, which was deleted by force, is taken over.
            if (found.kind, found.namespace, found.name) != (owner.kind, owner.namespace, owner.name):
                raise NameConflict(f"control cluster: {target} exists already and belongs to {found}; delete it or choose another name")
            if live["metadata"].get("deletionTimestamp"):
                raise StillThere(f"control cluster: {target} is being deleted; it is applied again when it is gone")
    return await cluster.apply(item.manifest)


async def delete_objects(deleter: Deleter, targets: Sequence[ObjectId]) -> None:
    """Delete objects of ours and wait until they are gone. Raises StillThere if that takes too long."""
    result = await deleter.until_gone(targets, _GONE_WITHIN)
    for skipped in result.skipped:
        activity.logger.warning("not deleted on the control cluster: %s", skipped)
    if result.remaining:
        raise StillThere(f"control cluster: not gone yet: {', '.join(map(str, result.remaining))}")
