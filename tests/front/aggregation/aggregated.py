"""A real API server with the front behind an APIService.

If wanted, it also has a metrics API of the tests.
"""

import asyncio
import base64
import json
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from ruamel.yaml import YAML

from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning
from tests.front.front_under_test import (
    CERTIFIED,
    KUBECTL_SECONDS,
    FrontUnderTest,
    Json,
    a_front,
)
from tests.workflows.environment.harness import ControlPlane, eventually

DEPLOY = Path(__file__).parents[3] / "deploy" / "front" / "aggregation.yaml"
NAMESPACE, SERVICE = "modelplane-system", "modelplane-front"
APISERVICE, METRICS_APISERVICE = (
    "v1alpha1.modelplane.ai",
    "v1beta1.external.metrics.k8s.io",
)
METRICS = "/apis/external.metrics.k8s.io/v1beta1"
# Objects of these kinds or in these namespaces are deleted first.
_LEAVE_LATE = ("Namespace", "CustomResourceDefinition")
CLIENTS: Mapping[str, tuple[str, str | None]] = {"admin": (CERTIFIED, "system:masters")}


@dataclass
class Aggregated:
    """A front that receives requests from an API server."""

    cluster: ClusterRunning
    front: FrontUnderTest

    async def kubectl(
        self,
        *arguments: str,
        input: str = "",  # noqa: A002
        fails: bool = False,
        user: str = "",
    ) -> str:
        """Run kubectl as an administrator or as a user; return its output."""
        code, told = await self.run(*arguments, input=input, user=user)
        assert (code != 0) is fails, told
        return told

    async def run(
        self,
        *arguments: str,
        input: str = "",  # noqa: A002
        user: str = "",
    ) -> tuple[int, str]:
        """Run kubectl; return its exit code and the output of both streams."""
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
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.front.folder),
                "EDITOR": str(self.front.folder / "editor"),
            },
        )
        async with asyncio.timeout(KUBECTL_SECONDS):
            told, _ = await process.communicate(input.encode())
        return process.returncode or 0, told.decode()

    @asynccontextmanager
    async def applied(self, *documents: Json) -> AsyncIterator[None]:
        """Apply objects, also large ones, and delete them after the block."""
        for each in documents:
            # Without the Gateway in this namespace, the cluster would not become Ready
            # again.
            assert (each["kind"], each["metadata"]["name"]) != ("Namespace", NAMESPACE)
            if each["kind"] in _LEAVE_LATE:
                name = f"{each['kind'].lower()}/{each['metadata']['name']}"
                await eventually(
                    partial(self._is_leaving, name),
                    lambda leaving: not leaving,
                    what=f"the end of {name}",
                )
        applied = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        try:
            await self.kubectl(
                "apply", "--server-side", "--force-conflicts", "-f", "-", input=applied
            )
            yield
        finally:
            await self.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "-f", "-", input=applied
            )

    async def _is_leaving(self, name: str) -> bool:
        """Return whether an object is being deleted, for example by an earlier block."""
        code, told = await self.run(
            "get", name, "-o", "jsonpath={.metadata.deletionTimestamp}"
        )
        return code == 0 and bool(told)

    async def get(self, *arguments: str) -> Json:
        found: Json = json.loads(await self.kubectl("get", *arguments, "-o", "json"))
        return found

    async def found(self) -> str:
        """Return the kinds that the API server discovers at the front."""
        return await self.kubectl("api-resources", "--api-group", "modelplane.ai")

    async def until_available(
        self, name: str = APISERVICE, *, status: str = "True"
    ) -> None:
        """Wait until an APIService becomes available or unavailable."""

        async def look() -> str:
            seen = await self.get("apiservice", name)
            return next(
                (
                    each["status"]
                    for each in seen.get("status", {}).get("conditions", ())
                    if each["type"] == "Available"
                ),
                "",
            )

        await eventually(
            look,
            lambda found: found == status,
            longest_pause=3,
            what=f"{name} Available {status}",
        )


@asynccontextmanager
async def an_aggregated_front(
    plane: ControlPlane,
    cluster: ClusterRunning,
    folder: Path,
    clients: Mapping[str, tuple[str, str | None]] = CLIENTS,
    **more: str,
) -> AsyncIterator[Aggregated]:
    """Run a front with more settings behind an APIService during the block.

    `clients` are names and groups for certificates of the front's authority.
    """
    pki = Authority(
        folder / "pki", clients, {"apiserver": [f"{SERVICE}.{NAMESPACE}.svc"]}
    )
    pki.ensure()
    authority = cluster.kubeconfig.parent / "pki" / "ca.crt"
    more = {
        "requestHeaderCa": str(authority),
        "reviewKubeconfig": str(cluster.kubeconfig),
        **more,
    }
    async with a_front(plane, folder, **more) as front:
        aggregated = Aggregated(cluster, front)
        async with aggregated.applied(*_apiservice(front, pki)):
            await aggregated.until_available()
            # Resources of an available APIService are discovered a moment later.
            await eventually(
                aggregated.found,
                lambda found: "modeldeployments" in found,
                what="the kinds of the front",
            )
            yield aggregated


@asynccontextmanager
async def external_metrics(aggregated: Aggregated) -> AsyncIterator[dict[str, int]]:
    """Serve external metrics to the HorizontalPodAutoscaler of a cluster.

    Yields the values by name, which a test may change.
    """
    async with _a_metrics_api(aggregated.front) as (metrics, port):
        group, version = "external.metrics.k8s.io", "v1beta1"
        spec: dict[str, Any] = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        spec |= {
            "insecureSkipTLSVerify": True,
            "service": {"namespace": NAMESPACE, "name": "metrics", "port": port},
        }
        service = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": METRICS_APISERVICE},
            "spec": spec,
        }
        async with aggregated.applied(outside("metrics", NAMESPACE, port), service):
            await aggregated.until_available(METRICS_APISERVICE)
            yield metrics


def _apiservice(front: FrontUnderTest, pki: Authority) -> list[Json]:
    """Return the objects of deploy/front for a front outside the cluster.

    They have no pod, and their Service points to this machine.
    """
    documents: list[Json] = list(YAML(typ="safe").load_all(DEPLOY.read_text()))
    (service,) = [each for each in documents if each["kind"] == "APIService"]
    port = int(front.settings.front.listen.rpartition(":")[2])
    service["spec"]["service"]["port"] = port
    service["spec"]["caBundle"] = base64.b64encode(pki.ca.read_bytes()).decode()
    return [outside(SERVICE, NAMESPACE, port), *documents]


def outside(name: str, namespace: str, port: int) -> Json:
    """Return a Service that points to a port of this machine."""
    spec = {
        "type": "ExternalName",
        "externalName": "localhost",
        "ports": [{"port": port}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@asynccontextmanager
async def _a_metrics_api(
    front: FrontUnderTest,
) -> AsyncIterator[tuple[dict[str, int], int]]:
    """Serve external metrics to the HorizontalPodAutoscaler.

    Yields the values, which a test may change, and the port.
    """
    values: dict[str, int] = {}

    async def resources(_request: web.Request) -> web.Response:
        resource = {
            "name": "queue",
            "singularName": "",
            "namespaced": True,
            "kind": "ExternalMetricValueList",
            "verbs": ["get"],
        }
        version = "external.metrics.k8s.io/v1beta1"
        return web.json_response(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": [resource],
            }
        )

    async def value(request: web.Request) -> web.Response:
        name = request.match_info["metric"]
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": "2026-01-01T00:00:00Z",
            "value": str(values.get(name, 0)),
        }
        kind = {
            "kind": "ExternalMetricValueList",
            "apiVersion": "external.metrics.k8s.io/v1beta1",
        }
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
