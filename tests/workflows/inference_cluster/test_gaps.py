"""What a cluster lacks: shown to people, and reported to the scheduler."""

from typing import Any

import pytest

from api_types import labels
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster, ObservedNodes
from api_types.pins.features import DATA_PARALLEL, FEATURES, POOLS
from tests.workflows.inference_cluster.builders import DEVICES, H100, a_cluster
from workflows.inference_cluster.classes import published_pools
from workflows.inference_cluster.gaps import gaps, missing_features
from workflows.inference_cluster.reports import scheduler_report
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState, KnownClass

EVERY_FEATURE = [feature.key for feature in FEATURES]
GPU = "gpu.nvidia.com"
NO_CLASS = f"DeviceClass {GPU} does not exist: install the DRA driver {GPU}"
BY_PLUGIN = [{"name": "gpu", "claim": "DevicePlugin", "resourceName": "nvidia.com/gpu"}]


def facts(**fields: Any) -> ClusterFacts:
    known = {"kubernetes_version": "1.35", "dra_version": "v1", "device_classes": [GPU]}
    return ClusterFacts(**{**known, **fields})


def with_pools(**fields: Any) -> ClusterState:
    """Return a cluster that has published its pools."""
    state = a_cluster(**fields)
    return state.model_copy(update={"pools": published_pools(state)})


def nodes(**fields: Any) -> ObservedCluster:
    found = {"pool": "h100", "total": 2, "ready": 2, "devices": 16, "resources": []}
    return ObservedCluster(nodes=[ObservedNodes(**{**found, **fields})])


def test_a_cluster_with_everything_has_no_gaps() -> None:
    state = with_pools(facts=facts(), observed=nodes())
    assert (gaps(state), missing_features(state)) == ([], [])
    assert "missingFeatures" not in scheduler_report("eu", state, gone=False).manifest


def test_each_missing_feature_is_shown_and_reported_with_its_remedy() -> None:
    state = with_pools(facts=facts(missing_features=EVERY_FEATURE))
    assert gaps(state) == [feature.lacking() for feature in FEATURES]
    status = scheduler_report("eu", state, gone=False).manifest["status"]
    assert status["missingFeatures"] == EVERY_FEATURE


def test_a_cluster_that_routes_to_services_needs_no_pools() -> None:
    missing = [POOLS.key, DATA_PARALLEL.key]
    state = a_cluster(facts=facts(missing_features=missing, routing="service"))
    assert missing_features(state) == [DATA_PARALLEL.key]


@pytest.mark.parametrize(
    ("classes", "unusable"),
    [([], NO_CLASS), (["other"], NO_CLASS), ([GPU], ""), (None, "")],
)
def test_a_pool_whose_device_class_does_not_exist_takes_nothing_new(
    classes: list[str] | None, unusable: str
) -> None:
    state = with_pools(facts=facts(device_classes=classes), observed=nodes())
    (pool,) = scheduler_report("eu", state, gone=False).manifest["status"]["gpuPools"]
    assert pool.get("unusable", "") == unusable
    assert gaps(state) == ([f"pool h100: {unusable}"] if unusable else [])


def test_equal_gaps_of_several_devices_are_shown_once() -> None:
    twice = KnownClass(generation=1, spec={"devices": [*DEVICES, *DEVICES]})
    state = with_pools(facts=facts(device_classes=[]), classes={"h100-8x": twice})
    assert gaps(state) == [f"pool h100: {NO_CLASS}"]


@pytest.mark.parametrize(
    ("devices", "seen", "text"),
    [
        (DEVICES, {"devices": 0}, "none of its 2 Ready nodes publishes devices: check"),
        (DEVICES, {"devices": 1}, ""),
        (DEVICES, {"devices": 0, "ready": 0}, ""),
        (BY_PLUGIN, {}, "none of its 2 Ready nodes offers nvidia.com/gpu: install"),
        (BY_PLUGIN, {"resources": ["nvidia.com/gpu"]}, ""),
        # A watch of an earlier version does not report resources.
        (BY_PLUGIN, {"resources": None}, ""),
    ],
)
def test_nodes_without_devices_are_shown_and_stay_usable(
    devices: list[dict[str, Any]], seen: dict[str, Any], text: str
) -> None:
    known = KnownClass(generation=1, spec={"devices": devices})
    state = with_pools(
        facts=facts(), observed=nodes(**seen), classes={"h100-8x": known}
    )
    assert [gap[: len(text) + 11] for gap in gaps(state)] == (
        [f"pool h100: {text}"] if text else []
    )
    assert "unusable" not in state.pools[0]


def test_a_managed_stack_has_no_gaps_while_it_is_installed() -> None:
    lacking: dict[str, Any] = {
        "facts": facts(missing_features=EVERY_FEATURE, device_classes=[]),
        "observed": nodes(devices=0),
        "annotations": {labels.STACK: "managed"},
    }
    installing = with_pools(**lacking)
    assert (gaps(installing), missing_features(installing)) == ([], [])
    complete = with_pools(**lacking, stack=StackState(complete=True))
    assert len(gaps(complete)) == len(FEATURES) + 1


def test_a_cluster_without_facts_has_no_gaps() -> None:
    state = with_pools(facts=None, classes={"h100-8x": H100})
    assert (gaps(state), missing_features(state)) == ([], [])
