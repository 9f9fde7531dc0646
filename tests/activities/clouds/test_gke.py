"""The objects of GKE clusters: which there are, with which parameters, and what is refused."""

from typing import Any

import pytest

from api_types.sections.clouds import GkeSettings
from tests.activities.clouds.builders import G6, PROJECT, a_pool, call_of, classes, gke, keys, object_of, reasons, warned

TEN = ["api/file", "net/vpc", "net/subnet", "iam/sa", "iam/binding", "cluster", "pool/gpu", "conn", "nodes/system", "sc"]
NEEDS = {
    "api/file": (),
    "net/vpc": (),
    "net/subnet": ("net/vpc",),
    "iam/sa": (),
    "iam/binding": ("iam/sa",),
    "cluster": ("net/subnet",),
    "pool/gpu": ("cluster",),
    "conn": ("cluster",),
    "nodes/system": ("conn",),
    "sc": ("conn", "net/vpc", "api/file"),
}


def test_prv_1_a_cluster_with_one_pool_is_ten_objects() -> None:
    made = gke(a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2))
    assert keys(made) == TEN
    assert {each.key: each.needs for each in made.objects} == NEEDS
    assert (made.refused, made.warnings) == ((), ())


def test_prv_1_the_cluster_comes_with_its_system_pool_and_no_other() -> None:
    given = call_of(gke(a_pool()), "cluster", "create_cluster")
    base = object_of(gke(), "cluster").name
    assert given["parent"] == f"projects/{PROJECT}/locations/europe-west4"
    cluster = given["cluster"]
    (system,) = cluster.pop("node_pools")
    del cluster["resource_labels"], cluster["description"], system["config"]["resource_labels"]
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
    }
    assert system == {
        "name": "system",
        "initial_node_count": 1,
        "autoscaling": {"enabled": True, "min_node_count": 1, "max_node_count": 2},
        "config": {
            "machine_type": "e2-standard-4",
            "image_type": "COS_CONTAINERD",
            "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            "labels": {"modelplane.ai/pool": "system"},
        },
        "management": {"auto_upgrade": True, "auto_repair": True},
    }


def test_prv_1_a_gpu_pool_has_the_labels_by_which_it_is_found_and_scaled() -> None:
    pool = call_of(gke(a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2)), "pool/gpu", "create_node_pool")["node_pool"]
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
    }


def test_prv_6_3_the_network_has_the_ranges_of_the_settings() -> None:
    given = call_of(gke(), "net/subnet", "insert_unary")
    subnet = given["subnetwork_resource"]
    assert (given["project"], given["region"], subnet["ip_cidr_range"]) == (PROJECT, "europe-west4", "10.0.0.0/24")
    assert subnet["secondary_ip_ranges"] == [
        {"range_name": "pods", "ip_cidr_range": "10.1.0.0/16"},
        {"range_name": "services", "ip_cidr_range": "10.2.0.0/16"},
    ]
    other = gke(settings=GkeSettings.model_validate({"nodeCidr": "172.16.0.0/22"}))
    assert call_of(other, "net/subnet", "insert_unary")["subnetwork_resource"]["ip_cidr_range"] == "172.16.0.0/22"


def test_prv_6_4_a_repeated_call_is_recognized_where_the_cloud_has_a_field_for_it() -> None:
    made = gke()
    assert [call_of(made, key, "insert_unary")["request_id"] for key in ("net/vpc", "net/subnet")] == [
        "1b671a64-40d5-491e-99b0-da01ff1f3341"
    ] * 2


def test_prv_6_6_claims_of_caches_are_in_the_network_of_the_cluster() -> None:
    made = gke()
    manifest = call_of(made, "sc", "apply")["manifest"]
    assert (manifest["metadata"]["name"], manifest["provisioner"]) == ("modelplane-rwx", "filestore.csi.storage.gke.io")
    assert manifest["parameters"] == {"tier": "enterprise", "network": object_of(made, "net/vpc").name}
    assert (manifest["volumeBindingMode"], manifest["allowVolumeExpansion"], manifest["reclaimPolicy"]) == ("Immediate", True, "Delete")
    assert "annotations" not in manifest["metadata"]


def test_prv_6_7_the_account_that_logs_in_administers_clusters() -> None:
    made = gke()
    account = object_of(made, "iam/sa").name
    email = f"{account}@{PROJECT}.iam.gserviceaccount.com"
    given = call_of(made, "iam/binding", "set_iam_policy")
    assert given["policy"] == {"bindings": [{"role": "roles/container.admin", "members": [f"serviceAccount:{email}"]}]}


def test_prv_44_no_account_gets_a_key() -> None:
    operations = [call.operation for each in gke(a_pool()).objects for call in each.calls]
    assert [name for name in operations if "key" in name] == []


def test_ruling_21_a_project_in_the_manifest_overrides_that_of_the_credentials() -> None:
    assert call_of(gke(project="other"), "net/vpc", "insert_unary")["project"] == "other"


REFUSED: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[tuple[str, str]], list[str]]] = [
    (
        "prv-16 a class without a block for the cloud: the other pool is built",
        [a_pool("a", className="g6"), a_pool("b")],
        {},
        [("InvalidNodePool", "pool a")],
        ["pool/b"],
    ),
    ("prv-16 a class that provisions nothing", [a_pool("a", className="none")], {}, [("InvalidNodePool", "pool a")], []),
    ("prv-17 a class that does not exist", [a_pool("a", className="gone"), a_pool("b")], {}, [("WaitingForClasses", "pool a")], ["pool/b"]),
    ("prv-20 a pool called system", [a_pool("system"), a_pool("b")], {}, [("InvalidNodePool", "pool system")], ["pool/b"]),
    (
        "prv-2.1 two pools of one name at the cloud",
        [a_pool("GPU-L4"), a_pool("gpu-l4-db9a6b72")],
        {},
        [("InvalidNodePool", "pool gpu-l4-db9a6b72")],
        ["pool/gpu-l4-db9a6b72"],
    ),
]


@pytest.mark.parametrize(("pools", "block", "want", "built"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_pool_that_cannot_be_built_hinders_no_other(
    pools: list[dict[str, Any]], block: dict[str, Any], want: list[tuple[str, str]], built: list[str]
) -> None:
    made = gke(*pools, known=classes(none=None, both={"provider": "EKS", "eks": G6["eks"]}), **block)
    assert reasons(made) == want
    assert [key for key in keys(made) if key.startswith("pool/")] == built
    assert "cluster" in keys(made)


INVALID: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[str]]] = [
    ("prv-9 a zone of another region", [a_pool(zones=["europe-west1-b"])], {}, ['zone "europe-west1-b" is not in region europe-west4']),
    ("prv-9 no zone at all", [a_pool(zones=["ew4a"])], {}, ['zone "ew4a" is not in region europe-west4']),
    ("prv-9 a zone twice", [a_pool(zones=["europe-west4-a", "europe-west4-a"])], {}, ["a zone is named twice"]),
    ("prv-6.3 no zones", [a_pool(zones=None)], {}, ["at least one zone is required on GKE"]),
    ("a zone as region", [], {"region": "europe-west4-a"}, ['region "europe-west4-a" is a zone: write europe-west4']),
    ("no region", [], {"region": "Europe"}, ['region "Europe" is no region of Google Cloud']),
    ("no version", [], {"kubernetesVersion": "latest"}, ['kubernetesVersion "latest": write a minor version']),
    ("prv-5.3 a pool that is no label value", [a_pool("a b")], {}, ['"a b" is not usable as a node label value']),
    (
        "all at once",
        [a_pool("a", zones=["x"]), a_pool("b", zones=["y"])],
        {"kubernetesVersion": "2"},
        ['kubernetesVersion "2"', 'zone "x"', 'zone "y"'],
    ),
]


@pytest.mark.parametrize(("pools", "block", "texts"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
def test_what_the_cloud_would_refuse_is_refused_before_anything_is_created(
    pools: list[dict[str, Any]], block: dict[str, Any], texts: list[str]
) -> None:
    made = gke(*pools, **block)
    assert made.objects == ()
    assert {reason for reason, _ in reasons(made)} == {"InvalidInput"}
    assert [problem.text.startswith(text) for problem, text in zip(made.refused, texts, strict=True)] == [True] * len(texts)


def test_prv_5_3_a_type_of_gpu_that_is_no_label_value_is_refused() -> None:
    block = {"provider": "GKE", "gke": {"machineType": "g2-standard-8", "accelerator": {"type": "NVIDIA L4", "count": 1}}}
    made = gke(a_pool(), known=classes(l4=block))
    assert [problem.text for problem in made.refused] == ['"NVIDIA L4" is not usable as a node label value']


def test_ranges_of_settings_that_overlap_are_refused() -> None:
    made = gke(settings=GkeSettings.model_validate({"podCidr": "10.0.0.0/16"}))
    assert [problem.text for problem in made.refused] == ["settings gke.nodeCidr 10.0.0.0/24 and gke.podCidr 10.0.0.0/16 overlap"]


@pytest.mark.parametrize("version", ["1.33", "1.33.5", "1.33.5-gke.100"])
def test_prv_5_1_a_version_without_dra_is_warned_about(version: str) -> None:
    made = gke(kubernetesVersion=version)
    assert (warned(made), made.refused) == ([("OldKubernetes", "")], ())


@pytest.mark.parametrize("version", ["1.34", "1.35.2-gke.1269", "1.40"])
def test_prv_5_1_other_versions_are_not(version: str) -> None:
    assert warned(gke(kubernetesVersion=version)) == []


def test_prv_6_3_capacity_blocks_and_fabrics_change_nothing_on_gke() -> None:
    plain, other = gke(a_pool()), gke(a_pool(capacityBlock={"capacityReservationId": "cr-0abc"}, fabric={"type": "EFA"}))
    assert plain == other
