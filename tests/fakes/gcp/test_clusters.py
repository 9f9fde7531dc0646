"""Clusters and operations of the fake behave as those of GKE."""

import pytest
from google.api_core import exceptions
from google.cloud import container_v1
from google.cloud.container_v1 import ClusterManagerClient as Container

from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.world import GcpEndpoint
from tests.fakes.gcp.objects import REGION, a_cluster, a_pool, plant_network

pytestmark = pytest.mark.slow

_Status = container_v1.Cluster.Status
_DONE = container_v1.Operation.Status.DONE


def test_a_cluster_is_ready_when_its_operation_was_read_often_enough(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    plant_network(google)
    operation = container.create_cluster(parent=parent, cluster=a_cluster())
    name = f"{parent}/clusters/prod"
    statuses = [
        container.get_operation(name=f"{parent}/operations/{operation.name}").status
        for _ in range(2)
    ]
    assert (operation.status, statuses) == (
        container_v1.Operation.Status.PENDING,
        [container_v1.Operation.Status.RUNNING, _DONE],
    )
    ready = container.get_cluster(name=name)
    assert (
        ready.status,
        [pool.name for pool in ready.node_pools],
        ready.current_master_version,
    ) == (
        _Status.RUNNING,
        ["system"],
        "1.35.4-gke.1500",
    )


def test_reads_of_the_cluster_count_too(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    plant_network(google)
    container.create_cluster(parent=parent, cluster=a_cluster())
    statuses = [
        container.get_cluster(name=f"{parent}/clusters/prod").status for _ in range(2)
    ]
    assert statuses == [_Status.PROVISIONING, _Status.RUNNING]


def test_a_cluster_without_pools_gets_the_default_pool(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    plant_network(google)
    container.create_cluster(
        parent=parent, cluster=a_cluster(node_pools=[], initial_node_count=1)
    )
    assert [
        pool.name
        for pool in container.get_cluster(name=f"{parent}/clusters/prod").node_pools
    ] == ["default-pool"]


def test_a_name_is_taken_once(container: Container, parent: str, cluster: str) -> None:
    with pytest.raises(exceptions.AlreadyExists, match=cluster):
        container.create_cluster(parent=parent, cluster=a_cluster())


def test_a_missing_object_is_not_found(container: Container, parent: str) -> None:
    for call in (container.get_cluster, container.delete_cluster):
        with pytest.raises(exceptions.NotFound, match="clusters/none"):
            call(name=f"{parent}/clusters/none")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "Prod"}, "must match"),
        ({"name": "p" * 41}, "must match"),
        ({"initial_cluster_version": "1.20"}, "unsupported"),
        ({"network": "none"}, "Network"),
        ({"subnetwork": "none"}, "Subnetwork"),
        ({"initial_node_count": 1}, "Only one of"),
        ({"node_pools": []}, "greater than zero"),
        ({"resource_labels": {"modelplane.ai/owner": "x"}}, "label"),
        ({"node_pools": [a_pool(machine_type="g9-huge")]}, "does not exist in zone"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(
    google: FakeGoogle,
    container: Container,
    parent: str,
    fields: dict[str, object],
    text: str,
) -> None:
    plant_network(google)
    before = google.objects()
    with pytest.raises(exceptions.InvalidArgument, match=text):
        container.create_cluster(parent=parent, cluster=a_cluster(**fields))
    assert google.objects() == before


def test_a_cluster_beyond_a_quota_is_refused(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    plant_network(google)
    google.capacity.set_limit("IN_USE_ADDRESSES", 2, REGION)
    with pytest.raises(exceptions.PermissionDenied, match="IN_USE_ADDRESSES"):
        container.create_cluster(parent=parent, cluster=a_cluster())


def test_an_unknown_region_is_refused(google: FakeGoogle, container: Container) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=r"Location .mars-1."):
        container.create_cluster(
            parent=f"projects/{google.project}/locations/mars-1", cluster=a_cluster()
        )


def test_an_operation_on_the_cluster_refuses_others_until_it_is_done(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.begin_operation(cluster, reads=3)
    with pytest.raises(
        exceptions.FailedPrecondition, match="running incompatible operation operation-"
    ) as caught:
        container.create_node_pool(parent=cluster, node_pool=a_pool("one"))
    assert caught.value.reason == "CLUSTER_ALREADY_HAS_OPERATION"
    google.finish()
    container.create_node_pool(parent=cluster, node_pool=a_pool("one"))


def test_operations_on_different_pools_run_beside_each_other(
    container: Container, cluster: str
) -> None:
    for number in range(5):
        container.create_node_pool(parent=cluster, node_pool=a_pool(f"p{number}"))
    with pytest.raises(exceptions.ResourceExhausted, match="operations quota 5"):
        container.create_node_pool(parent=cluster, node_pool=a_pool("more"))
    with pytest.raises(exceptions.FailedPrecondition, match="incompatible operation"):
        container.delete_node_pool(name=f"{cluster}/nodePools/p0")


def test_calling_again_and_again_comes_through(
    container: Container, cluster: str
) -> None:
    container.create_node_pool(parent=cluster, node_pool=a_pool("one"))
    for _ in range(2):
        with pytest.raises(exceptions.FailedPrecondition):
            container.delete_cluster(name=cluster)
    container.delete_cluster(name=cluster)


def test_a_cluster_that_an_upgrade_holds_is_found_with_its_operation(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    name = google.begin_operation(cluster, reads=3)
    assert container.get_cluster(name=cluster).status == _Status.RECONCILING
    running = [
        each
        for each in container.list_operations(parent=parent).operations
        if each.status != _DONE
    ]
    assert [
        (
            f"{parent}/operations/{each.name}",
            each.operation_type.name,
            each.target_link.endswith("/clusters/prod"),
        )
        for each in running
    ] == [(name, "UPGRADE_MASTER", True)]
    assert container.get_operation(name=name).status == _DONE
    assert container.get_cluster(name=cluster).status == _Status.RUNNING


def test_operations_of_all_locations_are_listed(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    assert cluster
    assert [
        each.operation_type.name
        for each in container.list_operations(
            parent=f"projects/{google.project}/locations/-"
        ).operations
    ] == ["CREATE_CLUSTER"]


def test_deletion_takes_the_pools_and_googles_firewall_rule(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    assert any("/firewalls/gke-prod-" in name for name in google.objects())
    container.delete_cluster(name=cluster)
    assert container.get_cluster(name=cluster).status == _Status.STOPPING
    google.finish()
    assert [
        name for name in google.remains() if "prod" not in name.rpartition("/")[2]
    ] == []
    assert [
        name for name in google.remains() if "clusters" in name or "firewalls" in name
    ] == []


def test_clusters_are_listed_by_location(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    assert cluster
    assert [each.name for each in container.list_clusters(parent=parent).clusters] == [
        "prod"
    ]
    assert [
        each.name
        for each in container.list_clusters(
            parent=f"projects/{google.project}/locations/-"
        ).clusters
    ] == ["prod"]
    assert not container.list_clusters(
        parent=f"projects/{google.project}/locations/us-east4"
    ).clusters


def test_an_update_has_exactly_one_field(container: Container, cluster: str) -> None:
    update = container_v1.ClusterUpdate(
        desired_master_version="1.36", desired_node_version="1.36"
    )
    with pytest.raises(exceptions.InvalidArgument, match="Exactly one"):
        container.update_cluster(request={"name": cluster, "update": update})


@pytest.mark.parametrize(
    ("version", "text"), [("1.34", "downgraded"), ("1.30", "unsupported")]
)
def test_a_version_that_cannot_be_is_refused(
    container: Container, cluster: str, version: str, text: str
) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=text):
        container.update_cluster(
            request={"name": cluster, "update": {"desired_master_version": version}}
        )


def test_one_minor_version_at_a_time(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    plant_network(google)
    container.create_cluster(
        parent=parent, cluster=a_cluster(initial_cluster_version="1.34")
    )
    google.finish()
    name = f"{parent}/clusters/prod"
    with pytest.raises(exceptions.InvalidArgument, match="one minor version"):
        container.update_cluster(
            request={"name": name, "update": {"desired_master_version": "1.36"}}
        )
    container.update_cluster(
        request={"name": name, "update": {"desired_master_version": "1.35"}}
    )
    google.finish()
    upgraded = container.get_cluster(name=name)
    assert (upgraded.current_master_version, upgraded.node_pools[0].version) == (
        "1.35.4-gke.1500",
        "1.34.6-gke.1200",
    )


def test_labels_are_replaced_with_the_fingerprint_that_was_read(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    fingerprint = container.get_cluster(name=cluster).label_fingerprint
    request = {
        "name": cluster,
        "resource_labels": {"a": "b"},
        "label_fingerprint": fingerprint,
    }
    container.set_labels(request=request)
    google.finish()
    assert dict(container.get_cluster(name=cluster).resource_labels) == {"a": "b"}
    with pytest.raises(exceptions.FailedPrecondition, match="fingerprint"):
        container.set_labels(request=request)


def test_versions_are_offered_per_location(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    config = container.get_server_config(name=parent)
    assert (config.channels[0].channel.name, config.valid_master_versions[0]) == (
        "REGULAR",
        "1.36.2-gke.1000",
    )
    with pytest.raises(exceptions.InvalidArgument):
        container.get_server_config(name=f"projects/{google.project}/locations/mars-1")


def test_a_ready_cluster_answers_with_the_api_server_that_was_connected(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    asked: list[str] = []

    def new_endpoint(cluster: str) -> GcpEndpoint:
        asked.append(cluster)
        return GcpEndpoint("127.0.0.1:6443", "Y2EtcGVt")

    google.connect(new_endpoint)
    plant_network(google)
    container.create_cluster(parent=parent, cluster=a_cluster())
    name = f"{parent}/clusters/prod"
    assert container.get_cluster(name=name).endpoint == ""
    ready = [container.get_cluster(name=name) for _ in range(2)]
    assert [
        (each.endpoint, each.master_auth.cluster_ca_certificate) for each in ready
    ] == [("127.0.0.1:6443", "Y2EtcGVt")] * 2
    assert asked == [name]
