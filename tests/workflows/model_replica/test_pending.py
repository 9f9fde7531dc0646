"""A replica with an unchanged template that would render other pods.

It shows the change and waits for consent. These tests need no server.
"""

from datetime import timedelta
from typing import Any

import pytest

from api_types.messages.cluster_work import Applied, ClusterFacts
from api_types.messages.entities import SetTemplate
from tests.workflows.model_replica.builders import APPLIED, CLUSTER, a_replica
from tests.workflows.model_replica.controlled import Replica
from workflows.model_replica.apply import OTHER_RENDERERS_MAX
from workflows.model_replica.decisions.status import report_of, status_of
from workflows.model_replica.orders import Apply
from workflows.model_replica.pruning import ReplicaPruning
from workflows.model_replica.reducers import messages
from workflows.model_replica.state import ModelReplicaState

HELD = APPLIED.model_copy(
    update={
        "pending": ["model-serving-main"],
        "pending_causes": ["renderer 0.2.0"],
        "inputs_hash": "i2",
    }
)


def reporting(sequence: int = 2, **facts: Any) -> Any:
    """Return a report of the cluster with other facts."""
    return CLUSTER.model_copy(
        update={
            "sequence": sequence,
            "facts": ClusterFacts(gateway_address="10.0.0.1", **facts),
        }
    )


def applies(replica: Replica) -> list[Apply]:
    return [order for order in replica.orders if isinstance(order, Apply)]


def a_template(state: ModelReplicaState, **fields: Any) -> SetTemplate:
    return SetTemplate(
        uid="u", generation=1, spec=state.spec or {}, **{"sequence": 1, **fields}
    )


@pytest.mark.parametrize(
    ("facts", "asks"),
    [
        ({"renderer": "r2"}, True),
        ({"dra_version": "v1"}, True),
        ({"kubernetes_version": "1.36.0"}, True),
        ({"gateway_message": "hello"}, False),
        ({"apis": ["example.com/v1"]}, False),
    ],
    ids=["renderer", "DRA", "release", "gateway", "foreign API"],
)
def test_changed_facts_that_rendering_uses_are_followed_once(
    facts: dict[str, Any], asks: bool
) -> None:
    replica = Replica(a_replica())
    replica.controller.cluster_changed(reporting(**facts))
    replica.step()
    assert len(applies(replica)) == asks
    assert not any(order.request.adoption for order in applies(replica))
    replica.controller.cluster_changed(reporting(3, **facts))
    replica.step()
    assert len(applies(replica)) == asks


def test_a_patch_release_is_no_reason_to_render_again() -> None:
    replica = Replica(a_replica(cluster=reporting(1, kubernetes_version="1.35.4")))
    replica.controller.cluster_changed(reporting(kubernetes_version="1.35.9"))
    replica.step()
    assert applies(replica) == []


def test_a_pending_change_is_reported_and_shown_and_deletes_nothing() -> None:
    state = a_replica(applied=HELD)
    report = report_of(state)
    assert (report.pending, report.adopting, report.adoption) == (
        "renderer 0.2.0",
        False,
        0,
    )
    shown = status_of(state)
    assert shown["pending"] == {
        "causes": ["renderer 0.2.0"],
        "workloads": ["model-serving-main"],
    }
    assert shown["inputsHash"] == "i2"
    assert "pending" not in status_of(a_replica())


async def test_unrendered_objects_stay_while_remaining_pods_use_them() -> None:
    replica = Replica(a_replica(applied=HELD, prune=True))
    replica.controller.conclude()
    await ReplicaPruning(replica.context).step()
    assert replica.state.prune


def test_changed_facts_end_the_wait_after_a_failed_apply() -> None:
    state = a_replica(retry_at="2026-01-01T12:00:00+00:00", generation=2)
    replica = Replica(state)
    replica.controller.cluster_changed(reporting(gateway_message="hello"))
    replica.step()
    assert applies(replica) == []
    replica.controller.cluster_changed(reporting(3, dra_version="v1"))
    replica.step()
    assert len(applies(replica)) == 1


def test_an_adoption_is_applied_once_and_reported() -> None:
    state = a_replica(applied=HELD)
    replica = Replica(state)
    assert messages.set_template(state, a_template(state, adoption=7))
    replica.step()
    replica.now += timedelta(seconds=ClusterFacts().drain_seconds)
    replica.step()
    assert [order.request.adoption for order in applies(replica)] == [True]
    assert (report_of(state).adoption, status_of(state)["adoption"]) == (7, 7)
    # An older adoption, or the same one again, allows nothing.
    messages.set_template(state, a_template(state, sequence=2, adoption=5))
    assert state.adoption == 7
    replica.controller.cluster_changed(reporting(renderer="r2"))
    replica.step()
    assert [order.request.adoption for order in applies(replica)] == [True, False]


def test_an_apply_by_a_worker_with_another_renderer_than_the_facts_is_repeated() -> (
    None
):
    replica = Replica(a_replica())
    replica.controller.cluster_changed(reporting(renderer="r2"))
    older = APPLIED.model_copy(update={"renderer": "r1"})
    for pause in (15, 30, 60):
        (order,) = replica.controller.applying.next_orders()
        assert isinstance(order, Apply)
        replica.controller.applying.applied(order, older)
        replica.now += timedelta(seconds=pause - 1)
        assert replica.controller.applying.next_orders() == []
        replica.now += timedelta(seconds=1)
    (order,) = replica.controller.applying.next_orders()
    assert isinstance(order, Apply)
    replica.controller.applying.applied(
        order, HELD.model_copy(update={"renderer": "r2"})
    )
    assert report_of(replica.state).pending == "renderer 0.2.0"
    replica.now += timedelta(days=1)
    assert replica.controller.applying.next_orders() == []


def test_workers_that_never_agree_cause_a_limited_number_of_applies() -> None:
    replica = Replica(a_replica())
    replica.controller.cluster_changed(reporting(renderer="r2"))
    for count in (1 + OTHER_RENDERERS_MAX, 0):
        made = 0
        while orders := replica.controller.applying.next_orders():
            assert isinstance(orders[0], Apply)
            replica.controller.applying.applied(
                orders[0], APPLIED.model_copy(update={"renderer": "r1"})
            )
            replica.now += timedelta(hours=1)
            made += 1
        assert made == count
    # Another input resets the limit.
    replica.controller.cluster_changed(reporting(3, renderer="r3"))
    assert replica.controller.applying.next_orders()


def test_a_change_that_becomes_pending_is_an_event_once() -> None:
    state = a_replica()
    replica = Replica(state)
    for _ in range(2):
        state.applied_inputs = None
        (order,) = [
            each
            for each in replica.controller.applying.next_orders()
            if isinstance(each, Apply)
        ]
        replica.controller.applying.applied(order, Applied.model_validate(HELD.wire()))
    assert [
        event.message for event in state.events if event.reason == "ChangePending"
    ] == ["renderer 0.2.0: pods stay until a rollout: model-serving-main"]


CHANGE = "renderer 0.2.0: pods stay until a rollout: model-serving-main"
WARNED = APPLIED.model_copy(update={"warnings": ["an old probe"]})


@pytest.mark.parametrize(
    ("before", "now", "events"),
    [
        (None, HELD, [("Applied", "1 objects on eu"), ("ChangePending", CHANGE)]),
        (APPLIED, APPLIED, []),
        (APPLIED, HELD, [("ChangePending", CHANGE)]),
        (HELD, HELD, []),
        (
            HELD.model_copy(update={"pending": ["another"]}),
            HELD,
            [("ChangePending", CHANGE)],
        ),
        (HELD, APPLIED, []),
        (APPLIED, WARNED, [("Rendering", "an old probe")]),
        (None, WARNED, [("Applied", "1 objects on eu"), ("Rendering", "an old probe")]),
        (WARNED, WARNED, []),
    ],
    ids=[
        "the first apply",
        "nothing new",
        "a change that waits",
        "it waits still",
        "another one waits",
        "none waits any more",
        "a warning",
        "a warning at first",
        "the same warning",
    ],
)
def test_a_finding_of_an_apply_is_an_event_when_it_is_new(
    before: Applied | None, now: Applied, events: list[tuple[str, str]]
) -> None:
    replica = Replica(a_replica(applied=before), applied=now)
    replica.controller.cluster_changed(reporting(renderer="r2"))
    replica.step()
    found = [(event.reason, event.message) for event in replica.state.events]
    assert [
        each for each in found if each[0] in ("Applied", "ChangePending", "Rendering")
    ] == events
