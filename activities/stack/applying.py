"""Apply the objects of a stack that are in no chart, one group at a time."""

from collections.abc import Callable

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.kinds import CRD, NAMESPACE
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.render.objects.manifest import RenderedObject, RenderOwner
from activities.render.stack import objects
from activities.stack.definitions import (
    change_problem,
    newer_note,
    until_established,
)
from activities.stack.ownership import (
    KIND,
    RELEASE_CONFLICT,
    check_mark,
    is_marked,
    object_conflict,
)
from api_types import labels
from api_types.errors import InvalidInput, NameConflict
from api_types.messages.stack import ApplyStackObjects, StackApplied
from api_types.resources.serving_stack import ServingStackSpec

_OF_OTHERS = "belongs to others and is not changed"


async def apply_group(
    cluster: ClusterApi, order: ApplyStackObjects, report: Callable[[Progress], None]
) -> StackApplied:
    """Apply one group of objects.

    Definitions and namespaces of other owners are used unchanged, and so are newer
    definitions. Any other object of another owner raises NameConflict. Raises
    InvalidInput for a definition that lacks a version in which objects are stored.
    """
    mark = await check_mark(cluster, order.connection.cluster, order.cluster_uid)
    notes = list[str]()
    if order.group != objects.NAMESPACES and not is_marked(mark, order.cluster_uid):
        # A user deleted the namespace since it was applied.
        await _apply(cluster, order, objects.NAMESPACES, notes)
    applied = await _apply(cluster, order, order.group, notes)
    report({"applied": len(applied), "group": order.group})
    await until_established(
        cluster, [target for target in applied if target.kind == CRD]
    )
    if order.group == objects.CRDS:
        await cluster.resources(refresh=True)
    return StackApplied(objects=len(applied), notes=notes)


async def _apply(
    cluster: ClusterApi, order: ApplyStackObjects, group: str, notes: list[str]
) -> list[ObjectId]:
    name, uid = order.connection.cluster, order.cluster_uid
    targets = list[ObjectId]()
    for item in objects.group(
        group,
        ServingStackSpec.model_validate(order.spec),
        RenderOwner(KIND, "", name, uid, generation=0),
    ):
        target = ObjectId.of(item.manifest)
        targets.append(target)
        live = await cluster.get(target)
        problem = object_conflict(live, name, uid) if live else ""
        if problem and target.kind == CRD:
            notes.append(f"{target.name} {_OF_OTHERS}")
        elif live and target.kind == CRD and (note := newer_note(live, item.manifest)):
            notes.append(note)
        elif problem and not (
            target.kind == NAMESPACE and not (live and owner_of(live).uid)
        ):
            raise NameConflict(
                f"{problem}; delete it, or annotate the cluster {labels.STACK}: external",
                RELEASE_CONFLICT,
            )
        else:
            if live and (lost := change_problem(live, item.manifest)):
                raise InvalidInput(lost)
            await cluster.apply(_manifest(item, live))
    return targets


def _manifest(item: RenderedObject, live: Json | None) -> Json:
    """Return the manifest to apply.

    A namespace that Modelplane creates gets an annotation to record that, because only
    such a namespace is deleted later.
    """
    if item.manifest["kind"] != NAMESPACE.kind or not (
        live is None or was_created(live)
    ):
        return item.manifest
    metadata = item.manifest["metadata"]
    owner = metadata["annotations"][labels.OWNER_NAME]
    annotations = {**metadata["annotations"], labels.CREATED_FOR: f"{KIND} {owner}"}
    return {**item.manifest, "metadata": {**metadata, "annotations": annotations}}


def was_created(namespace: Json) -> bool:
    """Return True if Modelplane created the namespace, rather than found it."""
    return labels.CREATED_FOR in (namespace["metadata"].get("annotations") or {})
