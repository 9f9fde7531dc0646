"""What a cluster publishes of its pools, and what spec and annotations declare."""

from api_types import labels, queues
from tests.workflows.inference_cluster.builders import DEVICES, H100, a_cluster, a_pool, a_spec
from workflows.inference_cluster.classes import published_pools
from workflows.inference_cluster.spec import class_names, connection_of, declared_facts, missing_classes
from workflows.inference_cluster.state import ClusterState

PRICED = H100.model_copy(update={"price_milli": 98_320})


def test_a_pool_is_published_with_the_devices_and_the_price_of_its_class() -> None:
    assert published_pools(a_cluster()) == [{"name": "h100", "nodes": 2, "devices": DEVICES}]
    priced = a_cluster(classes={"h100-8x": PRICED})
    assert published_pools(priced) == [{"name": "h100", "nodes": 2, "devices": DEVICES, "priceMilli": 98_320}]


def test_a_pool_that_can_grow_is_published_with_its_limit() -> None:
    assert published_pools(a_cluster(spec=a_spec(a_pool(maxNodeCount=9))))[0]["nodes"] == 9


def test_a_pool_without_its_class_keeps_what_was_published_with_a_mark() -> None:
    known = published_pools(a_cluster())
    assert published_pools(a_cluster(classes={}, pools=known)) == [{**known[0], "classMissing": True}]
    assert published_pools(a_cluster(classes={})) == []


def test_a_class_counts_once_and_is_missing_until_it_reports() -> None:
    state = a_cluster(spec=a_spec(a_pool("a"), a_pool("b"), a_pool("c", "l40s")))
    assert class_names(state) == ["h100-8x", "l40s"]
    assert missing_classes(state) == ["l40s"]


def test_the_connection_is_the_secret_of_an_existing_cluster() -> None:
    connection = connection_of("eu-1", a_cluster(annotations={labels.TASK_QUEUE: "eu"}))
    assert connection
    assert (connection.name, connection.key, connection.task_queue) == ("eu-1", "kubeconfig", "eu")
    default = connection_of("eu-1", a_cluster())
    assert default
    assert default.task_queue == queues.CLUSTERS
    assert connection_of("eu-1", a_cluster(spec={"cluster": {"source": "GKE"}})) is None
    assert connection_of("eu-1", ClusterState()) is None


def test_annotations_and_spec_declare_facts() -> None:
    assert declared_facts(a_cluster(annotations={labels.ROUTING: "service"})) == {
        "routing": "service",
        "scheduler_type": "none",
        "mesh_provider": "none",
        "storage_class_name": "rwx",
    }
