"""The time until the endpoints of a silent cluster may be withdrawn."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.workflows.inference_cluster.builders import a_cluster
from workflows.inference_cluster.silence import NOTICED_BY_ALL, time_to_withdrawal

SINCE = "2026-01-01T00:00:00+00:00"
NOTICED = "2026-01-01T00:00:40+00:00"


@pytest.mark.parametrize(
    ("after", "seconds", "left"),
    [(300, 100, 200), (300, 300, 0), (300, 400, -100)],
    ids=["before the limit", "at the limit", "after the limit"],
)
def test_endpoints_stay_until_the_limit_of_the_settings(
    after: int, seconds: int, left: int
) -> None:
    state = a_cluster(unreachable_since=SINCE, unreachable_noticed=NOTICED)
    assert state.facts
    state.facts = state.facts.model_copy(update={"withdraw_after_seconds": after})
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert time_to_withdrawal(state, now) == timedelta(seconds=left)


def test_endpoints_stay_until_other_clusters_would_have_noticed_a_failed_network() -> (
    None
):
    state = a_cluster(unreachable_since=SINCE, unreachable_noticed=NOTICED)
    assert state.facts
    state.facts = state.facts.model_copy(update={"withdraw_after_seconds": 0})
    assert time_to_withdrawal(state, datetime.fromisoformat(NOTICED)) == NOTICED_BY_ALL


def test_a_cluster_that_answers_has_no_withdrawal() -> None:
    assert time_to_withdrawal(a_cluster(), datetime(2026, 1, 1, tzinfo=UTC)) is None
