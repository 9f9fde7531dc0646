"""The placement request of a deployment, and its reaction to an answer, as pure decisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_types.messages.scheduling import (
    PlacementResponse,
    ReplicaEviction,
    ReplicaPlacement,
)
from workflows.model_deployment.decisions.plan import (
    placement_inputs,
    placement_request,
    plan_answer,
    startable,
)
from workflows.model_deployment.state import DeploymentState, TrackedReplica

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = (NOW + timedelta(seconds=1)).isoformat()
ENTRY = {"uid": "of the ledger", "state": "Reserved"}


def replica(uid: str, **fields: Any) -> TrackedReplica:
    return TrackedReplica(
        **{"uid": uid, "name": uid, "cluster": "c", "index": 0, **fields}
    )


def replicas(*tracked: TrackedReplica) -> dict[str, TrackedReplica]:
    return {each.uid: each for each in tracked}


def placement(uid: str, **fields: Any) -> ReplicaPlacement:
    return ReplicaPlacement(
        **{
            "uid": uid,
            "name": uid,
            "cluster": "c",
            "index": 0,
            "action": "Keep",
            **fields,
        }
    )


def answer(
    *placements: ReplicaPlacement, evicted: tuple[str, ...] = ()
) -> PlacementResponse:
    evictions = [
        ReplicaEviction(uid=uid, name=uid, cluster="c", reason=f"{uid} is not wanted")
        for uid in evicted
    ]
    return PlacementResponse(
        request_id="r",
        epoch=1,
        generation=2,
        placements=list(placements),
        evictions=evictions,
    )


def test_an_untracked_placement_is_created_with_its_entry() -> None:
    plan = plan_answer(
        {}, answer(placement("a", action="Create", entry=ENTRY, after=["z"])), 2, "d"
    )
    assert plan.create == [replica("a", entry=ENTRY, after=["z"], generation=2)]
    assert (plan.entries, plan.update, plan.delete, plan.repeat) == ({}, [], {}, False)


@pytest.mark.parametrize(
    ("owner", "after", "restarted"),
    [
        ("d", [], False),
        ("", [], False),
        ("earlier", [], True),
        ("earlier", ["z"], False),
    ],
    ids=[
        "its own",
        "unknown whose",
        "of an earlier deployment",
        "a replica that still waits for nodes",
    ],
)
def test_a_placement_possibly_started_by_an_earlier_deployment_is_started_as_a_rerun(
    owner: str, after: list[str], restarted: bool
) -> None:
    # The earlier deployment was terminated before it reported the start, and so was the
    # replica. Nothing else deletes its objects.
    entry = {**ENTRY, "origin": [owner, "r"]}
    (created,) = plan_answer(
        {}, answer(placement("a", entry=entry, after=after)), 2, "d"
    ).create
    assert created.restarted == restarted


def test_a_kept_placement_without_an_entry_that_is_gone_is_requested_again() -> None:
    plan = plan_answer({}, answer(placement("a")), 2, "d")
    assert (plan.create, plan.repeat) == ([], True)


def test_a_tracked_placement_gets_its_new_entry_and_is_updated_at_its_step() -> None:
    tracked = replicas(replica("a", started=True), replica("b", started=True))
    plan = plan_answer(
        tracked,
        answer(placement("a", action="Update", entry=ENTRY), placement("b")),
        2,
        "d",
    )
    assert (plan.create, plan.entries, plan.update, plan.repeat) == (
        [],
        {"a": ENTRY},
        ["a"],
        False,
    )


def test_a_terminated_replica_stays_tracked_while_it_is_evicted() -> None:
    plan = plan_answer(
        replicas(replica("a", bound=True)),
        answer(placement("a", entry=ENTRY), evicted=("a",)),
        2,
        "d",
    )
    assert (plan.create, plan.entries) == ([], {"a": ENTRY})


def test_only_tracked_replicas_are_deleted() -> None:
    plan = plan_answer(
        replicas(replica("a", started=True)), answer(evicted=("a", "b")), 2, "d"
    )
    assert plan.delete == {"a": "a is not wanted"}


@pytest.mark.parametrize(
    ("tracked", "started"),
    [
        ([replica("a"), replica("b")], ["a", "b"]),
        ([replica("a", started=True), replica("b")], ["b"]),
        ([replica("a", after=["z"])], []),
        ([replica("a", after=["z"]), replica("z", started=True)], []),
        ([replica("a", name="same"), replica("z", name="same", started=True)], []),
        ([replica("a", name="same"), replica("z", name="same", restarted=True)], ["z"]),
        ([replica("a", start_after=LATER)], []),
    ],
    ids=[
        "all that were placed",
        "not the running replicas",
        "not after a replica that may still exist, even an untracked one",
        "not before its predecessor is gone",
        "not under a taken name",
        "the rerun replica first",
        "not again at once",
    ],
)
def test_a_replica_is_started_when_its_predecessors_are_gone_and_its_name_is_free(
    tracked: list[TrackedReplica], started: list[str]
) -> None:
    assert [each.uid for each in startable(tracked, NOW)] == started


def a_state(**fields: Any) -> DeploymentState:
    tracked = replicas(
        replica("b", started=True, ready=True, serving=True, deletion_reason="Deleted"),
        replica("a", generation=1),
    )
    return DeploymentState(
        **{
            "uid": "u",
            "generation": 2,
            "epoch": 7,
            "replicas": tracked,
            "spec": {"replicas": 3},
            **fields,
        }
    )


def test_health_matters_to_an_answer_only_while_steps_remain() -> None:
    assert placement_inputs(a_state(), {})[2:] == (
        [("a", False), ("b", True)],
        [],
        {},
        0,
    )
    assert placement_inputs(a_state(more=True), {}).health == [
        ("a", False, False),
        ("b", True, True),
    ]


def test_a_request_lists_every_replica_with_its_current_state() -> None:
    place = placement_request(a_state(request_id="u/2/1"), "ns", "name", {})
    assert [
        (known.uid, known.ready, known.serving, known.terminating)
        for known in place.kept
    ] == [
        ("a", False, False, False),
        ("b", True, True, True),
    ]
    assert (place.wanted, place.epoch, place.generation, place.request_id) == (
        3,
        7,
        2,
        "u/2/1",
    )


def test_the_last_request_is_carried_over() -> None:
    inputs = placement_inputs(a_state(more=True), {"name": "qwen", "state": "Absent"})
    carried = a_state(requested_inputs=inputs).model_dump(mode="json", by_alias=True)
    assert DeploymentState.model_validate(carried).requested_inputs == inputs
