"""`modelplane policy` waits for the scheduler, and warns of a lost policy."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from api_types.settings import Settings
from client.commands.change import policy
from client.commands.change.policy import replace_policy
from fleet_client.errors import NoAnswer, Refused
from fleet_client.temporal.control_plane import ControlPlane
from tests.client.conftest import Cli

WANTED = {"profile": "cheap"}


class Plane:
    """A control plane whose scheduler gives these answers, the last one forever.

    None means that no worker answers.
    """

    def __init__(self, *answers: tuple[dict[str, Any], str] | None) -> None:
        self.answers = list(answers)
        self.lost = ""
        self.runs = False

    async def start_scheduler(self) -> None:
        self.runs = True

    async def signal(self, target: Any, signal: Any, message: Any) -> None:
        assert self.runs, (
            "a scheduler that has ended, or has not begun, would take no signal"
        )
        assert message.policy == WANTED, (target, signal)

    async def query(self, target: Any, name: str) -> dict[str, Any]:
        assert name == "policy", target
        assert self.runs
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            raise NoAnswer("no worker answers", next_step="none")
        found, problem = answer
        return {"policy": found, "problem": problem, "lost": self.lost}


def replaced(plane: Plane) -> bool:
    return asyncio.run(replace_policy(cast("ControlPlane", plane), WANTED))


def test_the_command_waits_until_the_policy_is_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy, "_POLL_SECONDS", 0.001)
    plane = Plane(({}, ""), None, None, ({}, ""), (WANTED, ""))
    assert replaced(plane)
    assert len(plane.answers) == 1


def test_a_refusal_names_the_problem_and_the_next_step() -> None:
    with pytest.raises(Refused, match="refused the fleet policy") as failure:
        replaced(Plane(({}, "profile: unknown")))
    assert (failure.value.details, failure.value.next_step) == (
        ("profile: unknown",),
        "fix the file and run `modelplane policy set` again",
    )


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "answer", [({}, ""), None], ids=["not applied yet", "no worker"]
)
def test_a_policy_unseen_by_workers_is_not_a_failure(
    answer: tuple[dict[str, Any], str] | None,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
    tmp_path: Path,
) -> None:
    @asynccontextmanager
    async def connected(_settings: Settings, _why: str) -> AsyncIterator[Plane]:
        yield Plane(answer)

    monkeypatch.setattr(policy, "ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(policy, "control_plane", connected)
    monkeypatch.setattr(policy, "write_policy", lambda _: WANTED)
    (tmp_path / "policy.yaml").write_text("profile: cheap\n")
    result = cli("policy", "set", "-f", str(tmp_path / "policy.yaml"))
    assert (result.code, result.out) == (
        0,
        "fleet policy accepted by Temporal, not yet seen by a worker\n",
    )
    assert result.err.startswith(
        "next: `modelplane policy get` shows the policy in force"
    )


@pytest.mark.parametrize("lost", ["", "no record was found"])
def test_a_policy_that_is_lost_is_not_shown_as_the_one_that_was_set(
    lost: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    plane = Plane((WANTED, ""))
    plane.lost = lost

    @asynccontextmanager
    async def connected(_settings: Settings, _why: str) -> AsyncIterator[Plane]:
        yield plane

    monkeypatch.setattr(policy, "control_plane", connected)
    result = cli("policy", "get")
    assert (result.code, result.out) == (0, "profile: cheap\n")
    assert (
        result.err.startswith(
            "warning: no record was found\nnext: `modelplane policy set -f FILE`"
        )
        if lost
        else result.err == ""
    )


def test_a_policy_is_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    @asynccontextmanager
    async def connected(_settings: Settings, _why: str) -> AsyncIterator[Plane]:
        yield Plane((WANTED, ""))

    monkeypatch.setattr(policy, "control_plane", connected)
    monkeypatch.setattr(
        policy, "write_policy", lambda read: WANTED if read.profile == "cheap" else {}
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("profile: cheap\n"))
    assert cli("policy", "set", "-f", "-").out == "fleet policy configured\n"
