"""Apply and delete one object on the control cluster, unless it belongs to another owner."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from temporalio import activity

from activities.cluster_objects.answers import reading
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.kinds import SERVICE
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.observe.digest import elements_of_others
from activities.render.objects.manifest import Item, Owner
from api_types.errors import InvalidInput, NameConflict, StillThere

# Nothing that is deleted here has finalizers of ours.
_GONE_WITHIN = timedelta(seconds=40)
# How an API server names what it refuses of a Service.
_PORTS = "spec.ports"


async def apply_item(cluster: ClusterApi, item: Item, owner: Owner) -> Json:
    """Apply an object; gives what is stored. Raises NameConflict, and StillThere for one that is being deleted."""
    target = ObjectId.of(item.manifest)
    live = await cluster.get(target)
    with reading(target):
        if live is not None:
            if not is_of_name(live, owner):
                found = owner_of(live)
                raise NameConflict(f"control cluster: {target} exists already and belongs to {found}; delete it or choose another name")
            if live["metadata"].get("deletionTimestamp"):
                raise StillThere(f"control cluster: {target} is being deleted; it is applied again when it is gone")
    try:
        return await cluster.apply(item.manifest)
    except InvalidInput as error:
        # A policy of the cluster may refuse it too, and requests go on over the one that is there.
        if live is None or target.kind != SERVICE or _PORTS not in error.message or not _has_port_of_others(live):
            raise
    # Others changed a port of it. That is theirs now, ours would be a second one, and of several each needs a name.
    await cluster.delete(target, uid=live["metadata"]["uid"], propagation="Background")
    return await cluster.apply(item.manifest)


def _has_port_of_others(service: Json) -> bool:
    with reading(ObjectId.of(service)):
        return bool(elements_of_others(service, "spec", "ports"))


def is_of_name(live: Json, owner: Owner) -> bool:
    """Tell whether an object is of an owner, or of an earlier one of its name, which was deleted by force: that is taken over."""
    found = owner_of(live)
    return (found.kind, found.namespace, found.name) == (owner.kind, owner.namespace, owner.name)


async def delete_taken_over(cluster: ClusterApi, owner: Owner, report: Callable[[Progress], None], targets: Sequence[ObjectId]) -> None:
    """Delete objects of an owner, or of an earlier one of its name. Raises StillThere if that takes too long."""
    for target in targets:
        live = await cluster.get(target)
        if live is not None and is_of_name(live, owner):
            await delete_objects(Deleter(cluster, owner_of(live).uid, report, None), [target])


async def delete_objects(deleter: Deleter, targets: Sequence[ObjectId]) -> None:
    """Delete objects of ours and wait until they are gone. Raises StillThere if that takes too long."""
    result = await deleter.until_gone(targets, _GONE_WITHIN)
    for skipped in result.skipped:
        activity.logger.warning("not deleted on the control cluster: %s", skipped)
    if result.remaining:
        raise StillThere(f"control cluster: not gone yet: {', '.join(map(str, result.remaining))}")
