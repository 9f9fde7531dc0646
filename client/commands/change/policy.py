"""`modelplane policy`: the placement policy of the fleet, which the scheduler stores."""

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from api_types.messages.scheduling import SetPolicy
from api_types.messages.signals import FleetSchedulerSignals
from client.manifests.policy_file import read_policy_file
from client.output.formats import TreeFormat, as_json, as_yaml
from fleet_client.configuration import load_settings
from fleet_client.errors import NoAnswer, Refused
from fleet_client.refs.targets import SCHEDULER
from fleet_client.requests import (
    ANSWER_SECONDS,
    HOW_TO_SEE,
    UNSEEN,
    current_user,
    until_answered,
)
from fleet_client.temporal.control_plane import ControlPlane, control_plane
from scheduler import write_policy

_POLL_SECONDS = 0.3

policy = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show or replace the fleet's placement policy.",
)


@policy.command("get")
def get_policy(
    output: Annotated[
        TreeFormat, typer.Option("--output", "-o", help="Output format.")
    ] = TreeFormat.YAML,
) -> None:
    """Print the current policy with all its fields.

    For example:
      modelplane policy get
      modelplane policy get -o yaml
    """
    answer = asyncio.run(_get())
    print(
        as_json(answer["policy"])
        if output == TreeFormat.JSON
        else as_yaml(answer["policy"])
    )
    if answer["lost"]:
        print(f"warning: {answer['lost']}", file=sys.stderr)
        print(
            "next: `modelplane policy set -f FILE` sets the policy again, even "
            "if it equals the defaults",
            file=sys.stderr,
        )


@policy.command("set")
def set_policy(
    file: Annotated[
        Path,
        typer.Option(
            "--filename",
            "-f",
            help="File with the policy (YAML or JSON); `-` reads standard input.",
        ),
    ],
) -> None:
    """Replace the policy by the one in a file.

    Omitted fields take their defaults. It applies to new placements.

    For example:
      modelplane policy set -f policy.yaml
    """
    wanted = write_policy(read_policy_file(file))
    asyncio.run(_set(wanted))


async def _get() -> dict[str, Any]:
    async with control_plane(
        load_settings(), "only the scheduler has the policy"
    ) as plane:
        await plane.start_scheduler()
        return await until_answered(lambda: _answer(plane))


async def _set(wanted: dict[str, Any]) -> None:
    async with control_plane(
        load_settings(), "only the scheduler has the policy"
    ) as plane:
        if await replace_policy(plane, wanted):
            print("fleet policy configured")
        else:
            print(f"fleet policy {UNSEEN}")
            print(
                f"next: `modelplane policy get` shows the policy in force; {HOW_TO_SEE}",
                file=sys.stderr,
            )


async def replace_policy(plane: ControlPlane, wanted: dict[str, Any]) -> bool:
    """Send the policy and wait until the scheduler has applied it.

    Return False if no worker has answered in time. Raise `Refused`.
    """
    await plane.start_scheduler()
    await plane.signal(
        SCHEDULER,
        FleetSchedulerSignals.SET_POLICY,
        SetPolicy(by=current_user(), policy=wanted),
    )
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        with suppress(NoAnswer):  # a later query may be answered
            answer = await _answer(plane)
            if answer["policy"] == wanted:
                return True
            if answer["problem"]:
                raise Refused(
                    "the scheduler refused the fleet policy",
                    details=[str(answer["problem"])],
                    next_step="fix the file and run `modelplane policy set` again",
                )
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)


async def _answer(plane: ControlPlane) -> dict[str, Any]:
    answer: dict[str, Any] = await plane.query(SCHEDULER, "policy")
    return answer
