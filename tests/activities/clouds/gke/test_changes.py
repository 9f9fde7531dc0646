"""An existing GKE cluster: changes of its manifest, and changes of others."""

from collections.abc import Iterator
from typing import Any

import pytest

from activities.clouds.lifecycle.handler import State
from api_types.errors import (
    NameConflict,
    NotYet,
    OwnerMarkMissing,
    ReplaceRequired,
)
from api_types.sections.clouds import GkeSettings
from fakes.gcp.calls.faults import (
    EtagRace,
    ForeignOwner,
    HalfDeleted,
    Refuse,
)
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool, classes
from tests.activities.clouds.gke.cloud import (
    Cloud,
    a_cloud,
    changes,
    cluster_of,
    pool_of,
    run,
)

pytestmark = pytest.mark.slow

L4_NODES: dict[str, Any] = {
    "machineType": "g2-standard-8",
    "diskSizeGb": 200,
    "accelerator": {"type": "nvidia-l4", "count": 1},
}
ZONES = ["europe-west4-a", "europe-west4-b"]


def test_the_creation_does_not_call_the_api_that_was_just_enabled(
    google: FakeGoogle,
) -> None:
    """Filestore reports itself as disabled for some minutes.

    The driver in the cluster retries claims.
    """
    run(a_cloud(google, a_pool()).create_all())
    assert google.enabled("file.googleapis.com")
    assert google.ledger().calls("filestore.*") == []


# Counts


def test_a_pool_in_two_zones_starts_two_nodes(google: FakeGoogle) -> None:
    cloud = a_cloud(
        google, a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2, zones=ZONES)
    )
    assert [each.text for each in cloud.plan().warnings] == [
        (
            "GKE counts nodes per zone: 2 zones start 2 nodes and have at "
            "most 4; the scheduler counts 2"
        )
    ]
    run(cloud.create_all())
    assert (pool_of(cloud).initial_node_count, list(pool_of(cloud).locations)) == (
        1,
        ZONES,
    )


def test_a_pool_without_a_maximum_has_a_fixed_size(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool(nodeCount=2))
    run(cloud.create_all())
    assert (pool_of(cloud).autoscaling.enabled, pool_of(cloud).initial_node_count) == (
        False,
        2,
    )


def test_another_maximum_is_one_call_and_the_size_stays(ready: Cloud) -> None:
    ready.pools = [a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=6)]
    run(ready.create_all())
    assert changes(ready) == ["container.set_node_pool_autoscaling"]
    assert (
        pool_of(ready).autoscaling.max_node_count,
        pool_of(ready).initial_node_count,
    ) == (6, 1)


def test_counts_of_all_zones_together_are_changed_as_such(
    google: FakeGoogle,
) -> None:
    settings = GkeSettings.model_validate({"countScope": "total"})
    cloud = a_cloud(
        google, a_pool(minNodeCount=0, maxNodeCount=4, zones=ZONES), settings=settings
    )
    run(cloud.create_all())
    cloud.pools = [a_pool(minNodeCount=1, maxNodeCount=5, zones=ZONES)]
    run(cloud.create_all())
    scaling = pool_of(cloud).autoscaling
    assert (
        scaling.total_min_node_count,
        scaling.total_max_node_count,
        scaling.max_node_count,
    ) == (1, 5, 0)


def test_a_fixed_size_is_set_and_an_autoscaled_one_never(ready: Cloud) -> None:
    ready.pools = [a_pool(nodeCount=3, minNodeCount=0, maxNodeCount=4)]
    run(ready.create_all())
    assert changes(ready) == []
    ready.pools = [a_pool(nodeCount=3)]
    run(ready.create_all())
    assert changes(ready) == [
        "container.set_node_pool_autoscaling",
        "container.set_node_pool_size",
    ]
    assert (pool_of(ready).autoscaling.enabled, pool_of(ready).initial_node_count) == (
        False,
        3,
    )


def test_a_fixed_size_that_gke_does_not_show_is_set_once(ready: Cloud) -> None:
    ready.google.show_first_sizes()
    for size in (3, 1, 2):
        ready.pools = [a_pool(nodeCount=size)]
        run(ready.create_all())
        assert pool_of(ready).initial_node_count == size
        ready.google.ledger().clear()
        # Each check for drift uses the facts of the previous one.
        for _ in range(2):
            run(ready.create_all())
        assert changes(ready) == []


def test_a_fixed_size_changed_by_another_user_is_restored(ready: Cloud) -> None:
    ready.pools = [a_pool(nodeCount=3)]
    run(ready.create_all())
    ready.google.ledger().clear()
    pool_of(ready).initial_node_count = 5
    run(ready.create_all())
    assert changes(ready) == ["container.set_node_pool_size"]


def test_sizes_set_by_the_autoscaler_are_not_a_difference(ready: Cloud) -> None:
    pool_of(ready).initial_node_count = 3
    run(ready.create_all())
    assert changes(ready) == []


# Mutable and immutable fields


def test_zones_are_changed_in_place(ready: Cloud) -> None:
    ready.pools = [a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=4, zones=ZONES)]
    run(ready.create_all())
    assert changes(ready) == ["container.update_node_pool"]
    assert list(pool_of(ready).locations) == ZONES


def test_labels_are_restored_and_foreign_labels_stay(ready: Cloud) -> None:
    pool_of(ready).config.labels = {"modelplane.ai/pool": "other", "team": "a"}
    run(ready.create_all())
    assert dict(pool_of(ready).config.labels) == {
        "modelplane.ai/gpu": "nvidia-l4",
        "modelplane.ai/pool": "gpu",
        "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
        "team": "a",
    }


FIXED: list[tuple[str, dict[str, Any], str]] = [
    (
        "machine",
        {"machineType": "g2-standard-12"},
        "machineType is g2-standard-8, not g2-standard-12",
    ),
    ("disk", {"diskSizeGb": 300}, "diskSizeGb is 200, not 300"),
    (
        "accelerator",
        {
            "machineType": "g2-standard-24",
            "accelerator": {"type": "nvidia-l4", "count": 2},
        },
        "accelerator is 1 nvidia-l4",
    ),
]


@pytest.mark.parametrize(
    ("change", "text"), [row[1:] for row in FIXED], ids=[row[0] for row in FIXED]
)
def test_an_immutable_difference_is_reported_without_a_call(
    ready: Cloud, change: dict[str, Any], text: str
) -> None:
    ready.classes = classes(l4={"provider": "GKE", "gke": L4_NODES | change})
    with pytest.raises(ReplaceRequired, match="cannot be changed in place") as caught:
        run(ready.create_all())
    assert text in caught.value.message
    assert changes(ready) == []
    ready.classes = classes()
    run(ready.create_all())
    assert changes(ready) == []


def test_the_filestore_driver_is_enabled_again(ready: Cloud) -> None:
    cluster_of(ready).addons_config.gcp_filestore_csi_driver_config.enabled = False
    run(ready.create_all())
    assert changes(ready) == ["container.update_cluster"]
    assert cluster_of(ready).addons_config.gcp_filestore_csi_driver_config.enabled


# Versions


def versions(cloud: Cloud) -> list[str]:
    return [
        cluster_of(cloud).current_master_version,
        pool_of(cloud, "system").version,
        pool_of(cloud).version,
    ]


def test_a_new_version_goes_to_the_control_plane_first(ready: Cloud) -> None:
    ready.block = {"kubernetesVersion": "1.36"}
    run(ready.create_all())
    assert changes(ready) == [
        "container.update_cluster",
        "container.update_node_pool",
        "container.update_node_pool",
    ]
    assert versions(ready) == ["1.36.2-gke.1000"] * 3


def test_pools_follow_a_control_plane_that_the_channel_upgraded(
    ready: Cloud,
) -> None:
    cluster_of(ready).current_master_version = "1.36.1-gke.2000"
    run(ready.create_all())
    assert changes(ready) == []
    ready.block = {"kubernetesVersion": "1.36"}
    run(ready.create_all())
    assert changes(ready) == [
        "container.update_node_pool",
        "container.update_node_pool",
    ]
    assert versions(ready) == ["1.36.1-gke.2000"] * 3


def test_one_minor_at_a_time(google: FakeGoogle) -> None:
    cloud = a_cloud(google, kubernetesVersion="1.34")
    run(cloud.create_all())
    cloud.block = {"kubernetesVersion": "1.36"}
    run(cloud.create_all())
    steps = [
        call.request["update"]["desired_master_version"]
        for call in google.ledger().calls("container.update_cluster", effective=True)
    ]
    assert steps == ["1.35", "1.36"]


def test_a_version_is_never_lowered(ready: Cloud) -> None:
    ready.block = {"kubernetesVersion": "1.34"}
    planned = ready.plan()
    assert [each.text for each in planned.refused] == [
        'kubernetesVersion "1.34" is below "1.35": a cluster cannot be downgraded'
    ]
    assert (planned.objects, changes(ready)) == ((), [])


# Changes of others


def test_a_pool_that_was_deleted_by_hand_is_created_again(ready: Cloud) -> None:
    ready.google.remove(ready.pool_name())
    assert ready.looked("pool/gpu").state is State.ABSENT
    run(ready.create_all())
    assert changes(ready) == ["container.create_node_pool"]


def test_a_system_pool_that_was_deleted_by_hand_is_created_again(ready: Cloud) -> None:
    ready.google.remove(ready.pool_name("system"))
    run(ready.create_all())
    assert changes(ready) == ["container.create_node_pool"]
    assert dict(pool_of(ready, "system").config.labels) == {
        "modelplane.ai/pool": "system"
    }


def test_a_cluster_that_was_deleted_by_hand_is_observed_as_absent(ready: Cloud) -> None:
    ready.google.remove(ready.cluster_name)
    assert ready.looked("cluster").state is State.ABSENT


def test_a_cluster_of_another_owner_is_not_changed(google: FakeGoogle) -> None:
    cloud = a_cloud(google)
    google.fault(ForeignOwner(call="container.create_cluster"))
    with pytest.raises(NameConflict, match="it has no label modelplane-owner"):
        run(cloud.create_all())
    run(cloud.delete(cloud.object("cluster")))
    assert google.ledger().calls("container.delete_cluster") == []
    assert cloud.cluster_name in google.objects()


@pytest.mark.parametrize(
    ("key", "call"),
    [
        ("net/vpc", "compute.networks.insert"),
        ("net/subnet", "compute.subnetworks.insert"),
        ("iam/sa", "iam.create_service_account"),
        ("pool/gpu", "container.create_node_pool"),
    ],
)
def test_a_namesake_of_another_owner_is_neither_changed_nor_deleted(
    google: FakeGoogle, key: str, call: str
) -> None:
    cloud = a_cloud(google, a_pool())
    google.fault(ForeignOwner(call=call))
    with pytest.raises(NameConflict, match="does not belong to this cluster"):
        run(cloud.create_all())
    before = google.objects()
    if key == "iam/sa":
        # Nobody else has a reason to use its name.
        with pytest.raises(
            OwnerMarkMissing, match="gcloud iam service-accounts update"
        ):
            run(cloud.delete(cloud.object(key)))
    else:
        assert run(cloud.delete(cloud.object(key))).state is State.FOREIGN
    assert google.objects() == before


def test_a_known_pool_without_labels_waits_for_them(ready: Cloud) -> None:
    pool = pool_of(ready)
    before = dict(pool.config.resource_labels)
    pool.config.resource_labels = {"team": "x"}
    pairs = ",".join(f"{key}={before[key]}" for key in sorted(before)) + ",team=x"
    with pytest.raises(OwnerMarkMissing, match=f"--labels={pairs}`"):
        run(ready.delete(ready.object("pool/gpu")))
    assert ready.google.ledger().calls("container.delete_node_pool") == []
    pool.config.resource_labels = {"team": "x", **before}
    assert run(ready.delete(ready.object("pool/gpu"))).state is State.ABSENT


def test_a_recreated_cluster_does_not_conflict_with_the_earlier_one(
    ready: Cloud,
) -> None:
    other = a_cloud(ready.google, *ready.pools)
    other.account = other.account.model_copy(
        update={"cluster_uid": "b7a1f2d4-0000-4000-8000-000000000000"}
    )
    assert other.base != ready.base
    assert [each for each in other.audit() if each.ours] == []


def test_a_pool_waits_for_an_upgrade_that_runs(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool())
    for each in cloud.objects[:-1]:
        run(cloud.ensure(each))
    google.begin_operation(cloud.cluster_name, "UPGRADE_MASTER", reads=4)
    run(cloud.ensure(cloud.object("pool/gpu")))
    assert any("(UPGRADE_MASTER) runs" in report for report in cloud.reports)
    assert [
        call.outcome for call in google.ledger().calls("container.create_node_pool")
    ] == ["OK"]


def test_a_change_waits_for_an_upgrade_that_runs(ready: Cloud) -> None:
    ready.google.begin_operation(ready.cluster_name, "UPGRADE_MASTER", reads=6)
    ready.pools = [a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=6)]
    run(ready.ensure(ready.object("pool/gpu")))
    assert [
        call.outcome
        for call in ready.google.ledger().calls("container.set_node_pool_autoscaling")
    ] == ["OK"]


def test_a_pool_without_its_cluster_waits(ready: Cloud) -> None:
    each = ready.object("pool/gpu")
    ready.google.remove(ready.cluster_name)
    with pytest.raises(NotYet):
        run(ready.ensure(each, attempts=1))


# Identities


def test_a_race_for_the_policy_keeps_the_other_member(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    google.fault(EtagRace(call="resourcemanager.projects.set_iam_policy", times=2))
    google.plant_member(
        "roles/container.defaultNodeServiceAccount", "user:admin@example.com"
    )
    run(cloud.create_all())
    members = google.members("roles/container.defaultNodeServiceAccount")
    assert ("user:admin@example.com" in members, len(members)) == (True, 2)
    assert google.members("roles/viewer") == ["user:other@example.com"]
    outcomes = [
        call.outcome
        for call in google.ledger().calls("resourcemanager.projects.set_iam_policy")
    ]
    assert outcomes == ["ABORTED", "ABORTED", "OK"]


def test_an_account_that_the_policy_does_not_know_yet_is_awaited(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    refusal = Refuse(
        call="resourcemanager.projects.set_iam_policy",
        code="INVALID_ARGUMENT",
        message="Service account mp does not exist.",
        times=3,
    )
    google.fault(refusal)
    run(cloud.create_all())
    assert google.faults_left() == []


def test_no_key_is_ever_created(google: FakeGoogle) -> None:
    google.bar_keys()
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    assert google.ledger().calls("iam.*key*") == []


def test_the_binding_goes_before_the_account(ready: Cloud) -> None:
    run(ready.delete_all())
    assert ready.google.members("roles/container.defaultNodeServiceAccount") == []
    assert ready.audit() == []


# Deletion


def test_deleting_a_cluster_deletes_its_pools(ready: Cloud) -> None:
    run(ready.delete(ready.object("cluster")))
    assert str(ready.looked("pool/gpu").state) == "Absent"


def test_a_cluster_whose_deletion_failed_half_way_is_deleted_again(
    ready: Cloud,
) -> None:
    ready.google.fault(HalfDeleted())
    run(ready.delete_all())
    assert ready.google.remains() == []


def test_a_cluster_is_deleted_after_its_creation_has_ended(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    for each in cloud.objects[:-1]:
        run(cloud.ensure(each))
    each = cloud.object("cluster")
    handler = cloud.handler(each)
    handler.create(cloud.wanted(each))
    run(cloud.delete_all())
    assert google.remains() == []
    assert len(google.ledger().calls("container.create_cluster", effective=True)) == 1


@pytest.fixture
def slow() -> Iterator[FakeGoogle]:
    """A cloud with slow operations."""
    with FakeGoogle(reads=40) as google:
        yield google


def being_created(google: FakeGoogle, *pools: dict[str, Any]) -> Cloud:
    """A cluster whose last pool is being created."""
    cloud = a_cloud(google, *pools)
    for each in cloud.objects[:-1]:
        google.finish()
        run(cloud.ensure(each))
    google.finish()
    each = cloud.objects[-1]
    cloud.handler(each).create(cloud.wanted(each))
    return cloud


def cancels(google: FakeGoogle) -> list[str]:
    return [
        call.outcome for call in google.ledger().calls("container.cancel_operation")
    ]


@pytest.mark.parametrize("key", ["pool/gpu", "cluster"])
def test_the_creation_of_a_pool_is_cancelled_when_it_or_its_cluster_is_deleted(
    slow: FakeGoogle, key: str
) -> None:
    cloud = being_created(slow, a_pool())
    run(cloud.delete(cloud.object(key)))
    assert cancels(slow) == ["OK"]
    run(cloud.delete_all())
    assert slow.remains() == []


def test_the_creation_of_another_pool_is_not_cancelled(slow: FakeGoogle) -> None:
    cloud = being_created(slow, a_pool(), a_pool("other"))
    run(cloud.delete(cloud.object("pool/gpu")))
    assert cancels(slow) == []
    assert cloud.pool_name("other") in slow.objects()


@pytest.mark.parametrize(
    "code", ["FAILED_PRECONDITION", "PERMISSION_DENIED", "NOT_FOUND", "UNIMPLEMENTED"]
)
def test_a_creation_that_cannot_be_cancelled_is_awaited(
    slow: FakeGoogle, code: str
) -> None:
    cloud = being_created(slow, a_pool())
    slow.fault(
        Refuse(
            call="container.cancel_operation",
            code=code,
            message="it cannot be cancelled",
        )
    )
    run(cloud.delete(cloud.object("cluster")))
    assert len(cancels(slow)) == 1
    assert cloud.cluster_name not in slow.objects()
