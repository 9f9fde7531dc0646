"""A manifest is compared with the fleet (spec/api.md 6.3, the warnings after the rules)."""

import pytest

from api_types.validation.fleet_warnings import fleet_warnings
from tests.api_types.builders import a_cache, a_deployment, a_service, accepted

CLUSTERS = [{"zone": "a", "tier": "gold"}, {"zone": "b"}]
CACHES = {("ml", "weights"), ("other", "elsewhere")}
LABELS = "no InferenceCluster has these labels yet"

CASES = [
    ("a selector that one cluster matches", a_deployment(clusterSelector={"matchLabels": {"zone": "a", "tier": "gold"}}), []),
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
            'ModelDeployment ml/qwen: spec.template.spec.modelCacheRef.name: ModelCache "elsewhere" does not exist yet in namespace ml',
        ],
    ),
    ("a kind that selects no cluster", a_service(), []),
]


@pytest.mark.parametrize(("document", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_manifest_is_warned_of_what_the_fleet_does_not_have_yet(document: dict[str, object], want: list[str]) -> None:
    assert list(fleet_warnings(accepted(document).manifest, CLUSTERS, CACHES)) == want


def test_an_empty_fleet_matches_no_selector() -> None:
    document = a_deployment(clusterSelector={"matchLabels": {"zone": "a"}})
    want = (f"ModelDeployment ml/qwen: spec.template.spec.clusterSelector: {LABELS}",)
    assert fleet_warnings(accepted(document).manifest, [], ()) == want
