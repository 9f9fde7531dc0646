from datetime import UTC, datetime, timedelta

import pytest

from api_types.text.age import age, duration
from client.output.tables import columns, measure

AGES = [
    ("now", timedelta(0), "0s"),
    ("the clock of the other side is ahead", timedelta(seconds=-5), "0s"),
    ("seconds up to two minutes", timedelta(seconds=119), "119s"),
    ("minutes and seconds from two minutes", timedelta(minutes=2), "2m"),
    (
        "minutes and seconds up to ten minutes",
        timedelta(minutes=9, seconds=59),
        "9m59s",
    ),
    ("minutes up to three hours", timedelta(minutes=179, seconds=59), "179m"),
    ("hours and minutes up to eight hours", timedelta(hours=7, minutes=5), "7h5m"),
    ("hours up to two days", timedelta(hours=47, minutes=59), "47h"),
    ("days and hours up to eight days", timedelta(days=7, hours=23), "7d23h"),
    ("whole days show no hours", timedelta(days=3), "3d"),
    ("days up to two years", timedelta(days=729), "729d"),
    ("years and days up to eight years", timedelta(days=2 * 365 + 30), "2y30d"),
    ("years", timedelta(days=9 * 365), "9y"),
]


@pytest.mark.parametrize(
    ("story", "length", "want"), AGES, ids=[row[0] for row in AGES]
)
def test_ages_read_as_kubectl_writes_them(
    story: str, length: timedelta, want: str
) -> None:
    assert duration(length) == want, story


def test_an_age_is_counted_from_an_rfc_3339_time() -> None:
    now = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
    assert age("2026-03-01T12:00:00Z", now) == "30s"


def test_a_missing_time_has_no_age() -> None:
    assert age("", datetime(2026, 3, 1, tzinfo=UTC)) == "<unknown>"


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() -> (
    None
):
    lines = columns(["NAME", "READY"], [["qwen", "True"], ["a-longer-name", "False"]])
    assert lines == [
        "NAME            READY",
        "qwen            True",
        "a-longer-name   False",
    ]


def test_an_empty_cell_shows_that_nothing_is_there() -> None:
    assert columns(["NAME", "ADDRESS"], [["edge", ""]])[1] == "edge   <none>"


def test_wide_characters_count_as_two_cells() -> None:
    first, second = columns([], [["模型", "x"], ["abcd", "x"]])
    assert first.index("x") == second.index("x") - 2


def test_later_rows_of_a_watch_line_up_with_the_first_ones() -> None:
    widths = measure([["NAME", "READY"], ["a-longer-name", "True"]])
    assert columns([], [["q", "True"]], widths) == ["q               True"]
