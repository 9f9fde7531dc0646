"""Notifications of deployments about closed replicas. Temporal is a fake."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.clusters import closed_replicas
from activities.clusters.activities import ClusterActivities
from activities.clusters.closed_replicas import ClosedReplicas, DeploymentNotifier
from activities.messaging.search_attributes import CLUSTER, DEPLOYMENT, NAMESPACE
from api_types.messages.cluster_work import Connection, WatchCluster
from tests.activities.environment.asking import asked_by
from tests.environment.background import in_background
from tests.environment.idle_clusters import IdlePool

EU = "modelreplica/ml/chat-eu-0"
US = "modelreplica/ml/chat-us-0"
ROUNDS = 20


@dataclass
class Temporal:
    """Visibility with closed runs by cluster, running workflows, and signalled
    deployments.
    """

    closed: dict[str, str]
    running: set[str] = field(default_factory=set)
    down: bool = False
    refusing: str = ""
    listings: int = 0
    looks: int = 0
    told: Counter[str] = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        assert '"Terminated"' in query
        self.listings += 1
        if self.listings >= ROUNDS:
            self.enough.set()
        if self.down:
            raise RPCError("down", RPCStatusCode.UNAVAILABLE, b"")
        for workflow_id, cluster in self.closed.items():
            found = {
                CLUSTER: cluster,
                NAMESPACE: "ml",
                DEPLOYMENT: workflow_id.rsplit("/", 1)[-1].partition("-")[0],
            }
            run_id = f"run of {workflow_id}"
            yield SimpleNamespace(
                id=workflow_id, run_id=run_id, typed_search_attributes=found
            )

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def describe() -> Any:
            self.looks += 1
            status = (
                WorkflowExecutionStatus.RUNNING
                if workflow_id in self.running
                else WorkflowExecutionStatus.TERMINATED
            )
            info = SimpleNamespace(first_run_id="run")
            return SimpleNamespace(
                status=status,
                run_id="run",
                raw_description=SimpleNamespace(workflow_execution_info=info),
            )

        async def signal(name: str, _payload: Any) -> None:
            assert name == "check_replicas"
            if workflow_id == self.refusing:
                raise RPCError("full", RPCStatusCode.INVALID_ARGUMENT, b"")
            self.told[workflow_id] += 1

        return SimpleNamespace(describe=describe, signal=signal)

    async def rounds(self, cluster: str = "eu") -> None:
        """Run some rounds of notifications for a cluster."""
        self.listings = 0
        self.enough.clear()
        client = cast(Client, self)
        notifier = DeploymentNotifier(
            ClosedReplicas(), client, cluster, self.repeated.append
        )
        async with in_background(notifier.run()), asyncio.timeout(60):
            await self.enough.wait()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_replicas, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(closed_replicas, "LISTING_SECONDS", 0.0)


async def test_the_deployment_of_a_closed_replica_is_notified_periodically() -> None:
    temporal = Temporal({EU: "eu", US: "us"})
    await temporal.rounds()
    assert temporal.told == {"modeldeployment/ml/chat": 1}
    assert temporal.looks == 1


async def test_a_replica_that_stays_closed_is_reported_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    now = 0.0
    monkeypatch.setattr(loop, "time", lambda: now)
    temporal = Temporal({EU: "eu"})
    client = cast(Client, temporal)
    notifier = DeploymentNotifier(
        ClosedReplicas(), client, "eu", temporal.repeated.append
    )
    told_at = []
    for now in map(float, range(0, 1000, 15)):
        before = temporal.told.total()
        await notifier.notify()
        told_at += [now] * (temporal.told.total() - before)
    assert told_at == [0, 60, 180, 420, 900]


async def test_a_deployment_that_refuses_signals_delays_no_other() -> None:
    other = "modelreplica/ml/code-eu-0"
    temporal = Temporal({EU: "eu", other: "eu"}, refusing="modeldeployment/ml/chat")
    await temporal.rounds()
    assert temporal.told == {"modeldeployment/ml/code": 1}


async def test_a_replica_that_runs_again_is_not_reported() -> None:
    temporal = Temporal({EU: "eu"}, running={EU})
    await temporal.rounds()
    assert temporal.told == {}


async def test_an_observation_is_repeated_once_after_a_replicas_run_was_closed() -> (
    None
):
    temporal = Temporal({EU: "eu", US: "us"}, running={EU})
    await temporal.rounds()
    assert temporal.repeated == [EU]


async def test_replicas_closed_during_an_outage_are_found_after_it() -> None:
    temporal = Temporal({EU: "eu"}, down=True)
    await temporal.rounds()
    assert temporal.told == {}
    temporal.down = False
    await temporal.rounds()
    assert temporal.told == {"modeldeployment/ml/chat": 1}


async def test_one_listing_serves_the_clusters_of_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_replicas, "LISTING_SECONDS", 100_000.0)
    temporal = Temporal({EU: "eu", US: "us"})
    closed = ClosedReplicas()
    found = await asyncio.gather(
        *(
            closed.on_cluster(cast(Client, temporal), cluster)
            for cluster in ("eu", "us", "oslo")
        )
    )
    assert [[each.workflow_id for each in on] for on in found] == [[EU], [US], []]
    assert temporal.listings == 1


class NoticedError(Exception):
    """A round has started."""


async def test_the_watch_of_a_cluster_finds_closed_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def notify(notifier: DeploymentNotifier) -> None:
        del notifier
        raise NoticedError

    monkeypatch.setattr(DeploymentNotifier, "notify", notify)
    order = WatchCluster(
        connection=Connection(cluster="eu", namespace="n", name="eu"), cluster_uid="u"
    )
    environment = asked_by("inferencecluster/eu", cast(Client, Temporal({})))
    with pytest.raises(NoticedError):
        await environment.run(ClusterActivities(IdlePool()).watch_cluster, order)
