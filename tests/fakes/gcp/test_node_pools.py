"""Node pools of the fake: refusals, exhausted capacity, and changes."""

import pytest
from google.api_core import exceptions
from google.cloud import container_v1
from google.cloud.container_v1 import ClusterManagerClient as Container

from fakes.gcp.fake import FakeGoogle
from tests.fakes.gcp.objects import REGION, a_pool

pytestmark = pytest.mark.slow

_Status = container_v1.NodePool.Status


def created(
    google: FakeGoogle, container: Container, cluster: str, pool: container_v1.NodePool
) -> str:
    operation = container.create_node_pool(parent=cluster, node_pool=pool)
    google.finish()
    assert operation.operation_type.name == "CREATE_NODE_POOL"
    return f"{cluster}/nodePools/{pool.name}"


def test_a_pool_becomes_ready_and_counts_nodes_per_zone(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    name = created(google, container, cluster, a_pool(nodes=2, zones=("a", "b")))
    assert container.get_node_pool(name=name).status == _Status.RUNNING
    assert [
        pool.name for pool in container.list_node_pools(parent=cluster).node_pools
    ] == ["gpu-l4", "system"]
    # Three nodes of the system pool, one in each zone.
    assert container.get_cluster(name=cluster).current_node_count == 3 + 4


def test_a_pool_of_a_cluster_that_is_not_there_is_not_found(
    container: Container, parent: str
) -> None:
    with pytest.raises(exceptions.NotFound):
        container.create_node_pool(parent=f"{parent}/clusters/none", node_pool=a_pool())


def test_a_pool_is_created_once(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    created(google, container, cluster, a_pool())
    with pytest.raises(exceptions.AlreadyExists):
        container.create_node_pool(parent=cluster, node_pool=a_pool())


def _accelerators(kind: str, count: int) -> list[container_v1.AcceleratorConfig]:
    return [
        container_v1.AcceleratorConfig(accelerator_type=kind, accelerator_count=count)
    ]


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (a_pool("GPU"), "must match"),
        (a_pool(zones=("z",)), "is not a zone"),
        (a_pool(zones=("a", "a")), "named twice"),
        (a_pool(machine_type="g9-huge"), "does not exist in zone"),
        (a_pool(accelerators=_accelerators("nvidia-l4", 3)), "are not offered"),
        (a_pool(accelerators=_accelerators("nvidia-b200", 1)), "not supported"),
        (a_pool(labels={"modelplane.ai/gpu": "not valid"}), "node label"),
        (a_pool(image_type="WINDOWS"), "image type"),
        (a_pool(disk_size_gb=5), "at least 10"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pool_that_cannot_be_is_refused(
    container: Container, cluster: str, pool: container_v1.NodePool, text: str
) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=text):
        container.create_node_pool(parent=cluster, node_pool=pool)


def test_counts_per_zone_and_in_total_exclude_each_other(
    container: Container, cluster: str
) -> None:
    pool = a_pool()
    pool.autoscaling = container_v1.NodePoolAutoscaling(
        enabled=True, max_node_count=2, total_max_node_count=4
    )
    with pytest.raises(exceptions.InvalidArgument, match="both"):
        container.create_node_pool(parent=cluster, node_pool=pool)


def test_an_exceeded_quota_has_the_status_of_missing_permissions(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.capacity.set_limit("NVIDIA_L4_GPUS", 1, REGION)
    with pytest.raises(
        exceptions.PermissionDenied,
        match=r"Insufficient regional quota .*NVIDIA_L4_GPUS.* '2.0' and is short '1.0'",
    ):
        container.create_node_pool(parent=cluster, node_pool=a_pool(zones=("a", "b")))
    created(google, container, cluster, a_pool())


def test_the_quota_of_all_gpus_counts_over_regions(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.capacity.set_limit("GPUS_ALL_REGIONS", 0)
    with pytest.raises(exceptions.PermissionDenied, match="GPUS_ALL_REGIONS"):
        container.create_node_pool(parent=cluster, node_pool=a_pool())


def test_a_zone_without_machines_leaves_the_pool_in_error(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    google.capacity.set_stock(f"{REGION}-a", "g2-standard-8", 0)
    operation = container.create_node_pool(parent=cluster, node_pool=a_pool())
    google.finish()
    done = container.get_operation(name=f"{parent}/operations/{operation.name}")
    pool = container.get_node_pool(name=f"{cluster}/nodePools/gpu-l4")
    assert "does not have enough resources available" in done.error.message
    assert (pool.status, pool.conditions[0].code.name) == (
        _Status.ERROR,
        "GCE_STOCKOUT",
    )
    assert (
        container.get_cluster(name=cluster).status
        == container_v1.Cluster.Status.RUNNING
    )
    created(google, container, cluster, a_pool("other", zones=("b",)))


def test_a_pool_gets_its_machines_once_the_zone_has_them(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.capacity.set_stock(f"{REGION}-a", "g2-standard-8", 0)
    name = created(google, container, cluster, a_pool())
    google.capacity.set_stock(f"{REGION}-a", "g2-standard-8", 5)
    pool = container.get_node_pool(name=name)
    assert (pool.status, list(pool.conditions)) == (_Status.RUNNING, [])


def test_a_pool_with_one_zone_without_machines_is_usable(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.capacity.set_stock(f"{REGION}-b", "g2-standard-8", 0)
    name = created(google, container, cluster, a_pool(zones=("a", "b")))
    pool = container.get_node_pool(name=name)
    assert pool.status == _Status.RUNNING_WITH_ERROR
    assert f"{REGION}-b" in pool.status_message


def test_an_upgrade_with_a_spare_machine_needs_that_machine(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    google.capacity.set_stock(f"{REGION}-a", "g2-standard-8", 1)
    name = created(google, container, cluster, a_pool())
    operation = container.update_node_pool(request={"name": name, "node_version": "-"})
    google.finish()
    done = container.get_operation(name=f"{parent}/operations/{operation.name}")
    assert "does not have enough resources available" in done.error.message
    settings = {"strategy": "SURGE", "max_surge": 0, "max_unavailable": 1}
    container.update_node_pool(request={"name": name, "upgrade_settings": settings})
    google.finish()
    operation = container.update_node_pool(request={"name": name, "node_version": "-"})
    google.finish()
    done = container.get_operation(name=f"{parent}/operations/{operation.name}")
    assert done.error.message == ""


def test_machines_of_another_pool_use_up_the_stock(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.capacity.set_stock(f"{REGION}-a", "g2-standard-8", 2)
    created(google, container, cluster, a_pool("one"))
    assert (
        container.get_node_pool(
            name=created(google, container, cluster, a_pool("two"))
        ).status
        == _Status.RUNNING
    )
    assert (
        container.get_node_pool(
            name=created(google, container, cluster, a_pool("three"))
        ).status
        == _Status.ERROR
    )


def test_a_broken_pool_can_only_be_deleted(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.capacity.set_stock(f"{REGION}-a", "g2-standard-8", 0)
    name = created(google, container, cluster, a_pool())
    with pytest.raises(exceptions.FailedPrecondition, match="ERROR"):
        container.set_node_pool_size(request={"name": name, "node_count": 2})
    container.delete_node_pool(name=name)
    google.finish()
    with pytest.raises(exceptions.NotFound):
        container.get_node_pool(name=name)


def test_new_autoscaling_bounds_also_change_the_size(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    name = created(google, container, cluster, a_pool(nodes=3))
    autoscaling = container_v1.NodePoolAutoscaling(
        enabled=True, min_node_count=0, max_node_count=2
    )
    container.set_node_pool_autoscaling(
        request={"name": name, "autoscaling": autoscaling}
    )
    assert container.get_node_pool(name=name).status == _Status.RECONCILING
    google.finish()
    pool = container.get_node_pool(name=name)
    assert (pool.autoscaling.max_node_count, pool.initial_node_count, pool.status) == (
        2,
        2,
        _Status.RUNNING,
    )


@pytest.mark.parametrize(("hidden", "shown"), [(False, 3), (True, 1)])
def test_a_changed_size_may_not_be_visible(
    google: FakeGoogle, container: Container, cluster: str, hidden: bool, shown: int
) -> None:
    name = created(google, container, cluster, a_pool())
    if hidden:
        google.show_first_sizes()
    container.set_node_pool_size(request={"name": name, "node_count": 3})
    google.finish()
    assert container.get_node_pool(name=name).initial_node_count == shown
    assert google.object_of(name).initial_node_count == 3


def test_a_size_beyond_the_quota_is_refused(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    name = created(google, container, cluster, a_pool())
    google.capacity.set_limit("NVIDIA_L4_GPUS", 3, REGION)
    with pytest.raises(exceptions.PermissionDenied, match=r"short '1\.0'"):
        container.set_node_pool_size(request={"name": name, "node_count": 4})
    container.set_node_pool_size(request={"name": name, "node_count": 3})


def test_labels_and_zones_are_replaced_as_a_whole(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    name = created(google, container, cluster, a_pool(labels={"a": "1", "b": "2"}))
    request = {
        "name": name,
        "labels": {"labels": {"b": "3"}},
        "locations": [f"{REGION}-a", f"{REGION}-b"],
    }
    container.update_node_pool(request=request)
    google.finish()
    pool = container.get_node_pool(name=name)
    assert (dict(pool.config.labels), list(pool.locations)) == (
        {"b": "3"},
        [f"{REGION}-a", f"{REGION}-b"],
    )


def test_nodes_are_never_newer_than_the_master(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    name = created(google, container, cluster, a_pool())
    with pytest.raises(exceptions.InvalidArgument, match="greater minor version"):
        container.update_node_pool(request={"name": name, "node_version": "1.36"})


def test_a_release_channel_demands_upgrade_and_repair(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    name = created(google, container, cluster, a_pool())
    with pytest.raises(exceptions.InvalidArgument, match="release channel"):
        container.set_node_pool_management(
            request={"name": name, "management": {"auto_upgrade": True}}
        )


def test_the_creation_of_a_pool_can_be_cancelled(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    operation = container.create_node_pool(parent=cluster, node_pool=a_pool())
    name = f"{parent}/operations/{operation.name}"
    container.cancel_operation(name=name)
    assert container.get_operation(name=name).error.code == 1
    assert f"{cluster}/nodePools/gpu-l4" not in google.objects()
    with pytest.raises(exceptions.FailedPrecondition):
        container.cancel_operation(name=name)
