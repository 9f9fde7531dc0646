"""The scheduler's books alone: what each message changes, and who is asked about again because of it. No server is needed."""

import logging
from datetime import timedelta
from typing import Any

from api_types.messages import Place, SetPolicy
from scheduler.decide import apply, decide
from scheduler.fleet import Fleet
from scheduler.types import DeploymentView
from scheduler.wire import from_wire, to_wire
from tests.scheduler.builders import cluster, deployment, engine
from workflows.deciding import schedule_request
from workflows.scheduler_books import Books, SchedulerState

LOG = logging.getLogger(__name__)
START = 1_700_000_000_000
MINUTE = 60_000


class Clock:
    """A time that moves when told."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


def place(view: DeploymentView, number: int = 1) -> Place:
    return Place(
        request_id=f"{view.uid}/{number}",
        namespace=view.namespace,
        name=view.name,
        uid=view.uid,
        generation=1,
        wanted=view.replicas,
        need=to_wire(view),
    )


def books(clock: Clock, *views: Any, policy: dict[str, Any] | None = None) -> Books:
    made = Books(SchedulerState(), clock, LOG)
    for view in views:
        made.fleet.put_cluster(view)
    if policy:
        made.state.inbox.append(("set_policy", SetPolicy(policy=policy).wire()))
    return made


def turn(made: Books, *orders: tuple[str, Any]) -> list[str]:
    """Take messages in and decide everything that waits, as the workflow does; gives who was decided about."""
    made.state.inbox += [(kind, order.wire()) for kind, order in orders]
    made.take_inbox()
    queue, made.state.queue = made.state.queue, []
    for waiting in queue:
        decision = decide(made.fleet, [schedule_request(waiting)], made.now())[0]
        apply(made.fleet, decision, from_wire(DeploymentView, waiting.need))
        if decision.waits_for_capacity:
            made.state.unplaced.append(waiting)
    return [waiting.name for waiting in queue]


def test_sch_18_4_10_those_behind_a_hold_are_asked_about_when_it_runs_out() -> None:
    clock = Clock()
    made = books(clock, cluster("a", 1), policy={"queueOrder": "StrictOrder", "holdForSeconds": 300})
    turn(made)
    big, small = deployment(engine(copies=4), name="big"), deployment(name="small")
    assert turn(made, ("place", place(big)), ("place", place(small))) == ["big", "small"]
    assert made.holds_end_after() == timedelta(minutes=5, milliseconds=1)
    clock.ms += 4 * MINUTE
    assert turn(made) == []
    clock.ms += MINUTE + 1
    assert turn(made) == ["big", "small"]
    assert [entry.deployment for entry in made.fleet.entries()] == ["small"]
    assert made.holds_end_after() is None


def test_sch_18_4_10_a_hold_ends_with_its_deployment_and_is_carried_over() -> None:
    clock = Clock()
    made = books(clock, cluster("a", 1), policy={"queueOrder": "StrictOrder"})
    turn(made)
    turn(made, ("place", place(deployment(engine(copies=4), name="big"))))
    assert Fleet.load(made.fleet.dump()).holds == made.fleet.holds
    made.state.inbox.append(("forget", {"kind": "ModelDeployment", "namespace": "ml", "name": "big", "uid": "u"}))
    assert turn(made, ("place", place(deployment(name="small")))) == ["small"]
    assert made.holds_end_after() is None
    assert [entry.deployment for entry in made.fleet.entries()] == ["small"]
