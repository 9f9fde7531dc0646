"""Delete the objects of a stack group by group, and wait until each group is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import chain

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import (
    Deleter,
    list_served,
    poll_intervals,
    remaining_object,
)
from activities.cluster_objects.ownership import conflict
from activities.heartbeat import Progress
from activities.observe.conditions import condition
from activities.render.objects.manifest import RenderOwner
from activities.render.stack import objects
from activities.stack import balancers
from activities.stack.applying import was_created
from activities.stack.ownership import KIND, MARK, is_marked, object_conflict
from api_types import labels
from api_types.errors import InvalidInput
from api_types.messages.cluster_work import RemainingObject, TeardownStepResult
from api_types.messages.stack import (
    RemovedFinalizer,
    RemoveFinalizer,
    RemoveStackObjects,
)
from api_types.resources.serving_stack import ServingStackSpec

Report = Callable[[Progress], None]

_SHOWN_MAX = 20
_CONFLICTS_MAX = 10
_HINT_LENGTH_MAX = 600
_ROUTED = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE},{labels.REPLICA}"
# Conditions of a namespace that explain why its deletion does not end.
_NAMESPACE_SIGNS = (
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "NamespaceDeletionDiscoveryFailure",
)


async def until_no_routes(
    cluster: ClusterApi, wait_seconds: float, report: Report
) -> TeardownStepResult:
    """Wait until no route and no pool of Modelplane is left in any namespace.

    Returns the remaining ones at the time limit.
    """

    async def routes() -> list[RemainingObject]:
        found = list[Json]()
        for kind in (kinds.HTTP_ROUTE, kinds.INFERENCE_POOL):
            selection = Selection(kind, labels=_ROUTED, metadata_only=True)
            found += await list_served(cluster, selection)
        return [remaining_object(item) for item in found]

    return TeardownStepResult(remaining=await _until_none(routes, wait_seconds, report))


async def remove_finalizer(
    cluster: ClusterApi, order: RemoveFinalizer
) -> RemovedFinalizer:
    """Remove a finalizer from an object that is being deleted.

    Raises InvalidInput if the text is not the id of an object.
    """
    try:
        target = ObjectId.parse(order.object)
    except ValueError as error:
        raise InvalidInput(f"{order.object}: {error}") from error
    for _ in range(_CONFLICTS_MAX):
        found = await cluster.get(target)
        metadata = found["metadata"] if found else {}
        if found is None or order.finalizer not in (metadata.get("finalizers") or ()):
            return RemovedFinalizer(why="the object does not have it any more")
        if not metadata.get("deletionTimestamp"):
            return RemovedFinalizer(why="the object is not being deleted")
        left = [name for name in metadata["finalizers"] if name != order.finalizer]
        if await cluster.replace(
            {**found, "metadata": {**metadata, "finalizers": left}}
        ):
            return RemovedFinalizer(removed=True)
    return RemovedFinalizer(why="others keep changing the object; try again later")


async def remove_group(
    cluster: ClusterApi, order: RemoveStackObjects, report: Report
) -> TeardownStepResult:
    """Delete a group of objects, and wait until their dependents are gone.

    Objects of other owners are kept, with a warning. Only the mark of the stack shows
    whether objects of an earlier cluster of this name may be deleted. Deleting a
    definition deletes all objects of its kind, including objects of other owners. So
    the deletion of a definition waits until there are no objects, or is omitted if the
    operator skipped them.
    """
    deadline = asyncio.get_running_loop().time() + order.wait_seconds
    uid, name = order.cluster_uid, order.connection.cluster
    refusal = partial(conflict, uid=uid)
    if is_marked(await cluster.get(MARK), uid):
        refusal = partial(object_conflict, name=name, uid=uid)
    wanted = await _targets(cluster, order)
    targets = [target for target in wanted if str(target) not in order.skipped]
    kept = list[str]()
    if order.group == objects.CRDS:
        used = {
            target: await _instances(cluster, target, refusal) for target in targets
        }
        users = chain.from_iterable(used.values())
        waits = [item for item in users if item.id not in order.skipped]
        if waits:
            return TeardownStepResult(remaining=waits[:_SHOWN_MAX])
        kept = [
            f"{target} is kept: deleting it would delete {len(items)} {items[0].kind}"
            for target, items in used.items()
            if items
        ]
        targets = [target for target in targets if not used[target]]
    deleter = Deleter(cluster, uid, report, None, refusal)
    result = await deleter.until_gone(targets, timedelta(seconds=order.wait_seconds))
    remaining = [await _explained(cluster, item) for item in result.remaining]
    if order.group == objects.GATEWAY and not remaining and not result.skipped:
        # The Gateway has no finalizer, so it is gone before its Service, which only its
        # controller deletes. A Service of another owner is kept.
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        remaining = await _until_none(partial(_services, cluster, order), left, report)
    return TeardownStepResult(
        skipped=[*kept, *result.skipped], remaining=remaining[:_SHOWN_MAX]
    )


async def _services(
    cluster: ClusterApi, order: RemoveStackObjects
) -> list[RemainingObject]:
    return [
        item
        for item in await balancers.remaining_of_gateway(cluster)
        if item.id not in order.skipped
    ]


async def _targets(cluster: ClusterApi, order: RemoveStackObjects) -> list[ObjectId]:
    owner = RenderOwner(
        KIND, "", order.connection.cluster, order.cluster_uid, generation=0
    )
    found = [
        ObjectId.of(item.manifest)
        for item in objects.group(
            order.group, ServingStackSpec.model_validate(order.spec), owner
        )
    ]
    if order.group != objects.NAMESPACES:
        return list(reversed(found))
    targets = list[ObjectId]()
    for target in reversed(found):
        namespace = await cluster.get(target)
        if namespace is None:
            continue
        if was_created(namespace):
            targets.append(target)
        elif is_marked(namespace, order.cluster_uid):
            # The namespace existed before Modelplane used it. An apply without
            # Modelplane's marks removes them.
            await cluster.apply(
                {
                    "apiVersion": target.kind.api_version,
                    "kind": target.kind.kind,
                    "metadata": {"name": target.name},
                }
            )
    return targets


async def _instances(
    cluster: ClusterApi, target: ObjectId, refusal: Callable[[Json], str]
) -> list[RemainingObject]:
    """Return the objects of a kind whose definition is to be deleted.

    Returns none if the definition belongs to another owner, because it is kept.
    """
    definition = await cluster.get(target)
    if definition is None or refusal(definition):
        return []
    spec = definition["spec"]
    (stored,) = (version["name"] for version in spec["versions"] if version["storage"])
    kind = GroupVersionKind(f"{spec['group']}/{stored}", spec["names"]["kind"])
    return [
        remaining_object(item)
        for item in await list_served(cluster, Selection(kind, metadata_only=True))
    ]


async def _explained(cluster: ClusterApi, item: RemainingObject) -> RemainingObject:
    """Add the cluster's own explanation to an object that is not deleted."""
    found = await cluster.get(ObjectId.parse(item.id))
    if found is None:
        return item
    hints = [_namespace_hint(found)] if item.kind == kinds.NAMESPACE.kind else []
    if item.kind == kinds.GATEWAY_CLASS.kind:
        hints.append(await _class_users(cluster, item.name))
    return item.model_copy(
        update={"why": "; ".join(filter(None, [item.why, *hints]))[:_HINT_LENGTH_MAX]}
    )


def _namespace_hint(namespace: Json) -> str:
    messages = {
        entry.get("type"): entry.get("message")
        for entry in (namespace.get("status") or {}).get("conditions") or ()
    }
    return "; ".join(
        str(messages[sign])
        for sign in _NAMESPACE_SIGNS
        if condition(namespace, sign).is_true and messages.get(sign)
    )


async def _class_users(cluster: ClusterApi, name: str) -> str:
    gateways = await list_served(cluster, Selection(kinds.GATEWAY))
    users = [
        item["metadata"]
        for item in gateways
        if (item.get("spec") or {}).get("gatewayClassName") == name
    ]
    named = ", ".join(
        f"{each['namespace']}/{each['name']}" for each in users[:_SHOWN_MAX]
    )
    return f"Gateways of the class: {named}" if users else ""


async def _until_none(
    look: Callable[[], Awaitable[list[RemainingObject]]],
    within_seconds: float,
    report: Report,
) -> list[RemainingObject]:
    """Poll until nothing is found or the time limit passes.

    Returns the last result.
    """
    deadline = asyncio.get_running_loop().time() + within_seconds
    async for _ in poll_intervals():
        found = await look()
        if not found or asyncio.get_running_loop().time() >= deadline:
            return found[:_SHOWN_MAX]
        report({"waitingFor": [str(item) for item in found[:_SHOWN_MAX]]})
    raise AssertionError("poll_intervals never ends")
