"""Which reports a replica sends to its deployment at once, and which wait for the interval."""

from typing import Any

import pytest

from tests.workflows.model_replica.builders import CLUSTER, a_replica
from workflows.entity.conditions import with_condition
from workflows.model_replica.decisions.status import report_of
from workflows.model_replica.decisions.verdicts import assess
from workflows.model_replica.reports import is_progress_only
from workflows.model_replica.state import ReplicaReport

STARTING = ReplicaReport(
    phase="Starting", generation=1, message="engine main has 0 of 2 copies ready"
)


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
def test_only_progress_reports_wait(change: dict[str, Any], *, waits: bool) -> None:
    assert is_progress_only(STARTING.model_copy(update=change), STARTING) is waits


def test_a_first_progress_report_waits_too() -> None:
    assert is_progress_only(STARTING, ReplicaReport())


def test_a_report_names_why_the_replica_is_not_ready() -> None:
    replica = a_replica(
        cluster=CLUSTER.model_copy(update={"unreachable_for_seconds": 400})
    )
    for kind, verdict in assess(replica).conditions.items():
        replica.conditions = with_condition(
            replica.conditions, kind, *verdict, now="2026-11-21T14:00:00Z", generation=1
        )
    assert report_of(replica).message.startswith(
        "neither the API server nor the gateway of InferenceCluster eu has answered "
        "for more than 400 s"
    )


def test_a_report_has_the_endpoint_of_a_serving_replica_and_the_step_of_a_teardown() -> (
    None
):
    serving = report_of(a_replica())
    assert (serving.serving, serving.endpoint, serving.message) == (
        True,
        "http://10.0.0.1/ml/qwen-eu-0/v1",
        "",
    )
    deleted = report_of(a_replica(deletion_timestamp="2026-11-21T14:00:00Z"))
    assert (deleted.phase, deleted.endpoint, deleted.message) == (
        "Terminating",
        "",
        "step 1 of 12: withdraw the endpoint",
    )
