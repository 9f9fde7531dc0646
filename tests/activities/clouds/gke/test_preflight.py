"""The checks at Google before anything costs money."""

from typing import Any

import pytest

from activities.clouds.gke.preflight import metric_of
from api_types.errors import PermissionDenied
from fakes.gcp.calls.faults import Refuse
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.gke.capacity import METRICS
from tests.activities.clouds.builders import L4, a_pool, classes, reasons, warned
from tests.activities.clouds.gke.cloud import Cloud, a_cloud, run

pytestmark = pytest.mark.slow


def writes(cloud: Cloud) -> list[str]:
    return [call for call in cloud.writes() if not call.startswith("oauth2")]


def test_a_valid_cluster_has_neither_refusals_nor_warnings(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google, a_pool())
    assert (cloud.plan().refused, cloud.plan().warnings, writes(cloud)) == ((), (), [])


H100 = {
    "provider": "GKE",
    "gke": {
        "machineType": "a3-highgpu-8g",
        "accelerator": {"type": "nvidia-h100-80gb", "count": 8},
    },
}
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    (
        "a zone that does not exist",
        {"zones": ["europe-west4-z"]},
        {},
        "pool gpu",
        'zone "europe-west4-z" does not exist',
    ),
    (
        "a version that is not offered",
        {},
        {"kubernetesVersion": "1.40"},
        "",
        'kubernetesVersion "1.40" is not offered in channel REGULAR',
    ),
    (
        "a full version that is not offered",
        {},
        {"kubernetesVersion": "1.35.9-gke.1"},
        "",
        'kubernetesVersion "1.35.9-gke.1" is not',
    ),
]


@pytest.mark.parametrize(
    ("pool", "block", "at", "text"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
def test_invalid_input_for_google_is_refused_before_the_first_creation(
    google: FakeGoogle, pool: dict[str, Any], block: dict[str, Any], at: str, text: str
) -> None:
    cloud = a_cloud(google, a_pool(**pool), **block)
    planned = cloud.plan()
    assert (planned.objects, reasons(planned)[0], writes(cloud)) == (
        (),
        ("InvalidInput", at),
        [],
    )
    assert planned.refused[0].text.startswith(text)


def test_a_region_that_does_not_exist_is_refused(google: FakeGoogle) -> None:
    planned = a_cloud(google, region="europe-north9").plan()
    assert (planned.objects, [each.text for each in planned.refused]) == (
        (),
        ['region "europe-north9" does not exist for project fake-project'],
    )


def test_machines_that_a_zone_does_not_offer_are_refused_with_other_zones(
    google: FakeGoogle,
) -> None:
    google.capacity.remove_machine("europe-west4-a", "g2-standard-8")
    google.capacity.remove_machine("europe-west4-b", "n1-standard-8")
    machines = {
        "provider": "GKE",
        "gke": {
            "machineType": "e2-standard-8",
            "accelerator": {"type": "nvidia-tesla-t4", "count": 1},
        },
    }
    t4 = a_pool("t4", className="t4", zones=["europe-west4-a", "europe-west4-b"])
    cloud = a_cloud(google, a_pool(), t4)
    cloud.classes = classes(t4=machines)
    planned = cloud.plan()
    assert [(each.at, each.text) for each in planned.refused] == [
        (
            "pool gpu",
            (
                "machine type g2-standard-8 is not offered in zone europe-west4-a; "
                "zones europe-west4-b, europe-west4-c offer it"
            ),
        ),
        (
            "pool t4",
            (
                "accelerator nvidia-tesla-t4 is not offered in zone europe-west4-b; "
                "zones europe-west4-c offer it"
            ),
        ),
    ]


def test_machines_that_no_zone_of_the_region_offers_are_refused(
    google: FakeGoogle,
) -> None:
    for letter in "abc":
        google.capacity.remove_machine(f"europe-west4-{letter}", "g2-standard-8")
    planned = a_cloud(google, a_pool()).plan()
    assert [each.text for each in planned.refused] == [
        (
            "machine type g2-standard-8 is not offered in zone europe-west4-a; no other "
            "zone does"
        )
    ]


def test_existing_objects_are_not_checked_again(google: FakeGoogle) -> None:
    """A version that is no longer offered, or a sold-out machine type, does not block a
    running cluster.
    """
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    google.capacity.remove_machine("europe-west4-a", "g2-standard-8")
    google.deny("container.clusters.create")
    assert (cloud.plan().refused, len(cloud.plan().objects)) == ((), 10)


def test_a_refused_new_pool_does_not_block_a_running_cluster(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    cloud.pools = [a_pool(), a_pool("far", zones=["europe-west4-z"]), a_pool("near")]
    planned = cloud.plan()
    assert reasons(planned) == [("InvalidInput", "pool far")]
    assert [each.key for each in planned.objects if each.kind == "NodePool"] == [
        "pool/gpu",
        "pool/near",
    ]


def test_quotas_that_are_too_small_are_a_warning(google: FakeGoogle) -> None:
    google.capacity.set_limit("NVIDIA_L4_GPUS", 1, "europe-west4")
    google.capacity.set_limit("GPUS_ALL_REGIONS", 0)
    planned = a_cloud(google, a_pool(nodeCount=2)).plan()
    assert warned(planned) == [("QuotaExceeded", "pool gpu"), ("QuotaExceeded", "")]
    assert [each.text.partition(";")[0] for each in planned.warnings] == [
        "NVIDIA_L4_GPUS needs 2, has 1 of 1",
        "GPUS_ALL_REGIONS needs 2, has 0 of 0",
    ]
    assert len(planned.objects) == 10


def test_a_pool_that_starts_empty_needs_no_quota(google: FakeGoogle) -> None:
    google.capacity.set_limit("NVIDIA_L4_GPUS", 0, "europe-west4")
    planned = a_cloud(
        google, a_pool(nodeCount=0, minNodeCount=0, maxNodeCount=2)
    ).plan()
    assert planned.warnings == ()


def test_two_pools_of_one_family_need_the_quota_together(google: FakeGoogle) -> None:
    google.capacity.set_limit("NVIDIA_L4_GPUS", 1, "europe-west4")
    planned = a_cloud(google, a_pool("a"), a_pool("b")).plan()
    assert [each.text.partition(",")[0] for each in planned.warnings] == [
        "NVIDIA_L4_GPUS needs 2"
    ]


def test_required_permissions_that_are_missing_are_named(
    google: FakeGoogle,
) -> None:
    google.deny("container.clusters.create", "compute.networks.create")
    with pytest.raises(
        PermissionDenied,
        match=(
            r"lacks compute\.networks\.create, container\.clusters\.create "
            r"in project fake-project"
        ),
    ):
        a_cloud(google).plan()


def test_other_permissions_are_warned_about(google: FakeGoogle) -> None:
    google.deny("serviceusage.services.enable")
    planned = a_cloud(google).plan()
    assert [each.text for each in planned.warnings] == [
        (
            "the credential lacks serviceusage.services.enable in project fake-project; "
            "grant it the custom roles of deploy/clouds/gcp/create.yaml"
        )
    ]


CHECKS = [
    ("container.get_server_config", "the Kubernetes version cannot be checked"),
    ("compute.regions.get", "zones and quotas of the region cannot be checked"),
    ("compute.machine_types.get", "machine types cannot be checked"),
    ("compute.accelerator_types.get", "machine types cannot be checked"),
    ("compute.projects.get", "quota GPUS_ALL_REGIONS cannot be checked"),
    ("resourcemanager.projects.test_iam_permissions", "permissions cannot be checked"),
]


@pytest.mark.parametrize(("call", "text"), CHECKS)
def test_a_check_without_permission_is_a_warning(
    google: FakeGoogle, call: str, text: str
) -> None:
    google.fault(
        Refuse(call=call, code="PERMISSION_DENIED", message="Required permission")
    )
    planned = a_cloud(google, a_pool()).plan()
    assert [each.text.partition(":")[0] for each in planned.warnings] == [text]
    assert (len(planned.objects), google.faults_left()) == (10, [])


@pytest.mark.parametrize(("accelerator", "metric"), sorted(METRICS.items()))
def test_the_quota_of_a_family_is_found_by_its_type(
    accelerator: str, metric: str
) -> None:
    assert metric_of(accelerator) == metric


def test_a_project_other_than_the_credentials_is_a_warning(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    cloud.account = cloud.account.model_copy(update={"project": "other"})
    # The fake has one project. Objects of another one do not exist, or may not be read.
    refused = [
        Refuse(call=call, code="PERMISSION_DENIED", message="no", times=9)
        for call in ("container.*", "resourcemanager.*", "compute.*")
    ]
    google.fault(*refused)
    assert ("ProjectOverridden", "") in warned(cloud.plan())


def test_a_project_that_was_pinned_stays(google: FakeGoogle) -> None:
    planned = a_cloud(google, project="other").plan()
    assert planned.objects == ()
    assert [each.text for each in planned.refused] == [
        (
            "the cluster is in project fake-project and cannot be moved to "
            "other; create another cluster there"
        )
    ]


def test_a_number_of_gpus_that_the_machine_does_not_have_makes_no_pool(
    google: FakeGoogle,
) -> None:
    block = {**L4["gke"], "accelerator": {"type": "nvidia-l4", "count": 4}}  # type: ignore[dict-item]
    cloud = a_cloud(google, a_pool())
    cloud.classes = classes(l4={"provider": "GKE", "gke": block})
    planned = cloud.plan()
    assert [(each.at, each.text) for each in planned.refused] == [
        (
            "pool gpu",
            (
                "machine type g2-standard-8 has 1 nvidia-l4, and the class says 4 "
                "nvidia-l4; correct accelerator or machineType in the class"
            ),
        )
    ]
