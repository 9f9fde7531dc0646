"""Objects of a replica that its inventory does not have: an apply was interrupted, or the workflow was terminated and started again.

They are found by the replica's label and belong to it by their owner uid. With them in the inventory an apply replaces what must be gone
first, and pruning deletes what is no longer rendered.
"""

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId, Selection
from activities.cluster_objects.deletion import list_served
from activities.cluster_objects.ownership import owner_of
from activities.render.objects import components
from activities.render.objects.inventory_keys import ENGINE_PREFIX
from api_types import labels, names
from api_types.messages.cluster_work import AppliedObject, ApplyReplica

_WORKLOADS = {kinds.DEPLOYMENT.kind, kinds.LEADER_WORKER_SET.kind}
# What the inventory key of an object begins with that no key is known of; only the kind and the name after it are its own.
FOUND_PREFIX = "found-"


async def with_found(cluster: ClusterApi, order: ApplyReplica) -> ApplyReplica:
    """Add the objects that are on the cluster to the inventory of an order."""
    known = {entry.identity for entry in order.inventory}
    selector = f"{labels.REPLICA}={names.workload_name(order.namespace, order.name)}"
    served = await cluster.resources()
    listed = [
        item
        for kind in kinds.replica_kinds(served)
        for item in await list_served(cluster, Selection(kind, labels=selector, metadata_only=True))
        if owner_of(item).uid == order.uid
    ]
    found = [AppliedObject(key=_key(item), id=str(target)) for item in listed if (target := ObjectId.of(item)).identity not in known]
    return order.model_copy(update={"inventory": [*order.inventory, *found]})


def _key(item: Json) -> str:
    """Give the key of an engine, by which an apply finds what the engine replaces; any other object only needs one of its own."""
    marks = item["metadata"]["labels"]
    engine = marks.get(labels.ENGINE, "")
    if engine and marks.get(labels.COMPONENT) == components.ENGINE and item["kind"] in _WORKLOADS:
        return f"{ENGINE_PREFIX}{engine}"
    return f"{FOUND_PREFIX}{item['kind'].lower()}-{item['metadata']['name']}"
