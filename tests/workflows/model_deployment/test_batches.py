"""How a deployment sends.

Short and revocable calls in a local activity, long or final ones in a normal activity.
"""

import asyncio
from collections.abc import Sequence

import pytest

from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import SetSpec, StartedReplicas
from api_types.messages.signals import ModelReplicaSignals
from tests.api_types.builders import a_deployment
from tests.workflows.environment.serverless import Serverless
from workflows.entity.calls.sending import LOCAL_CALLS_MAX
from workflows.model_deployment.calls import carry_out
from workflows.model_deployment.orders import Order
from workflows.model_deployment.state import TrackedReplica
from workflows.model_deployment.workflow import ModelDeploymentWorkflow

PLACED = {"engines": [{"engine": "a", "members": [{"pool": "h100"}]}]}


class Deployment:
    """A deployment with some unstarted replicas, without a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, replicas: int) -> None:
        self.temporal = Serverless(monkeypatch, "modeldeployment/ml/qwen")
        self.temporal.results = {
            "signal": True,
            "signal_many": SignalBatchResult(missing=[]),
            "start_replicas": StartedReplicas(conflicts=[]),
        }
        workflow = ModelDeploymentWorkflow(None)
        workflow.set_spec(SetSpec(manifest=a_deployment()).wire())
        self.controller = workflow.controller
        self.replicas = [
            TrackedReplica(
                uid=f"r{n}",
                name=f"q-{n}",
                cluster="eu",
                index=n,
                entry=PLACED,
                bound=True,
            )
            for n in range(replicas)
        ]
        workflow.state.replicas = {replica.uid: replica for replica in self.replicas}

    def executed(self, orders: Sequence[Order]) -> tuple[list[str], int]:
        """Execute orders; return the names of their activities, and how many of them are local."""
        before, local = len(self.temporal.executed), self.temporal.local
        asyncio.run(carry_out(orders, self.controller.replicas))
        return [
            row[0] for row in self.temporal.executed[before:]
        ], self.temporal.local - local


@pytest.mark.parametrize(
    ("count", "local"),
    [(1, True), (LOCAL_CALLS_MAX, True), (LOCAL_CALLS_MAX + 1, False)],
)
def test_few_signals_use_one_local_activity_and_many_a_normal_one(
    monkeypatch: pytest.MonkeyPatch, count: int, *, local: bool
) -> None:
    deployment = Deployment(monkeypatch, count)
    resync = deployment.controller.replicas.signal(
        deployment.replicas, ModelReplicaSignals.RESYNC, None
    )
    assert deployment.executed(resync) == (["signal_many"], int(local))


def test_a_start_is_in_the_history_before_it_is_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = Deployment(monkeypatch, 1)
    assert deployment.executed(deployment.controller.replicas.start()) == (
        ["start_replicas"],
        0,
    )


def test_a_release_is_in_the_history_before_the_scheduler_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = Deployment(monkeypatch, 0)
    (requested,) = deployment.controller.next_orders({})
    assert deployment.executed([requested]) == (["signal_many"], 1)
    deployment.controller.replicas.give_back("r0")
    requested, answered = deployment.controller.next_orders({})
    assert deployment.executed([requested]) == (["signal_many"], 0)
    assert deployment.executed([answered]) == (["signal_many"], 0)


def test_a_used_reservation_is_confirmed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = Deployment(monkeypatch, 1)
    deployment.executed(deployment.controller.replicas.start())
    deployment.controller.replicas.record_revoked("r0")
    assert deployment.executed(deployment.controller.replicas.answer_revoked()) == (
        ["signal_many"],
        1,
    )
