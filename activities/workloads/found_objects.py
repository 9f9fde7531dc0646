"""Find objects of a replica that are missing from its inventory.

An interrupted apply, or a terminated and restarted workflow, leaves such objects. They
have the replica's label and its owner uid. When the inventory includes them, an apply
replaces objects that must be deleted first, and pruning deletes objects that are no
longer rendered.
"""

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId, Selection
from activities.cluster_objects.deletion import list_served
from activities.cluster_objects.ownership import owner_of
from activities.render.objects import components
from activities.render.objects.inventory_keys import ENGINE_PREFIX
from activities.secrets.shared_copies import copies_of
from api_types import labels, names
from api_types.messages.cluster_work import AppliedObject, ApplyReplica

_WORKLOADS = {kinds.DEPLOYMENT.kind, kinds.LEADER_WORKER_SET.kind}
# Prefix of the inventory keys of found objects. Their real key is unknown, so kind and
# name follow the prefix.
FOUND_PREFIX = "found-"


async def with_found(cluster: ClusterApi, order: ApplyReplica) -> ApplyReplica:
    """Add the objects that exist on the cluster to the inventory of an order."""
    known = {entry.identity for entry in order.inventory}
    selector = f"{labels.REPLICA}={names.workload_name(order.namespace, order.name)}"
    served = await cluster.resources()
    found = []
    for kind in kinds.replica_kinds(served):
        selection = Selection(kind, labels=selector, metadata_only=True)
        for item in await list_served(cluster, selection):
            target = ObjectId.of(item)
            if owner_of(item).uid == order.uid and target.identity not in known:
                found.append(AppliedObject(key=_key(item), id=str(target)))
    return order.model_copy(update={"inventory": [*order.inventory, *found]})


async def with_found_copies(
    cluster: ClusterApi, order: ApplyReplica, namespace: str, user: str
) -> ApplyReplica:
    """Add the shared copies in `namespace` that carry the annotation of `user`.

    An earlier attempt may have made a copy that this attempt does not need, because the
    source of an optional reference was deleted between them.
    """
    known = {entry.identity for entry in order.inventory}
    found = [
        AppliedObject(
            key=f"{target.kind.kind.lower()}-{FOUND_PREFIX}{target.name}",
            id=str(target),
        )
        for target in await copies_of(cluster, namespace, user)
        if target.identity not in known
    ]
    return order.model_copy(update={"inventory": [*order.inventory, *found]})


def _key(item: Json) -> str:
    """Return the inventory key of a found object.

    An engine gets its usual key, so that an apply finds the workload that it replaces.
    Any other object only needs a unique key.
    """
    marks = item["metadata"]["labels"]
    engine = marks.get(labels.ENGINE, "")
    if (
        engine
        and marks.get(labels.COMPONENT) == components.ENGINE
        and item["kind"] in _WORKLOADS
    ):
        return f"{ENGINE_PREFIX}{engine}"
    return f"{FOUND_PREFIX}{item['kind'].lower()}-{item['metadata']['name']}"
