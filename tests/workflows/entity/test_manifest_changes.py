"""Effects of a changed manifest.

Only a changed spec makes a new generation. These tests need no server.
"""

from datetime import timedelta
from typing import Any

import pytest

from api_types.errors import Conflict
from api_types.labels import MANAGED_FIELDS
from api_types.messages.entities import Replace, Scale, SetSpec
from tests.api_types.builders import a_deployment
from tests.workflows.environment.serverless import Serverless
from workflows.entity.context import EntityContext
from workflows.model_deployment.state import DeploymentState
from workflows.model_deployment.workflow import ModelDeploymentWorkflow


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> Serverless:
    return Serverless(monkeypatch, "modeldeployment/ml/qwen")


def apply(deployment: ModelDeploymentWorkflow, document: dict[str, Any]) -> None:
    deployment.set_spec(SetSpec(by="ann", manifest=document).wire())


def replace(
    deployment: ModelDeploymentWorkflow, change: dict[str, Any]
) -> dict[str, Any]:
    """Run the validator and the handler of an update, as the server does."""
    deployment.check_replace(change)
    answer = ModelDeploymentWorkflow.replace(deployment, change)
    assert isinstance(answer, dict)
    return answer


def annotated(document: dict[str, Any]) -> dict[str, Any]:
    return {
        **document,
        "metadata": {**document["metadata"], "annotations": {"note": "changed"}},
    }


def test_a_changed_annotation_makes_an_event_but_no_new_generation(
    temporal: Serverless,
) -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    timings = deployment.state.timings
    temporal.now += timedelta(minutes=1)
    apply(deployment, annotated(a_deployment()))
    assert (deployment.state.generation, deployment.state.annotations) == (
        1,
        {"note": "changed"},
    )
    assert timings is not None
    assert deployment.state.timings == timings
    assert [(event.reason, event.message) for event in deployment.state.events] == [
        ("SpecChanged", "generation 1 was written by ann"),
        ("MetadataChanged", "labels or annotations changed by ann"),
    ]


@pytest.mark.usefixtures("temporal")
def test_changed_field_owners_have_no_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    monkeypatch.setattr(deployment, "on_manifest_changed", None)
    before, document = deployment.state.resource_version, annotated(a_deployment())
    document["metadata"]["annotations"] = {MANAGED_FIELDS: "{}"}
    apply(deployment, document)
    assert deployment.state.annotations == {MANAGED_FIELDS: "{}"}
    assert [event.reason for event in deployment.state.events] == ["SpecChanged"]
    assert (
        deployment.state.manifest_version == deployment.state.resource_version > before
    )
    deployment.context.mark_changed()
    assert (
        deployment.describe()["manifestVersion"]
        == deployment.state.manifest_version
        < deployment.state.resource_version
    )


def test_the_duration_of_a_generation_is_measured_from_its_acceptance(
    temporal: Serverless,
) -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    temporal.now += timedelta(minutes=1)
    apply(deployment, a_deployment(top={"rollout": {"paused": True}}))
    assert deployment.state.timings is not None
    assert (deployment.state.timings.generation, deployment.state.timings.accepted) == (
        2,
        temporal.now.timestamp(),
    )
    assert [event.reason for event in deployment.state.events] == [
        "SpecChanged",
        "SpecChanged",
    ]


@pytest.mark.usefixtures("temporal")
def test_a_repeated_replace_returns_the_first_answer() -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    version = str(deployment.state.resource_version)
    change = Replace(
        request_id="r1",
        by="ann",
        resource_version=version,
        manifest=annotated(a_deployment()),
    ).wire()
    answer = replace(deployment, change)
    assert replace(deployment, change) == answer
    deployment.delete({"by": "ann"})
    deployment.check_replace(change)
    with pytest.raises(Conflict, match="is being deleted"):
        deployment.check_replace({**change, "requestId": "r2"})


@pytest.mark.usefixtures("temporal")
def test_a_replace_by_another_request_at_an_old_version_is_rejected() -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    with pytest.raises(Conflict, match="modified since you read it"):
        deployment.check_replace(
            Replace(
                request_id="r1", resource_version="0", manifest=a_deployment()
            ).wire()
        )


@pytest.mark.usefixtures("temporal")
def test_a_replace_conflicts_with_manifest_changes_but_not_with_status_changes() -> (
    None
):
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    version = deployment.state.resource_version
    change = Replace(
        request_id="r1",
        resource_version=str(version),
        manifest=annotated(a_deployment()),
    )

    def refused(changed: Replace = change) -> bool:
        try:
            deployment.check_replace(changed.wire())
        except Conflict:
            return True
        return False

    deployment.context.mark_changed()
    assert deployment.state.resource_version > version
    assert not refused()
    # Older versions, versions that do not exist yet, and other texts.
    for wrong in (
        deployment.state.manifest_version - 1,
        deployment.state.resource_version + 1,
        "x",
        "²",
        f"-{version}",
        f" {version}",
    ):
        assert refused(change.model_copy(update={"resource_version": str(wrong)}))
    # The state of an earlier release does not record when the manifest changed.
    deployment.state.manifest_version, known = 0, deployment.state.manifest_version
    assert refused()
    assert not refused(
        change.model_copy(
            update={"resource_version": str(deployment.state.resource_version)}
        )
    )
    deployment.state.manifest_version = known
    for count, document in ((7, a_deployment()), (7, annotated(a_deployment()))):
        version = deployment.state.resource_version
        deployment.scale(Scale(replicas=count).wire())
        apply(deployment, document)
        assert refused(change.model_copy(update={"resource_version": str(version)}))


@pytest.mark.usefixtures("temporal")
def test_the_time_of_a_manifest_change_is_carried_over() -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment())
    version = deployment.state.manifest_version
    assert 0 < version <= deployment.state.resource_version
    carried = DeploymentState.model_validate(
        deployment.state.model_dump(mode="json", by_alias=True)
    )
    context = EntityContext("ModelDeployment", carried, lambda: None)
    context.mark_changed()
    assert carried.manifest_version == version < carried.resource_version


@pytest.mark.usefixtures("temporal")
def test_a_defaulted_count_does_not_change_its_owner() -> None:
    deployment = ModelDeploymentWorkflow(None)
    apply(deployment, a_deployment(top={"replicas": 1}))
    deployment.scale(Scale(by="hpa", replicas=3).wire())
    with_count = annotated(a_deployment(top={"replicas": 3}))
    replace(
        deployment,
        Replace(
            request_id="r1", by="ann", keeps_replicas=True, manifest=with_count
        ).wire(),
    )
    assert deployment.state.spec is not None
    assert (deployment.state.spec["replicas"], deployment.applied_replicas()) == (3, 1)
    assert deployment.state.annotations == {"note": "changed"}
    assert deployment.state.last_scale is not None
    assert deployment.state.last_scale.by == "hpa"
    # So the manifest that was applied before still leaves the count to the autoscaler.
    apply(deployment, a_deployment(top={"replicas": 1}))
    assert deployment.state.spec["replicas"] == 3


def test_requests_with_an_effect_are_shown(temporal: Serverless) -> None:
    del temporal
    deployment = ModelDeploymentWorkflow(None)
    invalid = {**a_deployment(), "spec": {}}
    for request_id, document in (
        ("new", a_deployment()),
        ("same", a_deployment()),
        ("bad", invalid),
        ("note", annotated(a_deployment())),
    ):
        deployment.set_spec(
            SetSpec(request_id=request_id, by="ann", manifest=document).wire()
        )
    replace(
        deployment,
        Replace(request_id="update", by="ann", manifest=a_deployment()).wire(),
    )
    shown = deployment.describe()
    assert shown["appliedRequestIds"] == ["new", "same", "bad", "note", "update"]
    assert shown["changingRequestIds"] == ["new", "note", "update"]
