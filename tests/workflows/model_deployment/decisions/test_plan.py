"""What a deployment requests of the scheduler, and what it makes of an answer: pure decisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_types.messages.scheduling import PlacementResponse, ReplicaEviction, ReplicaPlacement
from workflows.model_deployment.decisions.plan import placement_inputs, placement_request, plan_answer, startable
from workflows.model_deployment.state import DeploymentState, TrackedReplica

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = (NOW + timedelta(seconds=1)).isoformat()
ENTRY = {"uid": "of the ledger", "state": "Reserved"}


def replica(uid: str, **fields: Any) -> TrackedReplica:
    return TrackedReplica(**{"uid": uid, "name": uid, "cluster": "c", "index": 0, **fields})


def replicas(*tracked: TrackedReplica) -> dict[str, TrackedReplica]:
    return {each.uid: each for each in tracked}


def placement(uid: str, **fields: Any) -> ReplicaPlacement:
    return ReplicaPlacement(**{"uid": uid, "name": uid, "cluster": "c", "index": 0, "action": "Keep", **fields})


def answer(*placements: ReplicaPlacement, evicted: tuple[str, ...] = ()) -> PlacementResponse:
    evictions = [ReplicaEviction(uid=uid, name=uid, cluster="c", reason=f"{uid} is not wanted") for uid in evicted]
    return PlacementResponse(request_id="r", epoch=1, generation=2, placements=list(placements), evictions=evictions)


def test_a_placement_that_is_not_tracked_is_created_with_its_entry() -> None:
    plan = plan_answer({}, answer(placement("a", action="Create", entry=ENTRY, after=["z"])), 2, "d")
    assert plan.create == [replica("a", entry=ENTRY, after=["z"], generation=2)]
    assert (plan.entries, plan.update, plan.delete, plan.repeat) == ({}, [], {}, False)


@pytest.mark.parametrize(
    ("owner", "after", "restarted"),
    [("d", [], False), ("", [], False), ("earlier", [], True), ("earlier", ["z"], False)],
    ids=["its own", "unknown whose", "of an earlier deployment", "one that still waits for nodes"],
)
def test_a_placement_that_an_earlier_deployment_may_have_started_is_started_as_one_that_ran_before(
    owner: str, after: list[str], restarted: bool
) -> None:
    # The earlier one was terminated before it reported the start, and so was the replica: its objects are deleted by no other.
    entry = {**ENTRY, "origin": [owner, "r"]}
    (created,) = plan_answer({}, answer(placement("a", entry=entry, after=after)), 2, "d").create
    assert created.restarted == restarted


def test_a_kept_placement_without_an_entry_that_is_gone_meanwhile_has_to_be_requested_again() -> None:
    plan = plan_answer({}, answer(placement("a")), 2, "d")
    assert (plan.create, plan.repeat) == ([], True)


def test_a_tracked_placement_gets_its_new_entry_and_is_updated_when_its_step_has_come() -> None:
    tracked = replicas(replica("a", started=True), replica("b", started=True))
    plan = plan_answer(tracked, answer(placement("a", action="Update", entry=ENTRY), placement("b")), 2, "d")
    assert (plan.create, plan.entries, plan.update, plan.repeat) == ([], {"a": ENTRY}, ["a"], False)


def test_a_replica_whose_workflow_was_terminated_stays_tracked_while_it_is_evicted() -> None:
    plan = plan_answer(replicas(replica("a", bound=True)), answer(placement("a", entry=ENTRY), evicted=("a",)), 2, "d")
    assert (plan.create, plan.entries) == ([], {"a": ENTRY})


def test_only_tracked_replicas_are_deleted() -> None:
    plan = plan_answer(replicas(replica("a", started=True)), answer(evicted=("a", "b")), 2, "d")
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
        "not those that run",
        "not after one that is not known to be gone, whoever tracks it",
        "not before its predecessor is gone",
        "not under a taken name",
        "first the one that ran before",
        "not again at once",
    ],
)
def test_a_replica_is_started_when_its_predecessors_are_gone_and_its_name_is_free(
    tracked: list[TrackedReplica], started: list[str]
) -> None:
    assert [each.uid for each in startable(tracked, NOW)] == started


def a_state(**fields: Any) -> DeploymentState:
    tracked = replicas(replica("b", started=True, ready=True, serving=True, deletion_reason="Deleted"), replica("a", generation=1))
    return DeploymentState(**{"uid": "u", "generation": 2, "epoch": 7, "replicas": tracked, "spec": {"replicas": 3}, **fields})


def test_health_matters_to_an_answer_only_while_steps_are_left() -> None:
    assert placement_inputs(a_state(), {})[2:] == ([("a", False), ("b", True)], [], {}, 0)
    assert placement_inputs(a_state(more=True), {}).health == [("a", False, False), ("b", True, True)]


def test_a_request_has_every_replica_as_it_is() -> None:
    place = placement_request(a_state(request_id="u/2/1"), "ns", "name", {})
    assert [(known.uid, known.ready, known.serving, known.terminating) for known in place.kept] == [
        ("a", False, False, False),
        ("b", True, True, True),
    ]
    assert (place.wanted, place.epoch, place.generation, place.request_id) == (3, 7, 2, "u/2/1")


def test_what_was_requested_is_carried_as_before_and_read_back() -> None:
    inputs = placement_inputs(a_state(more=True), {"name": "qwen", "state": "Absent"})
    carried = a_state(requested_inputs=inputs).model_dump(mode="json", by_alias=True)
    assert carried["askedFor"] == [2, 7, [["a", False], ["b", True]], [["a", False, False], ["b", True, True]], inputs.cache, 0]
    assert carried["replicas"]["b"]["leaving"] == "Deleted"
    assert DeploymentState.model_validate(carried).requested_inputs == inputs
    assert DeploymentState.model_validate({**carried, "askedFor": []}).requested_inputs is None
    assert DeploymentState.model_validate({**carried, "askedFor": carried["askedFor"][:-1]}).requested_inputs == inputs
