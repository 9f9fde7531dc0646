"""The projection: stored objects and the events of watches, without a server."""

import asyncio

import pytest

from front.store.projection import (
    LATE_MICROSECONDS,
    Expired,
    ObjectKey,
    Projection,
    Tree,
)

KEY = ObjectKey("ModelDeployment", "team", "chat")
OTHER = KEY._replace(name="other")
START = 1_000 * LATE_MICROSECONDS


def an_object(version: int, uid: str = "u1", **labels: str) -> Tree:
    return {
        "kind": "ModelDeployment",
        "metadata": {
            "name": "chat",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
        },
    }


def projection() -> Projection:
    made = Projection()
    made.complete = True
    return made


def told(made: Projection, version: int) -> list[tuple[str, int, bool]]:
    return [
        (key.name, stored.version, stored.gone)
        for key, stored in made.changed_since("ModelDeployment", version)
    ]


def test_an_older_state_that_is_seen_later_changes_nothing() -> None:
    made = projection()
    made.put(KEY, an_object(START + 2))
    assert made.put(KEY, an_object(START + 1)).version == START + 2
    assert made.put(KEY, an_object(START + 1, uid="u2")).version == START + 1, (
        "another object of that name is newer whatever its number"
    )


def test_an_answer_of_a_deleted_object_does_not_displace_its_successor() -> None:
    made = projection()
    first = made.put(KEY, an_object(START))
    made.remove(KEY, START + 5)
    second = made.put(KEY, an_object(START + 6, uid="u2"))
    assert made.answered(KEY, first, an_object(START + 7)) == second == made.get(KEY)
    assert made.answered(KEY, None, an_object(START + 7)) == second == made.get(KEY)
    # A recreated object may be seen before the end of its predecessor.
    assert made.answered(KEY, second, an_object(START + 1, uid="u3")) == made.get(KEY)
    assert made.answered(KEY, None, an_object(START + 2, uid="u3")).version == START + 2


def test_a_late_answer_of_a_closed_workflow_restores_no_object() -> None:
    made = projection()
    made.put(KEY, an_object(START))
    made.remove(KEY, START + 5)
    assert made.put(KEY, an_object(START + 1)).gone
    assert made.get(KEY) is None
    assert made.put(KEY, an_object(START + 6, uid="u2")) == made.get(KEY)


def test_a_late_change_is_sent_although_its_version_is_older() -> None:
    made = projection()
    made.put(OTHER, an_object(START + 100, uid="u2"))
    made.put(KEY, an_object(START + 50))
    assert told(made, START + 100) == [("chat", START + 50, False)]
    assert told(made, START + 49) == [
        ("chat", START + 50, False),
        ("other", START + 100, False),
    ]


def test_timely_changes_are_sent_once() -> None:
    made = projection()
    made.put(KEY, an_object(START + 50))
    made.put(OTHER, an_object(START + 100, uid="u2"))
    assert told(made, START + 100) == []
    assert told(made, START + 50) == [("other", START + 100, False)]


def test_changes_of_the_last_seconds_before_the_start_are_sent_again() -> None:
    made = Projection()
    made.put(KEY, an_object(START))
    made.put(OTHER, an_object(START + 2 * LATE_MICROSECONDS, uid="u2"))
    made.complete = True
    assert told(made, START + 2 * LATE_MICROSECONDS) == [
        ("other", START + 2 * LATE_MICROSECONDS, False)
    ]


def test_a_deletion_has_a_version_above_the_last_state() -> None:
    made = projection()
    made.put(KEY, an_object(START + 7))
    made.remove(KEY, START + 1)
    assert told(made, START + 7) == [("chat", START + 8, True)]
    made.remove(KEY, START + 9)
    assert told(made, START + 7) == [("chat", START + 8, True)]


def test_a_watch_from_before_the_known_changes_must_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("front.store.projection.TOMBSTONES_MAX", 1)
    made = projection()
    for number, key in enumerate((KEY, OTHER)):
        made.put(key, an_object(START + number, uid=str(number)))
        made.remove(key, START + 10 + number)
    assert told(made, START + 10) == [("other", START + 11, True)]
    with pytest.raises(Expired):
        told(made, START + 9)


async def test_a_slow_watcher_gets_the_last_state_of_each_object() -> None:
    made = projection()
    watcher = made.watch("ModelDeployment")
    for number in range(100):
        made.put(KEY, an_object(START + number))
    made.put(OTHER, an_object(START, uid="u2"))
    assert [(key.name, stored.version) for key, stored in await watcher.take(1)] == [
        ("other", START),
        ("chat", START + 99),
    ]
    assert await watcher.take(0.01) == []
    made.unwatch(watcher)
    made.put(KEY, an_object(START + 200))
    assert await watcher.take(0.01) == []


async def test_a_watcher_without_changes_waits_for_the_next_one() -> None:
    made = projection()
    watcher = made.watch("ModelDeployment")
    waiting = asyncio.ensure_future(watcher.take(60))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    made.put(KEY, an_object(START))
    assert [key.name for key, _ in await waiting] == ["chat"]


def test_a_workflow_that_continues_after_its_end_is_an_object_again() -> None:
    made = projection()
    made.put(KEY, an_object(START))
    made.remove(KEY, START + 5)
    assert made.put(KEY, an_object(START + 6)) == made.get(KEY)


def test_a_very_late_change_is_still_sent() -> None:
    made = projection()
    made.put(OTHER, an_object(START + 10 * LATE_MICROSECONDS, uid="u2"))
    made.put(KEY, an_object(START))
    assert told(made, START + 10 * LATE_MICROSECONDS) == [("chat", START, False)]


def test_unread_objects_are_known_until_they_are_read_or_gone() -> None:
    made = projection()
    made.unread = {KEY, OTHER}
    made.put(KEY, an_object(START))
    assert made.unread == {OTHER}
    made.remove(OTHER, START)
    assert made.unread == set()


def test_previous_labels_are_kept_for_clients_that_knew_them() -> None:
    made = projection()
    made.put(KEY, an_object(START, tier="gold"))
    made.put(KEY, an_object(START + 1, tier="silver"))
    stored = made.put(KEY, an_object(START + 2, tier="silver"))
    assert (stored.relabelled, stored.labels_before) == (START + 1, {"tier": "gold"})


def test_a_late_deletion_is_sent_although_its_version_is_older() -> None:
    made = projection()
    made.put(KEY, an_object(START))
    made.put(OTHER, an_object(START + 100, uid="u2"))
    made.remove(KEY, START + 50)
    assert told(made, START + 100) == [("chat", START + 50, True)]
    # Also for an object that was never seen.
    made.bury(KEY._replace(name="third"), an_object(START + 60, uid=""), START + 60)
    assert told(made, START + 100) == [
        ("chat", START + 50, True),
        ("third", START + 60, True),
    ]


async def test_a_watcher_gets_only_its_kind_and_each_state_once() -> None:
    made = projection()
    watchers = [made.watch(kind) for kind in ("ModelDeployment", "ModelService")]
    for expected in (["chat"], []):
        made.put(KEY, an_object(START))
        assert [
            [key.name for key, _ in await watcher.take(0)] for watcher in watchers
        ] == [expected, []]


def test_the_oldest_deletion_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("front.store.projection.TOMBSTONES_MAX", 2)
    made = projection()
    for number, key in enumerate((KEY, OTHER, KEY, KEY._replace(name="third"))):
        made.bury(key, an_object(START + number, uid=""), START + number)
    assert made.low == START + 1
    assert told(made, START + 1) == [
        ("chat", START + 2, True),
        ("third", START + 3, True),
    ]


MICROSECONDS_OF_2026 = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("complete", "created", "since"),
    [
        (True, "2026-01-01T00:00:00Z", MICROSECONDS_OF_2026),
        (True, "", MICROSECONDS_OF_2026 + 50),
        (True, "2026-01-02T00:00:00Z", MICROSECONDS_OF_2026 + 50),
        (False, "2026-01-01T00:00:00Z", 0),
    ],
    ids=[
        "since its creation",
        "since its version",
        "not after its version",
        "not known of an object that is read at the start",
    ],
)
def test_clients_may_know_an_object_since_its_creation(
    complete: bool, created: str, since: int
) -> None:
    made = Projection()
    made.complete = complete
    tree = an_object(MICROSECONDS_OF_2026 + 50)
    tree["metadata"]["creationTimestamp"] = created
    assert made.put(KEY, tree).since == since
    made.complete = True
    assert made.put(KEY, an_object(MICROSECONDS_OF_2026 + 60)).since == since, (
        "it stays, also for the next object of the name"
    )
