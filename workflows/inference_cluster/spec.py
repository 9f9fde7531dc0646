"""Read the connection, classes and taints of an InferenceCluster.

They come from the spec and from annotations. All functions are pure.
"""

from typing import Any

from api_types import labels, queues
from api_types.messages.cluster_work import Connect, Connection, Identity
from api_types.queues import ClusterWork
from api_types.resources.inference_cluster import IdentityRef
from api_types.resources.parts.pod_policy import policies_by_pool
from workflows.inference_cluster.state import ClusterState

CREATED = ("GKE", "EKS")
"""The sources for which Modelplane creates the cluster."""


def connection_of(name: str, state: ClusterState) -> Connection | None:
    """Return the reference to the credentials.

    None if the cluster does not exist yet.
    """
    source = (state.spec or {}).get("cluster", {})
    queue = state.annotations.get(labels.TASK_QUEUE, queues.CLUSTERS)
    if source.get("source") != "Existing":
        account = state.cloud.account
        if account is None:
            return None
        namespace = labels.SYSTEM_NAMESPACE
        return Connection(
            cluster=name,
            namespace=namespace,
            name=account.secret,
            key="",
            task_queue=queue,
            cloud=account,
        )
    return existing_connection(name, source["existing"], queue)


def existing_connection(
    name: str, existing: dict[str, Any], queue: str = queues.CLUSTERS
) -> Connection:
    """Return the reference to the credentials of a cluster with source Existing."""
    ref, identity = existing["secretRef"], _identity(existing.get("identitySecretRef"))
    where = {
        "cluster": name,
        "namespace": labels.SYSTEM_NAMESPACE,
        "name": ref["name"],
        "key": ref.get("key", "kubeconfig"),
    }
    return Connection(**where, task_queue=queue, identity=identity)


def _identity(ref: dict[str, Any] | None) -> Identity | None:
    """Return the identity that a spec names, or None if it has no effect."""
    found = IdentityRef.model_validate(ref) if ref else None
    if found is None or found.type == "NebiusServiceAccountCredentials":
        return None
    return Identity(name=found.name, key=found.key, type=found.type)


def is_created(state: ClusterState) -> bool:
    """Return whether Modelplane creates this cluster at a cloud."""
    return (state.spec or {}).get("cluster", {}).get("source") in CREATED


def connect_order(connection: Connection, state: ClusterState) -> Connect:
    scheduler = declared_facts(state)["scheduler_type"]
    return Connect(
        connection=connection,
        capacity_adapter=capacity_adapter(state),
        scheduler_type=scheduler,
    )


def capacity_adapter(state: ClusterState) -> str:
    return state.annotations.get(labels.CAPACITY_ADAPTER, "none")


def is_managed(state: ClusterState) -> bool:
    """Return whether Modelplane installs the serving stack."""
    return state.annotations.get(labels.STACK, "managed") != "external"


def is_only_planned(state: ClusterState) -> bool:
    """Return whether the stack is planned and shown, and not installed or changed."""
    return state.annotations.get(labels.STACK) == "plan"


def call_queue(connection: Connection) -> str:
    """Return the task queue of short calls.

    Its workers are never busy for long, so a task that waits there has no worker.
    """
    return queues.cluster_queue(connection.task_queue, ClusterWork.CALL)


def declared_facts(state: ClusterState) -> dict[str, Any]:
    """Return the facts that users declare by annotation or in the spec."""
    annotations = state.annotations
    cluster = (state.spec or {}).get("cluster", {})
    # Blocks of other sources may be present. They are ignored.
    cache = (
        (cluster.get("existing") or {}).get("cache") or {}
        if cluster.get("source") == "Existing"
        else {}
    )
    made = state.cloud.report.storage_class if state.cloud.report else ""
    return {
        "routing": annotations.get(labels.ROUTING, "pool"),
        "scheduler_type": annotations.get(labels.SCHEDULER_TYPE, "none"),
        "mesh_provider": annotations.get(labels.MESH_PROVIDER, "none"),
        "storage_class_name": cache.get("storageClassName") or made,
    }


def node_pools(state: ClusterState) -> list[dict[str, Any]]:
    return list((state.spec or {}).get("nodePools", ()))


def pod_policies(state: ClusterState) -> dict[str, dict[str, Any]]:
    """Return the pod policy that the classes grant to engine pods, by pool."""
    return policies_by_pool(
        node_pools(state), {name: known.spec for name, known in state.classes.items()}
    )


def granted_tolerations(state: ClusterState) -> dict[str, list[dict[str, Any]]]:
    """Return the granted tolerations by pool."""
    return {
        pool: list(policy["tolerations"])
        for pool, policy in pod_policies(state).items()
        if policy.get("tolerations")
    }


def class_names(state: ClusterState) -> list[str]:
    """Return the class names of the pools without duplicates, in pool order."""
    return list(dict.fromkeys(pool["className"] for pool in node_pools(state)))


def missing_classes(state: ClusterState) -> list[str]:
    """Return the classes of the pools that have not reported yet."""
    return [name for name in class_names(state) if name not in state.classes]


def reporting_classes(state: ClusterState) -> list[str]:
    """Return the missing classes that exist, so that their report is on the way."""
    return [name for name in missing_classes(state) if name in state.registered_classes]
