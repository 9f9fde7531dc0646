"""A loopback HTTP server that answers like an API server without objects, or never."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

# The objects of a Standalone replica on a cluster, with the plural of each kind.
_SERVED = {
    ("", "v1"): {
        "Namespace": "namespaces",
        "Service": "services",
        "ServiceAccount": "serviceaccounts",
        "ConfigMap": "configmaps",
        "Secret": "secrets",
    },
    ("rbac.authorization.k8s.io", "v1"): {
        "Role": "roles",
        "RoleBinding": "rolebindings",
    },
    ("apps", "v1"): {"Deployment": "deployments"},
    ("resource.k8s.io", "v1"): {"ResourceClaimTemplate": "resourceclaimtemplates"},
    ("inference.networking.k8s.io", "v1"): {"InferencePool": "inferencepools"},
    ("gateway.networking.k8s.io", "v1"): {"HTTPRoute": "httproutes"},
}


@dataclass
class ApiServer:
    """The address, whether the server answers, and its most concurrent requests."""

    address: str
    hangs: bool
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    running: int = 0
    running_max: int = 0
    requests: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            if self.hangs:
                await self.answering.wait()
            return await self._answer(request)
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.35.0"})
        if request.path in ("/api", "/apis"):
            groups = [
                group
                for group, _ in _SERVED
                if bool(group) == (request.path == "/apis")
            ]
            return web.json_response(
                {
                    "kind": "APIGroupDiscoveryList",
                    "items": [_group(name) for name in groups],
                }
            )
        if request.method in ("PATCH", "POST"):
            manifest = json.loads(await request.text())
            manifest["metadata"]["uid"] = "u"
            return web.json_response(manifest)
        return web.json_response(
            {"message": "not found", "reason": "NotFound"}, status=404
        )


def _group(name: str) -> dict[str, object]:
    versions = [
        {
            "version": version,
            "resources": [
                {
                    "resource": plural,
                    "responseKind": {"kind": kind},
                    "scope": "Cluster" if kind == "Namespace" else "Namespaced",
                }
                for kind, plural in kinds.items()
            ],
        }
        for (group, version), kinds in _SERVED.items()
        if group == name
    ]
    return {"metadata": {"name": name}, "versions": versions}


@asynccontextmanager
async def api_server(*, hangs: bool = False) -> AsyncIterator[ApiServer]:
    """Serve until the end of the block.

    A hanging server answers once `answering` is set.
    """
    app, server = web.Application(), ApiServer("", hangs)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.answering.set()
        await runner.cleanup()
