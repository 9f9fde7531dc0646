"""Warnings about objects that the fleet does not have."""

from typing import Any

import pytest

from api_types.pins.features import DATA_PARALLEL
from api_types.validation.fleet_warnings import FleetCluster, fleet_warnings
from tests.api_types.builders import (
    a_cache,
    a_deployment,
    a_service,
    accepted,
    an_engine,
)

CLUSTERS = [
    FleetCluster({"zone": "a", "tier": "gold"}),
    FleetCluster({"zone": "b"}, ("dataParallel",)),
]
CACHES = {("ml", "weights"), ("other", "elsewhere")}
LABELS = "no InferenceCluster has these labels yet"


def with_ranks(**labels: str) -> dict[str, Any]:
    """Return a deployment with two ranks in each pod."""
    selector = {"clusterSelector": {"matchLabels": labels}} if labels else {}
    return a_deployment(an_engine(dataParallel={"size": 2}), **selector)


CASES = [
    (
        "a selector that one cluster matches",
        a_deployment(clusterSelector={"matchLabels": {"zone": "a", "tier": "gold"}}),
        [],
    ),
    ("no selector", a_deployment(), []),
    (
        "pairs that no cluster holds together",
        a_deployment(clusterSelector={"matchLabels": {"zone": "b", "tier": "gold"}}),
        [f"ModelDeployment ml/qwen: spec.template.spec.clusterSelector: {LABELS}"],
    ),
    (
        "a cache for clusters that do not exist",
        a_cache(clusterSelector={"matchLabels": {"zone": "c"}}),
        [f"ModelCache ml/weights: spec.clusterSelector: {LABELS}"],
    ),
    ("a cache that exists", a_deployment(modelCacheRef={"name": "weights"}), []),
    (
        "a cache of another namespace",
        a_deployment(modelCacheRef={"name": "elsewhere"}),
        [
            (
                "ModelDeployment ml/qwen: spec.template.spec.modelCacheRef.name: "
                'ModelCache "elsewhere" does not exist yet in namespace ml'
            ),
        ],
    ),
    ("a kind that selects no cluster", a_service(), []),
    ("a feature that some cluster has", with_ranks(), []),
    ("a feature that the selected cluster has", with_ranks(zone="a"), []),
    (
        "a feature that no selected cluster has",
        with_ranks(zone="b"),
        [
            (
                "ModelDeployment ml/qwen: spec.template.spec.engines: no selected "
                f"InferenceCluster supports it yet: {DATA_PARALLEL.lacking()}"
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("document", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_manifest_gets_warnings_about_missing_objects_of_the_fleet(
    document: dict[str, object], want: list[str]
) -> None:
    assert list(fleet_warnings(accepted(document).manifest, CLUSTERS, CACHES)) == want


def test_an_empty_fleet_matches_no_selector() -> None:
    document = a_deployment(clusterSelector={"matchLabels": {"zone": "a"}})
    want = (f"ModelDeployment ml/qwen: spec.template.spec.clusterSelector: {LABELS}",)
    assert fleet_warnings(accepted(document).manifest, [], ()) == want
