"""An object starts only under its own id and with arguments that it can trust.

These tests need no server.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from api_types.errors import InvalidInput
from tests.workflows.environment.serverless import Serverless
from workflows import registry
from workflows.entity.start import check_only_id, is_continued, read_carried, read_first
from workflows.entity.state import EntityState
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.model_deployment.workflow import ModelDeploymentWorkflow

STATE = {"uid": "made up"}
IDS = {
    "CloudCluster": "cloud/eu/u",
    "EndpointDirectory": "endpointdirectory/ml",
    "FleetScheduler": "fleetscheduler/default",
    "InferenceClass": "inferenceclass/h200",
    "InferenceCluster": "inferencecluster/eu",
    "InferenceGateway": "inferencegateway/default",
    "ModelCache": "modelcache/ml/weights",
    "ModelDeployment": "modeldeployment/ml/qwen",
    "ModelEndpoint": "modelendpoint/ml/out",
    "ModelService": "modelservice/ml/chat",
    "Redelivery": "redelivery/modeldeployment/ml/qwen",
    "StackUpgrades": "stackupgrades/default",
}
ID_OF_A_DEPLOYMENT = (
    "id: must be modeldeployment/<namespace>/<name> for a ModelDeployment"
)
WORKFLOWS: dict[str, Any] = {
    str(workflow._Definition.must_from_class(each).name): each
    for each in registry.WORKFLOWS
}


def a_run(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str = "modeldeployment/ml/qwen",
    **fields: Any,
) -> Any:
    """Create the first run of an id, as an operator or a schedule may start it."""
    usual = {
        "run_id": "r",
        "continued_run_id": None,
        "attempt": 1,
        "cron_schedule": None,
    }
    info = SimpleNamespace(workflow_id=workflow_id, **{**usual, **fields})
    monkeypatch.setattr(workflow, "info", lambda: info)
    monkeypatch.setattr(workflow, "register_random_seed_callback", lambda _: None)
    return info


@pytest.mark.parametrize(
    ("fields", "continued"),
    [
        ({}, False),
        ({"continued_run_id": "r0"}, True),
        ({"continued_run_id": "r0", "attempt": 2}, False),
        ({"continued_run_id": "r0", "cron_schedule": "* * * * *"}, False),
    ],
    ids=["a first run", "continued as new", "a retry", "a run of a cron schedule"],
)
def test_a_state_is_accepted_only_from_the_run_before(
    monkeypatch: pytest.MonkeyPatch,
    *,
    fields: dict[str, Any],
    continued: bool,
) -> None:
    assert is_continued(a_run(monkeypatch, **fields)) is continued
    assert read_carried([None], EntityState) is None
    assert read_carried([], EntityState) is None
    if continued:
        state = read_carried([STATE], EntityState)
        assert state is not None
        assert state.uid == "made up"
        assert ModelDeploymentWorkflow(STATE).state.uid == "made up"
        return
    refusal = "start argument 1: must be null; only a continued run has a state"
    with pytest.raises(InvalidInput, match=refusal):
        read_carried([STATE], EntityState)
    with pytest.raises(InvalidInput, match="start argument 1: must be null"):
        ModelDeploymentWorkflow(STATE)


def test_unused_and_unreadable_arguments_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_run(monkeypatch, continued_run_id="r0")
    with pytest.raises(
        InvalidInput, match="start arguments: expected at most 1, got 2"
    ):
        read_carried([None, None], EntityState)
    with pytest.raises(
        InvalidInput, match="start arguments: expected at most 1, got 2"
    ):
        read_first([STATE, None], EntityState)
    with pytest.raises(InvalidInput, match="start argument 2: "):
        read_carried([None, 7], EntityState, 1, most=2)
    with pytest.raises(InvalidInput, match="start argument 1: "):
        read_first([7], EntityState)


@pytest.mark.parametrize(
    ("workflow_id", "problem"),
    [
        ("modeldeployment/ml/qwen/x", ID_OF_A_DEPLOYMENT),
        ("modeldeployment/qwen", ID_OF_A_DEPLOYMENT),
        ("modelcache/ml/qwen", ID_OF_A_DEPLOYMENT),
        (
            "modeldeployment/modelplane-system/qwen",
            'id: namespace "modelplane-system" belongs to the platform',
        ),
    ],
)
def test_an_object_starts_only_under_an_id_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
    problem: str,
) -> None:
    a_run(monkeypatch, workflow_id)
    with pytest.raises(InvalidInput, match=problem):
        ModelDeploymentWorkflow()


def test_the_id_of_a_cluster_scoped_object_has_no_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_run(monkeypatch, "inferencecluster/ml/eu")
    refusal = "id: must be inferencecluster/<name> for a InferenceCluster"
    with pytest.raises(InvalidInput, match=refusal):
        InferenceClusterWorkflow()


def test_an_object_in_a_namespace_that_a_later_release_reserves_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_run(monkeypatch, "modeldeployment/modelplane-system/qwen", continued_run_id="r0")
    assert ModelDeploymentWorkflow(None).namespace == "modelplane-system"


def test_a_singleton_kind_has_one_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_run(monkeypatch, "fleetscheduler/other")
    with pytest.raises(
        InvalidInput,
        match=(
            "id: must be fleetscheduler/default, the id of the only FleetScheduler, "
            'got "fleetsch'
        ),
    ):
        check_only_id("FleetScheduler", "fleetscheduler/default")
    a_run(monkeypatch, "fleetscheduler/default")
    check_only_id("FleetScheduler", "fleetscheduler/default")


@pytest.mark.parametrize("kind", IDS)
def test_the_first_run_of_every_type_rejects_a_state_and_a_foreign_id(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    Serverless(monkeypatch, IDS[kind])
    a_run(monkeypatch, IDS[kind])
    with pytest.raises(InvalidInput, match="start argument 1: must be null"):
        WORKFLOWS[kind]({})
    with pytest.raises(InvalidInput, match="start arguments: expected at most"):
        WORKFLOWS[kind](None, None, None)
    for other in ("other/ml/x/y", f"{IDS[kind]}/more", IDS[kind].partition("/")[0]):
        a_run(monkeypatch, other)
        with pytest.raises(InvalidInput, match="id: must be"):
            WORKFLOWS[kind](None)


@pytest.mark.parametrize(
    "kind", ["FleetScheduler", "InferenceGateway", "StackUpgrades"]
)
def test_a_singleton_workflow_starts_under_no_other_id(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    Serverless(monkeypatch, IDS[kind])
    a_run(monkeypatch, f"{kind.lower()}/other")
    refusal = f"id: must be {IDS[kind]}, the id of the only {kind}"
    with pytest.raises(InvalidInput, match=refusal):
        WORKFLOWS[kind](None)


def test_every_workflow_type_is_tested() -> None:
    """A ModelReplica starts with its own argument, which has its own tests."""
    assert {*IDS, "ModelReplica"} == set(WORKFLOWS)
