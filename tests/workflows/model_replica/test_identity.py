"""Labels of a replica follow from its start, and its endpoint from observations.

No template changes the labels, and no short outage the endpoint.
"""

from typing import Any

import pytest

from api_types import labels
from api_types.messages.cluster_work import Applied, AppliedEngine
from api_types.messages.entities import SetTemplate, StartReplica
from api_types.messages.observations import (
    ObservedReplica,
    ObservedRoute,
    ObservedWorkload,
)
from workflows.model_replica.decisions.observation import holds_floor
from workflows.model_replica.reducers.template import apply_template
from workflows.model_replica.state import ModelReplicaState

APPLIED = Applied(
    hash="h",
    workload_name="w",
    workload_namespace="ml",
    engines=[
        AppliedEngine(name="main", kind="Deployment", workload_name="w-main", copies=2)
    ],
)
ENGINES: list[dict[str, Any]] = [{"name": "main"}]


def seen(pods_ready: int, *, accepted: bool = True) -> ObservedReplica:
    workload = ObservedWorkload(
        name="w-main",
        kind="Deployment",
        current=True,
        desired=2,
        ready=0,
        pods_ready=pods_ready,
    )
    return ObservedReplica(
        workloads=[workload], routes=[ObservedRoute(name="w", accepted=accepted)]
    )


@pytest.mark.parametrize(
    ("observed", "stays"),
    [(seen(1), True), (seen(0), False), (seen(2, accepted=False), False)],
    ids=[
        "147 Ready lost while a pod serves",
        "no pod serves",
        "the route is refused",
    ],
)
def test_an_endpoint_is_withdrawn_with_serving_and_not_with_ready(
    observed: ObservedReplica, *, stays: bool
) -> None:
    assert holds_floor(APPLIED, observed, ENGINES) is stays


def test_managed_labels_override_labels_of_the_template() -> None:
    start = StartReplica(
        uid="u",
        namespace="ml",
        name="chat-1",
        deployment="chat",
        deployment_uid="d",
        cluster="eu-1",
        index=3,
        generation=1,
        spec={},
    )
    state = ModelReplicaState(start=start)
    apply_template(
        state,
        SetTemplate(
            generation=1,
            spec={},
            labels={labels.CLUSTER: "x", labels.REPLICA_INDEX: "9", "team": "red"},
        ),
    )
    assert state.labels == {
        labels.DEPLOYMENT: "chat",
        labels.CLUSTER: "eu-1",
        labels.REPLICA_INDEX: "3",
        "team": "red",
    }
