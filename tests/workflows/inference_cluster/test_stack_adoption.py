"""A stack that uses what others installed, and a stack that is only planned."""

from typing import Any

import pytest

from activities.render.stack import components
from activities.render.stack.install import OTHER_CRDS
from api_types import labels
from api_types.messages.stack import StackPlan
from tests.workflows.inference_cluster.test_stack_orders import World, said_of
from tests.workflows.inference_cluster.test_stack_plan import (
    ADDRESS,
    NOW,
    a_complete_stack,
    a_plan,
    a_stack,
    carry_out,
)
from workflows.inference_cluster.stack.plan import (
    PREFLIGHT,
    begin_plan,
    is_carried_out,
)
from workflows.inference_cluster.stack.shown import shown_stack
from workflows.inference_cluster.stack.verdict import PLANNED, stack_verdict
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.status import backend_verdict, view_of

CERT_MANAGER = components.CERT_MANAGER.key
LWS = components.LEADER_WORKER_SET.key
USED = f"{CERT_MANAGER} is used as others installed it"


def adopting(*keys: str, left: list[str] | None = None) -> StackPlan:
    """Return a plan that uses components of others."""
    return a_plan().model_copy(
        update={
            "adopted": list(keys),
            "kept": {key: f"{key} is used as others installed it" for key in keys},
            "left": left or [],
        }
    )


@pytest.fixture(autouse=True)
def _orders(monkeypatch: pytest.MonkeyPatch) -> None:
    from temporalio import workflow  # noqa: PLC0415 - only for the patch

    monkeypatch.setattr(
        workflow, "execute_activity_method", lambda _activity, order, **_: order
    )


def installed_by(stack: StackState) -> set[str]:
    """Carry out every step of a stack, and return the installed components."""
    carry_out(stack, 1)
    assert is_carried_out(stack)
    return {*stack.releases}


def test_a_component_of_others_is_neither_installed_nor_awaited() -> None:
    everything = installed_by(a_stack())
    assert everything == {component.key for component in components.COMPONENTS}
    adopting_two = a_stack(adopting(CERT_MANAGER, LWS))
    assert installed_by(adopting_two) == everything - {CERT_MANAGER, LWS}


def test_the_definitions_of_others_are_not_applied() -> None:
    world = World(a_stack(adopting(CERT_MANAGER)))
    world.installer.update()
    world.end_steps()
    world.installer.update()
    releases = world.calls.now[OTHER_CRDS].order.releases
    assert components.CERT_MANAGER.pin.release not in {each.name for each in releases}
    assert components.LEADER_WORKER_SET.pin.release in {each.name for each in releases}


def test_an_adopted_component_is_an_event_and_is_shown_in_the_stack() -> None:
    world = World(StackState())
    world.installer.update()
    plan = adopting(CERT_MANAGER, left=["GatewayClass theirs (example.com/theirs)"])
    world.calls.end(PREFLIGHT, plan)
    assert said_of(world, "Adopted") == [USED]
    assert said_of(world, "Rejected") == []
    assert said_of(world, "LeftAlone") == [
        "the stack leaves alone: GatewayClass theirs (example.com/theirs)"
    ]
    parts = shown_stack("eu", world.state)["status"]["components"]
    (shown,) = (part for part in parts if part["name"] == CERT_MANAGER)
    assert (shown["lag"], shown.get("revision", 0)) == (USED, 0)
    assert USED in stack_verdict(world.stack, "").message


def test_a_retry_looks_again_for_what_others_installed() -> None:
    world = World(a_complete_stack(adopting(CERT_MANAGER)))
    world.installer.retry()
    world.installer.update()
    assert PREFLIGHT in world.calls.now
    # What others removed is installed like an upgrade of the stack.
    world.calls.end(PREFLIGHT, a_plan())
    assert world.stack.upgrading
    assert CERT_MANAGER in installed_by(world.stack)


def test_a_retry_of_a_stack_without_components_of_others_makes_no_plan() -> None:
    world = World(a_complete_stack())
    world.installer.retry()
    world.installer.update()
    assert PREFLIGHT not in world.calls.now


def only_planned(stack: StackState, **fields: Any) -> World:
    world = World(stack, **fields)
    world.state.annotations = {labels.STACK: "plan"}
    return world


def test_a_stack_that_is_only_planned_is_shown_and_changes_nothing() -> None:
    world = only_planned(StackState())
    world.installer.update()
    assert list(world.calls.now) == [PREFLIGHT]
    plan = adopting(CERT_MANAGER, left=["Kueue"])
    world.calls.end(PREFLIGHT, plan)
    world.installer.update()
    assert list(world.calls.now) == []
    verdict = backend_verdict(view_of(world.state))
    assert (verdict.status, verdict.reason) == ("False", PLANNED)
    assert verdict.message.startswith(
        "nothing is installed until the annotation modelplane.ai/stack is managed. "
        "Would be installed: ai-gateway-crds v0.7.0, envoy-gateway v1.8.1, "
    )
    assert "cert-manager v1" not in verdict.message
    assert verdict.message.endswith(f"; {USED}; left alone: Kueue")
    # The annotation is all that is needed to install it.
    world.state.annotations = {}
    world.installer.retry()
    world.installer.update()
    world.calls.end(PREFLIGHT, plan)
    world.installer.update()
    assert "namespaces" in world.calls.now


def test_an_installed_stack_with_the_annotation_is_neither_checked_nor_repaired() -> (
    None
):
    world = only_planned(a_complete_stack())
    world.stack.replan = False
    world.installer.update()
    assert list(world.calls.now) == []
    assert stack_verdict(world.stack, ADDRESS, only_planned=True).status == "True"


def test_a_plan_with_the_same_findings_is_not_begun_again() -> None:
    stack = a_stack(adopting(CERT_MANAGER))
    begin_plan(stack, adopting(CERT_MANAGER), NOW)
    assert stack.plans == 1
    begin_plan(stack, adopting(CERT_MANAGER, LWS), NOW)
    assert stack.plans == 2
