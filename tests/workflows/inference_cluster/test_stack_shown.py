"""The ServingStack that a cluster shows.

A manifest of its kind, with installed releases, outdated ones and the reason.
"""

from typing import Any

import pytest

from activities.render.stack import components
from activities.render.stack.install import GATEWAY_CRDS, S1
from api_types import labels
from api_types.messages.stack import Lag
from api_types.resources.serving_stack import ServingStack
from api_types.resources.status import Condition, EventRecord
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.inference_cluster.test_stack_plan import (
    a_complete_stack,
    a_plan,
    a_stack,
    look,
    take,
)
from workflows.entity.failures import Failure
from workflows.inference_cluster.stack.plan import begin_plan
from workflows.inference_cluster.stack.shown import shown_stack
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState

NOW = "2026-01-01T00:00:00Z"
HEALTHY = Condition(
    type="BackendReady",
    status="True",
    reason="BackendHealthy",
    last_transition_time=NOW,
)
INSTALLING = Condition(
    type="BackendReady",
    status="False",
    reason="Installing",
    message="S1 base",
    last_transition_time=NOW,
)


def managed(
    stack: StackState | None = None, *conditions: Condition, **fields: Any
) -> ClusterState:
    return a_cluster(
        **{
            "annotations": {},
            "stack": stack or StackState(),
            "conditions": list(conditions),
            **fields,
        }
    )


def shown(state: ClusterState) -> ServingStack:
    """Return the stack, parsed as `modelplane validate` does."""
    return ServingStack.model_validate(shown_stack("eu", state), extra="forbid")


def lags(stack: ServingStack) -> dict[str, str]:
    assert stack.status
    return {part.name: part.lag for part in stack.status.components}


def test_a_complete_stack_is_shown_with_versions_and_revisions_and_nothing_outdated() -> (
    None
):
    stack = shown(managed(a_complete_stack(), HEALTHY))
    assert (stack.metadata.namespace, stack.metadata.labels) == (
        labels.SYSTEM_NAMESPACE,
        {labels.CLUSTER: "eu"},
    )
    assert [(secret.type, secret.name) for secret in stack.spec.secrets] == [
        ("Kubeconfig", "eu")
    ]
    assert stack.status
    assert (stack.status.phase, stack.status.source, stack.status.stages) == (
        "Ready",
        "Existing",
        (),
    )
    assert stack.status.gateway
    assert stack.status.gateway.address == "192.0.2.1"
    assert stack.status.conditions == (HEALTHY.model_copy(update={"type": "Ready"}),)
    wanted = {
        each.key: (each.pin.release, each.pin.version, 1)
        for each in components.COMPONENTS
    }
    assert {
        part.name: (part.release, part.version, part.revision)
        for part in stack.status.components
    } == wanted
    assert set(lags(stack).values()) == {""}
    assert stack.status.observed_generation == stack.metadata.generation == 1


def test_a_stack_under_installation_shows_the_wait_of_each_release() -> None:
    plan = a_stack()
    for key in ("namespaces", GATEWAY_CRDS, "ai-gateway-crds"):
        take(plan, key)
    plan.failures["envoy-gateway"] = Failure("ChartUnavailable", "no such host")
    plan.stages, plan.late = {S1.number: NOW}, [S1.number]
    look(
        plan,
        Lag(
            target="ai-gateway-crds",
            object="CustomResourceDefinition/x",
            why="not established",
        ),
    )
    stack = shown(managed(plan, INSTALLING))
    found = lags(stack)
    assert found["ai-gateway-crds"] == "CustomResourceDefinition/x: not established"
    assert found["envoy-gateway"] == "ChartUnavailable: no such host"
    assert found["cert-manager"] == "waits for other-crds"
    assert stack.status
    assert (stack.status.phase, stack.status.observed_generation) == ("Progressing", 0)
    assert [part.stage for part in stack.status.components][:2] == ["S2a", "S2b"]
    stages = {each.stage: each for each in stack.status.stages}
    assert stages["S1"].message.startswith("applies ")
    assert (stages["S1"].late, stages["S1"].since, stages["S2c"].late) == (
        True,
        NOW,
        False,
    )


def test_an_installation_without_a_later_check_is_not_shown_as_planned() -> None:
    plan = a_stack()
    for key in ("namespaces", GATEWAY_CRDS, "ai-gateway-crds"):
        take(plan, key)
    assert (
        lags(shown(managed(plan, INSTALLING)))["ai-gateway-crds"]
        == "installed, not observed yet"
    )


def test_a_stack_without_a_plan_shows_the_state_of_its_cluster() -> None:
    stack = shown(managed(None, INSTALLING))
    assert stack.status
    assert (stack.status.phase, stack.status.components, stack.status.stages) == (
        "Pending",
        (),
        (),
    )
    assert [(secret.name, secret.key) for secret in stack.spec.secrets] == [
        ("eu-1", "kubeconfig")
    ]


def test_a_stack_under_upgrade_shows_its_target_versions_and_still_serves() -> None:
    complete = a_complete_stack()
    begin_plan(complete, a_plan(versions={"leaderWorkerSet": "v0.8.1"}), NOW)
    stack = shown(managed(complete, HEALTHY))
    assert stack.spec.versions
    assert stack.spec.versions.leader_worker_set == "v0.8.1"
    assert stack.status
    assert (
        stack.status.phase,
        stack.status.observed_generation,
        stack.metadata.generation,
    ) == ("Ready", 1, 2)


def test_a_complete_stack_that_lost_an_object_is_degraded() -> None:
    complete = a_complete_stack()
    look(
        complete,
        Lag(
            target="envoy-gateway",
            object="Deployment/envoy-gateway",
            why="0/1 pods are available",
        ),
    )
    lost = INSTALLING.model_copy(update={"reason": "StackUnavailable"})
    stack = shown(managed(complete, lost))
    assert stack.status
    assert stack.status.phase == "Degraded"
    assert (
        lags(stack)["envoy-gateway"]
        == "Deployment/envoy-gateway: 0/1 pods are available"
    )


def test_a_stack_under_removal_and_its_events_are_shown() -> None:
    said = (("Connected", "v1.35"), ("StackComplete", ""), ("X", "stack: a"))
    events = [EventRecord(reason=reason, message=text) for reason, text in said]
    deleting = Condition(
        type="Deleting", status="False", reason="Removing", last_transition_time=NOW
    )
    stack = shown(
        managed(
            a_complete_stack(), HEALTHY, deleting, deletion_timestamp=NOW, events=events
        )
    )
    assert stack.status
    assert stack.status.phase == "Deleting"
    assert [event.reason for event in stack.status.events] == ["StackComplete", "X"]
    assert [condition.type for condition in stack.status.conditions] == [
        "Ready",
        "Deleting",
    ]
    assert stack.metadata.deletion_timestamp == NOW


@pytest.mark.parametrize(
    "state",
    [a_cluster(), managed(spec=None), managed(spec={"cluster": {"source": "GKE"}})],
    ids=["others install it", "no accepted spec", "not provisioned by this release"],
)
def test_an_unmanaged_cluster_shows_no_stack(
    state: ClusterState,
) -> None:
    assert shown_stack("eu", state) == {}
