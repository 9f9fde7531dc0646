"""`modelplane workers`: the builds of workers, and the one that runs the workflows."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from api_types.setting_types import UNVERSIONED
from api_types.settings import Settings
from client.commands import options
from client.output.tables import columns
from fleet_client.configuration import load_settings
from fleet_client.errors import NotFound, Refused
from fleet_client.temporal.build import build_id
from fleet_client.temporal.connection import connect, unreachable
from fleet_client.temporal.worker_versions import (
    CURRENT,
    POLLED_LATELY,
    WorkerVersions,
    last_polls,
    promote,
    worker_versions,
)

_POLL_SECONDS = 1.0

workers = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the builds of workers, and promote one of them.",
)


@workers.command("status")
def status() -> None:
    """Show when workers last polled, and the builds with the task queues of each.

    A worker polls each task queue at least once a minute; one that has not polled for
    two minutes is silent. Builds are shown if the workers have versioning
    (worker.deploymentName).

    For example:
      modelplane workers status
    """
    print("\n".join(asyncio.run(_status(load_settings()))))


@workers.command("promote")
def promote_build(
    build: Annotated[
        str,
        typer.Argument(
            help=f"The build; `{UNVERSIONED}` for workers without versioning.",
            show_default="the build of this program",
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until workers of the build are there.")
    ] = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Make a build run the workflows, even an earlier one.

    Each workflow switches to it with its next task.

    For example:
      modelplane workers promote
      modelplane workers promote 0.1.0-0123456789ab --wait
    """
    settings = load_settings()
    wanted = build or build_id(settings.worker)
    done = asyncio.run(_promote(settings, wanted, timeout if wait else 0.0))
    print(f"build {wanted} {'promoted' if done else 'is current already'}")


def status_table(versions: WorkerVersions) -> list[str]:
    """Return one line for each build. Workers without versioning come last."""
    status = dict(versions.status)
    if UNVERSIONED in versions.serves or versions.current == UNVERSIONED:
        status[UNVERSIONED] = CURRENT if versions.current == UNVERSIONED else "Inactive"
    rows = [
        [build, said, ", ".join(versions.serves.get(build, ()))]
        for build, said in status.items()
    ]
    return columns(["BUILD", "STATUS", "SERVES"], rows)


def poll_table(polls: Mapping[str, float | None], now: float) -> list[str]:
    """Return one line for each task queue, with the time of its last poll.

    Times are in seconds since 1970; None if Temporal remembers no poll.
    """
    rows = []
    for queue, polled in polls.items():
        is_silent = polled is None or now - polled >= POLLED_LATELY
        ago = "none in 5 min" if polled is None else f"{max(0, now - polled):.0f} s ago"
        rows.append([queue, "Silent" if is_silent else "Polled", ago])
    return columns(["TASK-QUEUE", "STATUS", "LAST-POLL"], rows)


async def _status(settings: Settings) -> list[str]:
    async with _temporal(settings) as client:
        lines = poll_table(await last_polls(client), time.time())
        if name := settings.worker.deployment_name:
            versions = await worker_versions(client, name)
            lines = [*status_table(versions), "", *lines]
        return lines


async def _promote(settings: Settings, build: str, seconds: float) -> bool:
    name = _deployment_name(settings)
    deadline = time.monotonic() + seconds
    async with _temporal(settings) as client:
        while True:
            try:
                return await promote(client, name, build)
            except NotFound:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)


def _deployment_name(settings: Settings) -> str:
    name = settings.worker.deployment_name
    if not name:
        raise Refused(
            "worker.deploymentName is not set: workers with these settings have no versioning",
            next_step=(
                "set it to the value in the settings of the workers, such as "
                "MODELPLANE_WORKER__DEPLOYMENT_NAME=modelplane"
            ),
        )
    return name


@asynccontextmanager
async def _temporal(settings: Settings) -> AsyncIterator[Client]:
    try:
        yield await connect(settings)
    except RPCError as error:
        raise unreachable(settings, error) from error
