"""The workflow of every kind applies the rules of manifests to signals and updates.

It rejects an update before the update is in the history. The rules have unit tests of
their own; these tests show that the handlers call them.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from api_types.errors import Conflict, InvalidInput
from api_types.messages.entities import (
    Delete,
    Force,
    Replace,
    RetryNow,
    SetSpec,
    StartReplica,
)
from api_types.payloads.limits import MANIFEST_BYTES_MAX
from tests.api_types import builders
from tests.api_types.builders import merged
from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_cache.builders import a_staging, ready
from tests.workflows.model_replica.builders import a_replica as a_replica_state
from workflows.entity.conditions import condition_of
from workflows.entity.entity import Entity
from workflows.inference_class import InferenceClassWorkflow
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.inference_gateway.workflow import InferenceGatewayWorkflow
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_deployment.workflow import ModelDeploymentWorkflow
from workflows.model_endpoint import ModelEndpointWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow
from workflows.model_service.workflow import ModelServiceWorkflow

OBJECTS: dict[str, tuple[Callable[..., Entity[Any]], dict[str, Any]]] = {
    "inferenceclass/h200": (InferenceClassWorkflow, builders.a_class()),
    "inferencecluster/eu-1": (
        InferenceClusterWorkflow,
        builders.a_cluster(source="EKS"),
    ),
    "inferencegateway/default": (InferenceGatewayWorkflow, builders.a_gateway()),
    "modelcache/ml/weights": (ModelCacheWorkflow, builders.a_cache()),
    "modeldeployment/ml/qwen": (ModelDeploymentWorkflow, builders.a_deployment()),
    "modelendpoint/ml/out": (ModelEndpointWorkflow, builders.an_endpoint()),
    "modelreplica/ml/qwen-1": (ModelReplicaWorkflow, builders.a_replica()),
    "modelservice/ml/chat": (ModelServiceWorkflow, builders.a_service()),
}
FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "inferencecluster/eu-1": (
        {"spec": {"cluster": {"eks": {"region": "us-west-2"}}}},
        (
            "InferenceCluster eu-1: spec.cluster.eks.region: "
            "cannot change from us-east-2 to us-west-2; delete the InferenceCluster "
            "and create another"
        ),
    ),
    "modelcache/ml/weights": (
        {"spec": {"huggingFace": {"repo": "acme/other"}}},
        (
            "ModelCache ml/weights: spec.huggingFace.repo: "
            "cannot change from acme/model to acme/other once staged; create a "
            "ModelCache under a new name"
        ),
    ),
    "modelreplica/ml/qwen-1": (
        {"spec": {"clusterName": "us-1"}},
        (
            "ModelReplica ml/qwen-1: spec.clusterName: cannot change from eu-1 to us-1; "
            "a replica never moves"
        ),
    ),
}
NOTE = {"metadata": {"annotations": {"note": "changed"}}}
LARGE = {"metadata": {"annotations": {"note": "x" * MANIFEST_BYTES_MAX}}}
# Changes that every kind rejects, with a part of the reason.
UNACCEPTABLE: dict[str, tuple[Any, str]] = {
    "not an object": (
        "x",
        "must be an object with apiVersion, kind, metadata and spec",
    ),
    "another object": (
        {"metadata": {"name": "other"}},
        "send it to the workflow with that id|must be named default",
    ),
    "another version": ({"apiVersion": "modelplane.ai/v9"}, "modelplane.ai/v9"),
    "an unknown field": ({"spec": {"colour": "blue"}}, "spec.colour: unknown field"),
    "too large": (LARGE, "bytes"),
}


class Told:
    """An object that has its manifest, and the manifest with a change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workflow_id: str) -> None:
        Serverless(monkeypatch, workflow_id)
        workflow, self.document = OBJECTS[workflow_id]
        state = _state_of_a_replica() if workflow is ModelReplicaWorkflow else None
        self.workflow = workflow(state)
        self.apply(self.document)
        if isinstance(self.workflow, ModelCacheWorkflow):
            self.workflow.state.stagings = {"eu-1": a_staging(ready())}
        self.before = self.stored()

    def stored(self) -> tuple[Any, ...]:
        state = self.workflow.state
        return state.spec, state.labels, state.annotations, state.generation

    def changed(self, change: Any) -> Any:
        return merged(self.document, change)

    def apply(self, document: Any, request_id: str = "") -> None:
        self.workflow.set_spec(
            SetSpec(by="ann", manifest=document, request_id=request_id).wire()
        )

    def check(self, document: Any, version: str = "") -> None:
        message = Replace(
            by="ann", request_id="r", resource_version=version, manifest=document
        )
        self.workflow.check_replace(message.wire())

    def events(self) -> list[tuple[str, str]]:
        return [(event.type, event.reason) for event in self.workflow.state.events]


def _state_of_a_replica() -> Any:
    spec = builders.a_replica()["spec"]
    start = StartReplica(
        uid="u",
        namespace="ml",
        name="qwen-1",
        deployment="qwen",
        deployment_uid="d",
        cluster="eu-1",
        index=0,
        generation=1,
        spec=spec,
    )
    return a_replica_state(spec=spec, start=start)


@pytest.mark.parametrize("workflow_id", FORBIDDEN)
def test_a_signal_cannot_change_an_immutable_field(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
) -> None:
    told, (change, refusal) = Told(monkeypatch, workflow_id), FORBIDDEN[workflow_id]
    told.apply(told.changed(change))
    condition = condition_of(told.workflow.state.conditions, "SpecAccepted")
    assert condition is not None
    shown = (condition.status, condition.reason, condition.message)
    assert (told.stored(), shown) == (told.before, ("False", "InvalidInput", refusal))


@pytest.mark.parametrize("workflow_id", FORBIDDEN)
def test_an_update_cannot_change_an_immutable_field(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
) -> None:
    told, (change, refusal) = Told(monkeypatch, workflow_id), FORBIDDEN[workflow_id]
    with pytest.raises(InvalidInput) as raised:
        told.check(told.changed(change))
    assert raised.value.message == refusal


@pytest.mark.parametrize("workflow_id", OBJECTS)
@pytest.mark.parametrize("problem", UNACCEPTABLE)
def test_an_unacceptable_manifest_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
    problem: str,
) -> None:
    told, (change, reason) = Told(monkeypatch, workflow_id), UNACCEPTABLE[problem]
    told.apply(told.changed(change))
    condition = condition_of(told.workflow.state.conditions, "SpecAccepted")
    assert condition is not None
    assert (told.stored(), condition.status) == (told.before, "False")
    assert told.events()[-1] == ("Warning", "InvalidInput")
    assert re.search(reason, condition.message)
    with pytest.raises(InvalidInput, match=reason):
        told.check(told.changed(change))
    told.apply(told.document)
    accepted = condition_of(told.workflow.state.conditions, "SpecAccepted")
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("True", "Accepted")


@pytest.mark.parametrize("workflow_id", OBJECTS)
def test_an_object_that_is_being_deleted_rejects_a_manifest(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
) -> None:
    told = Told(monkeypatch, workflow_id)
    told.workflow.delete(Delete(by="ann").wire())
    told.apply(told.changed(NOTE))
    assert told.stored() == told.before
    assert told.events()[-2:] == [("Normal", "Deleting"), ("Warning", "BeingDeleted")]
    with pytest.raises(
        Conflict, match="is being deleted; apply it again when it is gone"
    ):
        told.check(told.changed(NOTE))


@pytest.mark.parametrize("workflow_id", OBJECTS)
def test_an_update_of_an_old_version_is_a_conflict(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
) -> None:
    told = Told(monkeypatch, workflow_id)
    read = str(told.workflow.state.resource_version)
    told.check(told.changed(NOTE), read)
    told.apply(told.changed(NOTE))
    present = told.workflow.state.resource_version
    with pytest.raises(Conflict, match=f"has resourceVersion {present}, not {read}"):
        told.check(told.document, read)


@pytest.mark.parametrize("workflow_id", OBJECTS)
def test_a_request_is_executed_once(
    monkeypatch: pytest.MonkeyPatch, workflow_id: str
) -> None:
    told = Told(monkeypatch, workflow_id)
    told.apply(told.changed(NOTE), "a")
    told.apply(told.document)
    told.apply(told.changed(NOTE), "a")
    assert told.workflow.state.annotations == told.document["metadata"].get(
        "annotations", {}
    )
    told.workflow.delete(Delete(request_id="a").wire())
    assert not told.workflow.state.deleting
    told.workflow.delete(Delete().wire())
    told.workflow.force(Force(request_id="a", scope="all").wire())
    assert told.workflow.state.forced == ""
    told.workflow.state.attempts = 3
    told.workflow.retry_now(RetryNow(request_id="a").wire())
    assert told.workflow.state.attempts == 3
    told.workflow.retry_now(RetryNow(request_id="b").wire())
    assert told.workflow.state.attempts == 0


@pytest.mark.parametrize("workflow_id", OBJECTS)
def test_a_deletion_of_an_earlier_object_with_the_name_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
) -> None:
    told = Told(monkeypatch, workflow_id)
    told.workflow.state.uid = "this"
    told.workflow.delete(Delete(uid="an earlier one").wire())
    assert not told.workflow.state.deleting
    told.workflow.delete(Delete(uid="this").wire())
    assert told.workflow.state.deleting


@pytest.mark.parametrize("workflow_id", OBJECTS)
def test_only_a_teardown_can_be_forced(
    monkeypatch: pytest.MonkeyPatch, workflow_id: str
) -> None:
    told = Told(monkeypatch, workflow_id)
    told.workflow.force(Force(by="ann", scope="all").wire())
    assert (told.workflow.state.forced, told.events()[-1]) == (
        "",
        ("Warning", "ForceRefused"),
    )
    told.workflow.delete(Delete().wire())
    told.workflow.force(Force(by="ann", scope="all").wire())
    assert (told.workflow.state.forced, told.events()[-1]) == (
        "all",
        ("Warning", "Forced"),
    )


@pytest.mark.parametrize(
    "workflow_id", sorted(set(OBJECTS) - {"modelreplica/ml/qwen-1"})
)
def test_a_first_manifest_that_is_refused_makes_the_object_not_ready(
    monkeypatch: pytest.MonkeyPatch,
    workflow_id: str,
) -> None:
    Serverless(monkeypatch, workflow_id)
    made = OBJECTS[workflow_id][0](None)
    made.set_spec(SetSpec(manifest="x").wire())
    ready_condition = condition_of(made.state.conditions, "Ready")
    assert ready_condition is not None
    shown = (ready_condition.status, ready_condition.reason)
    assert (made.state.spec, shown) == (None, ("False", "InvalidInput"))
