"""Replicas as the product renders them, behind Envoy Gateway, Envoy and endpoint pickers.

Tests send requests to the cluster's gateway, and compare what the engine received.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from activities.render.inputs.facts import ClusterInput
from activities.render.objects.rendered import Rendered
from api_types import labels
from client.local.envoy import envoy_stack
from testbed.cluster.kube import Kube, collection, path_of, trust
from testbed.cluster.pki import Authority
from testbed.dataplane.config import ENCLAVE
from testbed.dataplane.engine import POD_HEADER
from testbed.fleet.fleet_file import FleetFile
from testbed.node.envoy_stack import EnvoyStack
from testbed.testbed import Testbed
from testbed.waiting import wait_until
from tests.activities.render.builders import a_member, an_engine, render
from tests.environment.waiting import TIMEOUT_SECONDS

Json = dict[str, Any]

CLUSTER = "eu"
FLEET = f"""
control: false
classes:
  eight:
    devices: [{{name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 8}}]
clusters:
  - {{name: {CLUSTER}, pools: [{{name: gpus, class: eight, nodes: 40}}]}}
"""
NAMESPACE = "ml-team"
GPU = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}
CHAT = "/v1/chat/completions"
# A picker that is deleted waits so many seconds for the end of its requests.
SETTINGS = {"longest_generation": 60}
# Clusters of the testbed have no Prometheus operator.
LEFT_OUT = ("PodMonitor",)


@dataclass(frozen=True)
class Model:
    """One replica on the cluster."""

    name: str
    url: str
    rendered: Rendered

    @property
    def workload(self) -> str:
        return self.rendered.workload_name

    @property
    def pool(self) -> str:
        return self._name_of("InferencePool")

    @property
    def picker(self) -> str:
        """The name of the picker's Service, Deployment and ServiceAccount."""
        return self._name_of("ConfigMap")

    def _name_of(self, kind: str) -> str:
        return next(
            str(each.manifest["metadata"]["name"])
            for each in self.rendered.objects
            if each.manifest["kind"] == kind
        )


_LISTENER = """
import socket
listener = socket.create_server(("10.245.255.250", 0))
print("%s:%s" % listener.getsockname(), flush=True)
while True:
    print(listener.accept()[1], flush=True)
"""


@dataclass(frozen=True)
class Listener:
    """A listener that counts connections."""

    address: str
    lines: list[str]

    def connections(self) -> int:
        """Return the number of connections. The listener has ended."""
        return len(self.lines)


@contextmanager
def request_path(
    folder: Path, stack: EnvoyStack | None = None, *, keep: bool = False
) -> Iterator["RequestPath"]:
    """Run the path of one cluster in a folder. `keep` leaves it running at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fleet.yaml").write_text(FLEET)
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"))
    try:
        running = testbed.up(temporal=False, envoy=stack or envoy_stack())
        authority = Authority(folder / "home" / "clusters" / CLUSTER / "pki")
        server = running.clusters[CLUSTER].server
        with (
            Kube(server, authority) as kube,
            httpx.Client(base_url=server, verify=trust(authority)) as http,
        ):
            yield RequestPath(testbed, kube, http)
    finally:
        if not keep:
            testbed.down()


class RequestPath:
    """The running testbed, and the objects that tests put on its cluster."""

    def __init__(self, testbed: Testbed, kube: Kube, http: httpx.Client) -> None:
        running = testbed.running()
        assert running
        self.testbed, self.kube = testbed, kube
        self._http = http
        self.gateway = running.clusters[CLUSTER].gateway_url
        kube.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )

    @contextmanager
    def model(self, name: str, copies: int = 2, **fields: Any) -> Iterator[Model]:
        """Run a replica until the end of the block."""
        model = self.apply(name, copies, **fields)
        try:
            self.until_serving(model, copies)
            yield model
        finally:
            self.delete(model)

    def apply(
        self,
        name: str,
        copies: int = 2,
        *,
        settings: Mapping[str, Any] | None = None,
        cluster: ClusterInput | None = None,
        **member: Any,
    ) -> Model:
        """Apply the objects of a replica with so many pods."""
        model = self.render(name, copies, settings=settings, cluster=cluster, **member)
        for each in model.rendered.objects:
            if each.manifest["kind"] not in LEFT_OUT:
                self.kube.apply(each.manifest)
        return model

    def render(
        self,
        name: str,
        copies: int = 2,
        *,
        settings: Mapping[str, Any] | None = None,
        cluster: ClusterInput | None = None,
        **member: Any,
    ) -> Model:
        """Render the objects of a replica."""
        pod = a_member(pool="gpus", requests=[GPU], **member)
        rendered = render(
            an_engine("main", pod, copies=copies),
            name=name,
            namespace=NAMESPACE,
            deployment=name,
            uid=f"uid-{name}",
            settings={**SETTINGS, **(settings or {})},
            cluster=cluster,
        )
        return Model(name, f"{self.gateway}/{NAMESPACE}/{name}", rendered)

    def delete(self, model: Model) -> None:
        """Delete the objects of a replica, and wait for the end of its pods."""
        for each in reversed(model.rendered.objects):
            if each.manifest["kind"] not in LEFT_OUT:
                self.kube.delete(path_of(each.manifest))
        eventually(lambda: not self._engines(model), f"the end of {model.name}'s pods")

    def until_serving(self, model: Model, copies: int) -> None:
        """Wait until all pods of a replica are ready, and a request has arrived."""
        eventually(
            lambda: len(self.ready(self.pods(model))) == copies,
            f"{copies} ready pods of {model.name}",
        )
        eventually(lambda: answers(model.url), f"a response of {model.name}")

    def pods(self, model: Model) -> list[Json]:
        """Return the pods of the engines that nobody has deleted."""
        return [
            pod
            for pod in self._engines(model)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def _engines(self, model: Model) -> list[Json]:
        return self._pods(f"{labels.SERVING}={model.workload}")

    def picker_pods(self, model: Model) -> list[Json]:
        return self._pods(f"app={model.picker}")

    def _pods(self, selector: str) -> list[Json]:
        path = collection("v1", "Pod", NAMESPACE)
        return self.kube.list(path, labelSelector=selector)

    def ready(self, pods: list[Json]) -> list[Json]:
        return [pod for pod in pods if condition(pod, "Ready")]

    def annotate(self, pod: Json, annotations: Mapping[str, str | None]) -> None:
        """Set or remove annotations of a pod."""
        self.merge({"kind": "Pod"} | pod, {"metadata": {"annotations": annotations}})

    def merge(self, document: Json, change: Json) -> None:
        """Merge a change into an object."""
        answer = self._http.patch(
            path_of({"apiVersion": "v1"} | document),
            json=change,
            headers={"content-type": "application/merge-patch+json"},
        )
        assert answer.is_success, answer.text

    def inside(self, *command: str) -> str:
        """Return the output of a command in the network of the pods."""
        return subprocess.run(
            [*self.enter(), *command], check=True, capture_output=True, text=True
        ).stdout

    def enter(self) -> list[str]:
        """Return the words before a command that runs in the network of the pods."""
        pid = self.testbed.process_pid(ENCLAVE)
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={pid}", "--net", *user, "--"]

    def metrics(self, pod: Json, port: int = 8000, path: str = "/metrics") -> str:
        """Return the metrics of a pod, which the gateway does not expose."""
        url = f"http://{pod['status']['podIP']}:{port}{path}"
        return self.inside("curl", "--silent", "--fail", "--max-time", "20", url)

    @contextmanager
    def listener(self) -> Iterator["Listener"]:
        """Listen in the network of the pods, at an address that no request may reach."""
        process = subprocess.Popen(
            [*self.enter(), sys.executable, "-c", _LISTENER],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        found = Listener(process.stdout.readline().strip(), [])
        try:
            yield found
        finally:
            process.terminate()
            output, _ = process.communicate()
            found.lines.extend(output.splitlines())

    def envoy(self) -> Json:
        """Return the pod of the gateway's proxy."""
        (pod,) = self.kube.list(
            collection("v1", "Pod", "envoy-gateway-system"),
            labelSelector="app.kubernetes.io/component=proxy",
        )
        return pod


def condition(document: Json, kind: str) -> bool:
    """Return whether a condition is true."""
    return any(
        each["type"] == kind and each["status"] == "True"
        for each in (document.get("status") or {}).get("conditions") or ()
    )


def eventually(holds: Callable[[], Any], what: str) -> None:
    """Wait until a call returns a true value."""
    wait_until(
        lambda: bool(holds()), TIMEOUT_SECONDS, lambda: f"did not happen: {what}"
    )


def chat(content: str = "hello", **fields: Any) -> Json:
    """Return the body of a chat request."""
    message = {"role": "user", "content": content}
    return {"model": "simulated", "messages": [message], **fields}


def answers(url: str) -> bool:
    """Return whether a chat request succeeds."""
    try:
        answer = httpx.post(f"{url}{CHAT}", json=chat(), timeout=20)
    except httpx.TransportError:
        return False
    return answer.is_success


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Open a client without a limit of connections."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    async with httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as http:
        yield http


async def spread(
    model: Model, requests: int, body: Json, at_once: int = 16
) -> Counter[str]:
    """Send so many chat requests, and count the pods that responded."""
    gate = asyncio.Semaphore(at_once)

    async def one(http: httpx.AsyncClient) -> httpx.Response:
        async with gate:
            return await http.post(f"{model.url}{CHAT}", json=body)

    async with client() as http:
        found = await asyncio.gather(*(one(http) for _ in range(requests)))
    return Counter(
        each.headers[POD_HEADER] if each.is_success else str(each.status_code)
        for each in found
    )
