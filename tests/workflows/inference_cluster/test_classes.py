"""The pools that a cluster publishes, and the facts that spec and annotations declare."""

import asyncio

import pytest

from api_types import labels, queues
from api_types.messages.cluster_work import Connect
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import ClassChanged
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import (
    DEVICES,
    H100,
    a_cluster,
    a_pool,
    a_spec,
)
from workflows.inference_class import ClassState, InferenceClassWorkflow
from workflows.inference_cluster.classes import published_pools
from workflows.inference_cluster.spec import (
    class_names,
    connect_order,
    connection_of,
    declared_facts,
    missing_classes,
)
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.workflow import InferenceClusterWorkflow

PRICED = H100.model_copy(update={"price_milli": 98_320})


def test_a_pool_is_published_with_the_devices_and_the_price_of_its_class() -> None:
    assert published_pools(a_cluster()) == [
        {"name": "h100", "nodes": 2, "devices": DEVICES}
    ]
    priced = a_cluster(classes={"h100-8x": PRICED})
    assert published_pools(priced) == [
        {"name": "h100", "nodes": 2, "devices": DEVICES, "priceMilli": 98_320}
    ]


@pytest.mark.parametrize(
    ("counts", "nodes"),
    [
        ({"nodeCount": 2, "maxNodeCount": 4}, 4),
        ({"nodeCount": 0}, 0),
        ({"nodeCount": 0, "maxNodeCount": 3}, 3),
        ({}, 1),
    ],
    ids=[
        "it can grow",
        "it has none",
        "it can grow from none",
        "nothing is said",
    ],
)
def test_a_pool_is_published_with_its_maximum_node_count(
    counts: dict[str, int], nodes: int
) -> None:
    pool = {"name": "h100", "className": "h100-8x", **counts}
    assert [
        each["nodes"] for each in published_pools(a_cluster(spec=a_spec(pool)))
    ] == [nodes]


def test_a_pool_without_its_class_keeps_its_published_values_with_a_mark() -> None:
    known = published_pools(a_cluster())
    assert published_pools(a_cluster(classes={}, pools=known)) == [
        {**known[0], "classMissing": True}
    ]
    assert published_pools(a_cluster(classes={})) == []


def test_a_class_counts_once_and_is_missing_until_it_reports() -> None:
    state = a_cluster(spec=a_spec(a_pool("a"), a_pool("b"), a_pool("c", "l40s")))
    assert class_names(state) == ["h100-8x", "l40s"]
    assert missing_classes(state) == ["l40s"]


def test_the_connection_is_the_secret_of_an_existing_cluster() -> None:
    connection = connection_of("eu-1", a_cluster(annotations={labels.TASK_QUEUE: "eu"}))
    assert connection
    assert (connection.name, connection.key, connection.task_queue) == (
        "eu-1",
        "kubeconfig",
        "eu",
    )
    default = connection_of("eu-1", a_cluster())
    assert default
    assert default.task_queue == queues.CLUSTERS
    assert connection_of("eu-1", a_cluster(spec={"cluster": {"source": "GKE"}})) is None
    assert connection_of("eu-1", ClusterState()) is None


def test_the_required_permissions_depend_on_annotations() -> None:
    state = a_cluster(
        annotations={labels.CAPACITY_ADAPTER: "kube", labels.SCHEDULER_TYPE: "kueue"}
    )
    connection = connection_of("eu-1", state)
    assert connection
    assert connect_order(connection, state) == Connect(
        connection=connection, capacity_adapter="kube", scheduler_type="kueue"
    )
    assert connect_order(connection, a_cluster()) == Connect(connection=connection)


def test_annotations_and_spec_declare_facts() -> None:
    assert declared_facts(a_cluster(annotations={labels.ROUTING: "service"})) == {
        "routing": "service",
        "scheduler_type": "none",
        "mesh_provider": "none",
        "storage_class_name": "rwx",
    }


def test_a_cluster_registers_again_with_a_class_of_another_uid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "inferencecluster/eu-1")
    cluster = InferenceClusterWorkflow(
        a_cluster(classes={"h100-8x": H100}, registered_classes=["h100-8x"])
    )
    report = ClassChanged(name="h100-8x", uid=H100.uid, generation=2, spec=H100.spec)
    cluster.class_changed(report.wire())
    assert cluster.state.registered_classes == ["h100-8x"]
    # The class was terminated and applied again, so its generations start at one.
    cluster.class_changed(
        report.model_copy(update={"uid": "another", "generation": 1}).wire()
    )
    assert cluster.state.registered_classes == []
    assert (
        cluster.state.classes["h100-8x"].uid,
        cluster.state.classes["h100-8x"].generation,
    ) == ("another", 1)


def test_a_late_report_of_a_class_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    Serverless(monkeypatch, "inferencecluster/eu-1")
    cluster = InferenceClusterWorkflow(a_cluster(classes={}))
    reports = [
        ClassChanged(
            name="h100-8x",
            uid="u",
            generation=number,
            spec={"devices": [{**DEVICES[0], "count": number}]},
        )
        for number in (1, 2)
    ]
    for report in (reports[1], reports[0]):
        cluster.class_changed(report.wire())
    assert cluster.state.classes["h100-8x"].spec == reports[1].spec
    # A new price makes no new generation.
    cluster.class_changed(reports[1].model_copy(update={"price_milli": 5}).wire())
    assert cluster.state.classes["h100-8x"].price_milli == 5


async def test_a_new_price_is_reported_once_to_the_clusters_of_the_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferenceclass/h100-8x")
    temporal.results = {"signal_many": SignalBatchResult(missing=[])}
    known = {"generation": 1, "observed_generation": 1, "reported_generation": 1}
    state = ClassState(
        uid="k",
        spec=H100.spec,
        clusters=["eu-1"],
        annotations={labels.PRICE_PER_NODE_HOUR: "98.32"},
        **known,
    )
    entity = InferenceClassWorkflow(state)
    for _ in range(2):
        await entity.report_changes()
    ((_, batch),) = temporal.executed
    (sent,) = batch.signals
    assert (sent.workflow_id, sent.signal, sent.payload["priceMilli"]) == (
        "inferencecluster/eu-1",
        "class_changed",
        98_320,
    )


async def test_a_cluster_reports_to_the_scheduler_before_any_broadcast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferencecluster/eu-1")
    temporal.results = {"signal_many": SignalBatchResult(), "broadcast": 10_000}
    await InferenceClusterWorkflow(a_cluster()).reporter.report_all()
    assert [name for name, _ in temporal.executed] == [
        "signal_many",
        "broadcast",
        "broadcast",
    ]
    assert temporal.executed[0][1].signals[0].signal == "report_cluster"


async def test_a_class_reports_to_the_scheduler_before_the_broadcast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferenceclass/h100-8x")
    temporal.results = {"signal": True, "broadcast": 10_000}
    state = ClassState(uid="k", spec=H100.spec, generation=1)
    await InferenceClassWorkflow(state).report_changes()
    assert [name for name, _ in temporal.executed] == ["signal", "broadcast"]
    assert temporal.executed[0][1].signal == "report_class"


async def test_a_change_just_before_the_deletion_reaches_the_users_of_a_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferenceclass/h100-8x")
    temporal.results = {"signal": True, "signal_many": SignalBatchResult()}
    state = ClassState(
        uid="k",
        spec=H100.spec,
        generation=2,
        reported_generation=1,
        observed_generation=1,
        deletion_timestamp="2026-01-01T00:00:00Z",
        clusters=["eu-1"],
    )
    entity = InferenceClassWorkflow(state)
    assert not await entity.tear_down()
    assert [name for name, _ in temporal.executed] == ["signal", "signal_many"]
    assert not await entity.tear_down()
    assert len(temporal.executed) == 2


def test_an_activity_rather_than_a_timer_waits_for_a_missing_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferencecluster/eu-1")
    missing = SignalBatchResult(missing=["inferenceclass/h100-8x"])
    temporal.results = {"signal_many": missing, "await_running": "a run"}
    cluster = InferenceClusterWorkflow(a_cluster(classes={}))

    async def passes() -> None:
        cluster.context.queued = False
        await cluster.classes.follow()
        # A further pass does not query again while the wait runs.
        await cluster.classes.follow()
        assert (
            [name for name, _ in temporal.executed],
            cluster.context.requeue_time,
        ) == (["signal_many"], None)
        while not cluster.context.queued:  # noqa: ASYNC110 - no event says that it holds
            await asyncio.sleep(0)

    asyncio.run(passes())
    assert [name for name, _ in temporal.executed] == ["signal_many", "await_running"]
