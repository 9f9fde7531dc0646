"""Durations of the Gateway API are parsed like Go's `time.ParseDuration` does."""

import re

import pytest

from api_types.text.gateway_duration import PATTERN, milliseconds


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0s", 0),
        ("300s", 300_000),
        ("1m30s", 90_000),
        ("1h", 3_600_000),
        ("1h1m1s1ms", 3_661_001),
        ("90ms", 90),
        ("1m1m", 120_000),
        ("00005s", 5000),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, want: int) -> None:
    assert re.search(PATTERN, text)
    assert milliseconds(text) == want


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1d", "1.5s", "-1s", "100000s", "1s 1s", "1s1s1s1s1s", "1us"]
)
def test_text_that_is_not_a_duration_does_not_match(text: str) -> None:
    assert not re.search(PATTERN, text)
