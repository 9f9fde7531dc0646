"""Queries to several entities: each has its own result. The answers of the server are staged."""

from dataclasses import dataclass
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.messaging.querying import Answers, query_round
from api_types.payloads.unreadable import UnreadablePayload


@dataclass
class Handle:
    """A workflow whose payloads raise an error when they are decoded."""

    error: Exception | None = None

    async def query(self, *_: Any, **__: Any) -> Any:
        if self.error is not None:
            raise self.error
        return "answer"


@dataclass
class Staged:
    """The client of a server with these workflows."""

    handles: dict[str, Handle]

    def get_workflow_handle(self, workflow_id: str) -> Handle:
        return self.handles[workflow_id]


UNDECODABLE = [UnreadablePayload("no key"), KeyError("encoding"), RuntimeError("no JSON")]


@pytest.mark.parametrize("error", UNDECODABLE, ids=lambda each: type(each).__name__)
async def test_an_answer_that_cannot_be_decoded_is_none_and_all_others_arrive(
    error: Exception,
) -> None:
    client = cast("Client", Staged({"a": Handle(), "broken": Handle(error), "c": Handle()}))
    found = await ActivityEnvironment().run(query_round, client, ["a", "broken", "c"], "account")
    assert found == Answers(by_id={"a": "answer", "c": "answer"}, unresponsive=["broken"])
