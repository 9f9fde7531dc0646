"""`modelplane policy set`: done when the scheduler has applied the policy, and a failure says what to do."""

import asyncio
from typing import Any, cast

import pytest

from client.commands.change import policy
from client.commands.change.policy import replace_policy
from client.errors import NoAnswer, Refused
from client.temporal.control_plane import ControlPlane

WANTED = {"profile": "cheap"}


class Plane:
    """A control plane whose scheduler gives these answers, the last one for ever."""

    def __init__(self, *answers: tuple[dict[str, Any], str]) -> None:
        self.answers = list(answers)

    async def signal(self, target: Any, signal: Any, message: Any) -> None:
        assert message.policy == WANTED, (target, signal)

    async def query(self, target: Any, name: str) -> dict[str, Any]:
        assert name == "policy", target
        found, problem = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"policy": found, "problem": problem}


def replaced(plane: Plane) -> None:
    asyncio.run(replace_policy(cast("ControlPlane", plane), WANTED))


def test_the_command_waits_until_the_policy_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_POLL_SECONDS", 0.001)
    plane = Plane(({}, ""), ({}, ""), (WANTED, ""))
    replaced(plane)
    assert len(plane.answers) == 1


def test_a_refusal_names_the_problem_and_the_next_step() -> None:
    with pytest.raises(Refused, match="refused the fleet policy") as failure:
        replaced(Plane(({}, "profile: unknown")))
    assert (failure.value.details, failure.value.next_step) == (
        ("profile: unknown",),
        "fix the file and run `modelplane policy set` again",
    )


def test_a_policy_that_is_not_applied_in_time_says_how_it_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(NoAnswer, match="did not apply it within 0 s") as failure:
        replaced(Plane(({}, "")))
    assert failure.value.next_step.startswith("`modelplane policy get` shows the policy in force")
