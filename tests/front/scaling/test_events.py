"""CloudEvents of KEDA in both modes: recorded, ignored or rejected."""

import asyncio
import json
from typing import Any

import pytest

from tests.front.scaling.scaling_under_test import (
    TOKEN,
    Client,
    Json,
    ScalingUnderTest,
    asked,
)

PATH = "/v1/events"
MINE = {"Authorization": f"Bearer {TOKEN}"}
STRUCTURED = {**MINE, "Content-Type": "application/cloudevents+json"}
EVENT = {
    "specversion": "1.0",
    "id": "7f1c",
    "source": "/kubernetes-default/keda/keda",
    "type": "keda.scaledobject.failed.v1",
    "subject": "/kubernetes-default/a/scaledobject/chat",
}
DATA = {"reason": "ScaledObjectCheckFailed", "message": "no trigger\x1b[2J answers"}


async def sent(client: Client, data: Any = DATA, **more: Any) -> tuple[int, Json]:
    """Send an event in structured mode; attributes with None are left out."""
    event = {
        key: value
        for key, value in {**EVENT, **more, "data": data}.items()
        if value is not None
    }
    return await asked(client, "POST", PATH, event, **STRUCTURED)


async def sent_binary(client: Client, **more: str) -> tuple[int, Json]:
    headers = {f"ce-{key}": value for key, value in {**EVENT, **more}.items()}
    return await asked(client, "POST", PATH, DATA, **MINE, **headers)


async def test_both_modes_record_the_same_event_with_one_id(
    served: ScalingUnderTest, client: Client
) -> None:
    assert await sent(client) == (202, {"recorded": True})
    assert await sent_binary(client) == (202, {"recorded": True})
    (first, second) = served.plane.sent
    assert first == second
    name, signal, message = first
    assert (name, signal) == ("chat", "record_event")
    assert message.pop("requestId").startswith("cloudevent-")
    assert message == {
        "by": "ann",
        "type": "Warning",
        "reason": "ScaledObjectFailed",
        "message": (
            "ScaledObjectCheckFailed: no trigger\\x1b[2J answers "
            "(from '/kubernetes-default/keda/keda')"
        ),
    }


async def test_another_source_or_id_is_another_event(
    served: ScalingUnderTest, client: Client
) -> None:
    for more in (
        {},
        {"id": "other"},
        {"source": "/other/keda/keda"},
        {"source": "/kubernetes-default/keda/keda7", "id": "f1c"},
    ):
        await sent(client, **more)
    assert len({message["requestId"] for _, _, message in served.plane.sent}) == 4


async def test_percent_encoded_headers_are_the_same_event(
    served: ScalingUnderTest, client: Client
) -> None:
    await sent(client, id="7f é 1c")
    await sent_binary(
        client,
        id="7f%20%C3%A9%201c",
        subject="/kubernetes%2Ddefault/a/scaledobject/chat",
    )
    assert len(served.plane.sent) == 2
    assert len({message["requestId"] for _, _, message in served.plane.sent}) == 1


async def test_a_long_text_is_truncated(
    served: ScalingUnderTest, client: Client
) -> None:
    assert (await sent(client, {"reason": "r", "message": "é" * 5_000}))[0] == 202
    ((_, _, message),) = served.plane.sent
    assert len(message["message"].encode()) < 1024


@pytest.mark.parametrize("kind", ["ready", "removed", "paused", "unpaused"])
async def test_events_other_than_failures_are_normal(
    served: ScalingUnderTest, client: Client, kind: str
) -> None:
    await sent(client, type=f"keda.scaledobject.{kind}.v1")
    assert [(each["type"], each["reason"]) for _, _, each in served.plane.sent] == [
        ("Normal", f"ScaledObject{kind.capitalize()}")
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"type": "keda.scaledjob.ready.v1"},
        {
            "type": "keda.authentication.triggerauthentication.created.v1",
            "subject": "/c/b/triggerauthentication/x",
        },
        {"type": "com.example.other", "subject": None},
        {"subject": "/kubernetes-default/a/scaledobject/none"},
    ],
)
async def test_events_without_a_deployment_are_accepted_and_ignored(
    served: ScalingUnderTest, client: Client, more: Json
) -> None:
    status, answer = await sent(client, **more)
    assert (status, answer["recorded"]) == (202, False)
    assert answer["ignored"]
    assert served.plane.sent == []


async def test_the_error_without_rights_does_not_reveal_existence(
    served: ScalingUnderTest, client: Client
) -> None:
    told = set()
    for name in ("chat", "none"):
        for data in (DATA, 7):
            status, answer = await sent(
                client, data, subject=f"/kubernetes-default/b/scaledobject/{name}"
            )
            told.add((status, answer["message"].replace(f'"{name}"', "x")))
    assert len(told) == 1
    assert next(iter(told))[0] == 403
    assert (
        await asked(
            client,
            "POST",
            PATH,
            {**EVENT, "data": DATA},
            **{"Content-Type": "application/cloudevents+json"},
        )
    )[0] == 401
    assert served.plane.sent == []


@pytest.mark.parametrize(
    ("data", "more", "fields"),
    [
        (DATA, {"id": None, "source": "", "type": 7}, {"id", "source", "type"}),
        (DATA, {"specversion": "0.3"}, {"specversion"}),
        (DATA, {"id": "x" * 1025}, {"id"}),
        (DATA, {"subject": "chat"}, {"subject"}),
        (DATA, {"subject": "/c/a/deployment/chat"}, {"subject"}),
        (DATA, {"subject": "/c/a/scaledobject/chat/scale"}, {"subject"}),
        (DATA, {"subject": None}, {"subject"}),
        (None, {}, {"data"}),
        ("text", {}, {"data"}),
        ({"reason": 1, "message": "x" * 20_000}, {}, {"reason", "message"}),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else "",
)
async def test_all_errors_of_an_event_are_reported_at_once(
    served: ScalingUnderTest, client: Client, data: Any, more: Json, fields: set[str]
) -> None:
    status, answer = await sent(client, data, **more)
    assert (status, answer["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in answer["details"]["causes"]} == fields
    assert served.plane.sent == []


async def test_bodies_that_are_no_events_are_rejected(client: Client) -> None:
    batch = {**MINE, "Content-Type": "application/cloudevents-batch+json"}
    assert (await asked(client, "POST", PATH, [EVENT], **batch))[0] == 415
    assert (await asked(client, "POST", PATH, EVENT, **MINE))[0] == 415
    assert (await asked(client, "POST", PATH, b"{", **STRUCTURED))[0] == 400
    assert (
        await asked(
            client,
            "POST",
            PATH,
            json.dumps({**EVENT, "data": "x" * 70_000}).encode(),
            **STRUCTURED,
        )
    )[0] == 413
    assert (await asked(client, "GET", PATH, **MINE))[0] == 405


@pytest.mark.parametrize("attribute", ["id", "source", "type", "subject"])
async def test_headers_that_are_not_utf_8_are_rejected_with_a_message(
    served: ScalingUnderTest, client: Client, attribute: str
) -> None:
    headers = {
        **MINE,
        "Content-Type": "application/json",
        **{f"ce-{key}": value for key, value in EVENT.items()},
    }
    lines = [
        f"{name}: {value}".encode()
        for name, value in {
            **headers,
            "Host": "127.0.0.1",
            "Content-Length": "2",
        }.items()
    ]
    odd = [
        line + b"\xff" if line.startswith(f"ce-{attribute}:".encode()) else line
        for line in lines
    ]
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(
        b"\r\n".join(
            [f"POST {PATH} HTTP/1.1".encode(), *odd, b"Connection: close", b"", b"{}"]
        )
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"the header ce-{attribute} must be UTF-8".encode() in answer
    assert served.plane.sent == []
