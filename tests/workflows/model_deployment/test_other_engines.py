"""Replicas that were placed for engines missing from the current template, and whose
workflows do not run.
"""

import copy
from typing import Any

from api_types.messages.entities import StartReplica
from tests.workflows.model_deployment.exchange import (
    ENTRY,
    NOW,
    PLACEMENT,
    a_controller,
    state_of,
)
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.orders import StartReplicaWorkflows
from workflows.model_deployment.revisions import TemplateRevision
from workflows.model_deployment.state import TrackedReplica


def with_engine(name: str, members: int = 1, **fields: Any) -> DeploymentController:
    """Return a deployment with one engine, whose lost replica was placed for engine `a`."""
    controller = a_controller(
        replicas={
            "r": TrackedReplica.of(
                PLACEMENT, started=True, bound=True, generation=1, **fields
            )
        }
    )
    state = state_of(controller)
    assert state.spec is not None
    spec = copy.deepcopy(state.spec)
    (engine,) = spec["template"]["spec"]["engines"]
    engine["name"], engine["members"] = name, engine["members"] * members
    state.spec, state.lost = spec, {"r": NOW.isoformat()}
    return controller


def start_of(controller: DeploymentController) -> StartReplica:
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    (replica,) = start.replicas
    return replica


def test_a_terminating_replica_is_started_again_to_be_deleted() -> None:
    start = start_of(with_engine("serve", deletion_reason="it has other engines"))
    assert (start.restarted, start.deleting) == (True, True)
    assert start.spec == {
        "clusterName": "eu",
        "engines": [{"name": "a", "members": [{"role": "", "nodePoolName": "h100"}]}],
    }


def test_a_replica_with_fewer_members_is_started_again_to_be_deleted_too() -> None:
    assert start_of(
        with_engine("a", members=2, deletion_reason="it has other members")
    ).deleting


def test_a_remaining_replica_has_the_newest_template_that_fits_its_placement() -> None:
    controller = with_engine("serve")
    templates = [
        copy.deepcopy(state_of(with_engine("a")).spec or {})["template"]["spec"]
        for _ in range(3)
    ]
    for number, template in enumerate(templates):
        template["engines"][0]["members"][0]["template"] = {"number": number}
    templates[2]["engines"][0]["name"] = "other"
    state_of(controller).revisions = [
        TemplateRevision(generation=n, replaced="", template=template)
        for n, template in enumerate(templates)
    ]
    (engine,) = start_of(controller).spec["engines"]
    assert (engine["name"], engine["members"][0]["template"]) == ("a", {"number": 1})


def test_a_fitting_replica_has_the_current_template() -> None:
    controller = with_engine("a")
    present = (state_of(controller).spec or {})["template"]["spec"]
    state_of(controller).revisions = [
        TemplateRevision(generation=1, replaced="", template={"engines": []})
    ]
    assert (
        start_of(controller).spec["engines"][0]["members"][0]["template"]
        == present["engines"][0]["members"][0]["template"]
    )
    assert ENTRY["engines"] == [{"engine": "a", "members": [{"pool": "h100"}]}]
