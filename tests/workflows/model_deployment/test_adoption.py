"""Pod changes without a template change: they wait for a rollout, and some start one automatically.

These tests need no server.
"""

from typing import Any

import pytest

from api_types.messages.entities import ReplicaChanged, StartedReplicas
from scheduler import deployment_view, template_digest
from tests.api_types.builders import a_deployment
from tests.workflows.model_deployment.exchange import (
    ENTRY,
    PLACEMENT,
    a_controller,
    answer,
    named,
    state_of,
)
from workflows.entity.manifest import manifest_of
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.decisions.status import status_of
from workflows.model_deployment.orders import StartReplicaWorkflows
from workflows.model_deployment.state import TrackedReplica

RENDERER = "renderer 0.2.0"


def a_replica(uid: str = "r", **fields: Any) -> TrackedReplica:
    """Return a replica that is Ready with generation 1."""
    ready = {
        "started": True,
        "bound": True,
        "ready": True,
        "serving": True,
        "applied_generation": 1,
        "generation": 1,
        "phase": "Ready",
    }
    given = {"entry": ENTRY, **ready, **fields}
    return TrackedReplica(uid=uid, name=f"qwen-{uid}", cluster="eu", index=0, **given)


def deploying(*replicas: TrackedReplica, **state: Any) -> DeploymentController:
    controller = a_controller(
        replicas={replica.uid: replica for replica in replicas}, **state
    )
    controller.next_orders({})
    return controller


def report(controller: DeploymentController, uid: str = "r", **fields: Any) -> None:
    told = {
        "name": f"qwen-{uid}",
        "uid": uid,
        "sequence": 7,
        "phase": "Ready",
        "ready": True,
        "serving": True,
        "generation": 1,
    }
    controller.replicas.record_report(ReplicaChanged(**{**told, **fields}))


def rollout(controller: DeploymentController) -> dict[str, Any]:
    shown: dict[str, Any] = status_of(state_of(controller), "qwen")["rollout"]
    return shown


def test_a_pending_change_is_shown_and_starts_no_rollout() -> None:
    controller = deploying(a_replica("a"), a_replica("b"), a_replica("c"))
    for uid in ("a", "b"):
        report(controller, uid, pending=RENDERER)
    orders = controller.next_orders({})
    assert named(orders, "place") == []
    assert rollout(controller)["pending"] == [f"{RENDERER} changes 2 replicas"]
    assert "adoption" not in rollout(controller)


def test_a_change_requested_by_users_starts_one_rollout_of_an_equal_template() -> None:
    template = template_digest(a_deployment()["spec"]["template"]["spec"])
    controller = deploying(
        *(a_replica(uid, entry={**ENTRY, "template": template}) for uid in "ab")
    )
    assert rollout(controller)["updated"] == 2
    assert (
        deployment_view(manifest_of(controller.replicas._context, "", {})).template
        == template
    )
    report(controller, "a", pending="a rotated Secret", adopting=True)
    (request,) = named(controller.next_orders({}), "place")
    assert request["need"]["template"] != template
    adoption = state_of(controller).adoption
    assert adoption > 0
    # Until they have it, more replicas with the same pending change start no other
    # rollout.
    report(controller, "b", pending="a rotated Secret", adopting=True)
    assert named(controller.next_orders({}), "place") == []
    assert state_of(controller).adoption == adoption
    assert rollout(controller)["updated"] == 0


def test_a_replica_is_current_once_it_has_applied_the_ordered_adoption() -> None:
    controller = deploying(a_replica("a"))
    report(controller, "a", pending="a rotated Secret", adopting=True)
    controller.next_orders({})
    spec = a_deployment()["spec"]["template"]["spec"]
    entry = {**ENTRY, "template": template_digest(spec, state_of(controller).adoption)}
    update = {"uid": "a", "name": "qwen-a", "action": "Update", "entry": entry}
    placement = PLACEMENT.model_copy(update=update)
    controller.placed(answer(controller, placement))
    (ordered,) = named(controller.next_orders({}), "set_template")
    assert ordered["adoption"] == state_of(controller).adoption
    assert not state_of(controller).replicas["a"].current
    report(controller, "a", sequence=8)
    assert not state_of(controller).replicas["a"].current
    report(controller, "a", sequence=9, adoption=ordered["adoption"])
    assert state_of(controller).replicas["a"].current
    assert rollout(controller)["updatedReady"] == 1
    # A later pending change is another change.
    before = state_of(controller).adoption
    report(
        controller,
        "a",
        sequence=10,
        adoption=ordered["adoption"],
        pending="a rotated Secret",
        adopting=True,
    )
    controller.next_orders({})
    assert state_of(controller).adoption > before


def test_a_replica_placed_during_a_rollout_belongs_to_it() -> None:
    controller = deploying(adoption=5)
    controller.placed(answer(controller, PLACEMENT))
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert start.replicas[0].adoption == 5


@pytest.mark.parametrize(
    ("adopted", "carried"), [(4, 5), (5, 0)], ids=["it has it not yet", "it has it"]
)
def test_a_terminated_replica_is_started_with_its_missing_adoption(
    adopted: int, carried: int
) -> None:
    lost = a_replica(
        "a", started=False, bound=False, restarted=True, adoption=5, adopted=adopted
    )
    controller = a_controller(replicas={"a": lost}, adoption=5)
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert start.replicas[0].adoption == carried
    # It may still be running with an older template, so it gets the current one,
    # without other pending changes.
    orders = controller.replicas.started(start, StartedReplicas())
    assert [template["adoption"] for template in named(orders, "set_template")] == [
        carried
    ]
