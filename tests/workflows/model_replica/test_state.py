"""Carried state keeps its form on the wire, and what older versions wrote is still read."""

from pydantic_core import from_json, to_json

from tests.workflows.model_replica.builders import a_replica
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.model_replica.state import ApplyInputs, ModelReplicaState, ReplicaReport
from workflows.model_replica.teardown_progress import TeardownProgress


def test_state_is_carried_to_the_next_run_whole() -> None:
    state = a_replica(
        failure=Failure("NameConflict", "taken"),
        applied_inputs=ApplyInputs("claim", {"v": "4"}),
        reported=ReplicaReport(ready=True, phase="Ready"),
        teardown=TeardownProgress(number=7, attempts=2, failure=Failure("ServerError", "no"), outcomes={"3": "skipped"}, skipped=["x"]),
    )
    assert ModelReplicaState.model_validate_json(to_json(state)) == state


def test_the_names_on_the_wire_are_those_of_the_first_version() -> None:
    inputs = ApplyInputs("claim", {"v": "4"}, None, "facts", 3)
    carried = from_json(to_json(a_replica(failure=Failure("NameConflict", "taken"), applied_inputs=inputs)))
    assert {"birth", "told", "prunes", "attempted", "whole"} <= set(carried)
    assert (carried["failure"], carried["appliedInputs"]) == (["NameConflict", "taken"], ["claim", {"v": "4"}, None, "facts", 3, None])
    assert {"looks", "trouble", "taken", "givenUp"} <= set(carried["teardown"])


def test_state_of_the_first_version_is_read() -> None:
    start = from_json(to_json(a_replica()))["birth"]
    teardown = {"number": 4, "looks": 1, "trouble": ["", ""], "taken": {"1": "done", "2": "nothing there", "3": "given up"}, "givenUp": []}
    state = ModelReplicaState.model_validate({"birth": start, "appliedInputs": [], "failure": ["", ""], "told": {}, "teardown": teardown})
    assert (state.applied_inputs, state.failure, state.reported) == (None, NO_FAILURE, ReplicaReport())
    assert state.teardown.outcomes == {"1": "done", "2": "not needed", "3": "skipped"}
    assert state.teardown.attempts == 1


def test_inputs_of_the_first_version_are_those_of_a_replica_without_adapters() -> None:
    start = from_json(to_json(a_replica()))["birth"]
    state = ModelReplicaState.model_validate({"birth": start, "appliedInputs": ["claim", {}], "cacheClaim": "claim"})
    assert state.applied_inputs == state.inputs()
