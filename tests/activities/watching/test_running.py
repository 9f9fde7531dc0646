"""The numbers of the runs of a watch."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.watching.running import RUN, run_number, this_run

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
HOUR_MS = 3_600_000


def test_a_run_has_a_higher_number_than_earlier_attempts_and_watches() -> None:
    counted = [
        run_number(watch, attempt) for watch, attempt in ((1, 1), (1, 2), (2, 1))
    ]
    dated = [
        run_number(1, attempt, began)
        for attempt, began in ((1, NOW_MS), (2, NOW_MS), (1, NOW_MS + 1000))
    ]
    assert counted + dated == sorted({*counted, *dated})


@pytest.mark.parametrize(
    ("attempt", "seconds", "heartbeat", "number"),
    [
        (1, 1, None, NOW_MS + 1),
        (2, 7200, {}, NOW_MS + 2),
        (1, 3600, None, NOW_MS + HOUR_MS),
        (2, 7200, {RUN: NOW_MS + HOUR_MS}, NOW_MS + HOUR_MS + 1),
        (3, -7200, {RUN: NOW_MS + 1}, NOW_MS + 3),
    ],
    ids=[
        "first",
        "second",
        "first after a reset",
        "second after a reset",
        "after the clock",
    ],
)
def test_an_attempt_of_a_watch_that_a_reset_starts_again_has_a_higher_number(
    attempt: int, seconds: int, heartbeat: dict[str, int] | None, number: int
) -> None:
    """The number follows the schedule time, if that is an hour later."""
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info,
        attempt=attempt,
        current_attempt_scheduled_time=NOW + timedelta(seconds=seconds),
        heartbeat_details=[] if heartbeat is None else [heartbeat],
    )
    assert environment.run(this_run, 1, NOW_MS) == number
