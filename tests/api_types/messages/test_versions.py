"""Which of two messages about one object is newer: by uid and sequence, whatever order they arrive in."""

from itertools import groupby
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.messages.versions import SUPERSEDED_MAX, ObservationOrder, ObservationVersion, Version


class Case(NamedTuple):
    """What is known, and whether a message is accepted."""

    story: str
    known: Version
    uid: str
    sequence: int
    accepted: bool


SECOND = Version(uid="a", sequence=7).advanced("b", 0)

CASES = [
    Case("the first message of all", Version(), "a", 0, accepted=True),
    Case("the next one", Version(uid="a", sequence=3), "a", 4, accepted=True),
    Case("the same one again", Version(uid="a", sequence=3), "a", 3, accepted=True),
    Case("one that was overtaken", Version(uid="a", sequence=3), "a", 2, accepted=False),
    Case("a new object begins anew", Version(uid="a", sequence=7), "b", 0, accepted=True),
    Case("a late message of the object before", SECOND, "a", 8, accepted=False),
    Case("a late message of a deleted object", Version(uid="a", sequence=7).ended("a"), "a", 8, accepted=False),
    Case("a new object after the deleted one", Version(uid="a", sequence=7).ended("a"), "b", 0, accepted=True),
    Case("the late end of the object before", SECOND.ended("a"), "b", 0, accepted=True),
    Case("the end of an object that was never seen, and then it", Version(uid="b", sequence=2).ended("a"), "a", 9, accepted=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_message_is_accepted_unless_a_newer_one_is_known(case: Case) -> None:
    """The table."""
    assert case.known.accepts(case.uid, case.sequence) is case.accepted


def test_only_another_object_replaces_the_known_one() -> None:
    """The first one replaces nothing."""
    assert [Version(uid=uid).replaced_by("b") for uid in ("", "a", "b")] == [False, True, False]


def test_the_end_of_an_earlier_object_leaves_the_known_one() -> None:
    """A message about the end of an object may be late too."""
    assert (SECOND.ended("a").uid, SECOND.ended("a").sequence) == ("b", 0)


def test_a_bounded_number_of_superseded_objects_is_kept() -> None:
    """A name that is applied again every day does not make the state grow."""
    version = Version()
    for number in range(SUPERSEDED_MAX * 2):
        version = version.advanced(str(number), 1)
    assert len(version.superseded) == SUPERSEDED_MAX
    assert not version.accepts(str(SUPERSEDED_MAX * 2 - 2), 5)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, SUPERSEDED_MAX), st.integers(0, 5))))
def test_what_is_known_never_goes_back(sent: list[tuple[int, int]]) -> None:
    """Objects of one name follow one another; their messages arrive late, twice and out of order."""
    version = Version()
    accepted: list[tuple[int, int]] = []
    for life, sequence in sent:
        if version.accepts(str(life), sequence):
            version = version.advanced(str(life), sequence)
            accepted.append((life, sequence))
    runs = [(life, [sequence for _, sequence in group]) for life, group in groupby(accepted, key=lambda item: item[0])]
    assert [life for life, _ in runs] == list(dict.fromkeys(life for life, _ in accepted)), "an earlier object came back"
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
    ids=["the next", "the same again", "an overtaken one", "of the next run", "of a run that was taken for dead", "of a new cluster"],
)
def test_an_observation_is_accepted_unless_it_is_old(order: ObservationOrder, *, accepted: bool) -> None:
    assert ObservationVersion().advanced(at("a", 3, 5)).accepts(order) is accepted


def test_an_observation_of_an_earlier_cluster_is_old() -> None:
    version = ObservationVersion().advanced(at("a", 3, 5)).advanced(at("b", 1, 1))
    assert not version.accepts(at("a", 4, 1))


def test_observations_of_the_current_cluster_are_accepted_after_late_ones_of_the_cluster_before() -> None:
    version = ObservationVersion().advanced(at("now", 1, 2)).advanced(at("before", 1, 3))
    assert not version.accepts(at("now", 1, 4))
    allowing = version.allowing("now")
    assert allowing.accepts(at("now", 1, 4))
    assert not allowing.advanced(at("now", 1, 4)).allowing("now").accepts(at("before", 1, 5))


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


def test_the_observations_of_the_present_cluster_are_taken_whatever_the_clock_said_before() -> None:
    """The clock was three days ahead when the watch of cluster `a` began. It is right now, and `b` has taken its place."""
    ahead, right = 2_000_000_000_000, 1_999_740_800_000
    known = ObservationVersion().advanced(at("a", ahead, 5))
    assert not known.accepts(at("b", right, 1))
    assert known.accepts(at("b", right, 1), "b")
    after = known.advanced(at("b", right, 1))
    assert not after.accepts(at("a", ahead, 6), "b"), "the watch of the earlier cluster runs on for a while"
    assert after.accepts(at("b", right, 2), "b")
    assert after.accepts(at("b", right + 1, 0), "b")
    assert not after.accepts(at("a", right - 1, 9), "a"), "the present one is not known yet"
