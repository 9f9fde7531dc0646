"""Create the namespaces of applied objects, and check who may use an existing one.

Namespaces are never deleted.

Tenants choose the names of namespaces, and a cluster may have other namespaces of the
same name. A tenant named `argocd` must not get pods next to Argo CD, because these
could read its Secrets. So a namespace that Modelplane did not create is used only if an
administrator of the cluster allows it.
"""

from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.kinds import NAMESPACE
from api_types import labels
from api_types.errors import PermissionDenied, ServerError
from api_types.names import is_reserved_namespace

NOT_ALLOWED = "NamespaceNotAllowed"
# Every cluster has this namespace, and no part of the cluster runs in it.
_OF_NOBODY = "default"


async def ensure_namespace(
    cluster: ClusterApi, namespace: str, created_for: str, *, shared: bool = False
) -> None:
    """Create a namespace, or check that an existing one may be used.

    A namespace outlives the object that it was created for, so it gets no owner labels.
    `shared` means that an operator chose it for all tenants. Raises PermissionDenied
    with the next step if the namespace belongs to others.
    """
    if is_reserved_namespace(namespace):
        raise PermissionDenied(
            f"namespace {namespace} belongs to the platform; use a namespace of your own",
            NOT_ALLOWED,
        )
    found = await cluster.get(ObjectId(NAMESPACE, "", namespace))
    if found is None:
        if await cluster.create(_manifest(namespace, created_for)):
            return
        found = await cluster.get(ObjectId(NAMESPACE, "", namespace))
        if found is None:
            raise ServerError(
                f"namespace {namespace} was created and deleted by others meanwhile"
            )
    if not (shared or namespace == _OF_NOBODY or _is_allowed(found)):
        raise PermissionDenied(
            f"namespace {namespace} exists on the cluster and was not created by "
            "Modelplane; if models may run there, have an administrator of the cluster "
            f"run: kubectl annotate namespace {namespace} {labels.ALLOW_WORKLOADS}=true",
            NOT_ALLOWED,
        )


def _is_allowed(namespace: Json) -> bool:
    annotations = namespace["metadata"].get("annotations") or {}
    return (
        labels.CREATED_FOR in annotations
        or annotations.get(labels.ALLOW_WORKLOADS) == "true"
    )


def _manifest(namespace: str, created_for: str) -> Json:
    metadata = {
        "name": namespace,
        "annotations": {labels.CREATED_FOR: created_for},
        "labels": dict(labels.POD_SECURITY),
    }
    return {
        "apiVersion": NAMESPACE.api_version,
        "kind": NAMESPACE.kind,
        "metadata": metadata,
    }
