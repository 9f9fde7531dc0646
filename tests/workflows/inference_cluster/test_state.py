"""What a cluster carries keeps its names in JSON: a run that was started by an earlier release continues with this one."""

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


def test_the_state_of_a_cluster_is_read_as_it_was_written() -> None:
    assert ClusterState.model_validate(pydantic_core.from_json(pydantic_core.to_json(STATE))) == STATE


def test_the_state_of_a_cluster_keeps_its_names() -> None:
    tree = pydantic_core.from_json(pydantic_core.to_json(STATE))
    names = ("wanted", "reported", "told", "tellAgain", "toldCaches", "tellCachesAgain", "failure")
    assert [tree[name] for name in names] == [["h100-8x"], "s", "r", True, "c", True, ["ClusterUnreachable", "no answer"]]
