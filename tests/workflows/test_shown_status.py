"""`modelplane schema` has every field of the statuses that objects show."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api_types.messages.cluster_work import ClusterFacts, RemainingObject
from api_types.messages.observations import ObservedCluster, ObservedNodes
from api_types.resources.status import LastScale, LeftBehind
from api_types.validation.schema import json_schema
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.inference_cluster.test_stack_plan import a_complete_stack
from tests.workflows.model_cache.builders import a_copy, a_site, a_staging
from tests.workflows.model_deployment.exchange import NOW, a_controller, state_of
from tests.workflows.model_replica.builders import APPLIED, a_replica
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.manifest import manifest_of
from workflows.entity.state import EntityState
from workflows.inference_cluster.stack.shown import shown_stack
from workflows.inference_cluster.status import status_fields as cluster_status
from workflows.model_cache.state import CacheState, PinnedRevision
from workflows.model_cache.status import ClusterPhase
from workflows.model_cache.status import status_fields as cache_status
from workflows.model_deployment.decisions.status import status_of as deployment_status
from workflows.model_deployment.revisions import TemplateRevision
from workflows.model_deployment.state import GenerationTimings, TrackedReplica
from workflows.model_replica.decisions.status import status_of as replica_status
from workflows.model_replica.teardown_progress import TeardownProgress


def a_deployment_status() -> dict[str, Any]:
    replica = TrackedReplica(
        uid="r", name="qwen-r", cluster="eu", index=0, pending="renderer 0.2.0"
    )
    controller = a_controller(
        replicas={"r": replica},
        adoption=7,
        timings=GenerationTimings(generation=1, accepted=0.0, placed_seconds=1.0),
        last_scale=LastScale(replicas=1),
        revisions=[
            TemplateRevision(generation=1, template={}, replaced="2026-01-01T00:00:00Z")
        ],
    )
    return deployment_status(state_of(controller), "qwen")


def a_replica_status() -> dict[str, Any]:
    applied = APPLIED.model_copy(
        update={
            "pending": ["main"],
            "pending_causes": ["renderer 0.2.0"],
            "inputs_hash": "i",
            "connector": "nixl",
        }
    )
    spec = {"engines": [{"name": "main"}], "modelCacheRef": {"name": "weights"}}
    teardown = TeardownProgress(
        waiting=[RemainingObject(id="v1/Pod/ml/a", why="its finalizer")]
    )
    state = a_replica(
        applied=applied,
        spec=spec,
        teardown=teardown,
        deletion_timestamp="2026-01-01T00:00:00Z",
        adoption=7,
    )
    return replica_status(state)


def a_cache_status() -> dict[str, Any]:
    copy = a_copy(
        commit="c1", started_at="2026-01-01T00:00:00Z", ready_at="2026-01-01T00:10:00Z"
    )
    state = CacheState(
        stagings={"eu": a_staging(copy, site=a_site("eu"))},
        pin=PinnedRevision(reference="r", revision="c1"),
    )
    return cache_status(
        state, [ClusterPhase("eu", "Ready", "a warning", selected=True)], ["eu"]
    )


def a_cluster_status() -> dict[str, Any]:
    device = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "count": 8,
        "attributes": {"model": {"string": "H100"}},
    }
    pools = [
        {
            "name": "h100",
            "nodes": 2,
            "devices": [device],
            "priceMilli": 1,
            "classMissing": True,
            "unusable": "why",
        }
    ]
    nodes = ObservedNodes(pool="h100", total=2, resources=["nvidia.com/gpu"])
    observed = ObservedCluster(gateway_address="192.0.2.1", nodes=[nodes])
    facts = ClusterFacts(missing_features=["dataParallel"])
    return cluster_status("eu", a_cluster(pools=pools, observed=observed, facts=facts))


def a_stack_status() -> dict[str, Any]:
    stack = a_complete_stack()
    stack.done = stack.done[:-1]
    status: dict[str, Any] = shown_stack("eu", a_cluster(annotations={}, stack=stack))[
        "status"
    ]
    assert status["components"]
    assert status["stages"]
    return status


def shown_by_every_kind() -> dict[str, Any]:
    context = EntityContext(
        "ModelCache",
        EntityState(uid="u"),
        lambda: None,
        "modelcache/ml/weights",
        lambda: NOW,
    )
    context.set_condition("Ready", FALSE, "Creating", "why")
    context.record_event("Normal", "Staging", "why")
    context.state.left_behind = [LeftBehind(kind="Pod", name="a")]
    status: dict[str, Any] = manifest_of(context, "Progressing", {})["status"]
    return status


STATUSES: dict[str, Callable[[], dict[str, Any]]] = {
    "ModelDeployment": a_deployment_status,
    "ModelReplica": a_replica_status,
    "ModelCache": a_cache_status,
    "InferenceCluster": a_cluster_status,
    "ServingStack": a_stack_status,
    "InferenceClass": lambda: {"clusters": ["eu"]},
}


def unknown_fields(value: Any, schema: dict[str, Any], at: str) -> Iterator[str]:
    """Yield the path of every field that a schema does not have."""
    if isinstance(value, list):
        for item in value:
            yield from unknown_fields(item, schema.get("items", {}), f"{at}[]")
    elif isinstance(value, dict):
        others = schema.get("additionalProperties", {})
        for name, item in value.items():
            known = schema.get("properties", {}).get(
                name, others if "properties" not in schema else None
            )
            if known is None:
                yield f"{at}.{name}"
            else:
                yield from unknown_fields(item, known, f"{at}.{name}")


@pytest.mark.parametrize("kind", STATUSES)
def test_every_field_of_a_status_is_in_the_schema(kind: str) -> None:
    schema = json_schema(kind)["properties"]["status"]
    assert (
        list(
            unknown_fields(
                {**shown_by_every_kind(), **STATUSES[kind]()}, schema, "status"
            )
        )
        == []
    )


def test_pending_rollouts_are_among_the_compared_fields() -> None:
    assert {
        "pending",
        "inputsHash",
        "adoption",
        "teardown",
        "cache",
    } <= a_replica_status().keys()
    assert {"pending", "adoption", "revisions"} <= a_deployment_status()[
        "rollout"
    ].keys()
    assert list(
        unknown_fields(
            {"rollout": {"pendig": []}},
            json_schema("md")["properties"]["status"],
            "status",
        )
    ) == ["status.rollout.pendig"]
