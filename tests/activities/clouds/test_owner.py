"""Names and owner marks of cloud objects."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from activities.clouds.desired.owner import (
    UNKNOWN_DIGITS,
    aws_tags,
    gcp_description,
    gcp_labels,
    owner_of,
    pool_name,
)
from tests.activities.clouds.builders import (
    INSTALLATION,
    a_cluster,
    a_pool,
    call_of,
    eks,
    filled,
    gke,
)
from tests.random_cases import generator

LONG = "a-platform-team-of-the-north-with-a-name-that-never-really-ends"


def test_the_digits_cover_installation_name_and_uid_and_stay() -> None:
    first = owner_of(INSTALLATION, a_cluster("GKE"))
    assert first.digits == "a0edcb55"
    assert (first.base, first.account) == ("prod-a0edcb55", "mp-a0edcb55")


def test_a_cluster_that_is_created_again_has_other_names() -> None:
    names = {
        owner_of(installation, a_cluster("GKE", name=name, uid=uid)).base
        for installation in ("one", "two")
        for name in ("prod", "prod2")
        for uid in ("u-1", "u-2")
    }
    assert len(names) == 8


@pytest.mark.parametrize(
    ("installation", "uid"),
    [("", "u-1"), ("one", "")],
    ids=["no installation", "no uid"],
)
def test_names_that_are_not_known_yet_look_like_no_digits(
    installation: str, uid: str
) -> None:
    owner = owner_of(installation, a_cluster("GKE", uid=uid))
    assert owner.base == f"prod-{UNKNOWN_DIGITS}"
    assert not re.fullmatch("[0-9a-f]{8}", owner.digits)


@pytest.mark.parametrize(
    "name",
    [LONG, f"{LONG[:-1]}-x", "9-lives", "a.b.c", "x" * 22 + "-y", "x" * 21 + "-y"],
)
def test_the_base_of_names_has_at_most_31_characters_and_a_letter_first(
    name: str,
) -> None:
    assert re.fullmatch(
        r"[a-z]([-a-z0-9]{0,29}[a-z0-9])?",
        owner_of(INSTALLATION, a_cluster("GKE", name=name)).base,
    )
    assert "--" not in owner_of(INSTALLATION, a_cluster("GKE", name=name)).base


def test_two_long_names_that_begin_alike_stay_apart() -> None:
    one, two = (
        owner_of(INSTALLATION, a_cluster("EKS", name=name)).base
        for name in (f"{LONG[:-2]}-1", f"{LONG[:-2]}-2")
    )
    assert one != two


def test_every_name_of_a_long_cluster_is_within_the_limit_of_its_cloud() -> None:
    pool = "p" * 40
    made = gke(a_pool(pool), name=LONG)
    limits = {
        "Cluster": 40,
        "Network": 63,
        "Subnetwork": 63,
        "NodePool": 40,
        "ServiceAccount": 30,
    }
    assert {each.kind for each in made.objects} >= set(limits)
    assert [
        each.name for each in made.objects if len(each.name) > limits.get(each.kind, 63)
    ] == []

    efa = {"zones": ["us-east-2a"], "className": "p5en", "fabric": {"type": "EFA"}}
    made = eks({"name": pool, **efa}, name=LONG)
    limits = {
        "Cluster": 100,
        "Nodegroup": 63,
        "Role": 64,
        "Policy": 64,
        "SecurityGroup": 255,
        "LaunchTemplate": 128,
    }
    assert {each.kind for each in made.objects} >= set(limits)
    assert [
        each.name
        for each in made.objects
        if len(each.name) > limits.get(each.kind, 255)
    ] == []


POOLS = [
    ("as it is", "gpu-l4", "gpu-l4"),
    ("40 characters as they are", "a" * 40, "a" * 40),
    ("capital letters", "GPU-L4", "gpu-l4-db9a6b72"),
    ("a hyphen last", "gpu-", None),
    ("a digit first", "4gpus", None),
    ("an underscore", "gpu_l4", None),
]


@pytest.mark.parametrize(
    ("pool", "want"), [row[1:] for row in POOLS], ids=[row[0] for row in POOLS]
)
def test_a_pool_has_its_own_name_where_the_cloud_accepts_it(
    pool: str, want: str | None
) -> None:
    name = pool_name(pool)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", name)
    assert name == want or (want is None and re.fullmatch(r".*-[0-9a-f]{8}", name))


@pytest.mark.random
def test_names_of_random_pools_are_stable_apart_and_fit() -> None:
    source = generator()
    alphabet = "abcXYZ019-_."
    pools = {
        "".join(source.choices(alphabet, k=source.randint(1, 40))) for _ in range(500)
    }
    names = {pool: pool_name(pool) for pool in pools}
    assert all(
        re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", name)
        for name in names.values()
    )
    assert len(set(names.values())) == len(pools)


def test_the_label_has_the_pool_as_users_write_it() -> None:
    made = gke(a_pool("GPU-L4"))
    pool = call_of(made, "pool/gpu-l4-db9a6b72", "create_node_pool")["node_pool"]
    assert (pool["name"], pool["config"]["labels"]["modelplane.ai/pool"]) == (
        "gpu-l4-db9a6b72",
        "GPU-L4",
    )


def test_tags_name_the_owner_of_an_object() -> None:
    owner = owner_of(INSTALLATION, a_cluster("EKS"))
    assert aws_tags(owner, "pool/gpu", "prod-gpu") == {
        "modelplane.ai/owner": owner.digits,
        "modelplane.ai/cluster": "prod",
        "modelplane.ai/object": "pool/gpu",
        "modelplane.ai/installation": INSTALLATION,
        "Name": "prod-gpu",
    }


def test_labels_of_google_cloud_are_valid() -> None:
    owner = owner_of(INSTALLATION, a_cluster("GKE", name=f"{'a.b' * 25}"))
    found = gcp_labels(owner, "pool/gpu")
    assert found["modelplane-owner"] == owner.digits
    assert found["modelplane-object"] == "pool_gpu"
    assert all(
        re.fullmatch(r"[a-z0-9_-]{1,63}", value)
        and re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key)
        for key, value in found.items()
    )
    assert (
        gcp_description(owner, "net/vpc")
        == f"modelplane owner={owner.digits} object=net/vpc"
    )


def test_every_object_that_takes_a_mark_has_it() -> None:
    made = gke(a_pool())
    digits = owner_of(INSTALLATION, a_cluster("GKE")).digits
    described = [
        call_of(made, "net/vpc", "insert_unary")["network_resource"],
        call_of(made, "net/subnet", "insert_unary")["subnetwork_resource"],
    ]
    described += [
        call_of(made, "iam/sa", "create_service_account")["service_account"],
        call_of(made, "cluster", "create_cluster")["cluster"],
    ]
    assert [f"owner={digits} " in each["description"] for each in described] == [
        True
    ] * 4
    cluster = call_of(made, "cluster", "create_cluster")["cluster"]
    labelled = [
        cluster,
        cluster["node_pools"][0]["config"],
        call_of(made, "pool/gpu", "create_node_pool")["node_pool"]["config"],
    ]
    assert [each["resource_labels"]["modelplane-object"] for each in labelled] == [
        "cluster",
        "pool_system",
        "pool_gpu",
    ]


def test_every_object_at_aws_that_takes_tags_has_its_key_in_them() -> None:
    made = eks(
        {
            "name": "efa",
            "className": "p5en",
            "zones": ["us-east-2a"],
            "fabric": {"type": "EFA"},
        }
    )
    untagged = {
        "efs/mounts",
        "conn",
        "nodes/system",
        "sc",
        "chart/cluster-autoscaler",
        "chart/aws-dranet",
    }
    tagged = [each for each in made.objects if each.key not in untagged]
    assert {each.key: object_tag(filled(each.calls[0])) for each in tagged} == {
        each.key: each.key for each in tagged
    }
    assert [
        each.key
        for each in made.objects
        if each.key in untagged and "modelplane.ai/object" in repr(each.calls)
    ] == []


def object_tag(given: Mapping[str, Any]) -> str:
    """Return the tag with the key of the object, in any service's form of tags."""
    if "tags" in given:
        return str(given["tags"]["modelplane.ai/object"])
    pairs = given["Tags"] if "Tags" in given else given["TagSpecifications"][0]["Tags"]
    return str({pair["Key"]: pair["Value"] for pair in pairs}["modelplane.ai/object"])
