"""The Middlewares of services: whether the gateway of the control cluster loads them, and applying one.

A rule that names a Middleware which Traefik does not load answers 500, and its status says nothing of it. So none is named unless the
Gateway is ours, or says that Middlewares are loaded.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import structlog

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ObjectId, Selection
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.ownership import owner_of
from activities.heartbeat import Progress
from activities.observe.control import GATEWAY
from activities.observe.digest import content_digest
from activities.render.objects.manifest import Owner
from activities.render.services.retries import service_middleware
from activities.routing.applying import apply_item, delete_objects, delete_taken_over
from api_types import labels, names
from api_types.errors import InvalidInput, NameConflict, PermissionDenied, ServerError, StackMissing
from api_types.messages.gateway_work import RouteRetries

log = structlog.get_logger("modelplane.routing")

# Traefik loads the objects of each kind at most every two seconds.
LOAD_SECONDS = 5.0
THE_GATEWAY = Selection(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, fields=f"metadata.name={labels.CONTROL_GATEWAY_NAME}")
_ENABLED = "enabled"
_UNKNOWN_FIELD = "field not declared in schema"
_OLD_DEFINITIONS = "the CRDs of Traefik are older than what is needed, 3.7: apply those of the version that runs"
_NOT_SERVED = (
    f"the control cluster does not serve {kinds.MIDDLEWARE}: install the CRDs of Traefik there, of the version that runs, and enable its "
    "provider kubernetesCRD"
)
_NOT_LOADED = (
    f"{GATEWAY} was installed by others, and does not say that Middlewares are loaded: enable the provider kubernetesCRD of Traefik, then "
    f"`kubectl annotate gateway -n {labels.SYSTEM_NAMESPACE} {labels.CONTROL_GATEWAY_NAME} {labels.MIDDLEWARES}={_ENABLED}`"
)


class AppliedMiddleware(NamedTuple):
    """A digest over what was stored, empty if nothing could be, and why. `is_new`: it did not exist before."""

    digest: str = ""
    problem: str = ""
    is_new: bool = False


NONE = AppliedMiddleware()
NOT_LOADED_YET = AppliedMiddleware(
    problem="the gateway may not have loaded the Middleware yet, for the control cluster answers again since a moment"
)


def target_of(namespace: str, service: str) -> ObjectId:
    """Name the Middleware of a service."""
    return ObjectId(kinds.MIDDLEWARE, namespace, names.service_route_name(namespace, service))


async def apply_middleware(cluster: ClusterApi, owner: Owner, retries: RouteRetries) -> AppliedMiddleware:
    """Apply the Middleware of a service, or say why that cannot be done."""
    if problem := await _gateway_problem(cluster):
        return AppliedMiddleware(problem=problem)
    try:
        before = await cluster.get(target_of(owner.namespace, owner.name))
        stored = await apply_item(cluster, service_middleware(owner, retries), owner)
    except StackMissing:
        return AppliedMiddleware(problem=_NOT_SERVED)
    except ServerError as error:
        # How an API server refuses to apply a field that it does not know. Helm never upgrades definitions.
        if _UNKNOWN_FIELD not in error.message:
            raise
        return AppliedMiddleware(problem=f"{error.message}: {_OLD_DEFINITIONS}")
    except (InvalidInput, NameConflict, PermissionDenied) as error:
        return AppliedMiddleware(problem=error.message)
    return AppliedMiddleware(content_digest(stored), is_new=before is None)


async def is_there(cluster: ClusterApi, owner: Owner) -> bool:
    """Tell whether a service has a Middleware, or another one of its name; also False if it may not be read."""
    with _allowed(owner.namespace, owner.name):
        return await cluster.get(target_of(owner.namespace, owner.name)) is not None
    return False


async def delete_middleware(deleter: Deleter, namespace: str, service: str) -> None:
    """Delete the Middleware of a service. A user of the kubeconfig who may not read one has made none."""
    with _allowed(namespace, service):
        await delete_objects(deleter, [target_of(namespace, service)])


async def delete_middleware_taken_over(cluster: ClusterApi, owner: Owner, report: Callable[[Progress], None]) -> None:
    """Delete the Middleware of a service, or of an earlier one of its name."""
    with _allowed(owner.namespace, owner.name):
        await delete_taken_over(cluster, owner, report, [target_of(owner.namespace, owner.name)])


@contextmanager
def _allowed(namespace: str, service: str) -> Iterator[None]:
    try:
        yield
    except PermissionDenied as error:
        log.warning("a Middleware may be left", namespace=namespace, service=service, problem=error.message)


async def _gateway_problem(cluster: ClusterApi) -> str:
    listing = await cluster.list(THE_GATEWAY)
    if not listing.items:
        return f"{GATEWAY} does not exist"
    (gateway,) = listing.items
    if owner_of(gateway).kind == "InferenceGateway" or (gateway["metadata"].get("annotations") or {}).get(labels.MIDDLEWARES) == _ENABLED:
        return ""
    return _NOT_LOADED
