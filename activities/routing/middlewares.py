"""Apply Middlewares of services, if the gateway of the control cluster loads them.

A rule that references a Middleware which Traefik does not load responds with 500, and
its status does not show that. So routes reference one only if Modelplane installed the
Gateway, or if an annotation of the Gateway states that Middlewares are loaded.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import structlog

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ObjectId, Selection
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.observe.control import GATEWAY
from activities.observe.digest import content_digest
from activities.render.objects.manifest import RenderOwner
from activities.render.services.retries import service_middleware
from activities.routing.applying import apply_item, delete_taken_over
from api_types import labels, names
from api_types.errors import (
    InvalidInput,
    NameConflict,
    PermissionDenied,
    ServerError,
    StackMissing,
)
from api_types.messages.gateway_work import RouteRetries

log = structlog.get_logger("modelplane.routing")

# Traefik loads the objects of each kind at most every two seconds.
LOAD_SECONDS = 5.0
THE_GATEWAY = Selection(
    kinds.GATEWAY,
    labels.SYSTEM_NAMESPACE,
    fields=f"metadata.name={labels.CONTROL_GATEWAY_NAME}",
)
_ENABLED = "enabled"
_UNKNOWN_FIELD = "field not declared in schema"
_OLD_DEFINITIONS = (
    "the CRDs of Traefik are older than 3.7, the required version: "
    "apply those of the version that runs"
)
_NOT_SERVED = (
    f"the control cluster does not serve {kinds.MIDDLEWARE}: install the CRDs of Traefik "
    "there, of the version that runs, and enable its provider kubernetesCRD"
)
_NOT_LOADED = (
    f"{GATEWAY} was installed by others, and does not say that Middlewares are loaded: "
    "enable the provider kubernetesCRD of Traefik, then "
    f"`kubectl annotate gateway -n {labels.SYSTEM_NAMESPACE} "
    f"{labels.CONTROL_GATEWAY_NAME} {labels.MIDDLEWARES}={_ENABLED}`"
)


class AppliedMiddleware(NamedTuple):
    """A digest of the stored Middleware, or the problem that prevented storing it.

    `is_new` is True if it did not exist before.
    """

    digest: str = ""
    problem: str = ""
    is_new: bool = False


NONE = AppliedMiddleware()
NOT_LOADED_YET = AppliedMiddleware(
    problem=(
        "the gateway may not have loaded the Middleware yet, because the control cluster "
        "has only just become reachable again"
    )
)


def target_of(namespace: str, service: str) -> ObjectId:
    return ObjectId(
        kinds.MIDDLEWARE, namespace, names.service_route_name(namespace, service)
    )


async def apply_middleware(
    cluster: ClusterApi, owner: RenderOwner, retries: RouteRetries
) -> AppliedMiddleware:
    """Apply the Middleware of a service, or return the problem."""
    if problem := await _gateway_problem(cluster):
        return AppliedMiddleware(problem=problem)
    try:
        before = await cluster.get(target_of(owner.namespace, owner.name))
        stored = await apply_item(cluster, service_middleware(owner, retries), owner)
    except StackMissing:
        return AppliedMiddleware(problem=_NOT_SERVED)
    except ServerError as error:
        # The API server's error for a field that it does not know. Helm never upgrades
        # definitions.
        if _UNKNOWN_FIELD not in error.message:
            raise
        return AppliedMiddleware(problem=f"{error.message}: {_OLD_DEFINITIONS}")
    except (InvalidInput, NameConflict, PermissionDenied) as error:
        return AppliedMiddleware(problem=error.message)
    return AppliedMiddleware(content_digest(stored), is_new=before is None)


async def is_there(cluster: ClusterApi, owner: RenderOwner) -> bool:
    """Return whether a Middleware with the name of a service's exists.

    Returns False if it cannot be read.
    """
    with _allowed(owner.namespace, owner.name):
        return await cluster.get(target_of(owner.namespace, owner.name)) is not None
    return False


async def delete_middleware(
    owner: RenderOwner, remove: Callable[[list[ObjectId]], Awaitable[None]]
) -> None:
    """Delete the Middleware of a service.

    A kubeconfig user without read permission has created none.
    """
    with _allowed(owner.namespace, owner.name):
        await remove([target_of(owner.namespace, owner.name)])


async def delete_middleware_taken_over(
    cluster: ClusterApi, owner: RenderOwner, report: Callable[[Progress], None]
) -> None:
    """Delete the Middleware of a service or its predecessor of the same name."""
    with _allowed(owner.namespace, owner.name):
        await delete_taken_over(
            cluster, owner, report, [target_of(owner.namespace, owner.name)]
        )


@contextmanager
def _allowed(namespace: str, service: str) -> Iterator[None]:
    try:
        yield
    except PermissionDenied as error:
        log.warning(
            "a Middleware may be left",
            namespace=namespace,
            service=service,
            problem=error.message,
        )


async def _gateway_problem(cluster: ClusterApi) -> str:
    listing = await cluster.list(THE_GATEWAY)
    if not listing.items:
        return f"{GATEWAY} does not exist"
    (gateway,) = listing.items
    owned = owner_of(gateway).kind == "InferenceGateway"
    annotations = gateway["metadata"].get("annotations") or {}
    if owned or annotations.get(labels.MIDDLEWARES) == _ENABLED:
        return ""
    return _NOT_LOADED
