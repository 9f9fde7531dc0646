"""One activity sends signals to several receivers, and hands refused signals over.

The calls to the server are staged here. `tests/workflows/test_full_receiver.py` has the server.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.messaging import delivering
from activities.messaging.delivering import deliver, redeliver
from activities.messaging.lookups import VisibilityPage
from api_types import names
from api_types.messages.delivery import (
    Broadcast,
    HoldSignals,
    Redelivered,
    SignalRequest,
)

FULL = RPCError("full", RPCStatusCode.INVALID_ARGUMENT, b"")
DOWN = RPCError("down", RPCStatusCode.UNAVAILABLE, b"")
CLIENT = cast("Client", object())


@dataclass
class Staged:
    """The answers of the server. `errors` and `hang` are by receiver."""

    errors: dict[str, Exception] = field(default_factory=dict)
    hang: set[str] = field(default_factory=set)
    refuses_hand_over: Exception | None = None
    redeliveries: set[str] = field(default_factory=set)
    sent: list[str] = field(default_factory=list)
    calls: int = 0
    most_calls: int = 0
    held: dict[str, HoldSignals] = field(default_factory=dict)

    async def send(self, _: object, request: SignalRequest) -> bool:
        if request.workflow_id in self.hang:
            await asyncio.sleep(3600)
        if error := self.errors.get(request.workflow_id):
            raise error
        self.calls += 1
        self.most_calls = max(self.most_calls, self.calls)
        await asyncio.sleep(0)
        self.calls -= 1
        self.sent.append(str(request.payload))
        return request.workflow_id != "gone"

    async def hold(self, _: object, receiver: str, held: HoldSignals) -> None:
        if names.redelivery_id(receiver) in self.hang:
            await asyncio.sleep(3600)
        if self.refuses_hand_over:
            raise self.refuses_hand_over
        self.held[receiver] = held

    async def first_run(self, _: object, workflow_id: str) -> str:
        if workflow_id in self.hang:
            await asyncio.sleep(3600)
        if error := self.errors.get(workflow_id):
            raise error
        return "run" if workflow_id in self.redeliveries else ""


@dataclass(frozen=True)
class Trouble:
    """The errors of a hand-over and of a look at the sender, and the calls that hang."""

    of_hand_over: Exception | None = None
    of_sender: Exception | None = None
    hangs: tuple[str, ...] = ()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Staged:
    staged = Staged()
    monkeypatch.setattr(delivering, "send_signal", staged.send)
    monkeypatch.setattr(delivering, "ensure_redelivery", staged.hold)
    monkeypatch.setattr(delivering, "first_run", staged.first_run)
    return staged


def signals(*sent: str) -> list[SignalRequest]:
    """Return signals, each given as its receiver and a number."""
    return [
        SignalRequest(workflow_id=each.split(" ")[0], signal="s", payload=each)
        for each in sent
    ]


async def running(work: Callable[..., Any], *arguments: Any, **info: Any) -> Any:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_id="sender", **info)
    return await environment.run(partial(work, CLIENT, *arguments))


async def test_signals_are_handed_over_from_the_first_refusal_on(
    server: Staged,
) -> None:
    server.errors["full"] = FULL
    missing = await running(
        deliver, signals("a 1", "full 1", "gone 1", "full 2", "a 2")
    )
    assert missing == ["gone"]
    assert sorted(server.sent) == ["a 1", "a 2", "gone 1"]
    (held,) = server.held.values()
    assert (held.sender, held.problem) == ("sender", "full")
    assert [request.payload for request in held.signals] == ["full 1", "full 2"]


@pytest.mark.parametrize(("attempt", "raises"), [(1, True), (2, True), (3, False)])
async def test_errors_of_all_receivers_may_be_caused_by_the_server(
    server: Staged, attempt: int, *, raises: bool
) -> None:
    server.errors = {"a": DOWN, "b": FULL}
    if raises:
        with pytest.raises(RPCError, match="down"):
            await running(deliver, signals("a 1", "b 1"), attempt=attempt)
        assert server.held == {}
    else:
        assert await running(deliver, signals("a 1", "b 1"), attempt=attempt) == []
        assert set(server.held) == {"a", "b"}


async def test_trouble_with_one_of_several_receivers_is_its_own(server: Staged) -> None:
    server.errors = {"a": DOWN}
    assert await running(deliver, signals("a 1", "b 1")) == []
    assert (server.sent, set(server.held)) == (["b 1"], {"a"})


@pytest.mark.parametrize(("attempt", "lost"), [(1, False), (14, False), (15, True)])
async def test_a_refused_hand_over_is_tried_again_before_its_signals_are_lost(
    server: Staged, attempt: int, *, lost: bool
) -> None:
    server.errors["full"] = server.refuses_hand_over = FULL
    if lost:
        assert await running(deliver, signals("full 1"), attempt=attempt) == []
    else:
        with pytest.raises(RPCError, match="full"):
            await running(deliver, signals("full 1"), attempt=attempt)


async def test_a_running_redelivery_that_takes_no_signals_blocks_no_sender(
    server: Staged,
) -> None:
    server.errors["full"] = server.refuses_hand_over = FULL
    server.redeliveries.add(names.redelivery_id("full"))
    assert await running(deliver, signals("full 1", "b 1")) == []
    assert server.sent == ["b 1"]


@pytest.mark.parametrize(
    ("attempt", "trouble", "final"),
    [
        (15, Trouble(DOWN), True),
        (15, Trouble(hangs=("redelivery/full",)), True),
        (14, Trouble(DOWN), False),
        (14, Trouble(hangs=("redelivery/full",)), False),
        (15, Trouble(DOWN, of_sender=DOWN), False),
        (15, Trouble(DOWN, hangs=("sender",)), False),
    ],
)
async def test_a_hand_over_in_trouble_is_given_up_late_if_the_server_answers_about_the_sender(
    server: Staged,
    monkeypatch: pytest.MonkeyPatch,
    attempt: int,
    trouble: Trouble,
    final: bool,
) -> None:
    for name in ("CALL_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(delivering, name, 0.05)
    server.errors["full"], server.refuses_hand_over = FULL, trouble.of_hand_over
    server.hang.update(trouble.hangs)
    if trouble.of_sender:
        server.errors["sender"] = trouble.of_sender
    sending = running(deliver, signals("full 1", "b 1"), attempt=attempt)
    if final:
        assert await sending == []
    else:
        with pytest.raises((RPCError, TimeoutError)):
            await sending
    assert server.sent == ["b 1"]


async def test_no_redelivery_is_started_for_a_redelivery(server: Staged) -> None:
    receiver = names.redelivery_id("modeldeployment/ml/x")
    server.errors[receiver] = FULL
    assert await running(deliver, signals(f"{receiver} 1")) == []
    assert server.held == {}


async def test_a_local_activity_has_time_for_a_hand_over_after_a_slow_receiver(
    server: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The signals, the hand-over and a look share the ten seconds of a local activity.
    assert 2 * delivering._LOCAL_SECONDS + delivering._LOOK_SECONDS < 10
    monkeypatch.setattr(delivering, "_LOCAL_SECONDS", 0.05)
    server.hang.add("slow")
    assert await running(deliver, signals("slow 1", "b 1"), is_local=True) == []
    assert (server.sent, server.held["slow"].problem) == (["b 1"], "TimeoutError")


@pytest.mark.parametrize(
    ("errors", "hang", "result"),
    [
        ({}, set(), Redelivered(count=2)),
        ({"a": FULL}, set(), Redelivered(count=0, problem="full")),
        ({}, {"a"}, Redelivered(count=0, problem="TimeoutError")),
    ],
    ids=["taken", "refused", "no answer"],
)
async def test_a_redelivery_learns_how_far_it_got_within_its_time(
    server: Staged,
    monkeypatch: pytest.MonkeyPatch,
    errors: dict[str, Exception],
    hang: set[str],
    result: Redelivered,
) -> None:
    monkeypatch.setattr(delivering, "_ROUND_SECONDS", 0.05)
    server.errors, server.hang = errors, hang
    assert await running(redeliver, signals("a 1", "a 2")) == result


async def test_a_slow_receiver_has_no_problem_while_it_takes_signals(
    server: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "_ROUND_SECONDS", 0.05)
    server.hang.add("b")
    assert await running(redeliver, signals("a 1", "b 1")) == Redelivered(count=1)


async def test_a_broadcast_leaves_capacity_of_the_server_to_other_requests(
    server: Staged,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def listed(*_: object) -> VisibilityPage:
        return VisibilityPage(dict.fromkeys(map(str, range(40)), ""), "", [])

    monkeypatch.setattr(delivering, "list_entities", listed)
    wanted = Broadcast(kinds=["ModelCache"], signal="s", payload="x")
    assert await running(delivering.broadcast, wanted, lambda _: None) == 40
    assert (server.sent, server.most_calls) == (["x"] * 40, 4)
    server.most_calls = 0
    await running(deliver, signals(*(f"{number} 1" for number in range(40))))
    assert server.most_calls == 32


async def test_an_attempt_at_a_broadcast_reports_the_progress_of_the_attempt_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_answer(*_: object) -> None:
        raise DOWN

    monkeypatch.setattr(delivering, "list_entities", no_answer)
    progress, reported = {"after": "ab", "reached": 7}, list[Any]()
    wanted = Broadcast(kinds=["ModelCache"], signal="s")
    with pytest.raises(RPCError, match="down"):
        await running(
            delivering.broadcast, wanted, reported.append, heartbeat_details=[progress]
        )
    assert reported == [progress]
