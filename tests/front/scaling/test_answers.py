"""Repeats of signed requests: concurrent, with a new signature, after errors, and many."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from fleet_client.errors import Unreachable
from front.access.access_file import User
from front.access.signing import WINDOW_SECONDS, SignedRequest
from front.scaling import answers
from front.scaling.answers import IdempotentRequests
from front.serving import errors
from front.serving.writes import turns
from front.store.projection import ObjectKey
from tests.front.scaling.scaling_under_test import (
    Client,
    Json,
    ScalingUnderTest,
    asked,
    path_of,
    signature,
)

PATH = path_of("chat", "scale")
WINDOW = timedelta(seconds=WINDOW_SECONDS)
SIGNED = SignedRequest(User("burst"), "r" * 16)
NOW = 1000.0


async def scaled(
    served: ScalingUnderTest,
    client: Client,
    replicas: int,
    request_id: str = "r" * 16,
    **signing: Any,
) -> tuple[int, Json]:
    """Send a request for a count, signed at the current time."""
    body = json.dumps({"replicas": replicas}).encode()
    return await asked(
        client,
        "POST",
        PATH,
        body,
        **signature(
            PATH, body, **{"at": served.now, "request_id": request_id, **signing}
        ),
    )


def counts(served: ScalingUnderTest) -> list[int]:
    return [message["replicas"] for _, _, message in served.plane.sent]


# Concurrent requests


@dataclass
class Held:
    """Carries out a request when released.

    `fails` is an exception for the first time.
    """

    fails: Exception | None = None
    called: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> Json:
        self.called += 1
        await self.go_on.wait()
        if self.fails and self.called == 1:
            raise self.fails
        return {"call": self.called}

    async def let_go(self) -> None:
        self.go_on.set()


async def together(
    held: Held, *contents: bytes, known: IdempotentRequests | None = None
) -> list[Any]:
    """Start requests with one id before any is answered; return their results."""
    known = known or IdempotentRequests()
    # Each of them runs until it waits, in this order.
    told = await asyncio.gather(
        *(known.once(SIGNED, each, NOW, held) for each in contents),
        held.let_go(),
        return_exceptions=True,
    )
    return told[:-1]


async def test_the_second_of_two_concurrent_requests_with_one_id_is_rejected() -> None:
    held = Held()
    first, second = await together(held, b"5", b"6")
    assert (first, held.called) == ({"call": 1}, 1)
    assert isinstance(second, errors.RejectedRequest)
    assert second.code == 409


async def test_a_concurrent_repeat_waits_for_the_answer() -> None:
    held = Held()
    assert await together(held, b"5", b"5", b"5") == [{"call": 1}] * 3
    assert held.called == 1


@pytest.mark.parametrize(
    "failure",
    [errors.not_found("g", "p", "n"), errors.unavailable("no worker answers")],
    ids=["404", "503"],
)
async def test_a_concurrent_repeat_of_a_failed_request_is_carried_out(
    failure: Exception,
) -> None:
    held, known = Held(fails=failure), IdempotentRequests()
    first, second, third = await together(held, b"5", b"5", b"5", known=known)
    assert (first, second, third) == (failure, {"call": 2}, {"call": 2})
    assert await known.once(SIGNED, b"5", NOW, held) == {"call": 2}


async def test_a_pending_request_is_never_forgotten() -> None:
    held, known = Held(), IdempotentRequests()
    first = asyncio.create_task(known.once(SIGNED, b"5", NOW, held))
    await asyncio.sleep(0)
    late = NOW + 2 * WINDOW_SECONDS + 1
    repeat, _ = await asyncio.gather(
        known.once(SIGNED, b"5", late, held), held.let_go()
    )
    assert (repeat, await first, held.called) == ({"call": 1}, {"call": 1}, 1)


# Sequential requests


async def test_a_request_with_an_unknown_result_keeps_its_id(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the workflow would treat another request with this id as a repeat, and
    the front would report it as done.
    """

    async def fails(*_: Any) -> None:
        raise Unreachable("Temporal does not answer", next_step="")

    with monkeypatch.context() as patch:
        patch.setattr(served.plane, "signal", fails)
        assert (await scaled(served, client, 5))[0] == 503
    assert (await scaled(served, client, 6))[0] == 409
    assert (await scaled(served, client, 5))[0] == 200
    assert counts(served) == [5]


async def test_a_rejected_request_releases_its_id(
    served: ScalingUnderTest, client: Client
) -> None:
    assert (await scaled(served, client, -1))[0] == 422
    assert served.scaling._answers._made == {}
    assert (await scaled(served, client, 5))[0] == 200


async def test_a_request_that_waited_too_long_releases_its_id(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ObjectKey("ModelDeployment", "a", "chat")
    async with served.front.scales._turns.of(key):
        monkeypatch.setattr(turns, "WAIT_SECONDS", 0.1)
        assert (await scaled(served, client, 5))[0] == 429
    assert served.scaling._answers._made == {}
    assert (await scaled(served, client, 6))[0] == 200
    assert counts(served) == [6]


async def test_a_repeat_with_a_new_signature_is_recognized_while_it_is_valid(
    served: ScalingUnderTest, client: Client
) -> None:
    assert (await scaled(served, client, 5))[0] == 200
    assert (await scaled(served, client, 7, "another-request-id"))[0] == 200
    served.now += 2 * WINDOW
    assert (await scaled(served, client, 5, at=served.now + WINDOW))[1]["spec"] == {
        "replicas": 5
    }
    # An attacker sends an intercepted repeat again, in the last second of its validity.
    served.now += 2 * WINDOW
    assert (await scaled(served, client, 5, at=served.now - WINDOW))[1]["spec"] == {
        "replicas": 5
    }
    assert counts(served) == [5, 7]


async def test_old_requests_of_every_caller_are_forgotten(
    served: ScalingUnderTest, client: Client
) -> None:
    for caller in ("burst", "steady"):
        assert (await scaled(served, client, 5, caller=caller))[0] == 200
    served.now += 2 * WINDOW + timedelta(seconds=1)
    assert (await scaled(served, client, 6, "another-request-id"))[0] == 200
    assert {
        user: list(made) for user, made in served.scaling._answers._made.items()
    } == {"burst": ["another-request-id"]}


async def test_one_caller_displaces_no_answers_of_others(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_OF_CALLER_MAX", 2)
    ids = [f"request-id-{number:08}" for number in range(3)]
    assert (await scaled(served, client, 1, ids[0], caller="steady"))[0] == 200
    assert [(await scaled(served, client, 2, each))[0] for each in ids] == [
        200,
        200,
        429,
    ]
    body = b'{"replicas": 2}'
    served.now += timedelta(seconds=10)
    async with client.post(
        PATH, data=body, headers=signature(PATH, body, served.now, request_id=ids[2])
    ) as refused:
        assert (refused.status, refused.headers["Retry-After"]) == (
            429,
            str(2 * WINDOW_SECONDS - 10),
        )
        assert (
            'the user "burst" has reached the limit of 2 requests within 600 s'
            in (await refused.json())["message"]
        )
    # Repeats are answered, and other callers may send requests.
    assert (await scaled(served, client, 2, ids[0]))[1]["spec"] == {"replicas": 2}
    assert (await scaled(served, client, 1, ids[0], caller="steady"))[1]["spec"] == {
        "replicas": 1
    }
    assert (await scaled(served, client, 3, ids[1], caller="steady"))[0] == 200
    assert counts(served) == [1, 2, 2, 3]
    served.now += 2 * WINDOW
    assert (await scaled(served, client, 4, ids[2]))[0] == 200
