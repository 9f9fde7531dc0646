"""Apply and delete single objects on the control cluster, unless others own them."""

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
from activities.render.objects.manifest import RenderedObject, RenderOwner
from api_types.errors import InvalidInput, NameConflict, StillThere

# The objects that are deleted here have no finalizers of Modelplane.
_GONE_WITHIN = timedelta(seconds=40)
# The field that an API server names when it rejects the ports of a Service.
_PORTS = "spec.ports"


async def apply_item(
    cluster: ClusterApi, item: RenderedObject, owner: RenderOwner
) -> Json:
    """Apply an object, and return the stored object.

    Raises NameConflict, and StillThere if the object is being deleted.
    """
    target = ObjectId.of(item.manifest)
    live = await cluster.get(target)
    with reading(target):
        if live is not None:
            if not is_of_name(live, owner):
                found = owner_of(live)
                raise NameConflict(
                    f"control cluster: {target} exists already and belongs to {found}; "
                    "delete it or choose another name"
                )
            if live["metadata"].get("deletionTimestamp"):
                raise StillThere(
                    f"control cluster: {target} is being deleted; "
                    "it is applied again when it is gone"
                )
    try:
        return await cluster.apply(item.manifest)
    except InvalidInput as error:
        # A policy of the cluster may reject the object too. Then the existing Service
        # is kept, and requests continue to use it.
        if (
            live is None
            or target.kind != SERVICE
            or _PORTS not in error.message
            or not _has_port_of_others(live)
        ):
            raise
    # Another user changed a port and now owns it. Modelplane's port would be a second
    # one, and with several ports each needs a name. So replace the Service.
    await cluster.delete(target, uid=live["metadata"]["uid"], propagation="Background")
    return await cluster.apply(item.manifest)


def _has_port_of_others(service: Json) -> bool:
    with reading(ObjectId.of(service)):
        return bool(elements_of_others(service, "spec", "ports"))


def is_of_name(live: Json, owner: RenderOwner) -> bool:
    """Return whether an object belongs to an owner or its predecessor.

    A predecessor has the same name. It was deleted by force, and its objects are taken
    over.
    """
    found = owner_of(live)
    return (found.kind, found.namespace, found.name) == (
        owner.kind,
        owner.namespace,
        owner.name,
    )


async def delete_taken_over(
    cluster: ClusterApi,
    owner: RenderOwner,
    report: Callable[[Progress], None],
    targets: Sequence[ObjectId],
) -> None:
    """Delete objects of an owner or its predecessor of the same name.

    Raises StillThere if that takes too long.
    """
    for target in targets:
        live = await cluster.get(target)
        if live is not None and is_of_name(live, owner):
            await delete_objects(
                Deleter(cluster, owner_of(live).uid, report, None), [target]
            )


async def remove_objects(
    cluster: ClusterApi,
    owner: RenderOwner,
    report: Callable[[Progress], None],
    targets: Sequence[ObjectId],
    *,
    of_predecessors: bool,
) -> None:
    """Delete objects of an owner, and of its predecessors if `of_predecessors`.

    Raises StillThere if that takes too long.
    """
    if of_predecessors:
        await delete_taken_over(cluster, owner, report, targets)
    else:
        await delete_objects(Deleter(cluster, owner.uid, report, None), targets)


async def delete_objects(deleter: Deleter, targets: Sequence[ObjectId]) -> None:
    """Delete objects and wait until they are gone.

    Raises StillThere if that takes too long.
    """
    result = await deleter.until_gone(targets, _GONE_WITHIN)
    for skipped in result.skipped:
        activity.logger.warning("not deleted on the control cluster: %s", skipped)
    if result.remaining:
        raise StillThere(
            f"control cluster: not gone yet: {', '.join(map(str, result.remaining))}"
        )
