"""docs/kubectl.md is what the machine's kubectl prints."""

import re

import pytest

from tests.front.front_under_test import FrontUnderTest
from tests.front.kubectl_session import PAGE, STEPS, recorded, shown


def blocks() -> list[tuple[str, str]]:
    """The commands of the page, with what they print."""
    found = re.findall(r"^```console\n(.*?)\n(.*?)\n?^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [(command, printed) for command, printed in found]


def test_the_page_has_the_commands_of_the_session() -> None:
    assert [command for command, _ in blocks()] == [shown(step) for step in STEPS]


@pytest.mark.testbed
@pytest.mark.timeout(600)
async def test_a_new_run_prints_what_the_page_says(front: FrontUnderTest) -> None:
    run = await recorded(front)
    written = [printed for _, printed in blocks()]
    stable = [number for number, (step, _) in enumerate(run) if not step.varies]
    assert [run[number][1].strip() for number in stable] == [written[number].strip() for number in stable]
