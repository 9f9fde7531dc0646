"""A wait that takes too long says for what, and what can be typed next."""

import asyncio
from typing import cast

import pytest

from api_types.resources.kinds import BY_KIND
from client.errors import TimedOut
from client.follow.waiting import until_gone
from client.output.progress import Progress
from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane

QWEN = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")


class Held:
    """A control plane whose objects stay."""

    async def waiting(self, target: Target) -> list[str]:
        return [f"a finalizer on {target.name}"]


def test_a_deletion_that_takes_too_long_names_the_object_in_the_next_step() -> None:
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(until_gone(cast("ControlPlane", Held()), [QWEN], 0.0, progress))
    assert failure.value.details == ("ModelDeployment ml/qwen: a finalizer on qwen",)
    assert failure.value.next_step == (
        "wait longer with `modelplane delete md/qwen -n ml --wait`, or skip the step that is waited for: "
        "`modelplane delete md/qwen -n ml --force --reason TEXT`"
    )
