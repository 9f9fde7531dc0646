"""The order of two messages about one object, by uid and sequence."""

from itertools import groupby
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.messages.versions import (
    SUPERSEDED_MAX,
    MessageVersion,
    ObservationOrder,
    ObservationVersion,
)


class Case(NamedTuple):
    """The known version, a message, and whether the message is accepted."""

    story: str
    known: MessageVersion
    uid: str
    sequence: int
    accepted: bool


SECOND = MessageVersion(uid="a", sequence=7).advanced("b", 0)

CASES = [
    Case("the very first message", MessageVersion(), "a", 0, accepted=True),
    Case("the next one", MessageVersion(uid="a", sequence=3), "a", 4, accepted=True),
    Case(
        "the same one again", MessageVersion(uid="a", sequence=3), "a", 3, accepted=True
    ),
    Case(
        "an overtaken message",
        MessageVersion(uid="a", sequence=3),
        "a",
        2,
        accepted=False,
    ),
    Case(
        "a new object starts again",
        MessageVersion(uid="a", sequence=7),
        "b",
        0,
        accepted=True,
    ),
    Case("a late message of the object before", SECOND, "a", 8, accepted=False),
    Case(
        "a late message of a deleted object",
        MessageVersion(uid="a", sequence=7).ended("a"),
        "a",
        8,
        accepted=False,
    ),
    Case(
        "a new object after the deleted one",
        MessageVersion(uid="a", sequence=7).ended("a"),
        "b",
        0,
        accepted=True,
    ),
    Case("the late end of the object before", SECOND.ended("a"), "b", 0, accepted=True),
    Case(
        "the end of an object that was never seen, and then it",
        MessageVersion(uid="b", sequence=2).ended("a"),
        "a",
        9,
        accepted=False,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_message_is_accepted_unless_a_newer_one_is_known(case: Case) -> None:
    assert case.known.accepts(case.uid, case.sequence) is case.accepted


def test_only_another_object_replaces_the_known_one() -> None:
    assert [MessageVersion(uid=uid).replaced_by("b") for uid in ("", "a", "b")] == [
        False,
        True,
        False,
    ]


def test_the_end_of_an_earlier_object_leaves_the_known_one() -> None:
    """A message about the end of an object may be late too."""
    assert (SECOND.ended("a").uid, SECOND.ended("a").sequence) == ("b", 0)


def test_a_bounded_number_of_superseded_objects_is_kept() -> None:
    """The state does not grow if the same name is deleted and created every day."""
    version = MessageVersion()
    for number in range(SUPERSEDED_MAX * 2):
        version = version.advanced(str(number), 1)
    assert len(version.superseded) == SUPERSEDED_MAX
    assert not version.accepts(str(SUPERSEDED_MAX * 2 - 2), 5)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, SUPERSEDED_MAX), st.integers(0, 5))))
def test_the_known_version_never_goes_back(sent: list[tuple[int, int]]) -> None:
    """Messages of successive objects with one name arrive late, twice and out of order."""
    version = MessageVersion()
    accepted: list[tuple[int, int]] = []
    for life, sequence in sent:
        if version.accepts(str(life), sequence):
            version = version.advanced(str(life), sequence)
            accepted.append((life, sequence))
    runs = [
        (life, [sequence for _, sequence in group])
        for life, group in groupby(accepted, key=lambda item: item[0])
    ]
    assert [life for life, _ in runs] == list(
        dict.fromkeys(life for life, _ in accepted)
    ), "an earlier object came back"
    assert all(sequences == sorted(sequences) for _, sequences in runs)


def at(cluster_uid: str, run: int, sequence: int) -> ObservationOrder:
    return ObservationOrder(cluster_uid=cluster_uid, run=run, sequence=sequence)


@pytest.mark.parametrize(
    ("order", "accepted"),
    [
        (at("a", 3, 6), True),
        (at("a", 3, 5), True),
        (at("a", 3, 4), False),
        (at("a", 4, 1), True),
        (at("a", 2, 900), False),
        (at("b", 1, 1), True),
    ],
    ids=[
        "the next",
        "the same again",
        "an overtaken one",
        "of the next run",
        "of a run that was taken for dead",
        "of a new cluster",
    ],
)
def test_an_observation_is_accepted_unless_it_is_old(
    order: ObservationOrder, *, accepted: bool
) -> None:
    assert ObservationVersion().advanced(at("a", 3, 5)).accepts(order) is accepted


def test_an_observation_of_an_earlier_cluster_is_old() -> None:
    version = ObservationVersion().advanced(at("a", 3, 5)).advanced(at("b", 1, 1))
    assert not version.accepts(at("a", 4, 1))


def test_observations_of_the_current_cluster_are_accepted_after_late_ones_of_another() -> (
    None
):
    version = (
        ObservationVersion().advanced(at("now", 1, 2)).advanced(at("before", 1, 3))
    )
    assert not version.accepts(at("now", 1, 4))
    allowing = version.allowing("now")
    assert allowing.accepts(at("now", 1, 4))
    assert (
        not allowing.advanced(at("now", 1, 4))
        .allowing("now")
        .accepts(at("before", 1, 5))
    )


NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("known", "order", "accepted"),
    [
        (at("now", NOW_MS, 5), at("before", NOW_MS - 9, 7), False),
        (at("before", NOW_MS - 9, 7), at("now", NOW_MS, 1), True),
        (at("now", NOW_MS, 5), at("now", NOW_MS, 4), False),
        (at("before", 3_000_001, 7), at("now", NOW_MS, 1), True),
        (at("now", NOW_MS, 5), at("before", 3_000_001, 7), False),
    ],
    ids=["late", "new", "overtaken", "after a counted run", "late, of a counted run"],
)
def test_runs_that_are_numbered_by_their_time_are_ordered_by_it_over_all_uids(
    known: ObservationOrder, order: ObservationOrder, *, accepted: bool
) -> None:
    assert ObservationVersion().advanced(known).accepts(order) is accepted


def test_observations_of_the_current_cluster_are_accepted_after_the_clock_was_ahead() -> (
    None
):
    """The clock was three days ahead at the start of cluster `a`'s watch.

    It is now right, and `b` has replaced `a`.
    """
    ahead, right = 2_000_000_000_000, 1_999_740_800_000
    known = ObservationVersion().advanced(at("a", ahead, 5))
    assert not known.accepts(at("b", right, 1))
    assert known.accepts(at("b", right, 1), "b")
    after = known.advanced(at("b", right, 1))
    assert not after.accepts(at("a", ahead, 6), "b"), (
        "the watch of the earlier cluster runs on for a while"
    )
    assert after.accepts(at("b", right, 2), "b")
    assert after.accepts(at("b", right + 1, 0), "b")
    assert not after.accepts(at("a", right - 1, 9), "a"), (
        "the present one is not known yet"
    )
