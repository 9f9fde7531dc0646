"""A cluster with KEDA and the front behind its API server, as docs/how-to/autoscaling.md shows."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning
from tests.environment.background import in_background
from tests.front.aggregation.aggregated import Aggregated, an_aggregated_front
from tests.front.keda.installed_keda import Keda, installed_keda
from tests.front.scaling.scaling_under_test import path_of
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
    free_port,
)

EXAMPLES = Path(__file__).parents[3] / "examples" / "keda"
TEAM = "team-keda"
_SERVICE = "modelplane-front-keda.modelplane-system.svc"
_TOKENS = {"keda": "token-of-keda", "gateway": "token-of-gateway"}
_USER = f"keda-{TEAM}"
# Only the rights that docs/how-to/autoscaling.md lists. KEDA has a certificate, and a token for
# HTTP.
_ACCESS = f"""
users:
- {{name: {_USER}, tokenSha256: [{hashlib.sha256(_TOKENS["keda"].encode()).hexdigest()}]}}
- {{name: gateway, tokenSha256: [{hashlib.sha256(_TOKENS["gateway"].encode()).hexdigest()}]}}
rules:
- {{users: [{_USER}], namespaces: [{TEAM}], resources: [modeldeployments/metrics], verbs: [get]}}
- {{users: [{_USER}], namespaces: [{TEAM}], resources: [modeldeployments/events], verbs: [create]}}
- {{users: [gateway], namespaces: [{TEAM}], resources: [modeldeployments/metrics], verbs: [update]}}
"""
METRICS_AGE_MAX = 15
_TELL_SECONDS = 2.0


@dataclass
class Gateway:
    """Sends metrics to the front every few seconds, as a gateway would.

    `numbers` are the metrics that it sends.
    """

    aggregated: Aggregated
    numbers: dict[str, Json] = field(default_factory=dict)

    async def tell(self, name: str, queue: int, running: int) -> None:
        """Send metrics now, and from now on."""
        self.numbers[name] = {"queueDepth": queue, "runningRequests": running}
        await self._tell(name)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            for name in list(self.numbers):
                await self._tell(name)

    async def _tell(self, name: str) -> None:
        path = path_of(name, "metrics", TEAM)
        status, answer = await self.aggregated.front.ask(
            "PUT", path, self.numbers[name], user=_TOKENS["gateway"]
        )
        assert status in (200, 404), answer


@dataclass
class Scaled:
    """A deployment that KEDA scales."""

    name: str
    aggregated: Aggregated
    gateway: Gateway
    keda: Keda

    async def tell(self, queue: int, running: int = 0) -> None:
        """Change the metrics that the gateway sends."""
        await self.gateway.tell(self.name, queue, running)

    async def apply(self, file: str, **changes: Any) -> None:
        """Apply an example for this deployment.

        `changes` are fields of the ScaledObject's spec, `type` is the type of its
        trigger.
        """
        documents = self.example(file)
        kind = changes.pop("type", "")
        for document in (each for each in documents if each["kind"] == "ScaledObject"):
            document["spec"] |= changes
            document["spec"]["triggers"][0] |= {"type": kind} if kind else {}
        await self.apply_objects(*documents)

    def example(self, file: str) -> list[Json]:
        """Return the objects of an example with a user's changes and local addresses."""
        front = self.aggregated.front
        text = (
            (EXAMPLES / file)
            .read_text()
            .replace("qwen", self.name)
            .replace("ml-team", TEAM)
            .replace("TOKEN", _TOKENS["keda"])
        )
        host = front.url.removeprefix("https://")
        text = text.replace(
            f"{_SERVICE}:9443", front.settings.front.scaler_listen
        ).replace(f"{_SERVICE}/", f"{host}/")
        return list(
            yaml.safe_load_all(
                text.replace(
                    f"keda:{_TOKENS['keda']}@{_SERVICE}",
                    f"keda:{_TOKENS['keda']}@{host}",
                )
            )
        )

    async def apply_objects(self, *documents: Json) -> None:
        """Apply objects through the API server."""
        await self.aggregated.kubectl(
            "apply",
            "-f",
            "-",
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}),
        )

    async def until_scaled(self, replicas: int, by: str, within: float = 300) -> Json:
        """Wait until a user has requested this replica count; return the deployment."""

        async def look() -> tuple[int, str]:
            self.keda.check()
            seen = await self.deployment()
            return seen["spec"]["replicas"], seen["status"].get("lastScale", {}).get(
                "by", ""
            )

        await eventually(
            look,
            lambda found: found == (replicas, by),
            within=within,
            what=f"{replicas} replicas by {by}",
        )
        return await self.deployment()

    async def deployment(self) -> Json:
        """Return the deployment from its workflow."""
        return await self.aggregated.front.plane.describe(
            "ModelDeployment", self.name, TEAM
        )

    async def scaled_object(self) -> Json:
        """Return the ScaledObject.

        `conditions` has the status of each condition by type.
        """
        seen = await self.aggregated.get("-n", TEAM, "scaledobject", self.name)
        conditions = {
            each["type"]: each["status"]
            for each in seen.get("status", {}).get("conditions", ())
        }
        return {**seen, "conditions": conditions}

    async def until_ready(self, ready: str = "True") -> Json:
        """Wait until the ScaledObject is ready or not ready."""
        found: Json = await eventually(
            self.scaled_object,
            lambda seen: seen["conditions"].get("Ready") == ready,
            longest_pause=3,
            what=f"ScaledObject {self.name} Ready {ready}",
        )
        return found

    async def polled(self) -> bool:
        """Return whether KEDA has polled its triggers."""
        self.keda.check()
        return self.keda.polled(self.name)

    async def until_recorded(self, reason: str) -> Json:
        """Wait for an event of the deployment; return it."""

        async def look() -> list[Json]:
            return [
                each
                for each in (await self.deployment())["status"].get("events", ())
                if each["reason"] == reason
            ]

        found: list[Json] = await eventually(look, bool, what=f"an event {reason}")
        return found[-1]


@dataclass
class KedaAndFront:
    """The cluster, KEDA, the front and the gateway."""

    aggregated: Aggregated
    gateway: Gateway
    keda: Keda

    @asynccontextmanager
    async def a_deployment(self, name: str, replicas: int) -> AsyncIterator[Scaled]:
        """Create a deployment through the API server; delete it and its ScaledObject
        afterwards.
        """
        scaled = Scaled(name, self.aggregated, self.gateway, self.keda)
        await scaled.apply_objects(a_deployment(name, TEAM, replicas=replicas))
        path = f"/apis/modelplane.ai/v1alpha1/namespaces/{TEAM}/modeldeployments/{name}"

        async def seen() -> str:
            return await self.aggregated.kubectl("get", "--raw", path)

        await eventually(
            seen, lambda found: name in found, what="the deployment at the front"
        )
        try:
            yield scaled
        finally:
            self.gateway.numbers.pop(name, None)
            await self.aggregated.kubectl(
                "-n",
                TEAM,
                "delete",
                "--ignore-not-found",
                f"scaledobject/{name}",
                "--timeout=240s",
            )
            await self.aggregated.kubectl(
                "-n", TEAM, "delete", f"md/{name}", "--timeout=240s"
            )


@asynccontextmanager
async def keda_and_front(
    plane: ControlPlane, cluster: ClusterRunning, folder: Path
) -> AsyncIterator[KedaAndFront]:
    """Set everything up; remove it after the block."""
    access, pki = folder / "keda-access.yaml", folder / "pki"
    access.write_text(_ACCESS)
    settings = {
        "accessFile": str(access),
        "scalerListen": f"127.0.0.1:{free_port()}",
        "scalerClientCa": str(pki / "ca.crt"),
        "metricsMaxAge": str(METRICS_AGE_MAX),
    }
    clients = {"admin": ("testbed-admin", "system:masters"), "keda": (_USER, None)}
    async with an_aggregated_front(
        plane, cluster, folder, clients, **settings
    ) as aggregated:
        trusted = folder / "trusted"
        trusted.mkdir()
        (trusted / "front.crt").write_bytes(Authority(pki).ca.read_bytes())
        async with (
            installed_keda(aggregated, folder / "keda", trusted) as keda,
            aggregated.applied(*_secrets(Authority(pki))),
        ):
            gateway = Gateway(aggregated)
            async with in_background(gateway.run()):
                yield KedaAndFront(aggregated, gateway, keda)


def _secrets(pki: Authority) -> list[Json]:
    """Return the team's namespace and the Secrets of the examples."""
    pair = pki.pair("keda")
    client = {
        "ca.crt": pki.ca.read_text(),
        "tls.crt": pair.certificate.read_text(),
        "tls.key": pair.key.read_text(),
    }
    content = {
        "modelplane-front-client": client,
        "modelplane-front-token": {"token": _TOKENS["keda"]},
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        *(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": TEAM},
                "stringData": data,
            }
            for name, data in content.items()
        ),
    ]


def time_of(text: str) -> datetime:
    """Parse a Kubernetes time."""
    return datetime.fromisoformat(text)
