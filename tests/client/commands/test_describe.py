"""The next steps that `modelplane describe` shows."""

import os
from typing import Any
from unittest.mock import AsyncMock

import pytest

from api_types.resources.kinds import BY_KIND
from client.commands.inspect import describe
from fleet_client.errors import Forbidden
from fleet_client.refs.seen import Execution
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane

PENDING = ["renderer 0.2.0 changes 2 replicas"]
RESTART = (
    "Next: `modelplane rollout restart md/qwen -n ml` replaces the pods with pending "
    "changes, within its budget; the setting workloads.adoptRenderer: Rolling does "
    "so automatically"
)
NO_ROOM = {"type": "Ready", "status": "False", "reason": "InsufficientCapacity"}


async def next_steps(
    *conditions: dict[str, Any], pending: list[str], **metadata: str
) -> list[str]:
    """Describe a deployment without replicas, and return the lines with next steps."""
    tree = {
        "metadata": metadata,
        "status": {"rollout": {"pending": pending}, "conditions": list(conditions)},
    }
    plane = AsyncMock(
        ControlPlane,
        **{
            "describe.return_value": tree,
            "list.return_value": [],
            "execution.return_value": Execution("http://ui"),
            "waiting.return_value": [],
        },
    )
    lines = await describe.description(
        plane, Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")
    )
    return [line for line in lines if line.startswith("Next: ")]


async def test_pending_changes_come_with_the_command_that_rolls_them_out() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Available"}
    assert await next_steps(ready, pending=PENDING) == [RESTART]
    assert await next_steps(ready, pending=[]) == []


async def test_the_reason_that_blocks_readiness_comes_first() -> None:
    first, second = await next_steps(NO_ROOM, pending=PENDING)
    assert first.startswith("Next: free or add nodes")
    assert second == RESTART


async def test_a_deployment_that_is_being_deleted_has_no_next_step() -> None:
    deleted = "2026-01-01T00:00:00Z"
    assert await next_steps(NO_ROOM, pending=PENDING, deletionTimestamp=deleted) == []


async def test_a_deployment_whose_replicas_the_user_may_not_list_is_described_without_them() -> (
    None
):
    hidden = Forbidden("you may not do this with modelreplicas", next_step="none")
    plane = AsyncMock(
        ControlPlane,
        **{
            "describe.return_value": {"metadata": {}},
            "list.side_effect": hidden,
            "execution.return_value": Execution(),
        },
    )
    lines = await describe.description(
        plane, Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")
    )
    assert lines[lines.index("Replicas:") + 1].strip() == hidden.message
    assert [line for line in lines if line.startswith("Temporal:")] == []


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
async def test_the_way_of_a_request_fits_the_terminal_and_a_pipe_gets_each_hop_in_one_line(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((60, 20)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    gateway = {
        "metadata": {},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "Installing",
                    "message": "waits " * 20,
                }
            ]
        },
    }
    plane = AsyncMock(
        ControlPlane,
        **{
            "describe.return_value": gateway,
            "list.return_value": [],
            "execution.return_value": Execution("http://ui"),
        },
    )
    lines = await describe.description(
        plane, Target.of(BY_KIND["ModelService"], "ml", "qwen")
    )
    drawn = lines[lines.index("Requests:") + 1 : lines.index("Events:")]
    assert (max(map(len, drawn)) <= 60, len(drawn) > 2) == (terminal, terminal)
