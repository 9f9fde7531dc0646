"""Workflow time continues while the server's clock, which was set back, catches up."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio import workflow

from workflows.entity.context import EntityContext, workflow_time
from workflows.entity.state import EntityState
from workflows.entity.timers.steady_time import SteadyTime

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """Stand in for the SDK's time."""
    shown = [NOON]

    def seconds() -> float:
        return shown[0].timestamp()

    monkeypatch.setattr(workflow, "now", lambda: shown[0])
    monkeypatch.setattr(workflow, "time", seconds)
    return shown


def test_timers_advance_a_clock_that_stands_still(clock: list[datetime]) -> None:
    time = SteadyTime()
    for passed in (1, 2):
        time.reached(NOON + passed * MINUTE)
        assert time.now() == NOON + passed * MINUTE
        assert time.seconds() == time.now().timestamp()
    clock[0] += MINUTE
    assert time.now() == NOON + 3 * MINUTE


def test_a_timer_that_fires_late_changes_nothing(clock: list[datetime]) -> None:
    time = SteadyTime()
    clock[0] += MINUTE
    time.reached(NOON)
    assert time.now() == NOON + MINUTE


def test_numbers_use_the_server_time_and_waits_use_the_steady_time(
    clock: list[datetime],
) -> None:
    time = SteadyTime((NOON + timedelta(days=3)).isoformat())
    state = EntityState()
    context = EntityContext(
        "ModelCache",
        state,
        lambda: None,
        "modelcache/ml/a",
        time.now,
        clock=workflow_time,
    )
    context.mark_changed()
    assert context.now() == "2026-01-04T12:00:00Z"
    assert context.next_number(0) == int(clock[0].timestamp() * 1000)
    assert state.resource_version == int(clock[0].timestamp() * 1_000_000)


def test_a_run_starts_no_earlier_than_the_run_before_has_ended(
    clock: list[datetime],
) -> None:
    time = SteadyTime((NOON + timedelta(days=3)).isoformat())
    assert time.now() == NOON + timedelta(days=3)
    clock[0] += MINUTE
    assert time.now() == NOON + timedelta(days=3) + MINUTE
    assert SteadyTime((NOON - MINUTE).isoformat()).now() == NOON + MINUTE
