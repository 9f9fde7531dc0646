"""The comparisons that a device does not pass are found in optional syntax too."""

import pytest

from scheduler.cel import Unmet, lowered, renamed, unmet_comparisons
from tests.scheduler.cel.devices import HOPPER

ATTRIBUTES = 'device.attributes["gpu.nvidia.com"]'
CAPACITY = 'device.capacity["gpu.nvidia.com"]'


@pytest.mark.parametrize(
    ("selector", "unmet"),
    [
        (
            f'{ATTRIBUTES}.?architecture.orValue("") == "Ada"',
            ("architecture", "Hopper", "Ada"),
        ),
        (f'{ATTRIBUTES}[?"idx"].value() > 5', ("idx", "3", "more than 5")),
        (f"{ATTRIBUTES}.?model.hasValue()", ("model", "", "any value")),
        (
            f'{CAPACITY}.?memory.orValue(quantity("0")).compareTo(quantity("1Ti")) >= 0',
            ("memory", "141Gi", "at least 1Ti"),
        ),
    ],
)
def test_an_optional_value_is_compared_like_any_other(
    selector: str, unmet: tuple[str, str, str]
) -> None:
    [found] = unmet_comparisons(selector, HOPPER)
    assert (found.name, found.has, found.wants) == unmet


def _only(selector: str) -> Unmet:
    [found] = unmet_comparisons(selector, HOPPER)
    return found


def test_a_weaker_or_corrected_selector_keeps_its_optional_syntax() -> None:
    memory = f'{CAPACITY}.?memory.value().compareTo(quantity("1Ti")) >= 0'
    assert lowered(memory, _only(memory)) == memory.replace("1Ti", "141Gi")
    model = f'{ATTRIBUTES}.?arch.orValue("") == "Hopper"'
    wanted = model.replace("arch", "architecture")
    assert renamed(model, _only(model), "architecture") == wanted
