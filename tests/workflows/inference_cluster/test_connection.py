"""Attempts to connect to a cluster, with the waits and failures that follow.

These tests need no server.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import exceptions, workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    RetryState,
    TimeoutType,
)

from api_types.messages.cluster_work import AwaitConnection, ClusterFacts, Connect
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import a_cluster
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.inference_cluster.connecting.connection import ClusterConnection
from workflows.inference_cluster.state import ClusterState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT = "2026-01-01T00:00:00Z"
CALL, WATCH = "mp-clusters-call", "mp-clusters-watch"
FOUND = ClusterFacts(kubernetes_version="1.36.1", dra_version="v1")
REFUSED = ApplicationError("no such host", type="ClusterUnreachable")


def failed(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "x",
        scheduled_event_id=1,
        started_event_id=2,
        identity="",
        activity_type="x",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = cause
    return error


UNSERVED = failed(
    exceptions.TimeoutError(
        "no worker", type=TimeoutType.SCHEDULE_TO_START, last_heartbeat_details=[]
    )
)
UNREACHABLE = failed(REFUSED)


class Connecting:
    """A cluster with scripted connection results, and its recorded activities."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *results: ClusterFacts | ActivityError,
        **state: Any,
    ) -> None:
        Serverless(monkeypatch, "inferencecluster/eu")
        self.results, self.asked = list(results), list[Any]()
        self.waited_for = asyncio.Event()
        self.wait_fails: ActivityError | None = None
        monkeypatch.setattr(workflow, "execute_activity_method", self._execute)
        self.state: ClusterState = a_cluster(**{"connected_generation": 1, **state})
        self.context = EntityContext(
            "InferenceCluster",
            self.state,
            lambda: None,
            "inferencecluster/eu",
            lambda: NOW,
        )
        self.context.queued = False
        self.connection = ClusterConnection(self.context)

    async def _execute(self, _: Any, order: Any, **__: Any) -> ClusterFacts | None:
        self.asked.append(order)
        if isinstance(order, AwaitConnection):
            await self.waited_for.wait()
            if self.wait_fails:
                raise self.wait_fails
            return None
        result = self.results.pop(0)
        if isinstance(result, ActivityError):
            raise result
        return result

    async def end_wait(self, error: ActivityError | None = None) -> None:
        self.wait_fails = error
        self.waited_for.set()
        for _ in range(5):
            await asyncio.sleep(0)

    def kinds(self) -> list[type]:
        return [type(order) for order in self.asked]

    def events(self) -> list[tuple[str, str, str]]:
        return [
            (event.type, event.reason, event.message) for event in self.state.events
        ]


async def test_a_reachable_cluster_is_connected_and_forgets_its_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = ClusterFacts(storage_classes={"rwx": True}, kubernetes_version="1.35.0")
    cluster = Connecting(
        monkeypatch,
        FOUND,
        facts=before,
        failure=Failure("ClusterUnreachable", "x"),
        attempts=3,
        unreachable_since=AT,
    )
    assert await cluster.connection.connect()
    state = cluster.state
    assert state.facts == FOUND.model_copy(
        update={"storage_classes": {"rwx": True}, "storage_class_name": "rwx"}
    )
    assert (state.failure, state.attempts, state.unreachable_since) == (
        Failure(),
        0,
        "",
    )
    assert state.connected_generation == state.generation
    assert cluster.events() == [("Normal", "Connected", "Kubernetes 1.36.1, DRA v1")]
    assert not await cluster.connection.connect()
    assert cluster.kinds() == [Connect]


async def test_the_first_attempt_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Connecting(
        monkeypatch, FOUND.model_copy(update={"dra_version": ""}), facts=None
    )
    await cluster.connection.connect()
    conditions = [
        (each.type, each.status, each.reason, each.message)
        for each in cluster.state.conditions
    ]
    assert conditions == [
        ("ClusterReady", "False", "Provisioning", "connecting"),
        ("BackendReady", "False", "WaitingForCluster", "connecting"),
        ("Ready", "False", "Creating", "connecting"),
    ]
    assert cluster.events() == [
        ("Normal", "Connected", "Kubernetes 1.36.1, DRA not served")
    ]


@pytest.mark.parametrize("attempts", [0, 3])
async def test_a_failed_connection_waits_for_a_change_or_a_timeout(
    monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    cluster = Connecting(monkeypatch, UNREACHABLE, FOUND, attempts=attempts)
    connection, state = cluster.connection, cluster.state
    for _ in range(2):
        assert not await connection.connect()
        await asyncio.sleep(0)
    assert cluster.kinds() == [Connect, AwaitConnection]
    waited = cluster.asked[1]
    assert (waited.failure_type, waited.failure_message) == (
        "ClusterUnreachable",
        "no such host",
    )
    assert waited.connection == cluster.asked[0].connection
    assert (state.failure, state.attempts) == (
        Failure("ClusterUnreachable", "no such host"),
        attempts + 1,
    )
    assert cluster.events() == [("Warning", "ClusterUnreachable", "no such host")]
    await cluster.end_wait()
    assert cluster.context.queued
    # However fast one failure follows another.
    due = NOW + backoff.missing(attempts)
    assert not await connection.connect()
    assert cluster.context.requeue_time == due
    cluster.context.moment = lambda: due
    assert await connection.connect()


async def test_a_retry_connects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Connecting(monkeypatch, UNREACHABLE, FOUND)
    await cluster.connection.connect()
    await asyncio.sleep(0)
    cluster.context.queued = False
    cluster.connection.reset_backoff()
    await asyncio.sleep(0)
    assert not cluster.context.queued, "a cancelled wait has no result"
    assert await cluster.connection.connect()


async def test_a_cluster_with_an_unserved_queue_reports_that_and_does_not_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Connecting(monkeypatch, UNSERVED)
    for _ in range(2):
        assert not await cluster.connection.connect()
    assert cluster.kinds() == [Connect]
    assert cluster.state.failure.type == "WaitingForWorker"
    assert cluster.state.unserved_queue in cluster.state.failure.message
    assert [reason for _, reason, _ in cluster.events()] == ["WaitingForWorker"]


async def test_a_wait_without_a_free_worker_slot_holds_until_the_queue_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Connecting(monkeypatch, UNREACHABLE)
    wait = cluster.connection.wait
    await cluster.connection.connect()
    await asyncio.sleep(0)
    await cluster.end_wait(UNSERVED)
    assert (wait.holds, bool(cluster.state.unserved_queue), cluster.context.queued) == (
        True,
        True,
        True,
    )
    wait.start(cluster.asked[0].connection)
    assert (wait.holds, cluster.kinds()) == (True, [Connect, AwaitConnection])
    cluster.state.unserved_queue = ""
    assert not wait.holds


async def test_a_wait_that_fails_for_another_reason_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Connecting(monkeypatch, UNREACHABLE)
    await cluster.connection.connect()
    await asyncio.sleep(0)
    await cluster.end_wait(UNREACHABLE)
    wait = cluster.connection.wait
    assert (wait.holds, wait.needs_slot, cluster.context.queued) == (False, False, True)


@pytest.mark.parametrize(
    ("error", "state", "connected", "retry_after"),
    [
        (UNREACHABLE, {}, 0, backoff.transient(2)),
        (UNSERVED, {}, 0, None),
        (UNSERVED, {"deletion_timestamp": AT}, 2, None),
    ],
    ids=["it does not answer", "no worker", "no worker for a cluster under deletion"],
)
def test_a_cluster_whose_observer_ended_connects_again(
    monkeypatch: pytest.MonkeyPatch,
    error: ActivityError,
    state: dict[str, Any],
    connected: int,
    retry_after: timedelta | None,
) -> None:
    cluster = Connecting(monkeypatch, attempts=2, connected_generation=2, **state)
    cluster.connection.retry_at = NOW - timedelta(days=1)
    cluster.connection.lose(error)
    assert cluster.state.unwatched_since == AT
    assert cluster.state.connected_generation == connected
    assert cluster.connection.retry_at == (
        None if retry_after is None else NOW + retry_after
    )
    assert cluster.context.queued
    unserved = retry_after is None
    assert bool(cluster.state.unserved_queue) == unserved
    assert [reason for _, reason, _ in cluster.events()] == (
        ["WaitingForWorker"] if unserved else []
    )
    assert cluster.state.failure.type == ("" if unserved else "ClusterUnreachable")
    # A second loss does not reset the time.
    cluster.context.moment = lambda: NOW + timedelta(hours=1)
    cluster.connection.lose(error)
    assert cluster.state.unwatched_since == AT


def test_the_served_api_versions_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Connecting(monkeypatch, connected_generation=2)
    cluster.connection.retry_at = NOW
    cluster.connection.renew()
    assert (cluster.state.connected_generation, cluster.context.queued) == (0, True)
    assert not cluster.connection.retry_at
