"""The state that a replica carries to its next run."""

from pydantic_core import to_json

from tests.workflows.model_replica.builders import a_replica
from workflows.entity.failures import Failure
from workflows.model_replica.state import ApplyInputs, ModelReplicaState, ReplicaReport
from workflows.model_replica.teardown_progress import TeardownProgress


def test_the_whole_state_of_a_replica_is_carried_over() -> None:
    state = a_replica(
        failure=Failure("NameConflict", "taken"),
        applied_inputs=ApplyInputs("claim", {"v": "4"}),
        reported=ReplicaReport(ready=True, phase="Ready"),
        teardown=TeardownProgress(
            number=7,
            attempts=2,
            failure=Failure("ServerError", "no"),
            outcomes={"3": "skipped"},
            skipped=["x"],
        ),
    )
    assert ModelReplicaState.model_validate_json(to_json(state)) == state
