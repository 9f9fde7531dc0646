"""What a replica reports to its deployment at once, and what waits for the interval."""

from typing import Any

import pytest

from tests.workflows.model_replica.builders import a_replica
from workflows.model_replica.decisions.status import report_of
from workflows.model_replica.reports import is_progress_only
from workflows.model_replica.state import ReplicaReport

STARTING = ReplicaReport(phase="Starting", generation=1, message="engine main has 0 of 2 copies ready")


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({}, False),
        ({"message": "engine main has 1 of 2 copies ready"}, True),
        ({"phase": "Updating"}, True),
        ({"generation": 2}, True),
        ({"ready": True}, False),
        ({"serving": True}, False),
        ({"endpoint": "http://10.0.0.1/ml/qwen-eu-0/v1"}, False),
        ({"phase": "Failed"}, False),
        ({"phase": "Terminating"}, False),
    ],
    ids=str,
)
def test_only_progress_waits(change: dict[str, Any], *, waits: bool) -> None:
    assert is_progress_only(STARTING.model_copy(update=change), STARTING) is waits


def test_progress_after_nothing_was_reported_waits_too() -> None:
    assert is_progress_only(STARTING, ReplicaReport())


def test_a_report_has_the_endpoint_and_the_first_message_of_a_condition_that_is_not_true() -> None:
    serving = report_of(a_replica())
    assert (serving.serving, serving.endpoint, serving.message) == (True, "http://10.0.0.1/ml/qwen-eu-0/v1", "")
    deleted = report_of(a_replica(deletion_timestamp="2026-11-21T14:00:00Z"))
    assert (deleted.phase, deleted.endpoint, deleted.message) == ("Terminating", "", "step 1 of 12: withdraw the endpoint")
