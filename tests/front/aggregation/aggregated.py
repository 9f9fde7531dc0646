"""A real API server with the front behind an APIService, and a metrics API of the tests beside it."""

import asyncio
import base64
import json
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from ruamel.yaml import YAML

from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning
from tests.front.front_under_test import KUBECTL_SECONDS, FrontUnderTest, Json, a_front
from tests.workflows.environment.harness import ControlPlane, eventually

DEPLOY = Path(__file__).parents[3] / "deploy" / "front" / "aggregation.yaml"
NAMESPACE, SERVICE = "modelplane-system", "modelplane-front"
APISERVICE, METRICS_APISERVICE = "v1alpha1.modelplane.ai", "v1beta1.external.metrics.k8s.io"
METRICS = "/apis/external.metrics.k8s.io/v1beta1"


@dataclass
class Aggregated:
    """A front that an API server passes requests on to. `metrics`: the values of external metrics, by name."""

    cluster: ClusterRunning
    front: FrontUnderTest
    metrics: dict[str, int]

    async def kubectl(self, *arguments: str, input: str = "", fails: bool = False, user: str = "") -> str:  # noqa: A002
        """Run kubectl against the API server, as its administrator or as a user; gives what it prints."""
        code, told = await self.run(*arguments, input=input, user=user)
        assert (code != 0) is fails, told
        return told

    async def run(self, *arguments: str, input: str = "", user: str = "") -> tuple[int, str]:  # noqa: A002
        """Run kubectl; gives its exit code and what it prints, on both streams together."""
        program = shutil.which("kubectl")
        assert program, "kubectl is not on the PATH"
        who = ["--as", user] if user else []
        process = await asyncio.create_subprocess_exec(
            program,
            *("--kubeconfig", str(self.cluster.kubeconfig)),
            *who,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": str(self.front.folder), "EDITOR": str(self.front.folder / "editor")},
        )
        async with asyncio.timeout(KUBECTL_SECONDS):
            told, _ = await process.communicate(input.encode())
        return process.returncode or 0, told.decode()

    async def get(self, *arguments: str) -> Json:
        """Get an object as JSON."""
        found: Json = json.loads(await self.kubectl("get", *arguments, "-o", "json"))
        return found

    async def found(self) -> str:
        """List the kinds that the API server says the front has."""
        return await self.kubectl("api-resources", "--api-group", "modelplane.ai")

    async def until_available(self, name: str = APISERVICE, *, status: str = "True") -> None:
        """Wait until the API server can reach what is behind an APIService, or cannot any more."""

        async def look() -> str:
            seen = await self.get("apiservice", name)
            return next((each["status"] for each in seen.get("status", {}).get("conditions", ()) if each["type"] == "Available"), "")

        await eventually(look, lambda found: found == status, what=f"{name} Available {status}")


@asynccontextmanager
async def an_aggregated_front(plane: ControlPlane, cluster: ClusterRunning, folder: Path) -> AsyncIterator[Aggregated]:
    """Put a front behind an APIService of a cluster; both are gone after the block."""
    pki = Authority(folder / "pki", servers={"apiserver": [f"{SERVICE}.{NAMESPACE}.svc"]})
    pki.ensure()
    authority = cluster.kubeconfig.parent / "pki" / "ca.crt"
    more = {"requestHeaderCa": str(authority), "reviewKubeconfig": str(cluster.kubeconfig)}
    async with a_front(plane, folder, **more) as front, _a_metrics_api(front) as (metrics, port):
        aggregated = Aggregated(cluster, front, metrics)
        documents = [*_apiservice(front, pki), *_metrics_apiservice(port)]
        applied = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        await aggregated.kubectl("apply", "-f", "-", input=applied)
        try:
            await aggregated.until_available()
            await aggregated.until_available(METRICS_APISERVICE)
            # What is available is found a moment later.
            await eventually(aggregated.found, lambda found: "modeldeployments" in found, what="the kinds of the front")
            yield aggregated
        finally:
            await aggregated.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=applied)


def _apiservice(front: FrontUnderTest, pki: Authority) -> list[Json]:
    """Give what deploy/front has, for a front outside of the cluster: no pod, and a Service that leads to this machine."""
    documents: list[Json] = list(YAML(typ="safe").load_all(DEPLOY.read_text()))
    (service,) = [each for each in documents if each["kind"] == "APIService"]
    port = int(front.settings.front.listen.rpartition(":")[2])
    service["spec"]["service"]["port"] = port
    service["spec"]["caBundle"] = base64.b64encode(pki.ca.read_bytes()).decode()
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, _outside(SERVICE, port), *documents]


def _outside(name: str, port: int) -> Json:
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _metrics_apiservice(port: int) -> list[Json]:
    group, version = "external.metrics.k8s.io", "v1beta1"
    spec: dict[str, Any] = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"insecureSkipTLSVerify": True, "service": {"namespace": NAMESPACE, "name": "metrics", "port": port}}
    service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": METRICS_APISERVICE}, "spec": spec}
    return [_outside("metrics", port), service]


@asynccontextmanager
async def _a_metrics_api(front: FrontUnderTest) -> AsyncIterator[tuple[dict[str, int], int]]:
    """Serve external metrics to the HorizontalPodAutoscaler; gives their values, which a test changes, and the port."""
    values: dict[str, int] = {}

    async def resources(_request: web.Request) -> web.Response:
        resource = {"name": "queue", "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        version = "external.metrics.k8s.io/v1beta1"
        return web.json_response({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [resource]})

    async def value(request: web.Request) -> web.Response:
        name = request.match_info["metric"]
        item = {"metricName": name, "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": str(values.get(name, 0))}
        kind = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1"}
        return web.json_response({**kind, "metadata": {}, "items": [item]})

    app = web.Application()
    app.router.add_get(METRICS, resources)
    app.router.add_get(METRICS + "/namespaces/{namespace}/{metric}", value)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    pair = Authority(front.folder / "pki").pair("apiserver")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    try:
        await web.SockSite(runner, listener, ssl_context=tls).start()
        yield values, listener.getsockname()[1]
    finally:
        await runner.cleanup()
