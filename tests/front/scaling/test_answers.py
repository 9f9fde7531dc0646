"""Repeats of signed requests: at the same time, signed anew, after a failure, and more than are remembered."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from client.errors import Unreachable
from front.access.access_file import User
from front.access.signing import WINDOW_SECONDS, Signed
from front.scaling import answers
from front.scaling.answers import Answers
from front.serving import errors
from front.store import turns
from front.store.projection import Key
from tests.front.scaling.scaling_under_test import Client, Json, ScalingUnderTest, asked, path_of, signature

PATH = path_of("chat", "scale")
WINDOW = timedelta(seconds=WINDOW_SECONDS)
SIGNED = Signed(User("burst"), "r" * 16)
NOW = 1000.0


async def scaled(served: ScalingUnderTest, client: Client, replicas: int, request_id: str = "r" * 16, **signing: Any) -> tuple[int, Json]:
    """Request a count, signed at the present time."""
    body = json.dumps({"replicas": replicas}).encode()
    return await asked(client, "POST", PATH, body, **signature(PATH, body, **{"at": served.now, "request_id": request_id, **signing}))


def counts(served: ScalingUnderTest) -> list[int]:
    return [message["replicas"] for _, _, message in served.plane.sent]


# --- at the same time -----------------------------------------------------------------------------------------------------------------


@dataclass
class Held:
    """Carries a request out once it may. `fails`: what it raises instead, the first time."""

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


async def together(held: Held, *contents: bytes, known: Answers | None = None) -> list[Any]:
    """Make requests with one id, each before another one is answered; gives the answer or the failure of each."""
    known = known or Answers()
    # Each of them runs until it waits, in this order.
    told = await asyncio.gather(*(known.once(SIGNED, each, NOW, held) for each in contents), held.let_go(), return_exceptions=True)
    return told[:-1]


async def test_of_two_requests_with_one_id_at_the_same_time_the_second_is_refused() -> None:
    held = Held()
    first, second = await together(held, b"5", b"6")
    assert (first, held.called) == ({"call": 1}, 1)
    assert isinstance(second, errors.Refused)
    assert second.code == 409


async def test_a_repeat_at_the_same_time_waits_for_the_answer() -> None:
    held = Held()
    assert await together(held, b"5", b"5", b"5") == [{"call": 1}] * 3
    assert held.called == 1


@pytest.mark.parametrize("failure", [errors.not_found("g", "p", "n"), errors.unavailable("no worker answers")], ids=["404", "503"])
async def test_a_repeat_of_what_fails_meanwhile_is_carried_out_by_itself(failure: Exception) -> None:
    held, known = Held(fails=failure), Answers()
    first, second, third = await together(held, b"5", b"5", b"5", known=known)
    assert (first, second, third) == (failure, {"call": 2}, {"call": 2})
    assert await known.once(SIGNED, b"5", NOW, held) == {"call": 2}


async def test_what_is_being_answered_is_not_forgotten_however_long_it_takes() -> None:
    held, known = Held(), Answers()
    first = asyncio.create_task(known.once(SIGNED, b"5", NOW, held))
    await asyncio.sleep(0)
    late = NOW + 2 * WINDOW_SECONDS + 1
    repeat, _ = await asyncio.gather(known.once(SIGNED, b"5", late, held), held.let_go())
    assert (repeat, await first, held.called) == ({"call": 1}, {"call": 1}, 1)


# --- one after the other --------------------------------------------------------------------------------------------------------------


async def test_what_may_have_been_carried_out_keeps_its_id(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workflow would take another request under this id for a repeat, and the answer would be that it is done."""

    async def fails(*_: Any) -> None:
        raise Unreachable("Temporal does not answer", next_step="")

    with monkeypatch.context() as patch:
        patch.setattr(served.plane, "signal", fails)
        assert (await scaled(served, client, 5))[0] == 503
    assert (await scaled(served, client, 6))[0] == 409
    assert (await scaled(served, client, 5))[0] == 200
    assert counts(served) == [5]


async def test_what_was_refused_leaves_its_id_free(served: ScalingUnderTest, client: Client) -> None:
    assert (await scaled(served, client, -1))[0] == 422
    assert served.scaling._answers._made == {}
    assert (await scaled(served, client, 5))[0] == 200


async def test_what_had_to_wait_too_long_leaves_its_id_free(
    served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Key("ModelDeployment", "a", "chat")
    async with served.front.writer._turns.of(key):
        monkeypatch.setattr(turns, "WAIT_SECONDS", 0.1)
        assert (await scaled(served, client, 5))[0] == 429
    assert served.scaling._answers._made == {}
    assert (await scaled(served, client, 6))[0] == 200
    assert counts(served) == [6]


async def test_a_repeat_that_is_signed_anew_is_known_as_one_for_as_long_as_it_is_taken(served: ScalingUnderTest, client: Client) -> None:
    assert (await scaled(served, client, 5))[0] == 200
    assert (await scaled(served, client, 7, "another-request-id"))[0] == 200
    served.now += 2 * WINDOW
    assert (await scaled(served, client, 5, at=served.now + WINDOW))[1]["spec"] == {"replicas": 5}
    # Whoever has read the repeat on its way sends it once more, in the last second in which it is taken.
    served.now += 2 * WINDOW
    assert (await scaled(served, client, 5, at=served.now - WINDOW))[1]["spec"] == {"replicas": 5}
    assert counts(served) == [5, 7]


async def test_what_is_older_is_forgotten_of_every_caller(served: ScalingUnderTest, client: Client) -> None:
    for caller in ("burst", "steady"):
        assert (await scaled(served, client, 5, caller=caller))[0] == 200
    served.now += 2 * WINDOW + timedelta(seconds=1)
    assert (await scaled(served, client, 6, "another-request-id"))[0] == 200
    assert {user: list(made) for user, made in served.scaling._answers._made.items()} == {"burst": ["another-request-id"]}


async def test_one_caller_displaces_no_answer(served: ScalingUnderTest, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_OF_CALLER_MAX", 2)
    ids = [f"request-id-{number:08}" for number in range(3)]
    assert (await scaled(served, client, 1, ids[0], caller="steady"))[0] == 200
    assert [(await scaled(served, client, 2, each))[0] for each in ids] == [200, 200, 429]
    body = b'{"replicas": 2}'
    served.now += timedelta(seconds=10)
    async with client.post(PATH, data=body, headers=signature(PATH, body, served.now, request_id=ids[2])) as refused:
        assert (refused.status, refused.headers["Retry-After"]) == (429, str(2 * WINDOW_SECONDS - 10))
        assert 'the user "burst" has made 2 requests within 600 s' in (await refused.json())["message"]
    # Repeats are answered, and others make requests.
    assert (await scaled(served, client, 2, ids[0]))[1]["spec"] == {"replicas": 2}
    assert (await scaled(served, client, 1, ids[0], caller="steady"))[1]["spec"] == {"replicas": 1}
    assert (await scaled(served, client, 3, ids[1], caller="steady"))[0] == 200
    assert counts(served) == [1, 2, 2, 3]
    served.now += 2 * WINDOW
    assert (await scaled(served, client, 4, ids[2]))[0] == 200
