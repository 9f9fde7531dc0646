"""A ModelService behind Envoy Gateway, with endpoints whose failures a test chooses.

The gateway is a second one on the cluster of the request path, with the listener of the
control cluster's gateway. The endpoints are processes in the network of the pods.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from activities.render.gateway import objects as control_gateway
from activities.render.objects.manifest import RenderOwner
from activities.render.services.endpoint import Backend, endpoint_objects
from activities.render.services.envoy import envoy_objects
from activities.render.services.route_plan import plan_backends
from api_types import labels, names
from api_types.messages.gateway_work import RouteEntry, RouteRetries, RouteTimeouts
from api_types.messages.routing import SelectedEndpoint
from api_types.text.endpoint_url import read_url
from testbed.cluster.kube import collection, path_of
from testbed.node.envoy_stack import NAMESPACE as ENVOY_NAMESPACE
from tests.testbed.request_path.request_path import (
    NAMESPACE,
    RequestPath,
    condition,
    eventually,
)

Json = dict[str, Any]
PORT = 80
OWNING = "gateway.envoyproxy.io/owning-gateway-name"
ADDRESS = "10.245.255.250"
_HERE = Path(__file__).parent


class Answer(NamedTuple):
    """A response, or status 0 with the error. `host` is what the endpoint received."""

    status: int
    host: str
    body: str
    retry_after: str


@dataclass
class Endpoints:
    """Endpoints by name, each at a port of its own."""

    process: "subprocess.Popen[str]"
    ports: dict[str, int] = field(default_factory=dict)

    def set(self, name: str, mode: str = "200") -> None:
        """Choose the responses of an endpoint."""
        port = self.ports.setdefault(name, 9300 + len(self.ports))
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{port} {mode}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().split() == [str(port), mode]

    def url(self, name: str) -> str:
        return f"http://{ADDRESS}:{self.ports[name]}/{NAMESPACE}/{name}/"


class ServicePath:
    """The gateway, and the services that tests put behind it."""

    def __init__(self, path: RequestPath) -> None:
        self.path = path
        owner = RenderOwner("InferenceGateway", "", "default", "", generation=0)
        gateway = control_gateway.gateway(owner, "Envoy").manifest
        for each in (control_gateway.client_policy(owner).manifest, gateway):
            path.kube.apply(each)
        self._gateway = path_of(gateway)
        eventually(self._address, "an address of the control gateway")

    def _address(self) -> str:
        found = self.path.kube.get(self._gateway) or {}
        if not condition(found, "Programmed"):
            return ""
        return str(found["status"]["addresses"][0]["value"])

    @contextmanager
    def endpoints(self) -> Iterator[Endpoints]:
        with subprocess.Popen(
            [
                *self.path.enter(),
                sys.executable,
                str(_HERE / "failing_endpoints.py"),
                ADDRESS,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Endpoints(process)
            finally:
                process.terminate()

    def apply(
        self,
        service: str,
        endpoints: Endpoints,
        *entries: Sequence[str],
        standby: Sequence[str] = (),
        weights: Sequence[int] = (),
        retries: RouteRetries | None = None,
        timeouts: RouteTimeouts | None = None,
    ) -> str:
        """Apply a service with these entries, and return its path."""
        owner = RenderOwner("ModelService", NAMESPACE, service, service, generation=0)
        groups: list[tuple[Sequence[str], int, bool | None]] = [
            (each, weight, None)
            for each, weight in zip(entries, weights or [1] * len(entries), strict=True)
        ]
        if standby:
            groups.append((standby, 1, True))
        for name in (name for names_, _, _ in groups for name in names_):
            backend = Backend(read_url(endpoints.url(name)))
            for item in endpoint_objects(owner, name, backend):
                self.path.kube.apply(item.manifest)
        planned = plan_backends(
            [
                RouteEntry(
                    weight=weight,
                    standby=is_standby,
                    endpoints=[self._selected(name, endpoints) for name in names_],
                )
                for names_, weight, is_standby in groups
            ]
        )
        parts, route = envoy_objects(owner, planned, retries, timeouts)
        for part in (*parts, route):
            self.path.kube.apply(part.manifest)
        return f"/{NAMESPACE}/{service}"

    def ask(
        self, path: str, requests: int = 100, at_once: int = 10, body: int = 64
    ) -> list["Answer"]:
        """Send so many requests; return the answers."""
        url = f"http://{self._address()}:{PORT}{path}/v1/chat"
        sizes = [str(requests), str(at_once), str(body)]
        output = self.path.inside(sys.executable, str(_HERE / "load.py"), url, *sizes)
        return [Answer(*each) for each in json.loads(output)]

    def metrics(self) -> str:
        """Return the metrics of the gateway's proxies, as Prometheus scrapes them."""
        gateway = f"{OWNING}={labels.CONTROL_GATEWAY_NAME}"
        pods = collection("v1", "Pod", ENVOY_NAMESPACE)
        found = self.path.kube.list(pods, labelSelector=gateway)
        return "".join(
            self.path.metrics(pod, 19001, "/stats/prometheus") for pod in found
        )

    def until_served(self, path: str) -> None:
        """Wait until the gateway has the route and its endpoints."""
        eventually(
            lambda: self.ask(path, 1)[0].status == httpx.codes.OK,
            f"a response of {path}",
        )

    def _selected(self, name: str, endpoints: Endpoints) -> SelectedEndpoint:
        return SelectedEndpoint(
            name=name,
            url=endpoints.url(name),
            backend=names.endpoint_service_name(NAMESPACE, name),
            cluster="eu",
        )
