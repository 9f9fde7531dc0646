"""A deployment whose replicas need several caches is placed where all of them are."""

from typing import Any

import pytest

from scheduler import combined_cache, deployment_view


def cache(
    name: str, labels: dict[str, str] | None = None, **phases: str
) -> dict[str, Any]:
    clusters = [{"name": cluster, "phase": phase} for cluster, phase in phases.items()]
    manifest = {
        "metadata": {"name": name},
        "spec": {"clusterSelector": {"matchLabels": labels or {}}},
        "status": {"clusters": clusters},
    }
    return {"name": name, "state": "Present", "manifest": manifest}


def view(*caches: dict[str, Any], model: str = "qwen") -> Any:
    template: dict[str, Any] = {
        "engines": [],
        **({"modelCacheRef": {"name": model}} if model else {}),
    }
    manifest = {
        "metadata": {"name": "chat"},
        "spec": {"replicas": 1, "template": {"spec": template}},
    }
    return deployment_view(manifest, combined_cache(caches)).cache


def test_a_single_cache_is_unchanged() -> None:
    one = cache("qwen", {"tier": "gold"}, eu="Ready")
    assert combined_cache([one]) == one
    assert combined_cache([{}, one]) == one
    assert combined_cache([{}, {}]) == {}
    assert view({}, model="").state == "NotReferenced"


def test_all_labels_are_required_and_the_least_advanced_phase_counts() -> None:
    found = view(
        cache("qwen", {"tier": "gold"}, eu="Ready", us="Ready", ap="Hydrating"),
        cache(
            "lora",
            {"region": "eu"},
            eu="Ready",
            us="Hydrating",
            ap="Pending",
            jp="Ready",
        ),
    )
    assert (found.state, dict(found.match_labels), dict(found.phases)) == (
        "Present",
        {"tier": "gold", "region": "eu"},
        {"eu": "Ready", "us": "Hydrating", "ap": "Pending"},
    )


def test_labels_that_contradict_each_other_match_no_cluster() -> None:
    assert dict(
        view(cache("a", {"tier": "gold"}), cache("b", {"tier": "iron"})).match_labels
    ) == {"tier": "gold, iron"}
    assert dict(
        view(cache("a", {"tier": "gold"}), cache("b", {"tier": "gold"})).match_labels
    ) == {"tier": "gold"}


@pytest.mark.parametrize("state", ["Absent", "Unresolved"])
def test_a_missing_cache_holds_replicas_back_under_its_name(
    state: str,
) -> None:
    found = view(cache("qwen", eu="Ready"), {"name": "lora", "state": state})
    assert (found.state, found.name) == (state, "lora")


def test_a_cache_that_is_deleted_counts_as_absent() -> None:
    leaving = cache("lora")
    leaving["manifest"]["metadata"]["deletionTimestamp"] = "set"
    assert (view(cache("qwen"), leaving).state, view(cache("qwen"), leaving).name) == (
        "Absent",
        "lora",
    )


@pytest.mark.parametrize(
    "one",
    [cache("lora", {"tier": "gold"}), cache("lora", {"tier": "gold"})["manifest"]],
    ids=["state", "manifest"],
)
def test_adapters_count_without_a_cache_of_the_model(one: dict[str, Any]) -> None:
    found = view({}, one, model="")
    assert (found.state, found.name, dict(found.match_labels)) == (
        "Present",
        "lora",
        {"tier": "gold"},
    )
