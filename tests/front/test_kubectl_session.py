"""docs/tutorials/kubectl.md matches the output of kubectl."""

import pytest

from tests.front.front_under_test import FrontUnderTest
from tests.front.kubectl_session import STEPS, recorded, shown, written


def test_the_documentation_has_the_commands_of_the_session() -> None:
    assert [command for command, _ in written()] == [shown(step) for step in STEPS]


@pytest.mark.testbed("shared")
@pytest.mark.timeout(600)
async def test_a_new_run_prints_the_documented_output(front: FrontUnderTest) -> None:
    run = await recorded(front.kubectl, front.folder)
    stable = [number for number, (step, _) in enumerate(run) if not step.varies]
    assert [run[number][1].strip() for number in stable] == [
        written()[number][1] for number in stable
    ]
