"""Leftovers of a GKE cluster are found by evidence, and only the cluster's own are
deleted.
"""

from typing import Any

import pytest
from google.cloud import filestore_v1

from api_types.errors import Dependency, ServerError
from api_types.messages.clouds import Leftover
from fakes.gcp.calls.faults import (
    DependencyRefuses,
    Kind,
    Leak,
    OperationFails,
)
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.troubles import begin
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import Cloud, a_cloud, run

pytestmark = pytest.mark.slow

COMPUTE = "https://www.googleapis.com/compute/v1"


@pytest.fixture
def cloud(google: FakeGoogle) -> Cloud:
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    return cloud


def of_kind(found: list[Leftover], kind: str) -> list[Leftover]:
    return [each for each in found if each.kind == kind]


def network_of(cloud: Cloud) -> str:
    return f"{COMPUTE}/projects/{cloud.account.project}/global/networks/{cloud.base}"


def without_key(cloud: Cloud) -> list[Leftover]:
    """Return the leftovers without planned objects."""
    return [each for each in cloud.audit() if not each.key]


LOAD_BALANCER = {
    "ForwardingRule",
    "TargetPool",
    "HttpHealthCheck",
    "Firewall",
    "Address",
}
LEAKS: list[tuple[Kind, set[str]]] = [
    ("forwarding_rule", LOAD_BALANCER),
    ("firewall", {"Firewall"}),
    ("address", {"Address"}),
    ("backend_service", {"BackendService"}),
    ("neg", {"NetworkEndpointGroup"}),
    ("disk", {"Disk"}),
    ("filestore", {"FilestoreInstance"}),
]


@pytest.mark.parametrize(("kind", "kinds"), LEAKS, ids=[row[0] for row in LEAKS])
def test_leftovers_of_a_cluster_are_deleted_and_then_the_network(
    cloud: Cloud, kind: Kind, kinds: set[str]
) -> None:
    cloud.google.fault(Leak(kind=kind))
    objects = cloud.objects
    run(cloud.delete(cloud.object("cluster")))
    left = without_key(cloud)
    assert ({each.kind for each in left}, {each.ours for each in left}) == (
        kinds,
        {True},
    )
    assert all(
        each.link.endswith("?project=fake-project") and each.evidence for each in left
    )
    cloud.sweep()
    cloud.google.finish()
    assert without_key(cloud) == []
    run(cloud.delete_all(objects))
    assert (cloud.google.remains(), cloud.audit()) == ([], [])


@pytest.mark.parametrize("swept", range(6))
def test_a_load_balancer_is_found_after_an_interrupted_deletion(
    cloud: Cloud, swept: int
) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    objects = cloud.objects
    run(cloud.delete(cloud.object("cluster")))
    for each in without_key(cloud)[:swept]:
        cloud.provider.sweep(cloud.order, each)
    assert cloud.sweep() == []
    assert without_key(cloud) == []
    run(cloud.delete_all(objects))
    assert cloud.google.remains() == []


def test_a_firewall_rule_stays_while_other_leftovers_are_found_through_it(
    cloud: Cloud,
) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    for each in of_kind(cloud.audit(), "Firewall"):
        with pytest.raises(
            Dependency,
            match=r"identifies load balancers of the cluster, and ForwardingRule .* still exists",
        ):
            cloud.provider.sweep(cloud.order, each)
    assert len(of_kind(cloud.audit(), "Firewall")) == 2


def test_the_deletion_of_a_target_pools_health_check_is_awaited(
    cloud: Cloud,
) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    message = "resource is already being used by 'x'"
    cloud.google.fault(
        OperationFails(
            call="compute.http_health_checks.delete",
            code="FAILED_PRECONDITION",
            message=message,
        )
    )
    rule, pool, check, *_ = cloud.audit()
    for each in (rule, pool):
        cloud.provider.sweep(cloud.order, each)
    with pytest.raises(Dependency, match="already being used by 'x'"):
        cloud.provider.sweep(cloud.order, check)
    cloud.provider.sweep(cloud.order, check)
    assert check.id not in cloud.google.objects()


def test_a_health_check_of_target_pools_is_found_among_many(cloud: Cloud) -> None:
    for number in range(100):
        cloud.google.plant(
            f"projects/fake-project/global/httpHealthChecks/a{number}",
            description="of others",
        )
    _, _, check, *_ = cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    assert [each.id for each in of_kind(cloud.audit(), "HttpHealthCheck")] == [check]


def test_a_load_balancer_is_found_while_its_cluster_exists(
    cloud: Cloud,
) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    assert {each.kind for each in without_key(cloud)} == LOAD_BALANCER
    assert cloud.sweep() == []
    assert without_key(cloud) == []


def test_a_network_with_a_forwarding_rule_waits_and_names_it(
    cloud: Cloud,
) -> None:
    cloud.google.fault(Leak(kind="firewall"))
    objects = cloud.objects
    for key in ("pool/gpu", "cluster", "net/subnet"):
        run(cloud.delete(next(each for each in objects if each.key == key)))
    with pytest.raises(Dependency, match="k8s-fw-"):
        run(cloud.delete(objects[1], attempts=2))


def test_leftovers_are_in_the_order_of_deletion(cloud: Cloud) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    kinds = [each.kind for each in cloud.audit()]
    assert kinds == [
        "ForwardingRule",
        "TargetPool",
        "HttpHealthCheck",
        "Address",
        "Firewall",
        "Firewall",
        "Cluster",
        "Subnetwork",
        "Network",
        "ServiceAccount",
        "IAM binding",
    ]


def test_planned_objects_are_found_by_their_marks_with_their_keys(cloud: Cloud) -> None:
    assert [each.key for each in cloud.audit()] == [
        "cluster",
        "net/subnet",
        "net/vpc",
        "iam/sa",
        "iam/binding",
    ]
    cloud.sweep()
    assert len(cloud.audit()) == 5, "what has a key is deleted by its handler"


def test_objects_missing_in_the_inventory_are_found_by_their_marks_and_deleted(
    cloud: Cloud,
) -> None:
    lost = a_cloud(cloud.google)
    assert [each.key for each in lost.audit()] == [
        "cluster",
        "net/subnet",
        "net/vpc",
        "iam/sa",
        "iam/binding",
    ]
    refused: list[str] = []
    for _ in range(6):
        refused += lost.sweep()
    assert any("is being deleted" in each for each in refused), (
        "what is being deleted does not count as gone"
    )
    assert (lost.audit(), cloud.google.remains()) == ([], [])


# Objects of others


def an_instance(cloud: Cloud, name: str = "bastion", **fields: Any) -> str:
    path = f"projects/{cloud.account.project}/zones/europe-west4-a/instances/{name}"
    return cloud.google.plant(
        path, networkInterfaces=[{"network": network_of(cloud)}], **fields
    )


def test_foreign_objects_in_the_network_are_listed_and_never_deleted(
    cloud: Cloud,
) -> None:
    google, project = cloud.google, cloud.account.project
    region = f"projects/{project}/regions/europe-west4"
    network = network_of(cloud)
    planted = [
        an_instance(cloud),
        google.plant(
            f"projects/{project}/global/firewalls/allow-ssh",
            network=network,
            description="ours",
        ),
        google.plant(f"{region}/routers/nat", network=network),
        google.plant(f"projects/{project}/global/routes/to-office", network=network),
        google.plant(
            f"{region}/subnetworks/more", network=network, ipCidrRange="10.9.0.0/24"
        ),
        google.plant(f"{region}/forwardingRules/internal", network=network),
        google.plant(f"{region}/backendServices/internal", network=network),
        google.plant(f"{region}/addresses/internal", network=network),
        google.plant(
            f"projects/{project}/zones/europe-west4-a/networkEndpointGroups/mine",
            network=network,
        ),
    ]
    foreign = [each for each in cloud.audit() if not each.ours]
    assert sorted(each.id for each in foreign) == sorted(planted)
    assert {each.evidence for each in foreign} == {
        f"in network {cloud.base}, created by others"
    }
    google.ledger().clear()
    cloud.sweep()
    assert google.ledger().deletions() == []
    assert set(planted) <= set(google.objects())


def test_foreign_objects_block_the_deletion_of_the_network(cloud: Cloud) -> None:
    objects, instance = cloud.objects, an_instance(cloud)
    for each in reversed(objects[2:]):
        run(cloud.delete(each))
    with pytest.raises(Dependency, match="bastion"):
        run(cloud.delete(objects[1], attempts=2))
    cloud.google.remove(instance)
    run(cloud.delete_all(objects))
    assert cloud.google.remains() == []


OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "a forwarding rule of another cluster",
        "regions/europe-west4/forwardingRules/a1",
        {"description": '{"kubernetes.io/service-name":"a/b"}'},
    ),
    (
        "a target pool of another cluster",
        "regions/europe-west4/targetPools/a1",
        {"description": '{"kubernetes.io/service-name":"a/b"}'},
    ),
    (
        "an address of another cluster",
        "regions/europe-west4/addresses/a1",
        {"description": '{"kubernetes.io/service-name":"a/b"}'},
    ),
    (
        "a firewall rule of another network",
        "global/firewalls/k8s-fw-a1",
        {"network": f"{COMPUTE}/projects/fake-project/global/networks/default"},
    ),
    (
        "a disk of another cluster",
        "zones/europe-west4-a/disks/pvc-1",
        {"labels": {"goog-k8s-cluster-name": "other"}},
    ),
    ("a disk without a label", "zones/europe-west4-a/disks/pvc-2", {}),
    ("a disk that no claim made", "zones/europe-west4-a/disks/data", {}),
    (
        "an instance of another network",
        "zones/europe-west4-a/instances/i",
        {"networkInterfaces": [{"network": "global/networks/default"}]},
    ),
    (
        "a health check of another cluster",
        "global/healthChecks/k8s2-a1",
        {"description": '{"kubernetes.io/service-name":"a/b"}'},
    ),
    (
        "a network whose name ends like ours",
        "global/firewalls/k8s-fw-a2",
        {"network": "projects/fake-project/global/networks/not-"},
    ),
]


@pytest.mark.parametrize(
    ("path", "fields"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS]
)
def test_unrelated_objects_of_others_are_not_listed(
    cloud: Cloud, path: str, fields: dict[str, Any]
) -> None:
    cloud.google.plant(f"projects/fake-project/{path}", **fields)
    cloud.google.plant_leftover(cloud.cluster_name, "forwarding_rule")
    assert [each.id for each in cloud.audit() if each.id.endswith(path)] == []


def test_two_clusters_in_one_project_sweep_only_their_own(cloud: Cloud) -> None:
    google = cloud.google
    other = a_cloud(google)
    other.account = other.account.model_copy(
        update={"cluster_uid": "b7a1f2d4-0000-4000-8000-000000000000"}
    )
    cluster = google.object_of(cloud.cluster_name)
    twin = type(cluster)(cluster)
    twin.name = twin.network = other.base
    google.plant_message(
        f"projects/fake-project/locations/europe-west4/clusters/{other.base}", twin
    )
    google.plant(f"projects/fake-project/global/networks/{other.base}", description="x")
    planted = google.plant_leftover(
        f"projects/fake-project/locations/europe-west4/clusters/{other.base}",
        "forwarding_rule",
    )
    cloud.sweep()
    assert set(planted) <= set(google.objects())
    assert {each.id for each in without_key(other)} == set(planted)


USERS = '{"kubernetes.io/service-name":"shop/web"}'


def a_load_balancer(
    cloud: Cloud, name: str, *, nodes_of: str = "", network: bool = True
) -> list[str]:
    """Create a user's Service with its load balancer. `nodes_of` names a cluster."""
    region, top = (
        "projects/fake-project/regions/europe-west4",
        "projects/fake-project/global",
    )
    google, there = cloud.google, {"network": network_of(cloud)} if network else {}
    zone = f"{COMPUTE}/projects/fake-project/zones/europe-west4-a"
    check = google.plant(f"{top}/httpHealthChecks/{name}-check", description=USERS)
    nodes = (
        {"instances": [f"{zone}/instances/gke-{nodes_of}-gpu-1"]} if nodes_of else {}
    )
    pool = google.plant(
        f"{region}/targetPools/{name}",
        healthChecks=[f"{COMPUTE}/{check}"],
        description=USERS,
        **nodes,
    )
    address = google.plant(
        f"{region}/addresses/{name}", description=USERS, address="203.0.113.99"
    )
    firewall = google.plant(
        f"{top}/firewalls/k8s-fw-{name}", network=network_of(cloud), description=USERS
    )
    rule = google.plant(
        f"{region}/forwardingRules/{name}",
        target=f"{COMPUTE}/{pool}",
        IPAddress=f"{COMPUTE}/{address}",
        description=USERS,
        **there,
    )
    return [rule, pool, check, firewall, address]


@pytest.mark.parametrize("network", [True, False])
def test_load_balancers_of_users_are_listed_unless_the_cluster_was_emptied(
    cloud: Cloud, network: bool
) -> None:
    planted = a_load_balancer(cloud, "a1", nodes_of=cloud.base, network=network)
    assert {each.id: each.ours for each in without_key(cloud)} == dict.fromkeys(
        planted, False
    )
    assert all(each.link for each in without_key(cloud))
    cloud.sweep()
    assert set(planted) <= set(cloud.google.objects())
    cloud.emptied = True
    assert {each.id: each.ours for each in without_key(cloud)} == dict.fromkeys(
        planted, True
    )
    cloud.sweep()
    assert without_key(cloud) == []


def test_firewall_rules_for_health_checks_of_users_are_listed(cloud: Cloud) -> None:
    a_load_balancer(cloud, "a1", nodes_of=cloud.base)
    name = "projects/fake-project/global/firewalls/k8s-a1-check-http-hc"
    cloud.google.plant(name, network=network_of(cloud), description=USERS)
    assert [each.ours for each in without_key(cloud) if each.id == name] == [False]
    cloud.emptied = True
    assert [each.ours for each in without_key(cloud) if each.id == name] == [True]
    cloud.sweep()
    assert without_key(cloud) == []


@pytest.mark.parametrize("emptied", [False, True])
def test_volumes_of_users_claims_are_listed_and_kept(
    cloud: Cloud, emptied: bool
) -> None:
    cloud.emptied = emptied
    claim = '{"kubernetes.io/created-for/pvc/name":"data"}'
    disk = "projects/fake-project/zones/europe-west4-a/disks/pvc-1"
    cloud.google.plant(
        disk, labels={"goog-k8s-cluster-name": cloud.base}, description=claim
    )
    share = "projects/fake-project/locations/europe-west4-a/instances/pvc-2"
    marks = {
        "kubernetes_io_created-for_pvc_name": "data",
        "storage_gke_io_created-by": "filestore_csi_storage_gke_io",
    }
    network = filestore_v1.NetworkConfig(network=cloud.base)
    cloud.google.plant_message(
        share, filestore_v1.Instance(name=share, networks=[network], labels=marks)
    )
    assert {each.id: each.ours for each in without_key(cloud)} == {
        disk: False,
        share: False,
    }
    assert all(
        each.link and "claim data" in each.evidence for each in without_key(cloud)
    )
    cloud.sweep()
    assert {disk, share} <= set(cloud.google.objects())


@pytest.mark.parametrize("nodes_of", ["other-0a1b2c3d", ""])
def test_a_firewall_rule_with_a_load_balancers_name_does_not_make_it_ours(
    cloud: Cloud, nodes_of: str
) -> None:
    cloud.emptied = True
    rule, pool, check, firewall, address = a_load_balancer(
        cloud, "b1", nodes_of=nodes_of, network=False
    )
    other = cloud.google.plant("projects/fake-project/global/healthChecks/theirs")
    forged = cloud.google.plant(
        "projects/fake-project/global/firewalls/theirs-http-hc",
        network=network_of(cloud),
        description=USERS,
    )
    assert {each.id for each in without_key(cloud)} == {firewall, forged}
    cloud.sweep()
    assert {rule, pool, check, address, other} <= set(cloud.google.objects())


def test_a_health_check_that_another_load_balancer_uses_is_listed_and_blocks_no_deletion(
    cloud: Cloud,
) -> None:
    cloud.emptied = True
    _, _, check, *_ = a_load_balancer(cloud, "a1", nodes_of=cloud.base)
    region = "projects/fake-project/regions/europe-west4"
    cloud.google.plant(
        f"{region}/targetPools/b1",
        healthChecks=[f"{COMPUTE}/{check}"],
        description=USERS,
    )
    (found,) = of_kind(cloud.audit(), "HttpHealthCheck")
    assert (found.ours, found.evidence) == (False, "something else uses it")


def test_a_subnet_with_our_mark_under_another_name_is_foreign(cloud: Cloud) -> None:
    region = "projects/fake-project/regions/europe-west4"
    mark = cloud.google.object_of(f"{region}/subnetworks/{cloud.base}-nodes")[
        "description"
    ]
    inside = cloud.google.plant(
        f"{region}/subnetworks/copy", network=network_of(cloud), description=mark
    )
    elsewhere = f"{COMPUTE}/projects/fake-project/global/networks/x"
    cloud.google.plant(
        f"{region}/subnetworks/{cloud.base}-other", network=elsewhere, description=mark
    )
    assert [
        (each.id, each.ours)
        for each in of_kind(cloud.audit(), "Subnetwork")
        if not each.key
    ] == [(inside, False)]


# Single kinds


def test_gkes_firewall_rules_are_leftovers_after_the_cluster_is_gone(
    cloud: Cloud,
) -> None:
    assert of_kind(cloud.audit(), "Firewall") == []
    network = network_of(cloud)
    cloud.google.plant(
        f"projects/fake-project/global/firewalls/gke-{cloud.base}-0a1b2c3d-vms",
        network=network,
    )
    run(cloud.delete(cloud.object("cluster")))
    assert [
        each.id.rpartition("/")[2] for each in of_kind(cloud.audit(), "Firewall")
    ] == [f"gke-{cloud.base}-0a1b2c3d-vms"]
    cloud.sweep()
    assert of_kind(cloud.audit(), "Firewall") == []


def test_gkes_routes_are_leftovers_after_the_cluster_is_gone_and_network_routes_never(
    cloud: Cloud,
) -> None:
    network, top = network_of(cloud), "projects/fake-project/global/routes"
    own = cloud.google.plant(f"{top}/default-route-0a1b2c3d", network=network)
    route = cloud.google.plant(f"{top}/gke-{cloud.base}-0a1b2c3d", network=network)
    assert of_kind(cloud.audit(), "Route") == []
    run(cloud.delete(cloud.object("cluster")))
    assert [each.id for each in of_kind(cloud.audit(), "Route")] == [route]
    cloud.sweep()
    assert own in cloud.google.objects()
    assert of_kind(cloud.audit(), "Route") == []


def test_a_cluster_without_its_label_is_still_found_and_keeps_gkes_firewall_rules(
    cloud: Cloud,
) -> None:
    del cloud.google.object_of(cloud.cluster_name).resource_labels["modelplane-owner"]
    cloud.google.plant(
        f"projects/fake-project/global/firewalls/gke-{cloud.base}-0a1b2c3d-vms",
        network=network_of(cloud),
    )
    found = cloud.audit()
    assert of_kind(found, "Firewall") == []
    (cluster,) = of_kind(found, "Cluster")
    assert (cluster.ours, cluster.key, cluster.evidence.partition(" ")[0]) == (
        True,
        "cluster",
        "description",
    )


def test_a_disk_that_is_attached_stays(cloud: Cloud) -> None:
    name = "projects/fake-project/zones/europe-west4-a/disks/pvc-1"
    cloud.google.plant(
        name,
        labels={"goog-k8s-cluster-name": cloud.base},
        description='{"kubernetes.io/created-for/pvc/name":"modelcache-1"}',
        users=[f"{COMPUTE}/projects/fake-project/zones/europe-west4-a/instances/i"],
    )
    (disk,) = of_kind(cloud.audit(), "Disk")
    with pytest.raises(Dependency, match="is attached to"):
        cloud.provider.sweep(cloud.order, disk)
    assert name in cloud.google.objects()


def test_nodes_belong_to_the_cluster_while_it_exists(cloud: Cloud) -> None:
    an_instance(
        cloud, f"gke-{cloud.base}-gpu-1", labels={"goog-k8s-cluster-name": cloud.base}
    )
    assert of_kind(cloud.audit(), "Instance") == []
    run(cloud.delete(cloud.object("cluster")))
    assert [each.ours for each in of_kind(cloud.audit(), "Instance")] == [False]


def test_a_filestore_instance_without_a_claim_is_only_named(cloud: Cloud) -> None:
    name = "projects/fake-project/locations/europe-west4-a/instances/share"
    cloud.google.plant_message(
        name,
        filestore_v1.Instance(
            name=name, networks=[filestore_v1.NetworkConfig(network=cloud.base)]
        ),
    )
    assert [each.ours for each in of_kind(cloud.audit(), "FilestoreInstance")] == [
        False
    ]
    cloud.sweep()
    assert name in cloud.google.objects()


def test_without_the_api_of_filestore_there_are_no_instances(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    assert not google.enabled("file.googleapis.com")
    assert cloud.audit() == []


def test_a_deleted_account_leaves_no_member_behind(cloud: Cloud) -> None:
    """The account is deleted before its binding."""
    cloud.google.plant_member(
        "roles/container.defaultNodeServiceAccount",
        "deleted:serviceAccount:mp-other@fake-project.iam.gserviceaccount.com?uid=1",
    )
    run(cloud.delete(cloud.object("iam/sa")))
    (member,) = of_kind(cloud.audit(), "PolicyMember")
    assert "deleted:serviceAccount:mp-" in member.id
    cloud.sweep()
    assert cloud.google.members("roles/container.defaultNodeServiceAccount") == [
        "deleted:serviceAccount:mp-other@fake-project.iam.gserviceaccount.com?uid=1"
    ]


def test_a_leftover_in_use_is_not_deleted(cloud: Cloud) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "firewall")
    cloud.google.fault(DependencyRefuses(call="compute.firewalls.delete", times=1))
    (firewall,) = of_kind(cloud.audit(), "Firewall")
    with pytest.raises(Dependency, match="already being used by"):
        cloud.provider.sweep(cloud.order, firewall)
    cloud.provider.sweep(cloud.order, firewall)
    assert of_kind(cloud.audit(), "Firewall") == []


def test_a_deletion_that_fails_later_is_reported(cloud: Cloud) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "firewall")
    cloud.google.fault(
        OperationFails(
            call="compute.firewalls.delete",
            code="FAILED_PRECONDITION",
            message="resource is already being used by 'x'",
        )
    )
    (firewall,) = of_kind(cloud.audit(), "Firewall")
    with pytest.raises(Dependency, match="already being used by 'x'"):
        cloud.provider.sweep(cloud.order, firewall)


def test_foreign_objects_are_never_swept(cloud: Cloud) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "firewall")
    (firewall,) = of_kind(cloud.audit(), "Firewall")
    cloud.provider.sweep(cloud.order, firewall.model_copy(update={"ours": False}))
    assert len(of_kind(cloud.audit(), "Firewall")) == 1


def test_an_incomplete_list_does_not_count_as_no_leftovers(cloud: Cloud) -> None:
    cloud.google.plant_leftover(cloud.cluster_name, "filestore")
    end = begin("incomplete lists", cloud.google)
    with pytest.raises(ServerError, match=r"no answer from .*europe-west4-a"):
        cloud.audit()
    end()
    assert len(of_kind(cloud.audit(), "FilestoreInstance")) == 1
