"""The objects of GKE clusters with their parameters, and refusals."""

from typing import Any

import pytest

from api_types.sections.clouds import GkeSettings
from tests.activities.clouds.builders import (
    G6,
    PROJECT,
    a_pool,
    call_of,
    classes,
    gke,
    keys,
    object_of,
    reasons,
    warned,
)

TEN = [
    "api/file",
    "net/vpc",
    "net/subnet",
    "iam/sa",
    "iam/binding",
    "cluster",
    "pool/gpu",
    "conn",
    "nodes/system",
    "sc",
]
NEEDS = {
    "api/file": (),
    "net/vpc": (),
    "net/subnet": ("net/vpc",),
    "iam/sa": (),
    "iam/binding": ("iam/sa",),
    "cluster": ("net/subnet", "iam/sa"),
    "pool/gpu": ("cluster",),
    "conn": ("cluster",),
    "nodes/system": ("conn",),
    "sc": ("conn", "net/vpc", "api/file"),
}


NODE_ACCOUNT = f"{object_of(gke(), 'iam/sa').name}@{PROJECT}.iam.gserviceaccount.com"
WEEKEND = {
    "window": {
        "recurring_window": {
            "window": {
                "start_time": "2024-01-06T03:00:00Z",
                "end_time": "2024-01-06T11:00:00Z",
            },
            "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
        }
    }
}


def test_a_cluster_with_one_pool_is_ten_objects() -> None:
    made = gke(a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2))
    assert keys(made) == TEN
    assert {each.key: each.needs for each in made.objects} == NEEDS
    assert (made.refused, made.warnings) == ((), ())


def test_the_cluster_comes_with_its_system_pool_and_no_other() -> None:
    given = call_of(gke(a_pool()), "cluster", "create_cluster")
    base = object_of(gke(), "cluster").name
    assert given["parent"] == f"projects/{PROJECT}/locations/europe-west4"
    cluster = given["cluster"]
    (system,) = cluster.pop("node_pools")
    del (
        cluster["resource_labels"],
        cluster["description"],
        system["config"]["resource_labels"],
    )
    assert cluster == {
        "name": base,
        "initial_cluster_version": "1.35",
        "release_channel": {"channel": "REGULAR"},
        "network": base,
        "subnetwork": f"{base}-nodes",
        "ip_allocation_policy": {
            "use_ip_aliases": True,
            "cluster_secondary_range_name": "pods",
            "services_secondary_range_name": "services",
        },
        "workload_identity_config": {"workload_pool": f"{PROJECT}.svc.id.goog"},
        "addons_config": {"gcp_filestore_csi_driver_config": {"enabled": True}},
        "maintenance_policy": WEEKEND,
    }
    assert system == {
        "name": "system",
        "initial_node_count": 1,
        "autoscaling": {"enabled": True, "min_node_count": 1, "max_node_count": 2},
        "config": {
            "machine_type": "e2-standard-4",
            "image_type": "COS_CONTAINERD",
            "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            "service_account": NODE_ACCOUNT,
            "labels": {"modelplane.ai/pool": "system"},
        },
        "management": {"auto_upgrade": True, "auto_repair": True},
    }


def test_a_gpu_pool_has_the_labels_by_which_it_is_found_and_scaled() -> None:
    pool = call_of(
        gke(a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2)),
        "pool/gpu",
        "create_node_pool",
    )["node_pool"]
    del pool["config"]["resource_labels"]
    assert pool == {
        "name": "gpu",
        "initial_node_count": 1,
        "autoscaling": {"enabled": True, "min_node_count": 0, "max_node_count": 2},
        "locations": ["europe-west4-a"],
        "config": {
            "machine_type": "g2-standard-8",
            "disk_size_gb": 200,
            "image_type": "COS_CONTAINERD",
            "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            "service_account": NODE_ACCOUNT,
            "accelerators": [
                {
                    "accelerator_type": "nvidia-l4",
                    "accelerator_count": 1,
                    "gpu_driver_installation_config": {"gpu_driver_version": "DEFAULT"},
                }
            ],
            "labels": {
                "modelplane.ai/gpu": "nvidia-l4",
                "modelplane.ai/pool": "gpu",
                "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
            },
        },
        "management": {"auto_upgrade": True, "auto_repair": True},
        "upgrade_settings": {
            "strategy": "SURGE",
            "max_surge": 0,
            "max_unavailable": 1,
        },
    }


def test_the_network_has_the_ranges_of_the_settings() -> None:
    given = call_of(gke(), "net/subnet", "insert_unary")
    subnet = given["subnetwork_resource"]
    assert (given["project"], given["region"], subnet["ip_cidr_range"]) == (
        PROJECT,
        "europe-west4",
        "10.0.0.0/24",
    )
    assert subnet["secondary_ip_ranges"] == [
        {"range_name": "pods", "ip_cidr_range": "10.1.0.0/16"},
        {"range_name": "services", "ip_cidr_range": "10.2.0.0/16"},
    ]
    other = gke(settings=GkeSettings.model_validate({"nodeCidr": "172.16.0.0/22"}))
    assert (
        call_of(other, "net/subnet", "insert_unary")["subnetwork_resource"][
            "ip_cidr_range"
        ]
        == "172.16.0.0/22"
    )


def test_a_repeated_call_is_recognized_where_the_cloud_has_a_field_for_it() -> None:
    made = gke()
    assert [
        call_of(made, key, "insert_unary")["request_id"]
        for key in ("net/vpc", "net/subnet")
    ] == ["1b671a64-40d5-491e-99b0-da01ff1f3341"] * 2


def test_claims_of_caches_are_in_the_network_of_the_cluster() -> None:
    made = gke()
    manifest = call_of(made, "sc", "apply")["manifest"]
    assert (manifest["metadata"]["name"], manifest["provisioner"]) == (
        "modelplane-rwx",
        "filestore.csi.storage.gke.io",
    )
    assert manifest["parameters"] == {
        "tier": "enterprise",
        "network": object_of(made, "net/vpc").name,
    }
    assert (
        manifest["volumeBindingMode"],
        manifest["allowVolumeExpansion"],
        manifest["reclaimPolicy"],
    ) == ("Immediate", True, "Delete")
    assert "annotations" not in manifest["metadata"]


def test_the_account_of_nodes_has_only_the_rights_of_a_node() -> None:
    given = call_of(gke(), "iam/binding", "set_iam_policy")
    role = "roles/container.defaultNodeServiceAccount"
    assert given["policy"] == {
        "bindings": [{"role": role, "members": [f"serviceAccount:{NODE_ACCOUNT}"]}]
    }


def test_an_account_of_the_users_needs_no_other_account_and_no_binding() -> None:
    email = "nodes@acme-ml.iam.gserviceaccount.com"
    made = gke(a_pool(), nodeServiceAccount=email)
    cluster = call_of(made, "cluster", "create_cluster")["cluster"]
    pool = call_of(made, "pool/gpu", "create_node_pool")["node_pool"]
    assert [key for key in TEN if key not in keys(made)] == ["iam/sa", "iam/binding"]
    assert [
        each["config"]["service_account"] for each in (*cluster["node_pools"], pool)
    ] == [email, email]


WINDOWS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    (
        {"startTime": "22:30", "hours": 4},
        {"start_time": "2024-01-01T22:30:00Z", "end_time": "2024-01-02T02:30:00Z"},
        "FREQ=DAILY",
    ),
    (
        {"startTime": "00:00", "hours": 12, "days": ["Wednesday"]},
        {"start_time": "2024-01-03T00:00:00Z", "end_time": "2024-01-03T12:00:00Z"},
        "FREQ=WEEKLY;BYDAY=WE",
    ),
]


@pytest.mark.parametrize(("window", "times", "recurrence"), WINDOWS)
def test_a_maintenance_window_recurs_as_the_manifest_says(
    window: dict[str, Any], times: dict[str, str], recurrence: str
) -> None:
    exclusion = {
        "name": "launch",
        "start": "2026-12-01T00:00:00Z",
        "end": "2026-12-15T00:00:00Z",
    }
    made = gke(maintenance={"window": window, "exclusions": [exclusion]})
    given = call_of(made, "cluster", "create_cluster")["cluster"]
    assert given["maintenance_policy"] == {
        "window": {
            "recurring_window": {"window": times, "recurrence": recurrence},
            "maintenance_exclusions": {
                "modelplane-launch": {
                    "start_time": "2026-12-01T00:00:00Z",
                    "end_time": "2026-12-15T00:00:00Z",
                    "maintenance_exclusion_options": {"scope": "NO_UPGRADES"},
                }
            },
        }
    }


MAINTENANCE: list[tuple[dict[str, Any], str]] = [
    (
        {"window": {"startTime": "03:00", "hours": 8, "days": ["Sunday"]}},
        (
            "maintenance.window has 32 hours in 32 days, and GKE requires 48: add days or "
            "hours"
        ),
    ),
    (
        {
            "exclusions": [
                {
                    "name": "launch",
                    "start": "2026-12-15T00:00:00Z",
                    "end": "2026-12-15T00:00:00Z",
                }
            ]
        },
        (
            "maintenance.exclusions launch: end 2026-12-15T00:00:00Z is not after start "
            "2026-12-15T00:00:00Z; correct it"
        ),
    ),
    (
        {
            "exclusions": [
                {
                    "name": "launch",
                    "start": "2026-12-01T00:00:00Z",
                    "end": "2026-12-32T00:00:00Z",
                }
            ]
        },
        (
            "maintenance.exclusions launch: 2026-12-01T00:00:00Z or 2026-12-32T00:00:00Z "
            "is no date; correct it"
        ),
    ),
]


@pytest.mark.parametrize(("maintenance", "text"), MAINTENANCE)
def test_maintenance_that_gke_would_reject_creates_nothing(
    maintenance: dict[str, Any], text: str
) -> None:
    made = gke(maintenance=maintenance)
    assert made.objects == ()
    assert [(each.reason, each.text) for each in made.refused] == [
        ("InvalidInput", text)
    ]


def test_no_account_gets_a_key() -> None:
    operations = [
        call.operation for each in gke(a_pool()).objects for call in each.calls
    ]
    assert [name for name in operations if "key" in name] == []


def test_a_project_in_the_manifest_overrides_the_credentials_project() -> None:
    assert (
        call_of(gke(project="other"), "net/vpc", "insert_unary")["project"] == "other"
    )


REFUSED: list[
    tuple[str, list[dict[str, Any]], dict[str, Any], list[tuple[str, str]], list[str]]
] = [
    (
        "a class without a block for the cloud: the other pool is built",
        [a_pool("a", className="g6"), a_pool("b")],
        {},
        [("InvalidNodePool", "pool a")],
        ["pool/b"],
    ),
    (
        "a class that provisions nothing",
        [a_pool("a", className="none")],
        {},
        [("InvalidNodePool", "pool a")],
        [],
    ),
    (
        "a class that does not exist",
        [a_pool("a", className="gone"), a_pool("b")],
        {},
        [("WaitingForClasses", "pool a")],
        ["pool/b"],
    ),
    (
        "a pool called system",
        [a_pool("system"), a_pool("b")],
        {},
        [("InvalidNodePool", "pool system")],
        ["pool/b"],
    ),
    (
        "two pools of one name at the cloud",
        [a_pool("GPU-L4"), a_pool("gpu-l4-db9a6b72")],
        {},
        [("InvalidNodePool", "pool gpu-l4-db9a6b72")],
        ["pool/gpu-l4-db9a6b72"],
    ),
]


@pytest.mark.parametrize(
    ("pools", "block", "want", "built"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
def test_a_pool_that_cannot_be_created_does_not_block_others(
    pools: list[dict[str, Any]],
    block: dict[str, Any],
    want: list[tuple[str, str]],
    built: list[str],
) -> None:
    made = gke(
        *pools,
        known=classes(none=None, both={"provider": "EKS", "eks": G6["eks"]}),
        **block,
    )
    assert reasons(made) == want
    assert [key for key in keys(made) if key.startswith("pool/")] == built
    assert "cluster" in keys(made)


INVALID: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[str]]] = [
    (
        "a zone of another region",
        [a_pool(zones=["europe-west1-b"])],
        {},
        ['zone "europe-west1-b" is not in region europe-west4'],
    ),
    (
        "no zone at all",
        [a_pool(zones=["ew4a"])],
        {},
        ['zone "ew4a" is not in region europe-west4'],
    ),
    (
        "a zone twice",
        [a_pool(zones=["europe-west4-a", "europe-west4-a"])],
        {},
        ["a zone is named twice"],
    ),
    (
        "no zones",
        [a_pool(zones=None)],
        {},
        ["at least one zone is required on GKE"],
    ),
    (
        "a zone as region",
        [],
        {"region": "europe-west4-a"},
        ['region "europe-west4-a" is a zone: use europe-west4'],
    ),
    (
        "no region",
        [],
        {"region": "Europe"},
        ['region "Europe" is not a region of Google Cloud'],
    ),
    (
        "a path as project",
        [],
        {"project": "../other"},
        [
            'project "../other" is not the ID of a project of Google Cloud, such as acme-ml'
        ],
    ),
    (
        "no version",
        [],
        {"kubernetesVersion": "latest"},
        ['kubernetesVersion "latest" is invalid: use a minor version'],
    ),
    (
        "a pool that is no label value",
        [a_pool("a b")],
        {},
        ['"a b" is not usable as a node label value'],
    ),
    (
        "all at once",
        [a_pool("a", zones=["x"]), a_pool("b", zones=["y"])],
        {"kubernetesVersion": "2"},
        ['kubernetesVersion "2"', 'zone "x"', 'zone "y"'],
    ),
]


@pytest.mark.parametrize(
    ("pools", "block", "texts"),
    [row[1:] for row in INVALID],
    ids=[row[0] for row in INVALID],
)
def test_invalid_input_for_the_cloud_is_refused_before_the_first_creation(
    pools: list[dict[str, Any]], block: dict[str, Any], texts: list[str]
) -> None:
    made = gke(*pools, **block)
    assert made.objects == ()
    assert {reason for reason, _ in reasons(made)} == {"InvalidInput"}
    assert [
        problem.text.startswith(text)
        for problem, text in zip(made.refused, texts, strict=True)
    ] == [True] * len(texts)


def test_a_gpu_type_that_is_not_a_label_value_is_refused() -> None:
    block = {
        "provider": "GKE",
        "gke": {
            "machineType": "g2-standard-8",
            "accelerator": {"type": "NVIDIA L4", "count": 1},
        },
    }
    made = gke(a_pool(), known=classes(l4=block))
    assert [problem.text for problem in made.refused] == [
        '"NVIDIA L4" is not usable as a node label value'
    ]


def test_ranges_of_settings_that_overlap_are_refused() -> None:
    made = gke(settings=GkeSettings.model_validate({"podCidr": "10.0.0.0/16"}))
    assert [problem.text for problem in made.refused] == [
        "settings gke.nodeCidr 10.0.0.0/24 and gke.podCidr 10.0.0.0/16 overlap"
    ]


@pytest.mark.parametrize("version", ["1.33", "1.33.5", "1.33.5-gke.100"])
def test_a_version_without_dra_is_warned_about(version: str) -> None:
    made = gke(kubernetesVersion=version)
    assert (warned(made), made.refused) == ([("OldKubernetes", "")], ())


@pytest.mark.parametrize("version", ["1.34", "1.35.2-gke.1269", "1.40"])
def test_other_versions_are_not(version: str) -> None:
    assert warned(gke(kubernetesVersion=version)) == []


def test_capacity_blocks_and_fabrics_change_nothing_on_gke() -> None:
    plain, other = (
        gke(a_pool()),
        gke(
            a_pool(
                capacityBlock={"capacityReservationId": "cr-0abc"},
                fabric={"type": "EFA"},
            )
        ),
    )
    assert plain == other


MACHINES: list[tuple[str, str, int, str]] = [
    (
        "a4x-highgpu-4g",
        "nvidia-gb200",
        4,
        (
            "machine type a4x-highgpu-4g has Arm processors, which this release does not "
            "support on GKE; use a machine type with x86 processors"
        ),
    ),
    (
        "a3-highgpu-1g",
        "nvidia-h100-80gb",
        8,
        (
            "machine type a3-highgpu-1g has 1 GPUs, and the class says 8; correct "
            "accelerator.count or machineType in the class"
        ),
    ),
    ("a3-highgpu-8g", "nvidia-h100-80gb", 8, ""),
    ("g2-standard-48", "nvidia-l4", 4, ""),
]


@pytest.mark.parametrize(("machine", "gpu", "count", "text"), MACHINES)
def test_a_machine_that_cannot_have_its_gpus_is_rejected_before_anything_is_created(
    machine: str, gpu: str, count: int, text: str
) -> None:
    block = {"machineType": machine, "accelerator": {"type": gpu, "count": count}}
    known = classes(big={"provider": "GKE", "gke": block})
    made = gke(a_pool(), a_pool("big", className="big"), known=known)
    assert [each.text for each in made.refused] == [text][: bool(text)]
    assert ("pool/big" in keys(made), "cluster" in keys(made)) == (not text, not text)
