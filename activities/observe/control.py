"""Reduce the objects on the control cluster to small records.

They are routes of services, backends of endpoints, the gateway and its class.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.ownership import ObjectOwner, owner_of
from activities.observe.conditions import condition, find_condition
from activities.observe.digest import content_digest
from activities.observe.gateway import address_of
from activities.render.objects.envoy_gateway import CONTROLLER as ENVOY_CONTROLLER
from api_types.base import NAME_MAX
from api_types.digests import short_hash
from api_types.labels import CONTROL_GATEWAY_NAME, SERVICE_NAME, SYSTEM_NAMESPACE
from api_types.messages.routing import BACKEND_TIMEOUT, REQUEST_TIMEOUT

GATEWAY = f"Gateway {SYSTEM_NAMESPACE}/{CONTROL_GATEWAY_NAME}"
_NO_STATUS = "the gateway has not reported a status for the route"


class RouteSeen(NamedTuple):
    """The HTTPRoute of a service, and the status that our gateway reports for it.

    The status describes the present generation. `message` is the reason if it is not
    accepted or resolved.
    """

    owner: ObjectOwner
    generation: int
    digest: str
    accepted: bool = False
    resolved: bool = False
    message: str = ""
    names_middleware: bool = False


class MiddlewareSeen(NamedTuple):
    owner: ObjectOwner
    digest: str


class BackendPart(NamedTuple):
    """The Service of an endpoint, or one of its slices.

    `service` is the name of the Service in both cases.
    """

    owner: ObjectOwner
    service: str
    digest: str


class GatewaySeen(NamedTuple):
    """The gateway: acceptance, first address, and the name of its class.

    `message` describes what is missing.
    """

    accepted: bool
    address: str
    message: str
    gateway_class: str = ""


class ClassSeen(NamedTuple):
    """The HTTPRoute timeouts that a GatewayClass supports.

    `problem` is the reason if the class does not show them.
    """

    request: bool = False
    backend_request: bool = False
    problem: str = ""


def read_route(item: Mapping[str, Any]) -> RouteSeen | None:
    """Reduce an HTTPRoute. Returns None if Modelplane does not own it."""
    owner = owner_of(item)
    if not owner.uid:
        return None
    generation = int(item["metadata"].get("generation") or 0)
    seen = RouteSeen(
        owner,
        generation,
        content_digest(item),
        message=_NO_STATUS,
        names_middleware=names_middleware(item),
    )
    for entry in (item.get("status") or {}).get("parents") or []:
        parent = entry.get("parentRef") or {}
        if (
            parent.get("name") != CONTROL_GATEWAY_NAME
            or parent.get("namespace", SYSTEM_NAMESPACE) != SYSTEM_NAMESPACE
        ):
            continue
        accepted = find_condition(entry.get("conditions") or [], "Accepted", generation)
        resolved = find_condition(
            entry.get("conditions") or [], "ResolvedRefs", generation
        )
        return seen._replace(
            accepted=accepted.is_true,
            resolved=resolved.is_true,
            message=accepted.text or resolved.text,
        )
    return seen


def read_middleware(item: Mapping[str, Any]) -> MiddlewareSeen | None:
    """Reduce a Middleware, or an object of Envoy Gateway.

    Returns None if Modelplane does not own it.
    """
    owner = owner_of(item)
    return MiddlewareSeen(owner, content_digest(item)) if owner.uid else None


def parts_digest(digests: Iterable[str]) -> str:
    """Return a digest of the digests of the objects to which a route refers.

    Returns "" for none, and for one object its own digest.
    """
    found = sorted(digests)
    return short_hash(found) if len(found) > 1 else "".join(found)


def names_middleware(route: Mapping[str, Any] | None) -> bool:
    """Return whether a route of a service refers to a Middleware or to Envoy's filter."""
    rules = ((route or {}).get("spec") or {}).get("rules") or ()
    return any(
        each.get("type") == "ExtensionRef"
        for rule in rules
        for each in rule.get("filters") or ()
    )


def read_service(item: Mapping[str, Any]) -> BackendPart | None:
    """Reduce a Service. Returns None if Modelplane does not own it."""
    owner = owner_of(item)
    return (
        BackendPart(owner, item["metadata"]["name"], content_digest(item))
        if owner.uid
        else None
    )


def read_slice(item: Mapping[str, Any]) -> BackendPart | None:
    """Reduce an EndpointSlice. Returns None if Modelplane does not own it."""
    owner = owner_of(item)
    service = (item["metadata"].get("labels") or {}).get(SERVICE_NAME, "")
    return BackendPart(owner, service, content_digest(item)) if owner.uid else None


def backend_digest(service: str, slices: Iterable[str]) -> str:
    """Return a digest of the digests of a Service and its slices.

    Returns "" if either is missing.
    """
    found = sorted(slices)
    return short_hash([service, found]) if service and found else ""


def read_gateway(gateway: Mapping[str, Any] | None) -> GatewaySeen:
    """Read the gateway, which is None if it does not exist.

    It can be accepted without an address: if nothing assigns addresses it never has
    one.
    """
    if gateway is None:
        return GatewaySeen(
            accepted=False, address="", message=f"{GATEWAY} does not exist"
        )
    accepted = condition(gateway, "Accepted")
    spec = gateway.get("spec") or {}
    gateway_class = str(spec.get("gatewayClassName") or "")[:NAME_MAX]
    if not accepted.is_true:
        return GatewaySeen(
            accepted=False,
            address="",
            message=f"{GATEWAY}: {accepted.text}",
            gateway_class=gateway_class,
        )
    found = address_of(gateway)
    message = "" if found.value else f"{GATEWAY} {found.problem}"
    return GatewaySeen(
        accepted=True, address=found.value, message=message, gateway_class=gateway_class
    )


def read_class(item: Mapping[str, Any]) -> ClassSeen:
    """Read a GatewayClass.

    Its controller writes the supported features, so a class that is not accepted shows
    none. The timeouts of Envoy Gateway are known without them.
    """
    accepted = condition(item, "Accepted")
    if not accepted.is_true:
        return ClassSeen(problem=accepted.text)
    if (item.get("spec") or {}).get("controllerName") == ENVOY_CONTROLLER:
        # Envoy Gateway lists no features, but supports both timeouts
        # (internal/gatewayapi/status/gatewayclass.go and route.go of v1.8).
        return ClassSeen(request=True, backend_request=True)
    listed = (item.get("status") or {}).get("supportedFeatures") or ()
    # In older versions of the Gateway API the features are plain strings.
    features = {
        each.get("name") if isinstance(each, Mapping) else each for each in listed
    }
    return ClassSeen(
        request=REQUEST_TIMEOUT in features, backend_request=BACKEND_TIMEOUT in features
    )
