"""A cluster under deletion waits for its replicas and shows the command that moves them.

These tests need no server.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow

from api_types.messages.cluster_work import TeardownStepResult
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import Delete
from api_types.messages.observations import Observed, ObservedCluster
from api_types.messages.scheduling import Occupied
from api_types.messages.versions import ObservationOrder
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import a_cluster, a_spec
from tests.workflows.inference_cluster.test_connection import UNREACHABLE
from tests.workflows.inference_cluster.test_stack_plan import a_complete_stack
from workflows.entity.conditions import condition_of
from workflows.inference_cluster.stack.plan import PREFLIGHT
from workflows.inference_cluster.workflow import InferenceClusterWorkflow


def deleting_message(cluster: InferenceClusterWorkflow) -> str:
    """Return the message of the condition after another pass."""
    assert not asyncio.run(cluster.tear_down())
    found = condition_of(cluster.state.conditions, "Deleting")
    assert found is not None
    return found.message or ""


def test_a_deletion_shows_its_replicas_and_the_drain_command_until_it_was_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {
        "watch_cluster": None,
        "signal_many": SignalBatchResult(),
        "broadcast": None,
    }
    cluster = InferenceClusterWorkflow(a_cluster())
    cluster.delete(Delete(by="ann").wire())
    assert (
        deleting_message(cluster)
        == "waits for the scheduler to report which replicas are on the cluster"
    )
    cluster.occupied(
        Occupied(
            cluster="eu", sequence=cluster.state.sequence, replicas=["ml/qwen-eu-0"]
        ).wire()
    )
    assert (
        "ml/qwen-eu-0 is gone; `modelplane delete inferencecluster/eu --evict`"
        in deleting_message(cluster)
    )
    cluster.delete(Delete(by="ann", evict=True).wire())
    assert (
        deleting_message(cluster)
        == "waits for the scheduler to report which replicas are on the cluster"
    )
    cluster.occupied(
        Occupied(
            cluster="eu", sequence=cluster.state.sequence, replicas=["ml/qwen-eu-0"]
        ).wire()
    )
    assert "--evict" not in deleting_message(cluster)
    assert "the scheduler evicts" in deleting_message(cluster)


@pytest.mark.parametrize(("source", "forced"), [("GKE", ""), ("Existing", "step")])
def test_a_skipped_step_is_the_wait_for_replicas_if_others_follow(
    monkeypatch: pytest.MonkeyPatch, source: str, forced: str
) -> None:
    """The next step of a cloud cluster is its emptying, whoever installed its stack."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {"watch_cluster": None, "broadcast": None}
    spec = a_spec()
    spec["cluster"]["source"] = source
    cluster = InferenceClusterWorkflow(
        a_cluster(spec=spec, occupied=["ml/qwen-eu-0"], forced="step")
    )
    assert asyncio.run(cluster._is_empty())
    assert (
        cluster.state.forced,
        [each.name for each in cluster.state.left_behind],
    ) == (forced, ["ml/qwen-eu-0"])


def test_a_retry_is_carried_over_and_repeats_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A retry alone would start a terminated CloudCluster without an order."""
    Serverless(monkeypatch, "inferencecluster/eu")
    for source, wanted in (("GKE", True), ("Existing", False)):
        cluster = InferenceClusterWorkflow(
            a_cluster(spec={**a_spec(), "cluster": {"source": source}})
        )
        cluster.state.cloud.ordered = cluster.state.cloud.deleted = "sent"
        cluster.on_retry_requested()
        link = cluster.state.cloud
        assert (link.retry, link.ordered, link.deleted) == (wanted, "", "")


def test_an_answer_to_an_earlier_cluster_with_the_name_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "inferencecluster/eu")
    cluster = InferenceClusterWorkflow(a_cluster(uid="u", sequence=3))
    for uid, sequence in (("of-the-earlier", 3), ("u", 2)):
        cluster.occupied(Occupied(cluster="eu", uid=uid, sequence=sequence).wire())
        assert cluster.state.occupied is None
    cluster.occupied(Occupied(cluster="eu", uid="u", sequence=3).wire())
    assert cluster.state.occupied == []


def test_an_old_observation_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    Serverless(monkeypatch, "inferencecluster/eu")
    cluster = InferenceClusterWorkflow(a_cluster(uid="u"))

    def observe(run: int, *, reachable: bool) -> None:
        order = ObservationOrder(cluster_uid="u", run=run, sequence=1)
        cluster.observed(
            Observed(
                owner_uid="u",
                order=order,
                digest="",
                cluster=ObservedCluster(reachable=reachable),
            ).wire()
        )

    observe(2, reachable=True)
    observe(1, reachable=False)
    assert (cluster.state.observed, cluster.state.unreachable_since) == (
        ObservedCluster(),
        "",
    )


def test_a_check_of_the_stack_started_at_the_deletion_does_not_delay_the_removal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass that runs when the deletion is requested may start a check, which lasts for days."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {
        "watch_cluster": None,
        "signal_many": SignalBatchResult(),
        "broadcast": None,
    }
    execute = workflow.execute_activity_method
    looks = []

    async def look_for_days(method: Any, argument: Any, **options: Any) -> Any:
        if method.__name__ != "stack_readiness":
            return await execute(method, argument, **options)
        looks.append(argument)
        return await asyncio.Event().wait()

    monkeypatch.setattr(workflow, "execute_activity_method", look_for_days)
    temporal.results["await_no_routes"] = TeardownStepResult()
    cluster = InferenceClusterWorkflow(
        a_cluster(annotations={}, stack=a_complete_stack())
    )

    async def delete_during_a_pass() -> None:
        cluster.delete(Delete(by="ann").wire())
        await cluster.tear_down()
        cluster.occupied(Occupied(cluster="eu", sequence=cluster.state.sequence).wire())
        cluster.update_stack()
        await asyncio.sleep(0)
        await cluster.tear_down()
        await asyncio.sleep(0)

    asyncio.run(delete_during_a_pass())
    assert (len(looks), temporal.executed[-1][0]) == (1, "await_no_routes")


def test_a_deletion_waits_for_a_running_preflight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A preflight may find that the stack on the cluster belongs to this InferenceCluster."""
    Serverless(monkeypatch, "inferencecluster/eu")
    cluster = InferenceClusterWorkflow(a_cluster())
    cluster.state.stack.plan = None

    async def life() -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls = cluster.removal._calls
        assert cluster.removal.update(), "there is no stack"
        calls.start(PREFLIGHT, lambda: never, lambda _: None, lambda _: None)
        assert not cluster.removal.update()
        cluster.state.forced = "all"
        assert cluster.removal.update()
        calls.stop_all()

    asyncio.run(life())


def test_a_cluster_with_replicas_is_watched_again_during_its_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its replicas show what runs there until the scheduler has moved them."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {"signal_many": SignalBatchResult(), "broadcast": None}
    watches = 0
    execute = workflow.execute_activity_method

    async def fail_to_watch(method: Any, argument: Any, **options: Any) -> Any:
        nonlocal watches
        if method.__name__ != "watch_cluster":
            return await execute(method, argument, **options)
        watches += 1
        raise UNREACHABLE

    monkeypatch.setattr(workflow, "execute_activity_method", fail_to_watch)

    async def watches_of(cluster: InferenceClusterWorkflow, *pauses: float) -> int:
        """Return the watches of passes with these pauses (seconds) between them."""
        nonlocal watches
        watches = 0
        for pause in (0.0, *pauses):
            temporal.now += timedelta(seconds=pause)
            await cluster.tear_down()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return watches

    def deleted(**state: Any) -> InferenceClusterWorkflow:
        return InferenceClusterWorkflow(
            a_cluster(deletion_timestamp="2026-01-01T00:00:00Z", **state)
        )

    on_it = {"occupied": ["ml/qwen-eu-0"]}
    # The second pass sees the failure, and its pause has passed in the last one.
    assert asyncio.run(watches_of(deleted(**on_it), 0, 0)) == 1
    assert asyncio.run(watches_of(deleted(**on_it), 0, 60)) == 2
    # A workflow that was reset to an early task forgot that it had connected.
    assert asyncio.run(watches_of(deleted(connected_generation=0, **on_it))) == 1
    assert asyncio.run(watches_of(deleted(connected_generation=0))) == 0
