"""Queries to several entities: each has its own result. The answers of the server are staged."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.messaging.messages import CheckReceivers, ReceiverChanges
from activities.messaging.querying import (
    QueryResults,
    check_receivers,
    query_round,
    still_running,
)
from activities.messaging.search_attributes import CLUSTER
from api_types.payloads.unreadable import UnreadablePayload


@dataclass
class Handle:
    """A workflow. Calls about it raise `error`."""

    error: Exception | None = None
    run: str = "run"

    async def describe(self) -> Any:
        if self.error is not None:
            raise self.error
        info = SimpleNamespace(first_run_id=self.run)
        return SimpleNamespace(
            status=RUNNING,
            raw_description=SimpleNamespace(workflow_execution_info=info),
            typed_search_attributes={CLUSTER: "eu"},
        )

    async def query(self, *_: Any, args: Sequence[Any] = (), **__: Any) -> Any:
        if self.error is not None:
            raise self.error
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


async def test_an_entity_whose_description_fails_may_be_running() -> None:
    client = cast("Client", Staged(FLEET))
    assert await still_running(client, ["a", "gone", "broken"]) == {
        "a": "eu",
        "broken": "",
    }
