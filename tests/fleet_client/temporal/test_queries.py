"""A query that a worker refuses or loses is retried for as long as the caller waits."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from temporalio.client import (
    OutboundInterceptor,
    QueryWorkflowInput,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from api_types.errors import QUERY_REFUSED
from fleet_client.temporal import queries
from tests.activities.clouds.lives.virtual_time import run
from tests.random_cases import generator

ANSWER = 7
# The limit of the command line for a query, in virtual time.
CALLER_SECONDS = 3.0


class After(NamedTuple):
    """An answer that takes time, as after a replay."""

    seconds: float


LOST = After(float("inf"))
Outcome = Exception | int | After


class Server(OutboundInterceptor):
    """A client whose queries end in these ways, one by one.

    A query without an answer takes its whole time, as on a server.
    """

    def __init__(
        self,
        *outcomes: Outcome,
        status: WorkflowExecutionStatus | None = WorkflowExecutionStatus.RUNNING,
    ) -> None:
        self.outcomes = list(outcomes)
        self.status = status
        """The status of the run; None if the server does not respond."""
        self.attempts: list[float] = []
        self.ended = 0.0
        """The end of the last attempt, in virtual seconds after the query was sent."""

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        assert input.rpc_timeout is not None
        seconds = input.rpc_timeout.total_seconds()
        self.attempts.append(seconds)
        outcome = self.outcomes.pop(0)
        try:
            return await self._answer(outcome, seconds)
        finally:
            self.ended = asyncio.get_running_loop().time()

    async def describe_workflow(self, input: Any) -> Any:  # noqa: A002
        assert input.rpc_timeout is not None
        if self.status is None:
            raise RPCError("no answer", RPCStatusCode.UNAVAILABLE, b"")
        return SimpleNamespace(status=self.status)

    async def _answer(self, outcome: Outcome, seconds: float) -> int:
        if isinstance(outcome, After):
            await asyncio.sleep(min(outcome.seconds, seconds))
            if outcome.seconds > seconds:
                raise RPCError(
                    "context deadline exceeded", RPCStatusCode.DEADLINE_EXCEEDED, b""
                )
            return ANSWER
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def query(server: Server, *, seconds: float | None = None) -> Any:
    """Send a query, with the caller's time if it sets one."""
    sent = QueryWorkflowInput(
        id="w",
        run_id=None,
        query="q",
        args=(),
        reject_condition=None,
        headers={},
        ret_type=None,
        rpc_metadata={},
        rpc_timeout=timedelta(seconds=seconds) if seconds else None,
    )
    client = queries.RetriedQueries().intercept_client(server)
    return run(lambda: client.query_workflow(sent), generator())


def refusal() -> Exception:
    return WorkflowQueryFailedError(QUERY_REFUSED)


def test_a_refused_query_is_sent_again() -> None:
    assert query(Server(refusal(), refusal(), ANSWER)) == ANSWER


@pytest.mark.parametrize("status", [WorkflowExecutionStatus.RUNNING, None])
def test_a_refused_query_is_sent_until_the_run_is_known_to_be_closed(
    status: WorkflowExecutionStatus | None,
) -> None:
    """A run that was terminated with an unread signal has no next task."""
    assert (
        query(Server(refusal(), refusal(), refusal(), ANSWER, status=status)) == ANSWER
    )
    closed = Server(*[refusal()] * 9, status=WorkflowExecutionStatus.TERMINATED)
    with pytest.raises(WorkflowQueryFailedError):
        query(closed)
    assert len(closed.attempts) == 2


def test_a_query_rejected_because_of_too_many_others_is_retried_within_its_time() -> (
    None
):
    full = RPCError(
        "consistent query buffer is full", RPCStatusCode.RESOURCE_EXHAUSTED, b""
    )
    server = Server(full, full, full, ANSWER)
    assert query(server, seconds=1000) == ANSWER
    assert server.attempts == [queries.ATTEMPT_SECONDS] * 4


def test_a_query_that_got_lost_is_sent_again() -> None:
    lost = RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"")
    assert (
        query(
            Server(
                lost, RPCError("too late", RPCStatusCode.DEADLINE_EXCEEDED, b""), ANSWER
            )
        )
        == ANSWER
    )


def test_a_lost_query_is_sent_again_within_the_time_that_the_caller_names() -> None:
    server = Server(LOST, ANSWER)
    assert query(server, seconds=CALLER_SECONDS) == ANSWER
    assert server.attempts[0] == pytest.approx(CALLER_SECONDS / 3)
    assert server.ended < CALLER_SECONDS


def test_a_lost_query_of_a_caller_that_names_no_time_is_sent_again_after_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "ATTEMPT_SECONDS", 0.05)
    server = Server(LOST, LOST, ANSWER)
    assert query(server) == ANSWER
    assert server.attempts == [0.05, 0.1, 0.2]


def test_an_attempt_after_refusals_takes_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "ATTEMPT_SECONDS", 0.05)
    server = Server(refusal(), refusal(), ANSWER)
    assert query(server) == ANSWER
    assert server.attempts == [0.05, 0.05, 0.05]


def test_the_last_attempt_takes_all_that_is_left_for_a_replay_that_is_slower_than_a_third() -> (
    None
):
    server = Server(LOST, After(CALLER_SECONDS / 2))
    assert query(server, seconds=CALLER_SECONDS) == ANSWER
    assert len(server.attempts) == 2


def test_a_caller_gets_the_error_within_its_time_when_every_attempt_is_lost() -> None:
    server = Server(*[LOST] * 9)
    with pytest.raises(RPCError, match="deadline exceeded"):
        query(server, seconds=CALLER_SECONDS)
    assert server.ended == pytest.approx(CALLER_SECONDS)
    assert sum(server.attempts) <= CALLER_SECONDS


def test_a_pause_that_ends_after_the_caller_s_time_makes_no_negative_time() -> None:
    assert queries._attempt_seconds(0, 3.0, -0.1) > 0


@pytest.mark.parametrize(
    "error",
    [
        WorkflowQueryFailedError("no such query"),
        RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b""),
    ],
    ids=str,
)
def test_a_query_that_fails_for_another_reason_is_not_sent_again(
    error: Exception,
) -> None:
    server = Server(error, ANSWER)
    with pytest.raises(type(error), match="no such"):
        query(server)
    assert server.outcomes == [ANSWER]


def test_a_refused_query_is_not_sent_again_after_the_caller_s_time() -> None:
    with pytest.raises(WorkflowQueryFailedError, match="query again"):
        query(Server(refusal(), ANSWER), seconds=0.1)
