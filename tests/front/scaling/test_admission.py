"""Requests of autoscalers are limited and audited like other requests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from front.access.access import AccessControl
from front.access.limits import Allowance, Limits, TooMany
from front.audit.log import AuditLog
from front.scaling import events, external_scaler
from front.scaling import scaler_messages as messages
from front.scaling.external_scaler import _address_of
from front.scaling.numbers import Numbers
from front.serving.auditing import HEADER
from front.store.projection import ObjectKey
from tests.front.scaling.keda import a_scaler
from tests.front.scaling.scaling_under_test import (
    KEY,
    NOW,
    TOKEN,
    Client,
    ScalingUnderTest,
    asked,
    path_of,
    signature,
)
from tests.workflows.environment.harness import eventually

ANN = {"Authorization": f"Bearer {TOKEN}"}
SCALE, METRICS, COUNT = (
    path_of("chat", "scale"),
    path_of("chat", "metrics"),
    b'{"replicas":5,"reason":"burst"}',
)
CHAT = ObjectKey("ModelDeployment", "a", "chat")
ALLOWANCE = Allowance(per_second=1, burst=2, requests=100, watches=1)
EVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/keda",
    "type": "keda.scaledobject.failed.v1",
    "subject": "/c/a/scaledobject/chat",
}
FAILED = json.dumps(
    {**EVENT, "data": {"reason": "KEDAScalerFailed", "message": "m"}}
).encode()
OF_EVENTS = {**ANN, "Content-Type": events.STRUCTURED}


@pytest.fixture
def served(tmp_path: Path) -> ScalingUnderTest:
    """A front with limits, a stopped clock and an audit log."""
    return ScalingUnderTest(
        tmp_path,
        limits=Limits(ALLOWANCE, lambda: 100.0),
        audit_log=AuditLog(str(tmp_path / "audit.jsonl")),
    )


def lines(served: ScalingUnderTest) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (served.folder / "audit.jsonl").read_text().splitlines()
    ]


def what(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        line[field]
        for field in (
            "user",
            "verb",
            "resource",
            "namespace",
            "name",
            "code",
            "outcome",
        )
    )


# Audit log


async def test_a_signed_request_is_recorded_with_its_caller_and_its_change(
    served: ScalingUnderTest, client: Client
) -> None:
    headers = signature(SCALE, COUNT, NOW)
    async with client.post(
        SCALE, data=COUNT, headers={"Content-Type": "application/json", **headers}
    ) as answer:
        assert answer.status == 200
    assert (await asked(client, "POST", SCALE, COUNT, **headers))[0] == 200
    line, repeat = lines(served)
    assert what(line) == (
        "burst",
        "update",
        "modeldeployments/scale",
        "a",
        "chat",
        200,
        "Success",
    )
    assert line["groups"] == ["scalers", "system:authenticated"]
    assert line["id"] == answer.headers[HEADER]
    ((_, _, sent),) = served.plane.sent
    assert (line["requestId"], line["user"]) == (sent["requestId"], sent["by"])
    assert "requestId" not in repeat


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, ("", "", "", "", "", 401, "Unauthorized")),
        (
            signature(SCALE, COUNT, NOW, caller="idle"),
            ("idle", "update", "modeldeployments/scale", "a", "chat", 403, "Forbidden"),
        ),
    ],
    ids=["unsigned", "without rights"],
)
async def test_a_rejected_signed_request_is_recorded(
    served: ScalingUnderTest,
    client: Client,
    headers: dict[str, str],
    told: tuple[Any, ...],
) -> None:
    await asked(client, "POST", SCALE, COUNT, **headers)
    assert [what(line) for line in lines(served)] == [told]
    assert KEY not in (served.folder / "audit.jsonl").read_text()


async def test_writes_of_metrics_are_recorded_but_not_reads(
    served: ScalingUnderTest, client: Client
) -> None:
    assert (await asked(client, "PUT", METRICS, {"queueDepth": 1}, **ANN))[0] == 200
    assert (await asked(client, "GET", METRICS, **ANN))[0] == 200
    assert [what(line) for line in lines(served)] == [
        ("ann", "update", "modeldeployments/metrics", "a", "chat", 200, "Success")
    ]


@pytest.mark.parametrize("there", [True, False], ids=["a deployment", "none"])
async def test_an_event_is_recorded_with_its_message(
    served: ScalingUnderTest, client: Client, there: bool
) -> None:
    if not there:
        del served.plane.objects[("a", "chat")]
    assert (await asked(client, "POST", "/v1/events", FAILED, **OF_EVENTS))[0] == 202
    (line,) = lines(served)
    assert what(line) == (
        "ann",
        "create",
        "modeldeployments/events",
        "a",
        "chat",
        202,
        "Success",
    )
    assert [message["requestId"] for _, _, message in served.plane.sent] == (
        [line["requestId"]] if there else []
    )
    assert ("requestId" in line) is there


async def test_an_interrupted_request_of_an_unknown_caller_has_no_line(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client could fill the disk with incomplete requests."""

    async def breaks_off(*_: Any) -> bytes:
        raise asyncio.CancelledError

    monkeypatch.setattr("front.scaling.routes.read", breaks_off)
    with pytest.raises(Exception, match="disconnected"):
        await asked(client, "POST", SCALE, COUNT, **signature(SCALE, COUNT, NOW))
    assert lines(served) == []
    with pytest.raises(Exception, match="disconnected"):
        await asked(client, "PUT", METRICS, {"queueDepth": 1}, **ANN)

    async def outcomes() -> list[Any]:
        # The line is written shortly after the connection has ended.
        return [what(line)[-2:] for line in lines(served)]

    await eventually(
        outcomes,
        lambda found: found == [(0, "Interrupted")],
        what="the line of a known caller",
    )


async def test_autoscaler_writes_are_rejected_while_the_log_is_not_writable(
    tmp_path: Path,
) -> None:
    (tmp_path / "audit").mkdir()
    log = AuditLog(str(tmp_path / "audit" / "audit.jsonl"))
    served = ScalingUnderTest(tmp_path, audit_log=log)
    (tmp_path / "audit" / "audit.jsonl").unlink()
    (tmp_path / "audit").rmdir()
    async with served.client() as client:
        assert (
            await asked(client, "POST", SCALE, COUNT, **signature(SCALE, COUNT, NOW))
        )[0] == 503
        assert (await asked(client, "PUT", METRICS, {"queueDepth": 1}, **ANN))[0] == 503
        assert (await asked(client, "POST", "/v1/events", FAILED, **OF_EVENTS))[
            0
        ] == 503
    assert served.plane.sent == []
    assert served.told._numbers == {}


# Limits


async def test_signed_callers_are_limited_by_name_and_unknown_ones_by_address(
    served: ScalingUnderTest, client: Client
) -> None:
    def signed(number: int, caller: str = "burst") -> dict[str, str]:
        return signature(
            SCALE, COUNT, NOW, request_id=f"request-{number:08}", caller=caller
        )

    assert [(await asked(client, "POST", SCALE, COUNT))[0] for _ in range(3)] == [
        401,
        401,
        429,
    ]
    assert (await asked(client, "GET", SCALE))[0] == 429
    with pytest.raises(TooMany):
        served.front.authorization.limits.address_asks("127.0.0.1")
    assert [
        (await asked(client, "POST", SCALE, COUNT, **signed(number)))[0]
        for number in range(3)
    ] == [200, 200, 429]
    # A repeat counts too.
    assert (await asked(client, "POST", SCALE, COUNT, **signed(0)))[0] == 429
    assert (await asked(client, "POST", SCALE, COUNT, **signed(9, "idle")))[0] == 403
    assert len(served.plane.sent) == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", METRICS, None, ANN),
        ("PUT", METRICS, {"queueDepth": 1}, ANN),
        ("PUT", METRICS, {"queueDepth": 1}, {"X-Api-Key": TOKEN}),
        ("POST", "/v1/events", FAILED, OF_EVENTS),
    ],
    ids=["read", "tell", "tell with a key", "event"],
)
async def test_metrics_and_events_are_limited_by_user_and_by_address(
    client: Client, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    assert [(await asked(client, method, path, body))[0] for _ in range(3)] == [
        401,
        401,
        429,
    ]
    told = [(await asked(client, method, path, body, **headers))[0] for _ in range(3)]
    assert told[2] == 429
    assert 429 not in told[:2]


async def test_concurrent_requests_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ScalingUnderTest(
        tmp_path,
        limits=Limits(
            Allowance(per_second=100, burst=100, requests=1, watches=1), lambda: 100.0
        ),
    )
    arrived, go_on = asyncio.Event(), asyncio.Event()
    describe = served.plane.describe

    async def slow(target: Any) -> Any:
        arrived.set()
        await go_on.wait()
        return await describe(target)

    monkeypatch.setattr(served.plane, "describe", slow)
    async with served.client() as client:
        first = asyncio.create_task(
            asked(client, "POST", SCALE, COUNT, **signature(SCALE, COUNT, NOW))
        )
        await arrived.wait()
        other = signature(SCALE, COUNT, NOW, request_id="s" * 16)
        status, told = await asked(client, "POST", SCALE, COUNT, **other)
        assert (status, told["message"]) == (
            429,
            (
                'the user "burst" has reached the limit of 1 concurrent requests; '
                "end some, or try again later"
            ),
        )
        go_on.set()
        assert (await first)[0] == 200
        assert (await asked(client, "POST", SCALE, COUNT, **other))[0] == 200


def reference() -> Any:
    return messages.ScaledObjectRef(
        name="chat", namespace="a", scalerMetadata={"targetValue": "2"}
    )


@pytest.mark.parametrize("method", ["IsActive", "GetMetricSpec", "GetMetrics"])
async def test_calls_of_keda_are_limited(served: ScalingUnderTest, method: str) -> None:
    served.front.authorization.access = AccessControl()
    served.told.tell(CHAT, Numbers("chat", served.now, {"queueDepth": 1}))
    request = (
        messages.GetMetricsRequest(scaledObjectRef=reference())
        if method == "GetMetrics"
        else reference()
    )
    async with a_scaler(served) as keda:
        for _ in range(2):
            await keda.ask(method, request, messages.IsActiveResponse)
        assert await keda.refusal(request, method) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            'too many requests of the user "system:anonymous-admin"; try again later',
        )


async def test_streams_of_keda_are_limited_like_watches(
    served: ScalingUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_scaler, "CHECK_SECONDS", 0.05)
    served.front.authorization.access = AccessControl()
    served.told.tell(CHAT, Numbers("chat", served.now, {"queueDepth": 1}))
    async with a_scaler(served) as keda:
        stream = keda.stream(reference())
        assert (await stream.read()).result
        with pytest.raises(grpc.aio.AioRpcError, match="limit of 1 watches") as refused:
            await keda.stream(reference()).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        served.projection.remove(CHAT, 5000)
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
    assert not served.front.authorization.limits._watches


async def test_calls_without_a_known_certificate_are_limited_by_address(
    served: ScalingUnderTest,
) -> None:
    async with a_scaler(served) as keda:
        codes = [(await keda.refusal(reference()))[0] for _ in range(3)]
    assert codes == [
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ]
    with pytest.raises(TooMany):
        served.front.authorization.limits.address_asks("127.0.0.1")


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:50000", "2001:db8::1"),
        ("unix:", ""),
    ],
)
def test_the_address_of_a_grpc_client_is_its_host(peer: str, address: str) -> None:
    assert _address_of(peer) == address
