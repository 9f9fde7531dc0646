"""The watch of the control cluster, on a real API server: signals to owners."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.routing.watch import ControlWatch
from activities.watching import health
from api_types.errors import ClusterUnreachable
from api_types.messages.gateway_work import (
    ApplyBackend,
    ApplyRoute,
    ControlObserved,
    RouteEntry,
)
from api_types.messages.routing import GatewayBackend, SelectedEndpoint
from testbed.cluster.objects import GATEWAY_CLASS
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.routing.conftest import Control

pytestmark = pytest.mark.testbed

GATEWAY = ObjectOwner("InferenceGateway", "", "default", "g")
PARENT = {
    "group": "gateway.networking.k8s.io",
    "kind": "Gateway",
    "name": "modelplane",
    "namespace": "modelplane-system",
}


@dataclass
class Watched:
    """The signals of a watch, by owner, the newest last."""

    sent: dict[ObjectOwner, list[ControlObserved]] = field(default_factory=dict)

    async def send(self, owner: ObjectOwner, observed: ControlObserved) -> bool:
        self.sent.setdefault(owner, []).append(observed)
        return True

    async def until(
        self, owner: ObjectOwner, holds: Callable[[ControlObserved], bool]
    ) -> ControlObserved:
        def newest() -> ControlObserved | None:
            found = self.sent.get(owner, [])
            return found[-1] if found and holds(found[-1]) else None

        try:
            found: ControlObserved = await eventually(newest)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; sent last: {self.sent.get(owner, [])[-3:]}"
            ) from error
        return found


@asynccontextmanager
async def watching(
    cluster: ClusterApi,
    resolve: Callable[[], ClusterApi] | None = None,
    known: Sequence[ObjectOwner] = (),
    backend: GatewayBackend = "Traefik",
) -> AsyncIterator[Watched]:
    """Watch a cluster. `known` are owners that may have objects there."""
    watched = Watched()

    async def api() -> ClusterApi:
        return resolve() if resolve else cluster

    async def find_absent(here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
        for owner in known:
            if owner.workflow_id not in here:
                yield owner

    task = asyncio.create_task(
        ControlWatch(GATEWAY, api, watched.send, find_absent, backend).run()
    )
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_status(
    generation: int, *, accepted: str, resolved: str, name: str = "modelplane"
) -> list[Json]:
    common = {
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "message": "as it is",
    }
    conditions = [
        {"type": "Accepted", "status": accepted, "reason": "Why", **common},
        {
            "type": "ResolvedRefs",
            "status": resolved,
            "reason": "BackendNotFound",
            **common,
        },
    ]
    return [
        {
            "parentRef": {**PARENT, "name": name},
            "controllerName": "example.com/gateway",
            "conditions": conditions,
        }
    ]


async def write_status(
    control: Control, target: ObjectId, plural: str, status: Json
) -> None:
    """Write a status like a gateway."""
    where = f"namespaces/{target.namespace}/" if target.namespace else ""
    path = f"/apis/{target.kind.api_version}/{where}{plural}/{target.name}/status"
    session = control.api._session  # type: ignore[attr-defined]
    answer = await session.request(
        "PATCH",
        path,
        body={"status": status},
        content_type="application/merge-patch+json",
    )
    assert answer.status == HTTPStatus.OK, answer.body


async def write_parents(control: Control, name: str, parents: list[Json]) -> None:
    await write_status(
        control,
        ObjectId(kinds.HTTP_ROUTE, control.namespace, name),
        "httproutes",
        {"parents": parents},
    )


async def test_a_service_is_notified_of_the_status_of_its_route(
    control: Control,
) -> None:
    endpoint = SelectedEndpoint(name="a", url="http://10.0.0.1", backend="me-a")
    order = ApplyRoute(
        namespace=control.namespace,
        name="s",
        uid="u",
        entries=[RouteEntry(endpoints=[endpoint])],
    )
    owner = ObjectOwner("ModelService", control.namespace, "s", "u")
    async with watching(control.api) as watched:
        await control.run(
            control.activities.apply_service_route,
            order.model_copy(update={"entries": []}),
        )
        applied = await control.run(control.activities.apply_service_route, order)
        seen = await watched.until(
            owner, lambda each: bool(each.route and each.route.generation == 2)
        )
        assert seen.route
        assert (seen.route.generation, seen.route.digest, seen.route.accepted) == (
            applied.generation,
            applied.digest,
            False,
        )
        # Statuses of another gateway or an older generation do not count.
        other = a_status(
            applied.generation, accepted="True", resolved="True", name="other"
        )
        await write_parents(
            control,
            applied.name,
            other + a_status(applied.generation - 1, accepted="True", resolved="True"),
        )
        await watched.until(
            owner,
            lambda each: bool(each.route and "not reported yet" in each.route.message),
        )
        await write_parents(
            control,
            applied.name,
            a_status(applied.generation, accepted="True", resolved="False"),
        )
        seen = await watched.until(
            owner, lambda each: bool(each.route and each.route.accepted)
        )
        assert seen.route
        assert (seen.route.resolved, seen.route.message) == (
            False,
            "ResolvedRefs is False: BackendNotFound: as it is",
        )
        await write_parents(
            control,
            applied.name,
            a_status(applied.generation, accepted="True", resolved="True"),
        )
        seen = await watched.until(
            owner, lambda each: bool(each.route and each.route.resolved)
        )
        assert seen.route
        assert seen.route.digest == applied.digest, "a status is none of ours"
        await control.api.delete(
            ObjectId(kinds.HTTP_ROUTE, control.namespace, applied.name)
        )
        await watched.until(
            owner, lambda each: bool(each.route and not each.route.present)
        )
        numbers = [each.sequence for each in watched.sent[owner]]
        assert numbers == sorted(set(numbers))


async def test_the_owner_of_an_endpoint_is_notified_when_its_backend_is_changed_or_deleted(
    control: Control,
) -> None:
    order = ApplyBackend(
        owner="ModelReplica",
        namespace=control.namespace,
        name="qwen-1",
        uid="u",
        url="http://10.0.0.1",
    )
    owner = ObjectOwner("ModelReplica", control.namespace, "qwen-1", "u")
    applied = await control.run(control.activities.apply_endpoint_backend, order)
    async with watching(control.api) as watched:
        await watched.until(
            owner,
            lambda each: bool(each.backend and each.backend.digest == applied.digest),
        )
        await control.api.delete(
            ObjectId(kinds.ENDPOINT_SLICE, control.namespace, f"{applied.backend}-ipv4")
        )
        await watched.until(
            owner, lambda each: bool(each.backend and each.backend.digest == "")
        )
        again = await control.run(control.activities.apply_endpoint_backend, order)
        assert again.digest == applied.digest
        await watched.until(
            owner,
            lambda each: bool(each.backend and each.backend.digest == applied.digest),
        )


async def test_owners_that_lost_all_their_objects_before_the_watch_are_notified(
    control: Control,
) -> None:
    order = ApplyBackend(
        owner="ModelEndpoint",
        namespace=control.namespace,
        name="kept",
        uid="u",
        url="http://10.0.0.1",
    )
    kept, lost = (
        ObjectOwner("ModelEndpoint", control.namespace, name, "u")
        for name in ("kept", "lost")
    )
    service = ObjectOwner("ModelService", control.namespace, "s", "u")
    applied = await control.run(control.activities.apply_endpoint_backend, order)
    async with watching(control.api, known=[kept, lost, service]) as watched:
        await watched.until(
            lost, lambda each: bool(each.backend and each.backend.digest == "")
        )
        await watched.until(
            service, lambda each: bool(each.route and not each.route.present)
        )
        await watched.until(
            kept,
            lambda each: bool(each.backend and each.backend.digest == applied.digest),
        )
        assert len(watched.sent[kept]) == 1


async def test_the_gateway_is_notified_of_its_address_and_its_loss(
    control: Control,
) -> None:
    target = ObjectId(kinds.GATEWAY, "modelplane-system", "modelplane")
    async with watching(control.api) as watched:
        seen = await watched.until(GATEWAY, lambda each: each.gateway is not None)
        assert seen.gateway
        assert (seen.gateway.reachable, seen.gateway.accepted) == (True, False)
        assert (
            seen.gateway.message
            == "Gateway modelplane-system/modelplane does not exist"
        )
        listeners = [{"name": "web", "protocol": "HTTP", "port": 8000}]
        await control.api.apply(
            {
                "apiVersion": kinds.GATEWAY.api_version,
                "kind": "Gateway",
                "metadata": {"name": "modelplane", "namespace": "modelplane-system"},
                "spec": {"gatewayClassName": GATEWAY_CLASS, "listeners": listeners},
            }
        )
        try:
            await watched.until(
                GATEWAY,
                lambda each: bool(
                    each.gateway and each.gateway.accepted and each.gateway.address
                ),
            )
        finally:
            await control.api.delete(target)
        await watched.until(
            GATEWAY,
            lambda each: bool(
                each.gateway and "does not exist" in each.gateway.message
            ),
        )


async def test_a_control_cluster_that_does_not_answer_is_reported_to_the_gateway_alone(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(health, "RETRY_SECONDS", 0.1)
    order = ApplyBackend(
        owner="ModelReplica",
        namespace=control.namespace,
        name="qwen-1",
        uid="u",
        url="http://10.0.0.1",
    )
    owner = ObjectOwner("ModelReplica", control.namespace, "qwen-1", "u")
    await control.run(control.activities.apply_endpoint_backend, order)
    down = False

    def resolve() -> ClusterApi:
        if down:
            raise ClusterUnreachable("no answer")
        return control.api

    async with watching(control.api, resolve=resolve) as watched:
        await watched.until(owner, lambda each: each.backend is not None)
        told = len(watched.sent[owner])
        down = True
        seen = await watched.until(
            GATEWAY, lambda each: bool(each.gateway and not each.gateway.reachable)
        )
        assert seen.gateway
        assert seen.gateway.error == "no answer"
        assert len(watched.sent[owner]) == told
        down = False
        await watched.until(
            GATEWAY, lambda each: bool(each.gateway and each.gateway.reachable)
        )
