"""A front without Temporal, with objects of two tenants.

Tests use it for requests that must never leave their namespace.
"""

import hashlib
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from ssl import SSLContext
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from api_types.clock import utc_now
from api_types.messages.entities import Replace, RetryNow
from api_types.messages.signals import ModelDeploymentSignals
from api_types.resources.kinds import SERVED, KindInfo
from fleet_client.errors import AlreadyExists, WriteConflict
from fleet_client.refs.seen import ListedObject, not_found
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.access.request_header import Proxies
from front.access.signing import Callers
from front.commands.routes import STACKS, Commands
from front.page_data.health import ControlPlaneHealth
from front.page_data.placement import PlacementData
from front.page_data.prometheus import Traffic
from front.page_data.routes import PageData
from front.page_data.traffic import TrafficData
from front.scaling.numbers import Numbers, Told
from front.scaling.routes import Scaling
from front.serving.app import Front
from front.serving.receiving import RUNNER_OPTIONS
from front.serving.writes.turns import WriteTurns
from front.store.projection import LATE_MICROSECONDS, ObjectKey, Projection, Tree
from tests.workflows.environment.harness import a_deployment

Client = TestClient[Request, Application]
START = 1_000 * LATE_MICROSECONDS
TOKENS = {"ann": "token-of-ann", "root": "token-of-root"}
ACCESS = f"""
users:
- {{name: ann, groups: [team-a], tokenSha256: [{hashlib.sha256(b"token-of-ann").hexdigest()}]}}
- {{name: root, tokenSha256: [{hashlib.sha256(b"token-of-root").hexdigest()}]}}
rules:
- groups: [team-a]
  namespaces: [a]
  resources: ["*", "*/scale", "*/status", "*/metrics", "*/events"]
  verbs: ["*"]
- {{users: [root], namespaces: ["*"], clusterScoped: true, resources: ["*"], verbs: ["*"]}}
"""
AUDIENCE = "front"
KEYS = {"ann": "5a" * 32, "root": "c3" * 32}
CALLERS = f"""
callers:
- {{name: ann, groups: [team-a], keys: [{KEYS["ann"]}]}}
- {{name: root, keys: [{KEYS["root"]}]}}
"""


def an_object(info: KindInfo, namespace: str, name: str, version: int) -> Tree:
    """Return an object of any kind; a ModelDeployment is valid."""
    document: Tree = (
        a_deployment(name, namespace, replicas=2)
        if info.kind == "ModelDeployment"
        else {"spec": {"replicas": 2}}
    )
    metadata = {
        **document.get("metadata", {}),
        "name": name,
        "uid": f"{namespace}-{name}",
        "resourceVersion": str(version),
        "generation": 1,
    }
    metadata |= {"labels": {"tier": "gold"}} | (
        {"namespace": namespace} if info.namespaced else {}
    )
    return {
        **document,
        "apiVersion": info.api_version,
        "kind": info.kind,
        "metadata": metadata,
        "status": {},
    }


def a_stack(name: str) -> Tree:
    """Return the serving stack of a cluster."""
    metadata = {
        "name": name,
        "namespace": STACKS.home,
        "uid": f"stack-{name}",
        "resourceVersion": str(START),
        "generation": 1,
    }
    spec = {"secrets": [{"type": "Kubeconfig", "name": name, "key": "kubeconfig"}]}
    return {
        "apiVersion": STACKS.api_version,
        "kind": STACKS.kind,
        "metadata": metadata,
        "spec": spec,
        "status": {},
    }


@dataclass
class TreesOfTenants:
    """An in-memory control plane.

    `touched` lists the queried and changed objects, `by` the users that requested
    changes, `changed` the versions with the last change of each manifest, `reasons` the
    reasons of changes, and `retried` the objects with a requested retry.
    """

    trees: dict[tuple[str, str, str], Tree] = field(default_factory=dict)
    changed: dict[tuple[str, str, str], int] = field(default_factory=dict)
    touched: list[Target] = field(default_factory=list)
    by: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    retried: list[Target] = field(default_factory=list)

    async def revisions(self, target: Target) -> list[Tree]:
        """Return one earlier template, with two copies of each engine."""
        template = (await self.describe(target))["spec"]["template"]["spec"]
        return [
            {
                "generation": 1,
                "template": {
                    **template,
                    "engines": [
                        {**engine, "copies": 2} for engine in template["engines"]
                    ],
                },
            }
        ]

    async def list(self, kind: KindInfo, namespace: str | None) -> list[ListedObject]:
        found = [
            (Target(kind, *key[1:]), tree)
            for key, tree in self.trees.items()
            if key[0] == kind.kind and namespace in (None, key[1])
        ]
        self.touched += [target for target, _ in found]
        return [ListedObject(target, tree) for target, tree in found]

    async def describe(self, target: Target) -> Tree:
        """Return an object, and the version of its last manifest change."""
        self.touched.append(target)
        key = (target.kind.kind, target.namespace, target.name)
        found = self.trees.get(key)
        if found is None:
            raise not_found(target)
        return {
            **found,
            "manifestVersion": self.changed.get(
                key, int(found["metadata"]["resourceVersion"])
            ),
        }

    async def exists(self, target: Target) -> bool:
        self.touched.append(target)
        return (target.kind.kind, target.namespace, target.name) in self.trees

    async def replace(self, target: Target, message: Replace, *, create: bool) -> Tree:
        """Store an object."""
        key = (target.kind.kind, target.namespace, target.name)
        if create and key in self.trees:
            raise AlreadyExists(
                f"{target.title} exists already",
                next_step="change it, or choose another name",
            )
        if not create and key not in self.trees:
            raise not_found(target)
        if message.reason:
            self.reasons.append(message.reason)
        if message.resource_version:
            self._check(key, message.resource_version)
        self.by.append(message.by)
        before = (
            (await self.describe(target))["metadata"]
            if not create
            else {"uid": f"{target.namespace}-{target.name}"}
        )
        version = str(int(before.get("resourceVersion", START)) + 1)
        kept = {
            field: value
            for field, value in before.items()
            if field not in ("labels", "annotations")
        }
        metadata = {
            "generation": 1,
            **kept,
            **message.manifest["metadata"],
            "resourceVersion": version,
        }
        status = self.trees.get(key, {}).get("status", {})
        self.trees[key] = {**message.manifest, "metadata": metadata, "status": status}
        self.changed[key] = int(version)
        return self.trees[key]

    def _check(self, key: tuple[str, str, str], version: str) -> None:
        """Reject changes that are based on another manifest, as a workflow does."""
        present = int(self.trees[key]["metadata"]["resourceVersion"])
        if not self.changed.get(key, present) <= int(version) <= present:
            raise WriteConflict(
                "it was modified since you read it", next_step="read it again"
            )

    async def signal(self, target: Target, signal: Any, message: Any) -> None:
        """Apply a signal at once."""
        await self.describe(target)
        before = self.trees[(target.kind.kind, target.namespace, target.name)]
        self.by.append(message.by)
        if signal is ModelDeploymentSignals.RECORD_EVENT:
            return
        metadata = {
            **before["metadata"],
            "resourceVersion": str(int(before["metadata"]["resourceVersion"]) + 1),
        }
        after = {
            **before,
            "metadata": metadata,
            "appliedRequestIds": [message.request_id],
        }
        if isinstance(message, RetryNow):
            self.retried.append(target)
        elif hasattr(message, "replicas"):
            after["spec"] = {**before["spec"], "replicas": message.replicas}
            after["status"] = {
                "lastScale": {
                    "replicas": message.replicas,
                    "by": message.by,
                    "at": "2026-01-01T00:00:00Z",
                }
            }
        else:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        key = (target.kind.kind, target.namespace, target.name)
        self.trees[key], self.changed[key] = after, int(metadata["resourceVersion"])


@dataclass
class Fleet:
    """A front with its control plane.

    `client` sends requests; `folder` has its files.
    """

    client: Client
    plane: TreesOfTenants
    projection: Projection
    front: Front
    told: Told
    folder: Path

    async def ask(
        self,
        method: str,
        path: str,
        user: str = "ann",
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, bytes]:
        """Send a request; return the status and body."""
        status, answer, _ = await self.answer(method, path, user, body, **headers)
        return status, answer

    async def answer(
        self,
        method: str,
        path: str,
        user: str = "ann",
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send a request; return the status, body and headers."""
        sent = {"Content-Type": "application/json", **headers} | (
            {"Authorization": f"Bearer {TOKENS[user]}"} if user else {}
        )
        data = io.BytesIO(body) if body is not None else None
        async with self.client.request(method, path, data=data, headers=sent) as answer:
            return answer.status, await answer.read(), answer.headers.copy()


@asynccontextmanager
async def a_fleet(
    folder: Path,
    *,
    with_b: bool = True,
    proxies: Proxies | None = None,
    tls: SSLContext | None = None,
    **more: Any,
) -> AsyncIterator[Fleet]:
    """Serve the objects `mine` of namespace a and, if wanted, `other` of namespace b.

    `other` includes cluster-scoped objects. `more` are options of the front. `proxies`
    may name users in headers, over `tls`.
    """
    plane, projection, told = TreesOfTenants(), Projection(), Told(timedelta(hours=1))
    projection.complete = True
    for info in SERVED:
        for namespace, name, version in (
            ("b", "other", START),
            ("a", "mine", START + 1),
        ):
            if namespace == "b" and not with_b:
                continue
            key = ObjectKey(info.kind, namespace if info.namespaced else "", name)
            plane.trees[key] = an_object(info, *key[1:], version)
            projection.put(key, plane.trees[key])
            if info.kind == "InferenceCluster":
                plane.trees[("ServingStack", STACKS.home, name)] = a_stack(name)
            if info.kind == "ModelDeployment":
                told.tell(
                    key,
                    Numbers(
                        plane.trees[key]["metadata"]["uid"],
                        utc_now(),
                        {"queueDepth": 3},
                    ),
                )
    file = folder / "access.yaml"
    file.write_text(ACCESS)
    callers = folder / "callers.yaml"
    callers.write_text(CALLERS)
    front = Front(
        cast("ControlPlane", plane),
        projection,
        AccessControl(AccessRules(file), proxies=proxies),
        **more,
    )
    server = TestServer(
        front.app(
            [
                *Scaling(front, told, Callers(callers, AUDIENCE)).routes(),
                *Commands(front).routes(),
                *PageData(front, cast("ControlPlaneHealth", Unobserved())).routes(),
                *PlacementData(front).routes(),
                *TrafficData(front, Traffic("")).routes(),
            ]
        )
    )
    await server.start_server(ssl=tls, **RUNNER_OPTIONS)
    async with TestClient(server) as client:
        yield Fleet(client, plane, projection, front, told, folder)


class Unobserved:
    """A control plane whose health nobody observes."""

    def tree(self) -> dict[str, Any]:
        return {}


def have_other_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other fronts write an object during a write of this front.

    Writes of one front are serialized. Another front does not know of them.
    """
    monkeypatch.setattr(WriteTurns, "of", lambda _turns, _key: nullcontext())
