"""A name as a label value: unchanged if it is short, else shortened with a digest."""

import pytest

from api_types.names import label_value


def test_a_name_that_fits_is_its_own_label_value() -> None:
    assert label_value("a" * 63) == "a" * 63


@pytest.mark.parametrize("name", ["a" * 64, "very-long-" * 20, "Qwen/Qwen3." * 20])
def test_a_longer_name_is_cut_to_its_start_and_a_digest(name: str) -> None:
    value = label_value(name)
    assert len(value) <= 63
    assert value[:5] == name[:5].lower().replace("/", "-")
    assert value != label_value(f"{name}x")
