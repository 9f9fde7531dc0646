"""A stand-in for Envoy Gateway and a cloud, as a serving stack observes them.

It writes statuses, creates the load balancer of each Gateway, and removes finalizers
late. Like the real controller, it acts only while the Deployment of Envoy Gateway is
available. The cloud always acts.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from activities.clouds.desired.owner import SYSTEM_POOL
from testbed.cluster.kube import trust
from testbed.cluster.pki import Authority
from tests.environment.patient_http import patient_client
from tests.environment.stack_charts import POOL_ROLE, READABLE

Json = dict[str, Any]

NAMESPACE = "envoy-gateway-system"
CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
CLASS_FINALIZER = "gateway-exists-finalizer.gateway.networking.k8s.io"
CLOUD_FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
_GATEWAYS = "/apis/gateway.networking.k8s.io/v1/gateways"
_SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
_OWNING = "gateway.envoyproxy.io/owning-gateway"
_PAUSE_SECONDS = 0.2


@dataclass
class Behaviour:
    """The behaviour of the stand-in.

    A test may change it at any time.

    `addresses` are the addresses of each Gateway; empty means that the cloud assigns
    none. `service_lag` is the time in seconds from the deletion of a Gateway to the
    deletion of its Service. `releases_balancers` says whether the cloud deletes load
    balancers, and `accepts` whether the controller accepts classes and Gateways.
    """

    addresses: tuple[str, ...] = ("10.245.9.9",)
    service_lag: float = 0.5
    releases_balancers: bool = True
    accepts: bool = True


@dataclass
class EnvoyStandIn:
    """The controller of one cluster. `log` lists its actions in order."""

    server: str
    authority: Authority
    behaviour: Behaviour = field(default_factory=Behaviour)
    log: list[str] = field(default_factory=list)
    _gone_since: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator["EnvoyStandIn"]:
        """Act until the end of the block."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def _run(self, stop: threading.Event) -> None:
        with patient_client(self.server, trust(self.authority), timeout=20) as http:
            while not stop.wait(_PAUSE_SECONDS):
                # After a conflict or a restart of the server, the next step reads
                # again.
                with contextlib.suppress(httpx.HTTPError):
                    self._step(http)

    def _step(self, http: httpx.Client) -> None:
        self._let_envoy_start(http)
        deployment = _get(
            http, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/envoy-gateway"
        )
        if deployment and (deployment.get("status") or {}).get("availableReplicas"):
            gateways = _list(http, _GATEWAYS)
            for each in _list(http, _CLASSES):
                if each["spec"]["controllerName"] == CONTROLLER:
                    self._reconcile_class(http, each, gateways)
                    for gateway in gateways:
                        if (
                            gateway["spec"]["gatewayClassName"]
                            == each["metadata"]["name"]
                            and self.behaviour.accepts
                        ):
                            self._reconcile_gateway(http, gateway)
            self._delete_orphans(http, gateways)
        if self.behaviour.releases_balancers:
            for service in _list(http, _SERVICES):
                if service["metadata"].get("deletionTimestamp") and CLOUD_FINALIZER in (
                    service["metadata"].get("finalizers") or ()
                ):
                    self.log.append(f"released {service['metadata']['name']}")
                    _patch(
                        http,
                        f"{_SERVICES}/{service['metadata']['name']}",
                        {"metadata": {"finalizers": None}},
                    )

    def _let_envoy_start(self, http: httpx.Client) -> None:
        """Label the system nodes once Envoy Gateway can read InferencePools."""
        crd = _get(
            http,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            "/inferencepools.inference.networking.k8s.io",
        )
        role = _get(
            http, f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{POOL_ROLE}"
        )
        for node in _list(http, "/api/v1/nodes"):
            found = node["metadata"]["labels"]
            if found.get("modelplane.ai/pool", SYSTEM_POOL) == SYSTEM_POOL and (
                READABLE in found
            ) != bool(crd and role):
                _patch(
                    http,
                    f"/api/v1/nodes/{node['metadata']['name']}",
                    {
                        "metadata": {
                            "labels": {READABLE: "true" if crd and role else None}
                        }
                    },
                )

    def _reconcile_class(
        self, http: httpx.Client, found: Json, gateways: list[Json]
    ) -> None:
        path = f"{_CLASSES}/{found['metadata']['name']}"
        used = any(
            gateway["spec"]["gatewayClassName"] == found["metadata"]["name"]
            for gateway in gateways
        )
        if used != (
            CLASS_FINALIZER in (found["metadata"].get("finalizers") or ())
        ) and not (used and found["metadata"].get("deletionTimestamp")):
            _patch(
                http,
                path,
                {"metadata": {"finalizers": [CLASS_FINALIZER] if used else None}},
            )
        if self.behaviour.accepts and not _says(found, "Accepted"):
            _patch(
                http,
                f"{path}/status",
                {"status": {"conditions": [_condition(found, "Accepted")]}},
            )

    def _reconcile_gateway(self, http: httpx.Client, gateway: Json) -> None:
        metadata = gateway["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        name = f"envoy-{metadata['namespace']}-{metadata['name']}"
        if _get(http, f"{_SERVICES}/{name}") is None:
            labels = {
                f"{_OWNING}-name": metadata["name"],
                f"{_OWNING}-namespace": metadata["namespace"],
            }
            spec = {
                "type": "LoadBalancer",
                "ports": [{"port": 80}],
                "selector": {"app": name},
            }
            body = {
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "finalizers": [CLOUD_FINALIZER],
                },
                "spec": spec,
            }
            http.post(_SERVICES, json=body).raise_for_status()
            self.log.append(f"created {name}")
        addresses = [
            {"type": "IPAddress", "value": value} for value in self.behaviour.addresses
        ]
        kinds = ["Accepted", "Programmed"] if addresses else ["Accepted"]
        status = gateway.get("status") or {}
        if (status.get("addresses") or []) != addresses or not all(
            _says(gateway, kind) for kind in kinds
        ):
            change = {
                "status": {
                    "addresses": addresses,
                    "conditions": [_condition(gateway, kind) for kind in kinds],
                }
            }
            _patch(http, f"{_namespaced(gateway)}/status", change)

    def _delete_orphans(self, http: httpx.Client, gateways: list[Json]) -> None:
        """Delete the Services of deleted Gateways after `service_lag`."""
        there = {
            (gateway["metadata"]["namespace"], gateway["metadata"]["name"])
            for gateway in gateways
        }
        for service in _list(http, _SERVICES):
            metadata = service["metadata"]
            labels = metadata.get("labels") or {}
            owner = (labels.get(f"{_OWNING}-namespace"), labels.get(f"{_OWNING}-name"))
            if None in owner or owner in there or metadata.get("deletionTimestamp"):
                self._gone_since.pop(metadata["uid"], None)
            elif (
                time.monotonic()
                - self._gone_since.setdefault(metadata["uid"], time.monotonic())
                >= self.behaviour.service_lag
            ):
                self.log.append(f"deleted {metadata['name']}")
                http.delete(f"{_SERVICES}/{metadata['name']}").raise_for_status()


def _namespaced(gateway: Json) -> str:
    metadata = gateway["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    return f"/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/gateways/{name}"


def _says(item: Json, kind: str) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    generation = item["metadata"].get("generation")
    return any(
        (each["type"], each["status"], each.get("observedGeneration"))
        == (kind, "True", generation)
        for each in conditions
    )


def _condition(item: Json, kind: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "observedGeneration": item["metadata"].get("generation", 1),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def _get(http: httpx.Client, path: str) -> Json | None:
    answer = http.get(path)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None
    answer.raise_for_status()
    found: Json = answer.json()
    return found


def _list(http: httpx.Client, path: str) -> list[Json]:
    found = _get(http, path)
    return list(found["items"]) if found else []


def _patch(http: httpx.Client, path: str, change: Json) -> None:
    answer = http.patch(
        path, json=change, headers={"content-type": "application/merge-patch+json"}
    )
    if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
        answer.raise_for_status()
