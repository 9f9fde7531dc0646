"""A cluster under deletion accepts only annotations that control the deletion.

These tests need no server.
"""

import asyncio
from typing import Any

import pytest

from api_types import labels
from api_types.errors import Conflict
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import ClassChanged, Replace
from api_types.validation.manifests import dump, load
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import H100, a_cluster
from workflows.inference_cluster.workflow import InferenceClusterWorkflow

NAME = "prod"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> InferenceClusterWorkflow:
    """Return a cluster under deletion."""
    Serverless(monkeypatch, f"inferencecluster/{NAME}")
    cluster = InferenceClusterWorkflow(
        a_cluster(
            deletion_timestamp="2026-01-01T00:00:00Z",
            resource_version=7,
            manifest_version=5,
        )
    )
    cluster.state.spec = dump(load(cluster.manifest()))["spec"]
    return cluster


def changed(
    cluster: InferenceClusterWorkflow, annotations: dict[str, str], **more: Any
) -> dict[str, Any]:
    """Return the cluster's manifest with other annotations and additional metadata."""
    document = dump(load(cluster.manifest()))
    metadata = {
        **document["metadata"],
        "annotations": {**cluster.state.annotations, **annotations},
    }
    return {**document, "metadata": metadata | more}


def replace(
    cluster: InferenceClusterWorkflow, document: dict[str, Any], version: str = ""
) -> None:
    message = Replace(
        request_id=str(len(cluster.state.requests)),
        by="ann",
        resource_version=version,
        manifest=document,
    ).wire()
    cluster.check_replace(message)
    InferenceClusterWorkflow.replace(cluster, message)


@pytest.mark.parametrize("annotation", labels.TAKEN_WHILE_DELETING)
def test_deletion_annotations_can_be_changed(
    cluster: InferenceClusterWorkflow, annotation: str
) -> None:
    before = cluster.state.resource_version
    # kubectl stores the applied manifest in an annotation, and the front stores managed
    # fields.
    replace(
        cluster,
        changed(
            cluster,
            {
                annotation: "true",
                labels.LAST_APPLIED: "{}",
                labels.MANAGED_FIELDS: "{}",
            },
        ),
        "6",
    )
    assert cluster.state.annotations == {labels.STACK: "external", annotation: "true"}
    assert (
        cluster.state.events[-1].message == f"changed during the deletion: {annotation}"
    )
    assert cluster.state.resource_version > before
    replace(cluster, changed(cluster, {annotation: "false"}))
    assert cluster.state.annotations[annotation] == "false"


def test_no_other_field_can_be_changed(
    cluster: InferenceClusterWorkflow,
) -> None:
    wanted = changed(cluster, {labels.ABANDON: "true"})
    pool = {**wanted["spec"]["nodePools"][0], "nodeCount": 3}
    refused = [
        changed(cluster, {}),
        changed(cluster, {"note": "another"}),
        changed(cluster, {labels.ABANDON: "true", "note": "another"}),
        changed(cluster, {labels.ABANDON: "true"}, labels={"tier": "gold"}),
        {**wanted, "spec": {**wanted["spec"], "nodePools": [pool]}},
    ]
    for document in refused:
        with pytest.raises(Conflict, match="is being deleted"):
            replace(cluster, document)
    with pytest.raises(Conflict, match="modified since you read it"):
        replace(cluster, wanted, "4")
    replace(cluster, wanted)
    with pytest.raises(Conflict, match="is being deleted"):
        replace(
            cluster,
            changed(cluster, {})
            | {"metadata": {"name": NAME, "annotations": {labels.STACK: "external"}}},
        )
    assert cluster.state.annotations[labels.ABANDON] == "true"


def test_a_class_with_an_unknown_first_run_is_unregistered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, f"inferencecluster/{NAME}")
    temporal.results = {"signal_many": SignalBatchResult()}
    cluster = InferenceClusterWorkflow(
        a_cluster(
            deletion_timestamp="2026-01-01T00:00:00Z",
            classes={"h100-8x": H100},
            registered_classes=["h100-8x"],
        )
    )
    # The first resync of a cluster knows no run of a class yet.
    cluster.on_receivers_lost(["inferenceclass/h100-8x"])
    # A class that was reset to its first task has another uid, and receives the
    # registration of the cluster again.
    another = ClassChanged(
        name="h100-8x", uid="another", generation=1, sequence=1, spec=H100.spec
    )
    cluster.class_changed(another.wire())
    asyncio.run(cluster.classes.unregister_all())
    sent = [request for _, order in temporal.executed for request in order.signals]
    assert [(each.workflow_id, each.signal, each.payload["used"]) for each in sent] == [
        ("inferenceclass/h100-8x", "class_wanted", False)
    ]
