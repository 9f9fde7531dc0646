"""The whole graph of a GKE cluster at the fake: created, kept, and deleted in reverse
order.

Every step is also interrupted.
"""

import pytest

from fakes.gcp.calls.faults import (
    ConcurrentOperation,
    GcpFault,
    Invisible,
    LateEffect,
    LoseAnswer,
    RevokeCredential,
    Slow,
    TooManyRequests,
)
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import Cloud, a_cloud, run

pytestmark = pytest.mark.slow

KEYS = [
    "api/file",
    "net/vpc",
    "net/subnet",
    "iam/sa",
    "iam/binding",
    "cluster",
    "pool/gpu",
]
CREATES = {
    "api/file": "serviceusage.enable_service",
    "net/vpc": "compute.networks.insert",
    "net/subnet": "compute.subnetworks.insert",
    "iam/sa": "iam.create_service_account",
    "iam/binding": "resourcemanager.projects.set_iam_policy",
    "cluster": "container.create_cluster",
    "pool/gpu": "container.create_node_pool",
}
DELETES = {
    "net/vpc": "compute.networks.delete",
    "net/subnet": "compute.subnetworks.delete",
    "iam/sa": "iam.delete_service_account",
    "iam/binding": "resourcemanager.projects.set_iam_policy",
    "cluster": "container.delete_cluster",
    "pool/gpu": "container.delete_node_pool",
}


@pytest.fixture
def cloud(google: FakeGoogle) -> Cloud:
    return a_cloud(google, a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2))


def assert_whole(cloud: Cloud) -> None:
    """Check that all objects of an undisturbed run exist, and that each was created
    once.
    """
    project, base = cloud.account.project, cloud.base
    account = f"mp-{base.rpartition('-')[2]}@{project}.iam.gserviceaccount.com"
    creations = [
        name for name in cloud.google.ledger().creations() if "/keys/" not in name
    ]
    assert sorted(creations) == sorted(
        [
            f"projects/{project}/global/networks/{base}",
            f"projects/{project}/regions/europe-west4/subnetworks/{base}-nodes",
            f"projects/{project}/serviceAccounts/{account}",
            cloud.cluster_name,
            cloud.pool_name(),
        ]
    )
    assert cloud.google.enabled("file.googleapis.com")
    assert f"serviceAccount:{account}" in cloud.google.members(
        "roles/container.defaultNodeServiceAccount"
    )
    assert [str(cloud.looked(key).state) for key in KEYS] == ["Ready"] * len(KEYS)
    pools = sorted(
        each.name for each in cloud.google.object_of(cloud.cluster_name).node_pools
    ) or sorted(
        name.rpartition("/")[2]
        for name in cloud.google.objects()
        if name.startswith(f"{cloud.cluster_name}/nodePools/")
    )
    assert pools == ["gpu", "system"]


def assert_gone(cloud: Cloud) -> None:
    assert cloud.google.remains() == []
    assert cloud.audit() == []


def test_the_graph_is_created_in_order_and_ready(cloud: Cloud) -> None:
    assert [each.key for each in cloud.objects] == KEYS
    run(cloud.create_all())
    assert_whole(cloud)
    pool = cloud.google.object_of(cloud.pool_name())
    assert dict(pool.config.labels) == {
        "modelplane.ai/gpu": "nvidia-l4",
        "modelplane.ai/pool": "gpu",
        "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
    }
    created = [call for call in cloud.writes() if not call.startswith("oauth2")]
    assert created == [f"{CREATES[key]} OK" for key in KEYS]


def test_a_second_run_changes_nothing(cloud: Cloud) -> None:
    run(cloud.create_all())
    cloud.google.ledger().clear()
    run(cloud.create_all())
    assert cloud.writes() == []


def test_a_restarted_workflow_finds_all_objects_and_creates_none(
    cloud: Cloud,
) -> None:
    run(cloud.create_all())
    other = a_cloud(cloud.google, *cloud.pools)
    cloud.google.ledger().clear()
    run(other.create_all())
    assert [call for call in other.writes() if not call.startswith("oauth2")] == []
    assert other.known == cloud.known


def test_deletion_in_reverse_leaves_nothing(cloud: Cloud) -> None:
    run(cloud.create_all())
    run(cloud.delete_all())
    assert_gone(cloud)
    order = [name.split("/")[-2] for name in cloud.google.ledger().deletions()]
    assert order == [
        "nodePools",
        "clusters",
        "serviceAccounts",
        "subnetworks",
        "networks",
    ]


def test_the_api_stays_enabled(cloud: Cloud) -> None:
    run(cloud.create_all())
    run(cloud.delete_all())
    assert cloud.google.enabled("file.googleapis.com")
    assert cloud.google.ledger().calls("serviceusage.disable_service") == []


def test_a_deletion_without_created_objects_only_reads(cloud: Cloud) -> None:
    run(cloud.delete_all())
    assert [call for call in cloud.writes() if not call.startswith("oauth2")] == []


def test_a_deletion_may_be_repeated(cloud: Cloud) -> None:
    run(cloud.create_all())
    objects = cloud.objects
    run(cloud.delete_all(objects))
    cloud.google.ledger().clear()
    run(cloud.delete_all(objects))
    assert [call for call in cloud.writes() if not call.startswith("oauth2")] == []
    assert_gone(cloud)


# Interrupted steps


@pytest.mark.parametrize("moment", ["before create", "create", "look"])
@pytest.mark.parametrize("key", KEYS)
def test_a_worker_that_dies_in_a_creation_creates_once(
    cloud: Cloud, key: str, moment: str
) -> None:
    cloud.dies[key] = moment
    run(cloud.create_all())
    assert_whole(cloud)
    run(cloud.delete_all())
    assert_gone(cloud)


@pytest.mark.parametrize("moment", ["delete", "look"])
@pytest.mark.parametrize("key", KEYS)
def test_a_worker_that_dies_in_a_deletion_leaves_nothing(
    cloud: Cloud, key: str, moment: str
) -> None:
    run(cloud.create_all())
    cloud.dies[key] = moment
    run(cloud.delete_all())
    assert_gone(cloud)


@pytest.mark.parametrize("how", ["unavailable", "cut"])
@pytest.mark.parametrize("key", KEYS)
def test_a_creation_with_a_lost_response_creates_once(
    cloud: Cloud, key: str, how: str
) -> None:
    fault = (
        LoseAnswer(call=CREATES[key], how="cut")
        if how == "cut"
        else LoseAnswer(call=CREATES[key])
    )
    cloud.google.fault(fault)
    run(cloud.create_all())
    assert cloud.google.faults_left() == []
    assert_whole(cloud)


@pytest.mark.parametrize("key", sorted(DELETES))
def test_a_deletion_with_a_lost_response_leaves_nothing(cloud: Cloud, key: str) -> None:
    run(cloud.create_all())
    cloud.google.fault(LoseAnswer(call=DELETES[key]))
    run(cloud.delete_all())
    assert cloud.google.faults_left() == []
    assert_gone(cloud)


@pytest.mark.parametrize("key", KEYS)
def test_a_throttled_creation_succeeds(cloud: Cloud, key: str) -> None:
    cloud.google.fault(TooManyRequests(call=CREATES[key], times=3))
    run(cloud.create_all())
    assert any(
        report
        for report in cloud.reports
        if "Quota exceeded for quota metric" in report
    )
    assert_whole(cloud)


@pytest.mark.parametrize("key", [key for key in KEYS if key != "api/file"])
def test_a_creation_that_succeeds_after_its_timeout_creates_once(
    cloud: Cloud, key: str
) -> None:
    cloud.google.fault(LateEffect(call=CREATES[key], later=3))
    run(cloud.create_all())
    assert_whole(cloud)


@pytest.mark.parametrize(
    "key", ["net/vpc", "net/subnet", "iam/sa", "cluster", "pool/gpu"]
)
def test_a_created_object_that_is_not_visible_yet_is_not_created_again(
    cloud: Cloud, key: str
) -> None:
    cloud.google.fault(Invisible(call=CREATES[key], reads=3))
    cloud.dies[key] = "create"
    run(cloud.create_all())
    assert_whole(cloud)


DISTURBANCES: list[tuple[str, list[GcpFault]]] = [
    (
        "an upgrade holds the cluster when a pool is created",
        [ConcurrentOperation(call="container.create_node_pool", reads=4)],
    ),
    (
        "an upgrade holds the cluster when it is deleted",
        [ConcurrentOperation(call="container.delete_cluster", reads=4)],
    ),
    (
        "the credential is revoked for some calls",
        [RevokeCredential(call="container.create_cluster", calls=4)],
    ),
    ("slow answers", [Slow(call="container.get_cluster", seconds=0.05, times=3)]),
]


@pytest.mark.parametrize(
    "faults", [row[1] for row in DISTURBANCES], ids=[row[0] for row in DISTURBANCES]
)
def test_a_disturbed_run_ends_like_an_undisturbed_one(
    cloud: Cloud, faults: list[GcpFault]
) -> None:
    cloud.google.fault(*faults)

    async def create() -> None:
        for each in cloud.objects:
            for _ in range(10):
                try:
                    await cloud.ensure(each)
                except Exception as error:
                    if type(error).__name__ != "CredentialsInvalid":
                        raise
                else:
                    break

    run(create())
    assert_whole(cloud)
    run(cloud.delete_all())
    assert_gone(cloud)
    assert cloud.google.faults_left() == []


@pytest.mark.parametrize("key", ["net/vpc", "net/subnet", "iam/sa", "cluster"])
def test_an_object_that_is_being_created_is_deleted_when_possible(
    cloud: Cloud, key: str
) -> None:
    """The response to its creation is lost, and the deletion comes before the next
    observation.
    """
    objects = cloud.objects
    before = objects[: [each.key for each in objects].index(key)]

    async def create_until() -> None:
        for each in before:
            await cloud.ensure(each)
        cloud.google.fault(LoseAnswer(call=CREATES[key]))
        with pytest.raises(Exception, match="connection was lost"):
            await cloud.ensure(cloud.object(key), attempts=1)

    run(create_until())
    run(cloud.delete_all(objects))
    assert_gone(cloud)
    assert len(cloud.google.ledger().calls(CREATES[key], effective=True)) == 1


@pytest.mark.parametrize("key", ["net/vpc", "net/subnet", "cluster", "pool/gpu"])
def test_an_invisible_object_that_is_being_created_is_not_absent(
    key: str,
) -> None:
    """After a crash the next worker finds its operation in the cloud's list, so a
    deletion waits for it.
    """
    with FakeGoogle(reads=6) as google:
        cloud = a_cloud(google, a_pool())
        for each in cloud.objects[: KEYS.index(key)]:
            run(cloud.ensure(each))
        each = cloud.object(key)
        google.fault(Invisible(call=CREATES[key], reads=1))
        cloud.handler(each).create(cloud.wanted(each))
        found = cloud.looked(key)
        assert (str(found.state), "operation" in found.reason) == ("Pending", True)
        run(cloud.delete_all())
        assert_gone(cloud)
