"""The cloud account that a CloudCluster reads from a manifest, and its activity options."""

from datetime import timedelta
from typing import Any

import pytest

from api_types.messages.clouds import (
    HELM_RELEASE,
    CloudAccount,
    CloudObject,
    CloudOrder,
    WorkClass,
)
from workflows.cloud_cluster.account import account_of, idle_counts, ordered_account
from workflows.cloud_cluster.calls import DELETE, ENSURE, options_of

PINNED = CloudAccount(
    provider="GKE",
    cluster="x",
    cluster_uid="x",
    secret="x",  # noqa: S106 - the name of a Secret
    region="x",
    installation="before",
    project="pinned",
)


def manifest(source: str, block: Any = None, **others: Any) -> dict[str, Any]:
    return {"spec": {"cluster": {"source": source, source.lower(): block}, **others}}


@pytest.mark.parametrize(
    ("document", "before", "expected"),
    [
        (
            manifest("GKE", {"project": "p", "region": "r"}),
            None,
            {"project": "p", "region": "r"},
        ),
        (manifest("EKS", {"region": "r"}), None, {"provider": "EKS", "region": "r"}),
        (
            manifest("GKE", {"project": "another"}),
            PINNED,
            {"installation": "before", "project": "pinned"},
        ),
        (manifest("Kubeconfig", {}), None, None),
        (manifest("GKE"), None, None),
        ({}, None, None),
    ],
    ids=[
        "GKE",
        "EKS",
        "a pinned version stays",
        "not at a cloud",
        "without its block",
        "nothing",
    ],
)
def test_the_account_of_a_manifest(
    document: dict[str, Any],
    before: CloudAccount | None,
    expected: dict[str, Any] | None,
) -> None:
    found = account_of("prod", "u", document, before)
    if expected is None:
        assert found is None
        return
    assert found is not None
    common = {
        "provider": "GKE",
        "cluster": "prod",
        "cluster_uid": "u",
        "secret": found.secret,
    }
    assert found == CloudAccount(**{**common, "region": "", "project": "", **expected})


def test_credentials_name_the_secret_and_have_defaults() -> None:
    secrets = []
    for credentials in (
        None,
        {"type": "ClusterProviderConfig", "name": "default"},
        {"name": "other"},
    ):
        found = account_of(
            "prod", "u", manifest("GKE", {"credentials": credentials}), None
        )
        assert found is not None
        secrets.append(found.secret)
    first, same, other = secrets
    assert (first == same, first == other, bool(first)) == (True, False, True)


def test_the_senders_account_applies_only_where_the_workflow_has_none() -> None:
    order = CloudOrder(
        uid="u", sequence=1, generation=1, manifest=manifest("GKE", {}), account=PINNED
    )
    projects = []
    for before in (None, PINNED.model_copy(update={"project": "known"})):
        found = ordered_account("prod", "u", order, before)
        assert found is not None
        projects.append(found.project)
    assert projects == ["pinned", "known"]


def pool(count: int, name: str = "gpu", most: int | None = 9) -> dict[str, Any]:
    return {"name": name, "nodeCount": count, "maxNodeCount": most}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ([pool(1)], [pool(2)], ["gpu"]),
        ([pool(1)], [pool(1)], []),
        ([pool(1, most=None)], [pool(2, most=None)], []),
        ([], [pool(2)], []),
        ([pool(1), pool(1, "b")], [pool(1), pool(3, "b")], ["b"]),
    ],
    ids=[
        "another count",
        "the same",
        "without an autoscaler",
        "a new pool",
        "of two pools one",
    ],
)
def test_a_node_count_under_an_autoscaler_has_no_effect(
    before: list[dict[str, Any]], after: list[dict[str, Any]], named: list[str]
) -> None:
    found = idle_counts(
        manifest("GKE", {}, nodePools=before), manifest("GKE", {}, nodePools=after)
    )
    counts = {each["name"]: each["nodeCount"] for each in after}
    told = (
        "has no effect on an existing pool: "
        "its autoscaler chooses between minNodeCount and maxNodeCount"
    )
    expected = [
        (name, f"pool {name}: nodeCount {counts[name]} {told}") for name in named
    ]
    assert list(found) == expected


# The options of work


@pytest.mark.parametrize("work", ["Quick", "Medium", "ControlPlane", "NodePool"])
@pytest.mark.parametrize("verb", ["ensure", "delete"])
def test_activities_take_timeouts_from_the_class_and_ids_from_the_object(
    verb: str, work: WorkClass
) -> None:
    each = CloudObject(key="pool/gpu", kind="NodePool", name="gpu", work=work)
    options = options_of(each, verb, 3)
    table = {"ensure": ENSURE, "delete": DELETE}[verb][work]
    timeouts = (
        "start_to_close_timeout",
        "schedule_to_close_timeout",
        "heartbeat_timeout",
    )
    for name in timeouts:
        assert options[name] == table[name]  # type: ignore[literal-required]
    assert options["activity_id"] == f"{verb} pool/gpu 3"
    assert options["summary"] == f"{verb} pool/gpu: NodePool gpu"


@pytest.mark.parametrize(
    ("kind", "whole", "minutes"),
    [(HELM_RELEASE, True, 5), (HELM_RELEASE, False, 60), ("NodePool", True, 60)],
    ids=["a release with its cluster", "a release alone", "a pool with its cluster"],
)
def test_a_release_has_a_short_timeout_when_its_cluster_is_deleted_too(
    kind: str, *, whole: bool, minutes: int
) -> None:
    each = CloudObject(key="k", kind=kind, name="n", work="Medium")
    options = options_of(each, "delete", 0, whole=whole)
    assert options["schedule_to_close_timeout"] == timedelta(minutes=minutes)
