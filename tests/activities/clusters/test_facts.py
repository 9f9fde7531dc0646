"""The facts that a cluster gives about itself, without any object."""

import pytest

from activities.cluster_objects.cluster_api import Kind, Resource
from activities.clusters.facts import discovered_facts
from api_types.pins import apiversions


def apis(*served: tuple[str, str]) -> list[str]:
    """Give the APIs that a cluster with these kinds is known by."""
    resources = {Kind(*pair): Resource(Kind(*pair), pair[1].lower(), namespaced=True, verbs=frozenset()) for pair in served}
    return discovered_facts("v1.35.1", resources, {}).apis


@pytest.mark.parametrize("version", apiversions.MODEL_REWRITES)
def test_a_group_may_be_served_without_the_kind_that_is_needed_of_it(version: str) -> None:
    assert apis((version, "InferenceObjective")) == []
    assert apis((version, "InferenceObjective"), (version, "InferenceModelRewrite")) == [version]


def test_apis_are_those_that_rendering_reads() -> None:
    assert apis(("apps/v1", "Deployment"), (apiversions.INFERENCE, "InferencePool")) == [apiversions.INFERENCE]
