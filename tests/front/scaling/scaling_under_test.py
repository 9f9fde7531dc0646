"""The paths for autoscalers with known objects, without Temporal.

Messages to workflows are recorded.
"""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from fleet_client.errors import NotFound
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from front.access import signing
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.access.limits import Limits
from front.access.signing import Callers, signed_text
from front.audit.log import AuditLog
from front.scaling.numbers import Told
from front.scaling.routes import Scaling
from front.serving.app import Front
from front.serving.receiving import RUNNER_OPTIONS
from front.store.projection import ObjectKey, Projection

Json = dict[str, Any]
Client = TestClient[Request, Application]
AUDIENCE = "front"
KEY, OTHER_KEY = "5a" * 32, "c3" * 40
TOKEN = "token-of-ann"  # noqa: S105 - of this test
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
AGE_MAX = timedelta(seconds=120)
ACCESS = f"""
users: [{{name: ann, tokenSha256: [{hashlib.sha256(TOKEN.encode()).hexdigest()}]}}]
rules:
- users: [ann, keda]
  namespaces: [a]
  resources: [modeldeployments/metrics, modeldeployments/events]
  verbs: [get, update, create]
- {{groups: [scalers], namespaces: [a], resources: [modeldeployments/scale], verbs: [update]}}
"""
CALLERS = f"""
callers:
- {{name: burst, groups: [scalers], keys: [{KEY}, {OTHER_KEY}]}}
- {{name: steady, groups: [scalers], keys: [{KEY}]}}
- {{name: idle, keys: [{KEY}]}}
"""


def a_deployment(name: str, namespace: str = "a", uid: str = "") -> Json:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or name,
            "resourceVersion": "1000",
        },
        "spec": {"replicas": 2},
        "status": {"replicas": {"total": 2}},
    }


@dataclass
class Plane:
    """The workflows: each signal is applied at once and recorded."""

    objects: dict[tuple[str, str], Json]
    sent: list[tuple[str, str, Json]] = field(default_factory=list)

    async def describe(self, target: Target) -> Json:
        return {
            **self._object(target),
            "appliedRequestIds": [message["requestId"] for _, _, message in self.sent],
        }

    async def signal(self, target: Target, signal: Any, message: Any) -> None:
        self._object(target)
        self.sent.append((target.name, signal.name, message.wire()))
        if signal.name == "scale":
            self._object(target)["spec"]["replicas"] = message.replicas

    def _object(self, target: Target) -> Json:
        try:
            return self.objects[(target.namespace, target.name)]
        except KeyError:
            raise NotFound(target.title, next_step="") from None


@dataclass
class ScalingUnderTest:
    """The front under test. `now` is its clock."""

    folder: Path
    now: datetime = NOW
    limits: Limits | None = None
    audit_log: AuditLog | None = None
    audience: str = AUDIENCE

    def __post_init__(self) -> None:
        self.projection = Projection()
        self.projection.complete = True
        self.plane = Plane(
            {
                (ns, name): a_deployment(name, ns)
                for ns, name in (("a", "chat"), ("a", "code"), ("b", "chat"))
            }
        )
        for (namespace, name), tree in self.plane.objects.items():
            self.projection.put(ObjectKey("ModelDeployment", namespace, name), tree)
        access, callers = self.folder / "access.yaml", self.folder / "callers.yaml"
        access.write_text(ACCESS)
        callers.write_text(CALLERS)
        self.told = Told(AGE_MAX, lambda: self.now)
        plane = cast("ControlPlane", self.plane)
        self.front = Front(
            plane,
            self.projection,
            AccessControl(AccessRules(access)),
            limits=self.limits,
            audit_log=self.audit_log,
        )
        self.scaling = Scaling(self.front, self.told, Callers(callers, self.audience))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        server = TestServer(self.front.app(self.scaling.routes()))
        await server.start_server(**RUNNER_OPTIONS)
        async with TestClient(server) as client:
            yield client


def path_of(name: str, subresource: str, namespace: str = "a") -> str:
    return f"/v1/namespaces/{namespace}/modeldeployments/{name}/{subresource}"


def signature(
    path: str,
    body: bytes,
    at: datetime,
    *,
    request_id: str = "r" * 16,
    caller: str = "burst",
    key: str = KEY,
    method: str = "POST",
    audience: str = AUDIENCE,
) -> dict[str, str]:
    """Return the headers of a signed request."""
    timestamp = str(int(at.timestamp()))
    signed = signed_text(
        audience, timestamp, request_id, method=method, target=path, body=body
    )
    values = (
        caller,
        timestamp,
        request_id,
        hmac.digest(bytes.fromhex(key), signed, hashlib.sha256).hex(),
    )
    return dict(zip(signing.HEADERS, values, strict=True))


async def asked(
    client: Client, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Json]:
    """Send a request; return the status and body."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    async with client.request(
        method, path, data=data, headers={"Content-Type": "application/json", **headers}
    ) as answer:
        return answer.status, await answer.json()
