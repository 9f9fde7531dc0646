"""Autoscalers with a real control plane; clusters are simulated."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import pytest_asyncio

from api_types.clock import utc_now
from front.scaling import scaler_messages as messages
from testbed.cluster.pki import Authority
from tests.front.front_under_test import TOKENS, FrontUnderTest, a_front
from tests.front.scaling.endpoint import RUNNING, WAITING, Endpoint
from tests.front.scaling.scaling_under_test import AUDIENCE, KEY, path_of, signature
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

NAMESPACE = "team-a"
CALLERS = f"callers: [{{name: burst, groups: [team-a], keys: [{KEY}]}}]"


@pytest_asyncio.fixture(scope="module")
async def front(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FrontUnderTest]:
    """A front with a webhook and an external scaler."""
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "callers.yaml").write_text(CALLERS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    pki = Authority(folder / "pki", {"keda": ("keda", NAMESPACE)})
    pki.ensure()
    settings = {
        "webhookKeys": str(folder / "callers.yaml"),
        "webhookAudience": AUDIENCE,
        "scalerListen": address,
        "scalerClientCa": str(pki.ca),
        "scrapeFile": str(folder / "scrape.yaml"),
        "scrapeInterval": "1",
    }
    (folder / "scrape.yaml").write_text("deployments: []")
    async with a_front(plane, folder, **settings) as front:
        yield front


@pytest_asyncio.fixture(scope="module")
async def chat(plane: ControlPlane, front: FrontUnderTest) -> AsyncIterator[str]:
    """A deployment with one replica that no test scales."""
    async with a_seen_deployment(plane, front) as name:
        yield name


@asynccontextmanager
async def a_seen_deployment(
    plane: ControlPlane, front: FrontUnderTest
) -> AsyncIterator[str]:
    """Apply a deployment with one replica, and wait until the front has read it."""
    name = f"chat-{utc_now().timestamp():.6f}".replace(".", "-")
    await plane.apply(a_deployment(name, NAMESPACE))
    path = (
        f"/apis/modelplane.ai/v1alpha1/namespaces/{NAMESPACE}/modeldeployments/{name}"
    )

    async def seen() -> bool:
        status, tree = await front.ask("GET", path)
        return status == 200 and tree["status"]["replicas"]["total"] == 1

    await eventually(seen, bool, what="the deployment at the front")
    yield name
    await plane.delete("ModelDeployment", name, NAMESPACE)
    await plane.gone("ModelDeployment", name, NAMESPACE)


async def signed(
    front: FrontUnderTest,
    name: str,
    body: Json,
    request_id: str,
    namespace: str = NAMESPACE,
) -> tuple[int, Json]:
    path, data = path_of(name, "scale", namespace), json.dumps(body).encode()
    return await front.ask(
        "POST",
        path,
        data,
        user="",
        **signature(path, data, utc_now(), request_id=request_id),
    )


def events_of(tree: Json, reason: str) -> list[Json]:
    return [event for event in tree["status"]["events"] if event["reason"] == reason]


@pytest.fixture
async def scaled(plane: ControlPlane, front: FrontUnderTest) -> AsyncIterator[str]:
    """A deployment for one test."""
    async with a_seen_deployment(plane, front) as name:
        yield name


async def test_a_signed_request_scales_once_and_leaves_no_key_in_the_history(
    front: FrontUnderTest, scaled: str
) -> None:
    status, scale = await signed(
        front, scaled, {"replicas": 3, "reason": "a long queue"}, f"{scaled}-one"
    )
    assert (status, scale["spec"]) == (200, {"replicas": 3})
    tree = await front.plane.describe("ModelDeployment", scaled, NAMESPACE)
    assert (tree["spec"]["replicas"], tree["status"]["lastScale"]["by"]) == (3, "burst")
    assert [event["message"] for event in events_of(tree, "Scaled")] == [
        "from 1 to 3 by burst: a long queue"
    ]
    assert (await signed(front, scaled, {"replicas": 2}, f"{scaled}-two"))[1][
        "spec"
    ] == {"replicas": 2}
    # A restarted front does not repeat it either.
    await front.shut_down()
    await front.start()
    assert (
        await signed(
            front, scaled, {"replicas": 3, "reason": "a long queue"}, f"{scaled}-one"
        )
    )[1]["spec"] == {"replicas": 2}
    tree = await front.plane.describe("ModelDeployment", scaled, NAMESPACE)
    assert (tree["spec"]["replicas"], len(events_of(tree, "Scaled"))) == (2, 2)
    history = await front.plane.handle(
        "ModelDeployment", scaled, NAMESPACE
    ).fetch_history()
    written = b"".join(event.SerializeToString() for event in history.events)
    assert b'"by":"burst"' in written
    secrets = (KEY, *TOKENS.values())
    assert not any(
        secret.encode() in written or bytes.fromhex(KEY) in written
        for secret in secrets
    )


async def test_metrics_of_an_endpoint_are_scraped(
    front: FrontUnderTest, chat: str
) -> None:
    async with Endpoint().served() as url:
        scraped = {
            "namespace": NAMESPACE,
            "name": chat,
            "urls": [url],
            "queueDepth": WAITING,
            "runningRequests": RUNNING,
        }
        # YAML includes JSON.
        (front.folder / "scrape.yaml").write_text(
            json.dumps({"deployments": [scraped]})
        )

        async def known() -> Json:
            return dict(
                (await front.ask("GET", path_of(chat, "metrics", NAMESPACE)))[1]
            )

        answer = await eventually(
            known, lambda found: found.get("queueDepth") == 105, what="the numbers"
        )
    assert (answer["queueDepth"], answer["runningRequests"], answer["replicas"]) == (
        105,
        15,
        1,
    )
    (front.folder / "scrape.yaml").write_text("deployments: []")


async def test_requests_of_another_tenant_reveal_nothing(
    front: FrontUnderTest, chat: str
) -> None:
    told = set()
    for name in (chat, "none"):
        status, answer = await signed(
            front, name, {"replicas": 3}, f"{chat}-{name}-b", namespace="team-b"
        )
        told.add((status, answer["message"].replace(name, "x")))
        for method, body in (("PUT", {"queueDepth": 1}), ("GET", None)):
            status, answer = await front.ask(
                method, path_of(name, "metrics", NAMESPACE), body, user="bob"
            )
            told.add((status, answer["message"].replace(name, "x")))
    assert {status for status, _ in told} == {403}
    assert len(told) == 3


async def test_an_event_of_keda_is_recorded_once(
    front: FrontUnderTest, chat: str
) -> None:
    event = {
        "specversion": "1.0",
        "id": f"event-of-{chat}",
        "source": "/eu/keda/keda",
        "type": "keda.scaledobject.failed.v1",
        "subject": f"/eu/{NAMESPACE}/scaledobject/{chat}",
        "data": {"reason": "ScaledObjectCheckFailed", "message": "no trigger answers"},
    }
    structured = {"Content-Type": "application/cloudevents+json"}
    for _ in range(3):
        assert await front.ask(
            "POST", "/v1/events", event, user="alice", **structured
        ) == (202, {"recorded": True})
    after = {**event, "id": f"after-{chat}", "type": "keda.scaledobject.ready.v1"}
    assert (await front.ask("POST", "/v1/events", after, user="alice", **structured))[
        0
    ] == 202

    def has_both(tree: Json) -> bool:
        return bool(events_of(tree, "ScaledObjectReady"))

    tree = await front.plane.until("ModelDeployment", chat, has_both, NAMESPACE)
    (recorded,) = events_of(tree, "ScaledObjectFailed")
    assert (recorded["type"], recorded["count"]) == ("Warning", 1)
    assert (
        recorded["message"]
        == "ScaledObjectCheckFailed: no trigger answers (from '/eu/keda/keda')"
    )
    ignored = {**event, "subject": f"/eu/{NAMESPACE}/scaledobject/none"}
    assert (await front.ask("POST", "/v1/events", ignored, user="alice", **structured))[
        1
    ]["recorded"] is False


async def test_keda_reads_metrics_that_were_sent_by_http(
    front: FrontUnderTest, chat: str
) -> None:
    path = path_of(chat, "metrics", NAMESPACE)
    status, shown = await front.ask(
        "PUT", path, {"queueDepth": 12, "runningRequests": 3}, user="alice"
    )
    assert (status, shown["replicas"]) == (200, 1)
    assert await front.ask("GET", path, user="", **{"X-API-KEY": TOKENS["alice"]}) == (
        200,
        shown,
    )
    pki = Authority(front.folder / "pki")
    pair = pki.pair("keda")
    credentials = grpc.ssl_channel_credentials(
        pki.ca.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    reference = messages.ScaledObjectRef(
        name=chat, namespace=NAMESPACE, scalerMetadata={"targetValue": "5"}
    )
    async with grpc.aio.secure_channel(
        front.settings.front.scaler_listen, credentials
    ) as channel:
        asked = messages.GetMetricsRequest(
            scaledObjectRef=reference, metricName="queueDepth"
        )
        call: Any = channel.unary_unary(
            "/externalscaler.ExternalScaler/GetMetrics",
            messages.GetMetricsRequest.SerializeToString,
            messages.GetMetricsResponse.FromString,
        )
        (value,) = (await call(asked, timeout=30)).metricValues
    assert value.metricValueFloat == 12
