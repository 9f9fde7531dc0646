"""`modelplane policy`: the fleet's placement policy, one document that the scheduler keeps."""

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from api_types.messages.entities import SetPolicy
from api_types.messages.signals import FleetSchedulerSignals
from client.configuration import load_settings
from client.errors import NoAnswer, Refused
from client.follow.requests import who
from client.manifests.policy_file import read_policy_file
from client.output.formats import TreeFormat, as_json, as_yaml
from client.planning.live_fleet import SCHEDULER
from client.temporal.control_plane import ControlPlane, control_plane
from scheduler import write_policy

_LOOK_EVERY_SECONDS = 0.3
_PATIENCE_SECONDS = 15.0

policy = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show or replace the fleet's placement policy.")


@policy.command("get")
def get_policy(output: Annotated[TreeFormat, typer.Option("--output", "-o", help="Form of the policy.")] = TreeFormat.YAML) -> None:
    """Print the policy in force, with nothing left out."""
    tree = asyncio.run(_get())
    print(as_json(tree) if output == TreeFormat.JSON else as_yaml(tree))


@policy.command("set")
def set_policy(file: Annotated[Path, typer.Option("--filename", "-f", help="File with the policy (YAML or JSON).")]) -> None:
    """Replace the policy by that of a file; fields that are left out take their defaults. It holds for new placements."""
    wanted = write_policy(read_policy_file(file))
    asyncio.run(_set(wanted))
    print("fleet policy configured")


async def _get() -> dict[str, Any]:
    async with control_plane(load_settings()) as plane:
        policy_tree: dict[str, Any] = (await _answer(plane))["policy"]
    return policy_tree


async def _set(wanted: dict[str, Any]) -> None:
    async with control_plane(load_settings()) as plane:
        await plane.signal(SCHEDULER, FleetSchedulerSignals.SET_POLICY, SetPolicy(by=who(), policy=wanted))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (answer := await _answer(plane))["policy"] != wanted:
            if answer["problem"]:
                raise Refused("the scheduler refused the policy", details=[str(answer["problem"])], next_step="mend it and set it again")
            if time.monotonic() >= deadline:
                raise NoAnswer(f"the scheduler has the policy, but did not take it within {_PATIENCE_SECONDS:g} s")
            await asyncio.sleep(_LOOK_EVERY_SECONDS)


async def _answer(plane: ControlPlane) -> dict[str, Any]:
    answer: dict[str, Any] = await plane.query(SCHEDULER, "policy")
    return answer
