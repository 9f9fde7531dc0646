"""Events of a deployment: each is recorded once, when it happens, with the state of that time.

These tests need no server.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from api_types import labels
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import (
    Delete,
    RecordEvent,
    ReplicaChanged,
    Scale,
    SetSpec,
    StartedReplicas,
)
from api_types.messages.scheduling import Evict, ReplicaEviction, Resync
from api_types.resources.model_deployment import ModelDeployment
from tests.api_types.builders import a_deployment, merged
from tests.workflows.environment.serverless import Serverless
from workflows.model_deployment import calls
from workflows.model_deployment.orders import Order
from workflows.model_deployment.state import TrackedReplica
from workflows.model_deployment.workflow import ModelDeploymentWorkflow

REASON = "preempted by ml/other"
PLACED = {"engines": [{"engine": "a", "members": [{"pool": "h100"}]}]}


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> Serverless:
    serverless = Serverless(monkeypatch, "modeldeployment/ml/qwen")
    serverless.results = {
        "signal": True,
        "signal_many": SignalBatchResult(missing=[]),
        "start_replicas": StartedReplicas(conflicts=[]),
    }
    return serverless


def a_deployment_with(**replica: Any) -> ModelDeploymentWorkflow:
    """Return a deployment with one replica that has these fields."""
    deployment = ModelDeploymentWorkflow(None)
    tracked = TrackedReplica(
        **{"uid": "r", "name": "qwen-eu-0", "cluster": "eu", "index": 0, **replica}
    )
    deployment.state.replicas = {"r": tracked}
    return deployment


def preempt(deployment: ModelDeploymentWorkflow) -> None:
    eviction = ReplicaEviction(uid="r", name="qwen-eu-0", cluster="eu", reason=REASON)
    deployment.evict(Evict(epoch=1, eviction=eviction).wire())
    carry_out(deployment, deployment.controller.placements.carry_out_evictions())


def carry_out(deployment: ModelDeploymentWorkflow, orders: Sequence[Order]) -> None:
    asyncio.run(calls.carry_out(orders, deployment.controller.replicas))


def events(deployment: ModelDeploymentWorkflow) -> list[tuple[str, str, int]]:
    return [
        (event.reason, event.message, event.count) for event in deployment.state.events
    ]


def test_a_repeated_report_makes_no_new_version(
    temporal: Serverless,
) -> None:
    """Otherwise each event of an autoscaler would make a user's change conflict, and
    would be sent to every watch.
    """
    del temporal
    deployment = a_deployment_with()
    versions = []
    for number, message in enumerate(
        ("no trigger answers", "no trigger answers", "ready", "no trigger answers")
    ):
        report = RecordEvent(
            request_id=f"r{number}",
            by="keda",
            type="Warning",
            reason="ScaledObjectFailed",
            message=message,
        )
        deployment.context.queued = False
        deployment.record_event(report.wire())
        versions.append(deployment.state.resource_version)
        assert deployment.context.queued, "a history that grows is looked at"
    assert [
        count
        for _, message, count in events(deployment)
        if message == "no trigger answers"
    ] == [3]
    first, second, third, fourth = versions
    assert first < third
    assert (first, third) == (second, fourth)


BEING_DELETED = ("ReplicaDeleting", f"qwen-eu-0 is being deleted from eu: {REASON}", 1)


def test_the_start_of_a_deletion_and_the_end_of_the_replica_are_two_events(
    temporal: Serverless,
) -> None:
    deployment = a_deployment_with(started=True, bound=True)
    preempt(deployment)
    assert [name for name, _ in temporal.executed] == ["signal_many"]
    assert events(deployment) == [BEING_DELETED]
    deployment.replica_changed(
        ReplicaChanged(name="qwen-eu-0", uid="r", sequence=1, phase="Gone").wire()
    )
    assert events(deployment) == [
        BEING_DELETED,
        ("ReplicaDeleted", "qwen-eu-0 was deleted from eu", 1),
    ]


@pytest.mark.usefixtures("temporal")
def test_the_deletion_of_a_twice_preempted_replica_starts_once() -> None:
    deployment = a_deployment_with(started=True, bound=True)
    preempt(deployment)
    preempt(deployment)
    assert events(deployment) == [BEING_DELETED]


@pytest.mark.usefixtures("temporal")
def test_a_replica_that_ends_by_itself_is_reported_gone_and_not_deleted() -> None:
    deployment = a_deployment_with(started=True, bound=True)
    deployment.replica_changed(
        ReplicaChanged(name="qwen-eu-0", uid="r", sequence=1, phase="Gone").wire()
    )
    assert [reason for reason, *_ in events(deployment)] == ["ReplicaGone"]


def test_an_unstarted_placement_is_dropped_and_nothing_is_deleted(
    temporal: Serverless,
) -> None:
    deployment = a_deployment_with()
    preempt(deployment)
    assert (deployment.state.replicas, temporal.executed) == ({}, [])
    assert events(deployment) == [
        ("PlacementDropped", f"qwen-eu-0 is not started on eu: {REASON}", 1)
    ]


def test_a_terminated_replica_is_kept_until_it_has_deleted_its_objects(
    temporal: Serverless,
) -> None:
    lost = {"started": False, "bound": True}
    deployment = a_deployment_with(**lost)
    preempt(deployment)
    assert deployment.state.replicas["r"].deletion_reason == REASON
    deployment = a_deployment_with(**lost)
    deployment.resync(Resync(epoch=3).wire())
    assert list(deployment.state.replicas) == ["r"]
    deployment.controller.replicas.record_revoked("r")
    carry_out(deployment, deployment.controller.replicas.answer_revoked())
    assert list(deployment.state.replicas) == ["r"]
    deployment = a_deployment_with(**lost, entry=PLACED)
    deployment.set_spec(SetSpec(manifest=a_deployment()).wire())
    deployment.delete(Delete(by="ann").wire())
    temporal.executed.clear()
    carry_out(deployment, deployment.controller.teardown.step())
    assert list(deployment.state.replicas) == ["r"]
    assert [name for name, _ in temporal.executed] == [
        "signal_many",
        "start_replicas",
        "signal_many",
    ]


def test_an_unreadable_annotation_is_an_event_once(
    temporal: Serverless,
) -> None:
    deployment = a_deployment_with(started=True, bound=True, entry=PLACED)
    flags = {"metadata": {"annotations": {labels.PICKER_FLAGS: "no flags"}}}
    deployment.set_spec(SetSpec(manifest=merged(a_deployment(), flags)).wire())
    carry_out(deployment, deployment.controller.replicas.update_labels())
    deployment.scale(Scale(replicas=2).wire())
    carry_out(deployment, deployment.controller.replicas.update_templates(["r"]))
    labelled = {"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}
    deployment.set_spec(
        SetSpec(manifest=merged(merged(a_deployment(), flags), labelled)).wire()
    )
    carry_out(deployment, deployment.controller.replicas.update_labels())
    shown = [
        (reason, count)
        for reason, _, count in events(deployment)
        if reason == "InvalidAnnotation"
    ]
    assert shown == [("InvalidAnnotation", 1)]
    assert [name for name, _ in temporal.executed] == ["signal_many"] * 3


def test_an_external_event_is_recorded_once_and_displaces_no_other(
    temporal: Serverless,
) -> None:
    del temporal
    deployment = a_deployment_with(started=True, bound=True, entry=PLACED)
    deployment.set_spec(SetSpec(manifest=a_deployment()).wire())
    deployment.scale(Scale(replicas=7, by="ann", reason="a batch").wire())
    before = deployment.state.spec, deployment.state.generation
    for number in range(200):
        report = RecordEvent(
            request_id=f"r{number}",
            by="keda",
            type="Warning",
            reason="ScaledObjectFailed",
            message=f"poll {number}",
        )
        deployment.record_event(report.wire())
        deployment.record_event(report.wire())
    scaled = [
        message for reason, message, _ in events(deployment) if reason == "Scaled"
    ]
    assert [message.partition(" to ")[2] for message in scaled] == ["7 by ann: a batch"]
    assert [
        event for event in events(deployment) if event[0] == "ScaledObjectFailed"
    ] == [("ScaledObjectFailed", f"poll {number}", 1) for number in range(195, 200)]
    assert (deployment.state.spec, deployment.state.generation) == before


def test_an_external_event_reaches_watches(temporal: Serverless) -> None:
    del temporal
    deployment = a_deployment_with(started=True, bound=True, entry=PLACED)
    version = deployment.state.resource_version
    deployment.record_event(
        RecordEvent(request_id="r", reason="ScaledObjectReady").wire()
    )
    assert deployment.state.resource_version > version


@pytest.mark.usefixtures("temporal")
def test_the_autoscalers_count_is_not_part_of_the_users_manifest() -> None:
    deployment = ModelDeploymentWorkflow(None)
    manifest = ModelDeployment.model_validate(a_deployment())
    assert deployment.with_own_replicas(manifest) is manifest
    deployment.set_spec(SetSpec(manifest=a_deployment()).wire())
    deployment.scale(Scale(replicas=7, by="hpa").wire())
    scaled = manifest.model_copy(
        update={"spec": manifest.spec.model_copy(update={"replicas": 7})}
    )
    assert deployment.with_own_replicas(scaled) == manifest
    assert deployment.applied_replicas() == manifest.spec.replicas
