"""The status that a gateway controller would report for the objects of a cluster.

These are pure functions from stored objects to desired status. They reject a missing
parent or backend as strictly as a real controller, because accepting every route would
hide such errors from users.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.cluster.objects import GATEWAY, NAMESPACE

Document = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""

GATEWAY_API = "gateway.networking.k8s.io"
INFERENCE = "inference.networking.k8s.io"


@dataclass
class RoutingObjects:
    """The routing objects of one cluster, by namespace and name."""

    gateway_classes: dict[Key, Document] = field(default_factory=dict)
    gateways: dict[Key, Document] = field(default_factory=dict)
    routes: dict[Key, Document] = field(default_factory=dict)
    services: dict[Key, Document] = field(default_factory=dict)
    pools: dict[Key, Document] = field(default_factory=dict)


def statuses(
    objects: RoutingObjects,
    address: str,
    now: Callable[[], str],
    served: str | None = None,
) -> list[tuple[Document, Document]]:
    """Pair each object with its desired status, if it differs from the present status.

    `address` is the address of every Gateway of the cluster. `now` returns the time for
    a changed condition. `served` is the controller name of a real gateway controller,
    which reports the status of its own classes, Gateways and routes.
    """
    wanted = [
        (item, _class_status(item, now))
        for item in objects.gateway_classes.values()
        if item["spec"]["controllerName"] != served
    ]
    wanted += [
        (item, _gateway_status(item, objects, address, now))
        for item in objects.gateways.values()
        if served is None or _controller(item, objects) != served
    ]
    wanted += [
        (item, _route_status(item, objects, now, served))
        for item in objects.routes.values()
    ]
    wanted += [
        (item, _pool_status(item, objects, now)) for item in objects.pools.values()
    ]
    return [
        (item, status)
        for item, status in wanted
        if {**item.get("status", {}), **status} != item.get("status", {})
    ]


def key_of(document: Document) -> Key:
    """Return the key of an object."""
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


class _Conditions:
    """The conditions of one status. Unchanged conditions keep their transition time."""

    def __init__(
        self, owner: Document, before: list[Document], now: Callable[[], str]
    ) -> None:
        self._generation = owner["metadata"].get("generation", 1)
        self._before = {condition["type"]: condition for condition in before}
        self._now = now
        self.found: list[Document] = []

    def add(
        self, kind: str, reason: str, message: str = "", *, good: bool = True
    ) -> "_Conditions":
        status = "True" if good else "False"
        before = self._before.get(kind, {})
        since = (
            before["lastTransitionTime"]
            if before.get("status") == status
            else self._now()
        )
        self.found.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "observedGeneration": self._generation,
                "lastTransitionTime": since,
            }
        )
        return self


def _class_status(item: Document, now: Callable[[], str]) -> Document:
    before = item.get("status", {}).get("conditions", [])
    return {
        "conditions": _Conditions(item, before, now).add("Accepted", "Accepted").found
    }


def _gateway_status(
    item: Document, objects: RoutingObjects, address: str, now: Callable[[], str]
) -> Document:
    before = item.get("status", {})
    conditions = _Conditions(item, before.get("conditions", []), now)
    name = item["spec"]["gatewayClassName"]
    if ("", name) not in objects.gateway_classes:
        conditions.add(
            "Accepted", "Pending", f"GatewayClass {name} does not exist", good=False
        )
        conditions.add(
            "Programmed", "Pending", f"GatewayClass {name} does not exist", good=False
        )
        return {"conditions": conditions.found, "addresses": [], "listeners": []}
    conditions.add("Accepted", "Accepted").add("Programmed", "Programmed")
    known = {
        listener["name"]: listener.get("conditions", [])
        for listener in before.get("listeners", [])
    }
    listeners = [
        {
            "name": listener["name"],
            "supportedKinds": [{"group": GATEWAY_API, "kind": "HTTPRoute"}],
            "attachedRoutes": sum(
                _listener_of(parent, route, item) in ("", listener["name"])
                for route in objects.routes.values()
                for parent in route["spec"].get("parentRefs", [])
            ),
            "conditions": _Conditions(item, known.get(listener["name"], []), now)
            .add("Accepted", "Accepted")
            .add("Programmed", "Programmed")
            .add("ResolvedRefs", "ResolvedRefs")
            .found,
        }
        for listener in item["spec"]["listeners"]
    ]
    return {
        "conditions": conditions.found,
        "addresses": [{"type": "IPAddress", "value": address}],
        "listeners": listeners,
    }


def _listener_of(parent: Document, route: Document, gateway: Document) -> str | None:
    """Return the listener of `gateway` that a parent reference names.

    An empty string means all listeners. None means that the reference names another
    Gateway.
    """
    if parent.get("kind", "Gateway") != "Gateway" or _parent_key(
        parent, route
    ) != key_of(gateway):
        return None
    return str(parent.get("sectionName", ""))


def _parent_key(parent: Document, route: Document) -> Key:
    return parent.get("namespace", route["metadata"].get("namespace", "")), parent[
        "name"
    ]


def _route_status(
    route: Document, objects: RoutingObjects, now: Callable[[], str], served: str | None
) -> Document:
    before = route.get("status", {}).get("parents", [])
    parents = []
    ours = set()
    for parent in route["spec"].get("parentRefs", []):
        gateway = objects.gateways.get(_parent_key(parent, route))
        controller = gateway and _controller(gateway, objects)
        if gateway is None or controller is None or controller == served:
            # a controller reports nothing about a parent that is missing or not its own
            continue
        ours.add(controller)
        mine = (
            entry
            for entry in before
            if entry["parentRef"] == parent and entry["controllerName"] == controller
        )
        known: list[Document] = next(mine, {"conditions": []})["conditions"]
        conditions = _Conditions(route, known, now)
        section = parent.get("sectionName")
        if section is None or any(
            listener["name"] == section for listener in gateway["spec"]["listeners"]
        ):
            conditions.add("Accepted", "Accepted")
        else:
            conditions.add(
                "Accepted",
                "NoMatchingParent",
                f"Gateway {gateway['metadata']['name']} has no listener {section}",
                good=False,
            )
        missing = _missing_backends(route, objects)
        if missing:
            conditions.add(
                "ResolvedRefs",
                "BackendNotFound",
                f"no such backend: {', '.join(missing)}",
                good=False,
            )
        else:
            conditions.add("ResolvedRefs", "ResolvedRefs")
        parents.append(
            {
                "parentRef": parent,
                "controllerName": controller,
                "conditions": conditions.found,
            }
        )
    others = [
        entry
        for entry in before
        if entry["controllerName"] not in ours and _names_parent(entry, route)
    ]
    return {"parents": parents + others}


def _names_parent(entry: Document, route: Document) -> bool:
    return entry["parentRef"] in route["spec"].get("parentRefs", [])


def _controller(gateway: Document, objects: RoutingObjects) -> str | None:
    gateway_class = objects.gateway_classes.get(
        ("", gateway["spec"]["gatewayClassName"])
    )
    return (
        None if gateway_class is None else str(gateway_class["spec"]["controllerName"])
    )


def _backends(route: Document) -> list[tuple[str, Key]]:
    namespace = route["metadata"].get("namespace", "")
    references = [
        reference
        for rule in route["spec"].get("rules", [])
        for reference in rule.get("backendRefs", [])
    ]
    return [
        (
            reference.get("kind", "Service"),
            (reference.get("namespace", namespace), reference["name"]),
        )
        for reference in references
    ]


def _missing_backends(route: Document, objects: RoutingObjects) -> list[str]:
    known: Mapping[str, Mapping[Key, Document]] = {
        "Service": objects.services,
        "InferencePool": objects.pools,
    }
    missing = {
        f"{kind} {key[0]}/{key[1]}"
        for kind, key in _backends(route)
        if key not in known.get(kind, {})
    }
    return sorted(missing)


def _pool_status(
    pool: Document, objects: RoutingObjects, now: Callable[[], str]
) -> Document:
    """Accept a pool at each Gateway whose routes refer to it.

    Without a route, accept it at the cluster's own Gateway.
    """
    before = pool.get("status", {}).get("parents", [])
    here = key_of(pool)
    parents = {
        _parent_key(parent, route)
        for route in objects.routes.values()
        if ("InferencePool", here) in _backends(route)
        for parent in route["spec"].get("parentRefs", [])
    } or {(NAMESPACE, GATEWAY)}
    entries = []
    for namespace, name in sorted(parents & objects.gateways.keys()):
        reference = {
            "group": GATEWAY_API,
            "kind": "Gateway",
            "namespace": namespace,
            "name": name,
        }
        known: list[Document] = next(
            (
                entry["conditions"]
                for entry in before
                if entry["parentRef"] == reference
            ),
            [],
        )
        conditions = (
            _Conditions(pool, known, now)
            .add("Accepted", "Accepted")
            .add("ResolvedRefs", "ResolvedRefs")
        )
        entries.append({"parentRef": reference, "conditions": conditions.found})
    return {"parents": entries}
