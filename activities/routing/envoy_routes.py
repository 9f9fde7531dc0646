"""Apply and delete the objects of services that only Envoy Gateway knows."""

from collections.abc import Callable, Sequence

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId, Selection
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.observe.control import parts_digest
from activities.observe.digest import content_digest
from activities.render.objects.manifest import RenderOwner
from activities.render.services.envoy import envoy_objects
from activities.render.services.route_plan import RoutedBackend
from activities.routing.applying import apply_item, delete_objects, is_of_name
from api_types import labels
from api_types.messages.gateway_work import ApplyRoute

# Policies first: a policy without its Backends is harmless.
PARTS = (kinds.BACKEND_TRAFFIC_POLICY, kinds.HTTP_ROUTE_FILTER, kinds.BACKEND)
_MANAGED = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"


async def apply_route(
    cluster: ClusterApi,
    owner: RenderOwner,
    order: ApplyRoute,
    backends: Sequence[RoutedBackend],
    report: Callable[[Progress], None],
) -> tuple[Json, str]:
    """Apply the parts of a service and its route, and delete parts of no more use.

    Return the stored route and a digest of the parts. Raises NameConflict, and
    StackMissing without the CRDs of Envoy Gateway.
    """
    parts, route = envoy_objects(owner, backends, order.retries, order.timeouts)
    stored = [await apply_item(cluster, part, owner) for part in parts]
    stored_route = await apply_item(cluster, route, owner)
    used = {ObjectId.of(part.manifest) for part in parts}
    for target, uid in await _parts(cluster, owner):
        if target not in used:
            await delete_objects(Deleter(cluster, uid, report, None), [target])
    return stored_route, parts_digest(content_digest(each) for each in stored)


async def parts_of(cluster: ClusterApi, owner: RenderOwner) -> list[ObjectId]:
    """Return the parts of a service and of its predecessors."""
    return [target for target, _ in await _parts(cluster, owner)]


async def _parts(cluster: ClusterApi, owner: RenderOwner) -> list[tuple[ObjectId, str]]:
    """Return the parts of a service with the uids of their owners.

    A predecessor of the same name may have left some.
    """
    served = await cluster.resources()
    return [
        (ObjectId.of(each), owner_of(each).uid)
        for kind in PARTS
        if kind in served
        for each in (
            await cluster.list(Selection(kind, owner.namespace, _MANAGED))
        ).items
        if is_of_name(each, owner)
    ]
