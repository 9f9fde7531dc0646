"""A call that a worker refused is retried, and its object reports that until the call is accepted.

These tests need no server.
"""

import ast
import asyncio
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, CancelledError, RetryState

from api_types.errors import InvalidInput
from tests.workflows.environment.serverless import Serverless, id_of
from tests.workflows.model_replica.builders import a_replica
from workflows.entity.calls.refusals import until_accepted
from workflows.entity.conditions import condition_of
from workflows.model_replica.workflow import ModelReplicaWorkflow

WORKFLOWS = Path(__file__).parents[3] / "workflows"
# Modules whose activities reach a cluster or its server. They report the failure in a
# condition and retry with the next pass.
WITH_CONDITIONS = {
    "cloud_cluster/calls.py",
    "inference_cluster/cloud.py",
    "model_endpoint.py",
    "inference_gateway/watch.py",
    "inference_gateway/workflow.py",
    "model_service/route.py",
    "inference_cluster/connecting/connection.py",
    "inference_cluster/connecting/connection_wait.py",
    "inference_cluster/observer.py",
    "inference_cluster/stack/installer.py",
    "inference_cluster/stack/removal.py",
    "inference_cluster/connecting/worker_wait.py",
    "model_cache/credential.py",
    "model_cache/revision.py",
    "model_cache/staging.py",
    "model_replica/calls.py",
    "model_replica/copies_wait.py",
    "model_replica/pruning.py",
}


def failed(cause: BaseException) -> ActivityError:
    error = ActivityError(
        "failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="worker",
        activity_type="tell_many",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    error.__cause__ = cause
    return error


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> ModelReplicaWorkflow:
    Serverless(monkeypatch, id_of("ModelReplica"))
    made = ModelReplicaWorkflow(a_replica())
    monkeypatch.setattr(workflow, "instance", lambda: made)
    monkeypatch.setattr(made, "publish", lambda: None)
    return made


class Calls:
    """Activities that the worker refuses at first. `made` counts them."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.made == 1:
            raise failed(
                InvalidInput("tell_many: argument 1: later_field: is not known")
            )
        return "done"


def shown(replica: ModelReplicaWorkflow) -> str:
    condition = condition_of(replica.state.conditions, "CallsAccepted")
    return (
        f"{condition.status} {condition.reason} {condition.message}"
        if condition
        else ""
    )


async def test_a_refused_call_is_a_condition_and_a_retry_repeats_it_at_once(
    replica: ModelReplicaWorkflow,
) -> None:
    calls = Calls()
    pending = asyncio.create_task(until_accepted(calls, "signal 3 replicas"))
    await asyncio.sleep(0.01)
    assert (calls.made, pending.done()) == (1, False)
    assert shown(replica).startswith("False CallRefused signal 3 replicas: ")
    assert (
        "later_field: is not known. The call is retried; upgrade the workers"
        in shown(replica)
    )
    replica.retry_now({})
    assert await pending == "done"
    assert shown(replica) == ""


async def test_of_two_refused_calls_the_remaining_one_is_shown(
    replica: ModelReplicaWorkflow,
) -> None:
    replica.call_refused("a", "not known")
    replica.call_refused("b", "not known either")
    replica.call_accepted("a")
    assert shown(replica).startswith("False CallRefused b: not known either")
    replica.call_accepted("b")
    assert shown(replica) == ""


async def test_a_cancelled_call_is_not_repeated(
    replica: ModelReplicaWorkflow,
) -> None:
    async def cancelled() -> None:
        raise failed(CancelledError())

    with pytest.raises(ActivityError):
        await until_accepted(cancelled, "signal 3 replicas")
    assert shown(replica) == ""


async def test_the_next_run_does_not_show_refusals_of_the_run_before(
    replica: ModelReplicaWorkflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> bool:
        return True

    replica.call_refused("a", "not known")
    monkeypatch.setattr(replica, "reconcile", gone)
    monkeypatch.setattr(workflow, "all_handlers_finished", lambda: True)
    await replica.run_until_deleted()
    assert shown(replica) == ""


@pytest.mark.slow
def test_every_other_activity_is_retried_until_it_is_accepted() -> None:
    """No module handles failures of these activities.

    The first failure would end the workflow.
    """
    direct = set()
    for path in sorted(WORKFLOWS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        insisted = {
            id(node)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "until_accepted"
            for node in ast.walk(call)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in {"execute_activity", "execute_activity_method"}
                and id(node) not in insisted
            ):
                direct.add(path.relative_to(WORKFLOWS).as_posix())
    assert direct == WITH_CONDITIONS
