"""Services with their endpoints and load balancers, and the controller of gateways and routes."""

import zlib
from collections.abc import Iterable

from api_types.digests import short_hash
from tests.simulation.fields import Json
from tests.simulation.reconciling import (
    CONTROLLER,
    Hub,
    Part,
    condition_of,
    is_deleted,
    is_ready,
    key_of,
    owner_reference,
)
from tests.simulation.store import ObjectKey, matches

_LOAD_BALANCER = "service.kubernetes.io/load-balancer-cleanup"


class NetworkControllers(Part):
    """The controllers of Services and of the Gateway API."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._addresses = 0
        self._network = f"{zlib.crc32(self.store.name.encode()) & 255}.1"
        hub.on("Pod", self._pod)
        hub.on("Service", self._service)
        for kind in ("GatewayClass", "Gateway", "HTTPRoute", "InferencePool"):
            hub.on(kind, self._gateway_object)

    def _pod(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        del key
        if any(each and each.get("status", {}).get("podIP") for each in (before, after)):
            self._services_of(before or after or {})

    def _services_of(self, pod: Json) -> None:
        marks = pod["metadata"].get("labels") or {}
        for service in self.store.find("", "Service", pod["metadata"]["namespace"]):
            selector = service.get("spec", {}).get("selector")
            if selector and all(marks.get(name) == value for name, value in selector.items()):
                self.later(self._sync_service, key_of(service))

    def _service(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if (
            (before is None or after is None)
            or before["spec"] != after["spec"]
            or before["metadata"] != after["metadata"]
        ):
            self.later(self._sync_service, key)
            self._routes_in(key.namespace)

    def _sync_service(self, key: ObjectKey) -> None:
        service = self.store.get(key)
        if service is None:
            return
        if service["spec"].get("type") == "LoadBalancer":
            self._load_balancer(key, service)
        selector = service["spec"].get("selector")
        if not selector or is_deleted(service):
            return
        marks = ",".join(f"{name}={value}" for name, value in sorted(selector.items()))
        pods = [
            pod
            for pod in self.store.find("", "Pod", key.namespace)
            if matches(pod, marks) and pod.get("status", {}).get("podIP")
        ]
        endpoints = [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": is_ready(pod) and not is_deleted(pod)},
                "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"]},
            }
            for pod in pods
            if pod["status"].get("phase") == "Running"
        ]
        owned = {
            **(service["metadata"].get("labels") or {}),
            "kubernetes.io/service-name": key.name,
        }
        known = next((each for each, _ in self.hub.owned(service, "EndpointSlice")), None)
        if known is None:
            name = self.hub.generated(key.name)
            metadata = {
                "name": name,
                "namespace": key.namespace,
                "labels": owned,
                "ownerReferences": [owner_reference(service)],
            }
            slice_ = {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata,
                "addressType": "IPv4",
            }
            self.store.create({**slice_, "endpoints": endpoints}, CONTROLLER)
            return

        def change(content: Json) -> Json:
            return {
                **content,
                "metadata": {**content["metadata"], "labels": owned},
                "endpoints": endpoints,
            }

        self.store.edit(known, change, CONTROLLER)

    def _load_balancer(self, key: ObjectKey, service: Json) -> None:
        finalizers = service["metadata"].get("finalizers", [])
        if is_deleted(service):
            self.later(self.without_finalizer, key, _LOAD_BALANCER, after=self.behaviour.removal)
        elif _LOAD_BALANCER not in finalizers:
            self.store.set_finalizers(key, [*finalizers, _LOAD_BALANCER])
        elif "loadBalancer" not in service.get("status", {}):
            self.later(self._give_address, key, after=self.behaviour.address)

    def _give_address(self, key: ObjectKey) -> None:
        self._addresses += 1
        address = f"203.0.{self._addresses >> 8 & 255}.{self._addresses & 255}"
        self.store.set_status(key, loadBalancer={"ingress": [{"ip": address}]})
        for gateway in self.store.find("gateway.networking.k8s.io", "Gateway"):
            self.later(self._sync_gateway, key_of(gateway))

    def _gateway_object(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        if before is not None and after is not None and before["spec"] == after["spec"]:
            return
        if key.kind == "GatewayClass":
            self.later(self._sync_class, key, after=self.behaviour.gateway)
        elif key.kind == "Gateway":
            self.later(self._sync_gateway, key, after=self.behaviour.gateway)
        elif key.kind == "HTTPRoute":
            self.later(self._sync_route, key, after=self.behaviour.gateway)
        else:
            self._routes_in(key.namespace)

    def gateway_started(self) -> None:
        """Reconcile all gateways and routes, as the controller does when it starts."""
        for kind, sync in (
            ("GatewayClass", self._sync_class),
            ("Gateway", self._sync_gateway),
            ("HTTPRoute", self._sync_route),
        ):
            for item in self.store.find("gateway.networking.k8s.io", kind):
                self.later(sync, key_of(item), after=self.behaviour.gateway)

    def _routes_in(self, namespace: str) -> None:
        for route in self.store.find("gateway.networking.k8s.io", "HTTPRoute", namespace):
            self.later(self._sync_route, key_of(route), after=self.behaviour.gateway)

    def _sync_class(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is not None and self.behaviour.gateway_runs:
            features = [
                {"name": name} for name in ("HTTPRouteBackendTimeout", "HTTPRouteRequestTimeout")
            ]
            self.store.set_status(
                key, conditions=[condition_of(item, "Accepted")], supportedFeatures=features
            )
            for gateway in self.store.find(key.group, "Gateway"):
                self.later(self._sync_gateway, key_of(gateway))

    def _sync_gateway(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if not self.behaviour.gateway_runs:
            return
        service = ObjectKey(
            "",
            "Service",
            "envoy-gateway-system",
            f"envoy-{short_hash([key.namespace, key.name])[:8]}",
        )
        if item is None:
            if self.store.get(service):
                self.store.delete(service)
            return
        found = self.store.get(
            ObjectKey(key.group, "GatewayClass", "", item["spec"].get("gatewayClassName", ""))
        )
        if found is None or not found.get("status"):
            return
        if self.store.get(service) is None and self.store.get(
            ObjectKey("", "Namespace", "", service.namespace)
        ):
            self._create_gateway_service(service, key)
        made = self.store.get(service)
        addresses = (
            []
            if made is None
            else made.get("status", {}).get("loadBalancer", {}).get("ingress", [])
        )
        if made is None:
            addresses = [{"ip": f"10.245.{self._network}"}]
        values = [{"type": "IPAddress", "value": each["ip"]} for each in addresses]
        programmed = (
            condition_of(item, "Programmed")
            if values
            else {
                **condition_of(item, "Programmed"),
                "status": "False",
                "reason": "AddressNotAssigned",
            }
        )
        self.store.set_status(
            key, conditions=[condition_of(item, "Accepted"), programmed], addresses=values
        )
        for route in self.store.find(key.group, "HTTPRoute"):
            self.later(self._sync_route, key_of(route), after=self.behaviour.gateway)

    def _create_gateway_service(self, service: ObjectKey, gateway: ObjectKey) -> None:
        owning = "gateway.envoyproxy.io/owning-gateway"
        marks = {f"{owning}-name": gateway.name, f"{owning}-namespace": gateway.namespace}
        metadata = {"name": service.name, "namespace": service.namespace, "labels": marks}
        spec = {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": 10080}]}
        self.store.create(
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
            "envoy-gateway",
        )

    def _sync_route(self, key: ObjectKey) -> None:
        item = self.store.get(key)
        if item is None or not self.behaviour.gateway_runs:
            return
        parents = []
        backends = [
            each for rule in item["spec"].get("rules", ()) for each in rule.get("backendRefs", ())
        ]
        missing = [each["name"] for each in backends if not self._backend(each, key.namespace)]
        for parent in item["spec"].get("parentRefs", ()):
            where = ObjectKey(
                key.group, "Gateway", parent.get("namespace", key.namespace), parent["name"]
            )
            gateway = self.store.get(where)
            if gateway is None or not gateway.get("status"):
                continue
            resolved = condition_of(item, "ResolvedRefs")
            if missing:
                resolved = {
                    **resolved,
                    "status": "False",
                    "reason": "BackendNotFound",
                    "message": f"{missing[0]} not found",
                }
            parents.append(
                {"parentRef": parent, "conditions": [condition_of(item, "Accepted"), resolved]}
            )
        self.store.set_status(key, parents=parents)
        for each in backends:
            if each.get("kind") == "InferencePool":
                self._accept_pool(
                    ObjectKey(each.get("group", ""), "InferencePool", key.namespace, each["name"]),
                    parents,
                )

    def _backend(self, reference: Json, namespace: str) -> bool:
        kind = reference.get("kind", "Service")
        where = reference.get("namespace", namespace)
        return (
            self.store.get(ObjectKey(reference.get("group", ""), kind, where, reference["name"]))
            is not None
        )

    def _accept_pool(self, key: ObjectKey, parents: Iterable[Json]) -> None:
        pool = self.store.get(key)
        if pool is not None:
            accepted = [
                {"parentRef": each["parentRef"], "conditions": [condition_of(pool, "Accepted")]}
                for each in parents
            ]
            self.store.set_status(key, parents=accepted)
