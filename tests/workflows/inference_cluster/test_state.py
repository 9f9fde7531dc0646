"""The state that a cluster carries to its next run."""

import pydantic_core

from tests.workflows.inference_cluster.builders import a_cluster
from workflows.entity.failures import Failure
from workflows.inference_cluster.state import ClusterState

STATE = a_cluster(
    registered_classes=["h100-8x"],
    scheduler_digest="s",
    replicas_digest="r",
    repeat_to_replicas=True,
    caches_digest="c",
    repeat_to_caches=True,
    failure=Failure("ClusterUnreachable", "no answer"),
)


def test_the_state_of_a_cluster_survives_serialization() -> None:
    assert (
        ClusterState.model_validate(
            pydantic_core.from_json(pydantic_core.to_json(STATE))
        )
        == STATE
    )
