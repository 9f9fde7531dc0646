"""Queries and lookups of several entities: each has its own result. The server is staged."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.messaging import lookups, querying
from activities.messaging.lookups import check_receivers, read_memo, still_running
from activities.messaging.messages import CheckReceivers, MemoValue, ReceiverChanges
from activities.messaging.querying import QueryResults, query_round
from activities.messaging.search_attributes import CLUSTER
from activities.messaging.sending import CALLS_AT_ONCE
from api_types.payloads.unreadable import UnreadablePayload


@dataclass
class Handle:
    """A workflow. Calls about it raise `error`, or hang."""

    error: Exception | None = None
    run: str = "run"
    hangs: bool = False
    memo: Exception | str = ""

    async def _called(self) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.error is not None:
            raise self.error

    async def _memo_value(self, *_: Any) -> str:
        if isinstance(self.memo, Exception):
            raise self.memo
        return self.memo

    async def describe(self) -> Any:
        await self._called()
        info = SimpleNamespace(first_run_id=self.run)
        return SimpleNamespace(
            status=RUNNING,
            raw_description=SimpleNamespace(workflow_execution_info=info),
            typed_search_attributes={CLUSTER: "eu"},
            memo_value=self._memo_value,
        )

    async def query(self, *_: Any, args: Sequence[Any] = (), **__: Any) -> Any:
        await self._called()
        return " ".join(["answer", *args])


@dataclass
class Staged:
    """The client of a server with these workflows."""

    handles: dict[str, Handle]

    def get_workflow_handle(self, workflow_id: str) -> Handle:
        return self.handles[workflow_id]


RUNNING = WorkflowExecutionStatus.RUNNING
GONE = RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")
DOWN = RPCError("down", RPCStatusCode.UNAVAILABLE, b"")
UNDECODABLE = [
    UnreadablePayload("no key"),
    KeyError("encoding"),
    RuntimeError("no JSON"),
]


@pytest.mark.parametrize(("argument", "answer"), [("", "answer"), ("m", "answer m")])
async def test_the_argument_of_a_query_is_passed_on(argument: str, answer: str) -> None:
    client = cast("Client", Staged({"a": Handle()}))
    found = await ActivityEnvironment().run(
        partial(query_round, argument=argument), client, ["a"], "cache_site"
    )
    assert found.by_id == {"a": answer}


@pytest.mark.parametrize("error", UNDECODABLE, ids=lambda each: type(each).__name__)
async def test_an_undecodable_answer_is_none_and_the_others_arrive(
    error: Exception,
) -> None:
    client = cast(
        "Client", Staged({"a": Handle(), "broken": Handle(error), "c": Handle()})
    )
    found = await ActivityEnvironment().run(
        query_round, client, ["a", "broken", "c"], "account"
    )
    assert found == QueryResults(
        by_id={"a": "answer", "c": "answer"}, unresponsive=["broken"]
    )


async def test_only_an_entity_that_does_not_exist_is_missing() -> None:
    client = cast("Client", Staged({"gone": Handle(GONE), "down": Handle(DOWN)}))
    found = await ActivityEnvironment().run(
        query_round, client, ["gone", "down"], "account"
    )
    assert found == QueryResults(unresponsive=["down"], missing=["gone"])


async def test_entities_that_hang_occupy_no_slots_of_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("SLOT", 0.01), ("_TICK", 0.01), ("ROUND", 5.0)):
        monkeypatch.setattr(querying, f"{name}_SECONDS", seconds)
    hanging = [f"hangs-{number:02}" for number in range(CALLS_AT_ONCE)]
    handles = {name: Handle(hangs=True) for name in hanging} | {"last": Handle()}
    found = await ActivityEnvironment().run(
        partial(query_round, quiet_seconds=0.2),
        cast("Client", Staged(handles)),
        [*hanging, "last"],
        "account",
    )
    assert found == QueryResults(by_id={"last": "answer"}, unresponsive=hanging)


@pytest.mark.parametrize("error", UNDECODABLE, ids=lambda each: type(each).__name__)
async def test_a_memo_that_cannot_be_decoded_is_none(error: Exception) -> None:
    client = cast("Client", Staged({"a": Handle(memo=error), "b": Handle(memo="m")}))
    read = ActivityEnvironment().run
    assert await read(read_memo, client, "a", "k") == MemoValue(found=True)
    assert await read(read_memo, client, "b", "k") == MemoValue(found=True, value="m")


FLEET = {
    "a": Handle(),
    "new": Handle(run="later"),
    "gone": Handle(GONE),
    "broken": Handle(DOWN),
}


async def test_an_entity_whose_description_fails_does_not_delay_other_checks() -> None:
    client = cast("Client", Staged(FLEET))
    wanted = CheckReceivers(
        known=dict.fromkeys(["a", "new", "broken"], "run"), others=["gone"]
    )
    changes = ReceiverChanges(changed={"new": "later"}, missing=["gone"])
    assert await check_receivers(client, wanted) == changes


async def test_a_check_fails_if_every_description_fails() -> None:
    client = cast("Client", Staged(FLEET))
    with pytest.raises(RPCError, match="down"):
        await check_receivers(client, CheckReceivers(known={"broken": "run"}))


async def test_an_entity_whose_description_fails_or_hangs_may_be_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "CALL_SECONDS", 0.05)
    client = cast("Client", Staged({**FLEET, "hangs": Handle(hangs=True)}))
    assert await still_running(client, ["a", "gone", "broken", "hangs"]) == {
        "a": "eu",
        "broken": "",
        "hangs": "",
    }
