"""The facts about a cluster that do not depend on any object."""

import pytest

from activities.cluster_objects.cluster_api import ApiResource, GroupVersionKind
from activities.clusters.facts import discovered_facts
from api_types.pins import apiversions


def apis(*served: tuple[str, str]) -> list[str]:
    """Return the API facts of a cluster with these kinds."""
    resources = {
        GroupVersionKind(*pair): ApiResource(
            GroupVersionKind(*pair), pair[1].lower(), namespaced=True, verbs=frozenset()
        )
        for pair in served
    }
    return discovered_facts("v1.35.1", resources, {}).apis


@pytest.mark.parametrize("version", apiversions.MODEL_REWRITES)
def test_a_group_may_be_served_without_the_needed_kind(
    version: str,
) -> None:
    assert apis((version, "InferenceObjective")) == []
    assert apis(
        (version, "InferenceObjective"), (version, "InferenceModelRewrite")
    ) == [version]


def test_only_the_apis_that_rendering_reads_are_facts() -> None:
    assert apis(
        ("apps/v1", "Deployment"), (apiversions.INFERENCE, "InferencePool")
    ) == [apiversions.INFERENCE]
