"""When the scheduler queries deployments about unstarted placements, and which uids are
known to be free.
"""

import pytest

from scheduler import LedgerEntry
from scheduler.model.reasons import RESERVED
from tests.scheduler.builders import cluster
from tests.workflows.fleet_scheduler.cache.builders import (
    MINUTE,
    START,
    Clock,
    cache_with,
)
from workflows.fleet_scheduler.cache import reservations
from workflows.fleet_scheduler.cache.reservations import Reservations

TTL = 10 * MINUTE


def reserved(*uids: str) -> Reservations:
    """Return replicas that were placed at the start, the first of them last."""
    made = cache_with(Clock(), cluster("a", 9))
    for number, uid in enumerate(uids):
        entry = LedgerEntry(
            uid, "ml", "m", "a", 0, f"m-{uid}", (), state=RESERVED, since=START - number
        )
        made.fleet.put_replica(entry)
        made.reservations.reserve(uid)
    return made.reservations


def carried(found: Reservations) -> Reservations:
    """Carry reservations over to the next run, with their fleet."""
    again = Reservations(found._fleet)
    again.load(found.wire())
    return again


def delay_of(found: Reservations, now: int) -> int:
    """Return the time in ms until a deployment is queried."""
    delay = found.delay(now)
    assert delay is not None
    return round(delay.total_seconds() * 1000)


def test_a_silent_deployment_is_queried_ever_more_rarely_up_to_a_limit() -> None:
    found, now, asked = reserved("r"), START, list[int]()
    for _ in range(9):
        delay = delay_of(found, now)
        assert found.expired(now + delay - 1) == []
        now += delay
        assert [entry.uid for entry in found.expired(now)] == ["r"]
        found.asked(["r"], now)
        asked.append(delay // TTL)
        found = carried(found)
    assert asked == [1, 1, 2, 4, 8, 16, 32, 32, 32]


def test_the_oldest_reservations_are_checked_first_and_started_or_deleted_ones_never() -> (
    None
):
    found = reserved("r", "b", "a", "bound", "gone")
    found.bind("bound")
    found.release("gone")
    now = START + TTL
    assert [entry.uid for entry in found.expired(now)] == ["a", "b", "r"]
    assert delay_of(found, now + MINUTE) == 0
    for uid in ("r", "a", "b"):
        found.bind(uid)
    assert (found.delay(now), found.expired(now)) == (None, [])


def test_a_uid_is_free_until_it_is_placed_or_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservations, "RELEASED_KEPT", 2)
    found = reserved("r")
    for uid in ("r", "a", "b"):
        found.release(uid)
    assert list(carried(found).released) == ["a", "b"]
    # A second release makes a uid the newest.
    found.release("a")
    assert list(found.released) == ["b", "a"]
    found.reserve("a")
    found.bind("b")
    assert (list(found.released), found.entry("r"), carried(found).wire()) == (
        [],
        None,
        found.wire(),
    )
