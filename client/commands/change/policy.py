"""`modelplane policy`: the fleet's placement policy, one document that the scheduler stores."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from api_types.messages.scheduling import SetPolicy
from api_types.messages.signals import FleetSchedulerSignals
from client.configuration import load_settings
from client.errors import RUN_WORKER, NoAnswer, Refused
from client.follow.requests import current_user
from client.manifests.policy_file import read_policy_file
from client.output.formats import TreeFormat, as_json, as_yaml
from client.refs.targets import SCHEDULER
from client.temporal.control_plane import ControlPlane, control_plane
from scheduler import write_policy

_POLL_SECONDS = 0.3
_TIMEOUT_SECONDS = 15.0

policy = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode=None, help="Show or replace the fleet's placement policy."
)


@policy.command("get")
def get_policy(output: Annotated[TreeFormat, typer.Option("--output", "-o", help="Output format.")] = TreeFormat.YAML) -> None:
    """Print the policy in force, with nothing left out."""
    tree = asyncio.run(_get())
    print(as_json(tree) if output == TreeFormat.JSON else as_yaml(tree))


@policy.command("set")
def set_policy(file: Annotated[Path, typer.Option("--filename", "-f", help="File with the policy (YAML or JSON).")]) -> None:
    """Replace the policy by that of a file; fields that are left out take their defaults. It applies to new placements."""
    wanted = write_policy(read_policy_file(file))
    asyncio.run(_set(wanted))
    print("fleet policy configured")


async def _get() -> dict[str, Any]:
    async with control_plane(load_settings()) as plane:
        policy_tree: dict[str, Any] = (await _answer(plane))["policy"]
    return policy_tree


async def _set(wanted: dict[str, Any]) -> None:
    async with control_plane(load_settings()) as plane:
        await replace_policy(plane, wanted)


async def replace_policy(plane: ControlPlane, wanted: dict[str, Any]) -> None:
    """Send the policy and wait until the scheduler has applied it. Raises `Refused`, `NoAnswer`."""
    await plane.signal(SCHEDULER, FleetSchedulerSignals.SET_POLICY, SetPolicy(by=current_user(), policy=wanted))
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while (answer := await _answer(plane))["policy"] != wanted:
        if answer["problem"]:
            raise Refused(
                "the scheduler refused the fleet policy",
                details=[str(answer["problem"])],
                next_step="fix the file and run `modelplane policy set` again",
            )
        if time.monotonic() >= deadline:
            raise NoAnswer(
                f"Temporal has the fleet policy, but the scheduler did not apply it within {_TIMEOUT_SECONDS:g} s",
                next_step=f"`modelplane policy get` shows the policy in force; it is applied once a worker runs: {RUN_WORKER}",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _answer(plane: ControlPlane) -> dict[str, Any]:
    answer: dict[str, Any] = await plane.query(SCHEDULER, "policy")
    return answer
