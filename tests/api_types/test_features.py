"""The table of features: what an engine uses, and what a message says."""

from typing import Any

import pytest

from api_types.pins.features import (
    COMPUTE_DOMAIN,
    DATA_PARALLEL,
    FEATURES,
    MODEL_NAMES,
    known,
    used_features,
)


@pytest.mark.parametrize(
    ("engine", "used"),
    [
        ({}, []),
        ({"dataParallel": {"size": 1}}, []),
        ({"dataParallel": {"size": 2}}, ["dataParallel"]),
        ({"adapters": [{"name": "a"}]}, []),
        ({"adapters": [{"name": "a"}, {"modelNames": ["b"]}]}, ["modelNames"]),
        ({"topology": {"domain": {}}}, []),
        ({"topology": {"computeDomain": {}}}, ["computeDomain"]),
        ({"members": [{"role": "Leader"}, {"role": "Worker"}]}, ["multiNode"]),
        ({"members": [{}]}, []),
    ],
)
def test_the_features_of_an_engine(engine: dict[str, Any], used: list[str]) -> None:
    assert list(used_features([engine])) == ["inferencePools", *used]


def test_features_of_several_engines_are_in_the_order_of_the_table() -> None:
    engines: list[dict[str, Any]] = [
        {"members": [{"role": "Leader"}]},
        {"dataParallel": {"size": 2}},
        {"dataParallel": {"size": 2}},
    ]
    assert used_features(engines) == ("inferencePools", "dataParallel", "multiNode")


def test_a_missing_feature_is_named_with_the_version_that_allows_it() -> None:
    extension = "install the definitions of the Gateway API Inference Extension"
    assert DATA_PARALLEL.lacking() == (
        "dataParallel needs InferencePool (inference.networking.k8s.io/v1) with several "
        f"targetPorts: {extension} v1.1.0 or newer there"
    )
    assert MODEL_NAMES.lacking().endswith(f": {extension} v1.2.0 or newer there")
    assert COMPUTE_DOMAIN.lacking() == (
        "topology.computeDomain needs ComputeDomain (resource.nvidia.com/v1beta1) with "
        "DeviceClass compute-domain-default-channel.nvidia.com: set stack.computeDomains "
        "if Modelplane installs the stack, else install the NVIDIA DRA driver, with "
        "ComputeDomains enabled, 0.4.0 or newer there"
    )


def test_keys_of_a_newer_worker_are_ignored() -> None:
    assert known(["teleport", "multiNode", "dataParallel"]) == [
        FEATURES[1],
        FEATURES[4],
    ]
