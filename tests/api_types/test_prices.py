"""Prices are parsed to whole thousandths, and every admitted price can be parsed."""

import pytest

from api_types.labels import PRICE_PER_NODE_HOUR
from api_types.prices import UNPRICED, price_milli

WRITTEN = [
    ("12.5", 12_500),
    ("3", 3000),
    ("0.25", 250),
    ("0", 0),
    ("1.2345", 1234),
    ("", UNPRICED),
    ("cheap", UNPRICED),
    ("$98", UNPRICED),
    ("-1", UNPRICED),
    ("1.", UNPRICED),
    ("٣", UNPRICED),
]


@pytest.mark.parametrize(
    ("text", "milli"), WRITTEN, ids=[text or "empty" for text, _ in WRITTEN]
)
def test_a_price_is_read_in_thousandths(text: str, milli: int) -> None:
    assert price_milli({PRICE_PER_NODE_HOUR: text}) == milli


def test_without_the_annotation_there_is_no_price() -> None:
    assert price_milli({}) == UNPRICED
