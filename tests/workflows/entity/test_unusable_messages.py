"""Handlers reject messages of other entities that the next pass could not use.

These tests need no server.
"""

from typing import Any

import pytest

from api_types.messages.entities import (
    ClassChanged,
    RecordEvent,
    Scale,
    SetSpec,
    SetTemplate,
    StartReplica,
)
from api_types.messages.scheduling import (
    Evict,
    PlacementResponse,
    ReplicaEviction,
    ReplicaPlacement,
)
from scheduler import LedgerEntry, to_wire
from tests.api_types.builders import a_deployment
from tests.api_types.builders import a_replica as a_replica_document
from tests.workflows.environment.serverless import NOW, Serverless
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.model_replica.builders import CLUSTER, a_replica
from workflows.entity.entity import Entity
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.model_deployment.workflow import ModelDeploymentWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow

NOW_MS = int(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000
CHARGED = LedgerEntry(
    uid="u",
    name="qwen-1",
    namespace="ml",
    deployment="qwen",
    cluster="eu",
    index=0,
    engines=(),
)
ENTRY: dict[str, Any] = to_wire(CHARGED)
IGNORED = "a PlacementResponse message was ignored"
BY_HAND = "ScaledByHand"
YEAR_SECONDS = 366 * 24 * 3600


def refusals(entity: Entity[Any]) -> list[str]:
    return [
        event.message
        for event in entity.state.events
        if event.reason == "MalformedMessage"
    ]


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> ModelDeploymentWorkflow:
    Serverless(monkeypatch, "modeldeployment/ml/qwen")
    made = ModelDeploymentWorkflow(None)
    made.set_spec(SetSpec(by="ann", manifest=a_deployment()).wire())
    return made


@pytest.mark.parametrize(
    ("changes", "entry", "problem"),
    [
        ({"name": "a/b"}, ENTRY, f"{IGNORED}: placements: u: name: must be a name"),
        ({"cluster": ""}, ENTRY, f"{IGNORED}: placements: u: cluster: must be a name"),
        (
            {},
            {**ENTRY, "namespace": 7},
            "a PlacementResponse message was ignored: placements: u: ",
        ),
    ],
    ids=["a name that is none", "no cluster", "an entry that cannot be read"],
)
def test_an_answer_with_a_replica_that_could_not_start_is_rejected(
    deployment: ModelDeploymentWorkflow,
    changes: dict[str, Any],
    entry: dict[str, Any],
    problem: str,
) -> None:
    usual = {
        "uid": "u",
        "name": "qwen-1",
        "cluster": "eu",
        "index": 0,
        "action": "Create",
    }
    fields = {**usual, **changes}
    placement = ReplicaPlacement(**fields, entry=entry)
    response = PlacementResponse(
        request_id="r", epoch=1, generation=1, placements=[placement]
    )
    deployment.placed(response.wire())
    (said,) = refusals(deployment)
    assert said.startswith(problem)
    named = {key: fields[key] for key in ("uid", "name", "cluster")}
    eviction = ReplicaEviction(**named, reason="Drained", entry=entry)
    deployment.evict(Evict(epoch=1, eviction=eviction).wire())
    start = "a Evict message was ignored: eviction: u: "
    assert [text for text in refusals(deployment) if text.startswith(start)] != []


def test_a_scale_request_and_a_reported_event_are_applied_once(
    deployment: ModelDeploymentWorkflow,
) -> None:
    deployment.scale(Scale(replicas=3, request_id="a", by="ann").wire())
    deployment.scale(Scale(replicas=5, request_id="a", by="ann").wire())
    assert (deployment.state.spec or {})["replicas"] == 3
    for message in ("first", "repeated"):
        event = RecordEvent(
            request_id="e", type="Warning", reason=BY_HAND, message=message
        )
        deployment.record_event(event.wire())
    recorded = [
        each.message for each in deployment.state.events if each.reason == BY_HAND
    ]
    assert recorded == ["first"]


def test_a_template_that_could_not_be_applied_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelreplica/ml/qwen-1")
    spec = a_replica_document()["spec"]
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
    replica = ModelReplicaWorkflow(a_replica(spec=spec, start=start))
    changed = {"clusterName": "eu-1", "engines": 7}
    replica.set_template(SetTemplate(generation=2, sequence=2, spec=changed).wire())
    (said,) = refusals(replica)
    assert said.startswith("a SetTemplate message was ignored: spec.engines: ")
    assert (replica.state.spec, replica.state.generation) == (spec, 1)
    replica.set_template(SetTemplate(generation=2, sequence=2, spec=spec).wire())
    assert (replica.state.generation, len(refusals(replica))) == (2, 1)


def test_a_class_with_unreadable_devices_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "inferencecluster/eu-1")
    cluster = InferenceClusterWorkflow(a_cluster(classes={}))
    cluster.class_changed(
        ClassChanged(name="h100-8x", uid="u", generation=1, spec={}).wire()
    )
    (said,) = refusals(cluster)
    assert said.startswith("a ClassChanged message was ignored: spec.devices: ")
    assert cluster.state.classes == {}


def test_an_invalid_task_queue_is_ignored_and_an_endless_drain_is_limited_to_a_year(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelreplica/ml/qwen-eu-0")
    replica = ModelReplicaWorkflow(a_replica())
    before = replica.state.cluster
    report = CLUSTER.model_copy(update={"sequence": 2}).wire()
    replica.cluster_changed(
        {**report, "connection": {**report["connection"], "taskQueue": "q" * 2000}}
    )
    (said,) = refusals(replica)
    assert "taskQueue" in said
    assert replica.state.cluster == before
    replica.cluster_changed(
        {**report, "facts": {**report["facts"], "drainSeconds": 10**30}}
    )
    assert replica.state.cluster is not None
    assert replica.state.cluster.facts is not None
    assert replica.state.cluster.facts.drain_seconds == YEAR_SECONDS
