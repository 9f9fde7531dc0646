"""The time limits whose end can change the answer to a waiting request."""

from scheduler.fleet.expiries import drop_expired, expiries
from scheduler.fleet.fleet import Fleet
from scheduler.model.policy import SchedulerOptions


def test_the_limits_of_preemption_end_in_steps_of_ten_seconds() -> None:
    """Each end causes a decision about all waiting requests."""
    options = SchedulerOptions(preemption_cooldown_seconds=60, refusal_seconds=100)
    fleet = Fleet(options)
    fleet.preempted_at |= {("ml", f"m-{at}"): at for at in (1, 2_000, 10_000, 10_001)}
    fleet.refused["ml", "chat", "eu-1", "a"] = 15_000
    assert sorted(set(expiries(fleet))) == [70_000, 80_000, 120_000]
    drop_expired(fleet, 70_000)
    assert sorted(fleet.preempted_at.values()) == [10_001]
    drop_expired(fleet, 120_000)
    assert (fleet.preempted_at, fleet.refused) == ({}, {})
