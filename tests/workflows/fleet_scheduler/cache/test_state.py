"""The state that the scheduler carries: its JSON is that of earlier versions, whatever the fields are called now."""

from typing import Any

from activities.messaging.messages import SurveyResult
from workflows.fleet_scheduler.cache.state import ReceivedSignal, SchedulerState

CARRIED: dict[str, Any] = {
    "inbox": [["released", {"uid": "u-1"}], ["place", None]],
    "silent": {"modelreplica/ml/lost": ["b"]},
    "leaving": {"old": ["?"], "new": None},
}


def test_what_an_earlier_version_carried_is_read_and_written_again_in_the_same_form() -> None:
    state = SchedulerState.model_validate(CARRIED)
    assert state.inbox == [ReceivedSignal("released", {"uid": "u-1"}), ReceivedSignal("place", None)]
    assert [signal.name for signal in state.inbox] == ["released", "place"]
    assert state.unresponsive == {"modelreplica/ml/lost": ["b"]}
    assert state.deleting_clusters == {"old": ["?"], "new": None}
    written = state.model_dump(mode="json", by_alias=True)
    assert {field: written[field] for field in CARRIED} == CARRIED


def test_entities_that_do_not_answer_a_survey_keep_their_field_on_the_wire() -> None:
    result = SurveyResult(unresponsive={"modelreplica/ml/lost": "b"})
    assert result.wire()["silent"] == {"modelreplica/ml/lost": "b"}
    assert SurveyResult.model_validate(result.wire()) == result
