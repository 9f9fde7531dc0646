"""A new deployment adopts the replicas that it finds, with answers from the test.

These tests need no server.
"""

from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.messages import QueryEach, Survey, SurveyResult
from api_types.messages.scheduling import ReplicaAccount
from tests.workflows.model_deployment.exchange import ENTRY, a_controller, state_of
from workflows.model_deployment import adoption
from workflows.model_deployment.adoption import QUERY_RETRIES, ReplicaAdoption

REPLICA = "modelreplica/ml/qwen-0"
ACCOUNT = ReplicaAccount(
    uid="r",
    namespace="ml",
    deployment="qwen",
    name="qwen-0",
    cluster="eu",
    index=0,
    entry=ENTRY,
).wire()


class Replicas:
    """A replica that leaves the first queries unanswered."""

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.queries = 0

    async def call(
        self, _: Any, wanted: Survey | QueryEach, *__: Any, **___: Any
    ) -> SurveyResult:
        if isinstance(wanted, Survey) and not wanted.query:
            return SurveyResult(answers={REPLICA: None})
        assert wanted.query == "account"
        self.queries += 1
        if self.queries <= self.silent:
            return SurveyResult(unresponsive={REPLICA: ""})
        return SurveyResult(answers={REPLICA: ACCOUNT})


@pytest.mark.parametrize(
    ("silent", "waits", "adopted", "unknown", "events"),
    [
        (0, 0, ["r"], [], ["Adopted"]),
        (1, 1, ["r"], [], ["Adopted"]),
        (QUERY_RETRIES, QUERY_RETRIES, ["r"], [], ["Adopted"]),
        (QUERY_RETRIES + 1, QUERY_RETRIES, [], ["qwen-0"], ["ReplicasNotResponding"]),
    ],
    ids=[
        "it answers",
        "its worker is starting",
        "it answers at last",
        "it never answers",
    ],
)
async def test_a_found_replica_is_adopted_on_its_answer_and_remembered_without_one(
    monkeypatch: pytest.MonkeyPatch,
    *,
    silent: int,
    waits: int,
    adopted: list[str],
    unknown: list[str],
    events: list[str],
) -> None:
    replicas, slept = Replicas(silent), list[str]()

    async def sleep(_: Any, summary: str) -> None:
        slept.append(summary)

    monkeypatch.setattr(workflow, "sleep", sleep)
    monkeypatch.setattr(adoption, "call_entities", replicas.call)
    monkeypatch.setattr("workflows.entity.calls.querying.call_entities", replicas.call)
    controller = a_controller(adopted=False)
    await ReplicaAdoption(controller.replicas._context, controller.replicas).run()
    state = state_of(controller)
    recorded = [event.reason for event in state.events]
    assert (len(slept), list(state.replicas), state.unknown, recorded) == (
        waits,
        adopted,
        unknown,
        events,
    )
    assert (state.adopted, state.resync_due) == (True, True)
