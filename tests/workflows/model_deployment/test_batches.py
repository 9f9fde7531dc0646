"""How a deployment calls its replicas: few in a local activity, many in a normal one, which may take longer."""

import asyncio

import pytest

from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import SetSpec, StartedReplicas
from api_types.messages.signals import ModelReplicaSignals
from tests.api_types.builders import a_deployment
from tests.workflows.environment.serverless import Serverless
from workflows.entity.sending import LOCAL_CALLS_MAX
from workflows.model_deployment.state import TrackedReplica
from workflows.model_deployment.workflow import ModelDeploymentWorkflow

PLACED = {"engines": [{"engine": "a", "members": [{"pool": "h100"}]}]}


@pytest.mark.parametrize(("count", "local"), [(1, True), (LOCAL_CALLS_MAX, True), (LOCAL_CALLS_MAX + 1, False)])
def test_few_calls_are_one_local_activity_and_many_are_a_normal_one(monkeypatch: pytest.MonkeyPatch, count: int, *, local: bool) -> None:
    temporal = Serverless(monkeypatch, "modeldeployment/ml/qwen")
    temporal.results = {"signal": True, "signal_many": SignalBatchResult(missing=[]), "start_replicas": StartedReplicas(conflicts=[])}
    deployment = ModelDeploymentWorkflow(None)
    deployment.set_spec(SetSpec(manifest=a_deployment()).wire())
    replicas = [TrackedReplica(uid=f"r{n}", name=f"q-{n}", cluster="eu", index=n, entry=PLACED, bound=True) for n in range(count)]
    deployment.state.replicas = {replica.uid: replica for replica in replicas}
    asyncio.run(deployment.replicas.start())
    assert (temporal.executed[0][0], temporal.local) == ("start_replicas", int(local))
    asyncio.run(deployment.replicas.signal(replicas, ModelReplicaSignals.RESYNC, None))
    assert (temporal.executed[1][0], temporal.local) == ("signal_many", 2 * int(local))
    assert len(temporal.executed) == 2
