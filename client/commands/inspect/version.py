"""`modelplane version`: the versions of this program and of the parts that it reaches."""

import asyncio
from importlib.metadata import version as version_of
from typing import Annotated

import typer
from temporalio.client import Client
from temporalio.service import RPCError

from api_types.settings import Settings
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.tables import columns
from fleet_client.configuration import front_named, load_settings
from fleet_client.refs.tree import Tree
from fleet_client.temporal.build import build_id
from fleet_client.temporal.connection import connect, unreachable
from fleet_client.temporal.worker_versions import polling_builds, server_version
from fleet_client.through_front.access import read_access
from fleet_client.through_front.objects import front_objects

_PACKAGE = "modelplane-temporal"
_NONE_POLLS = "no worker has served workflows within five minutes"


def version(
    client: Annotated[
        bool,
        typer.Option("--client", help="Only the version of this program; no server."),
    ] = False,
    output: Annotated[
        ReportFormat, typer.Option("--output", "-o", help="Form of the output.")
    ] = ReportFormat.TABLE,
) -> None:
    """Show the versions of this program, and of the front or of Temporal and workers.

    A worker that runs the same code as this program has the same build.

    For example:
      modelplane version
      modelplane version --client
      modelplane version -o json
    """
    settings = load_settings()
    rows: list[Tree] = [
        {
            "part": "client",
            "version": version_of(_PACKAGE),
            "details": f"build {build_id(settings.worker)}",
        }
    ]
    try:
        if not client:
            rows += asyncio.run(_of_servers(settings))
    finally:
        # Show the version of this program also if no server answers.
        _show(rows, output)


async def _of_servers(settings: Settings) -> list[Tree]:
    if front_named():
        access = read_access()
        async with front_objects(access) as plane:
            found = await plane.front_version()
        return [{"part": "front", "version": found, "details": access.url}]
    connected = await connect(settings)
    try:
        return await behind(connected, settings)
    except RPCError as error:
        raise unreachable(settings, error) from error


async def behind(connected: Client, settings: Settings) -> list[Tree]:
    """Return the versions of Temporal and of the builds of workers. Raise `RPCError`."""
    temporal = settings.temporal
    where = f"{temporal.address}, namespace {temporal.namespace}"
    rows: list[Tree] = [
        {
            "part": "temporal",
            "version": await server_version(connected),
            "details": where,
        }
    ]
    builds = await polling_builds(connected)
    rows += [
        {
            "part": "worker",
            "version": build.rpartition("-")[0] or build,
            "details": f"build {build}",
        }
        for build in builds
    ]
    if not builds:
        rows.append({"part": "worker", "version": "", "details": _NONE_POLLS})
    return rows


def _show(rows: list[Tree], output: ReportFormat) -> None:
    if output in {ReportFormat.JSON, ReportFormat.YAML}:
        print(as_json(rows) if output == ReportFormat.JSON else as_yaml(rows))
        return
    cells = [[str(value) for value in row.values()] for row in rows]
    for line in columns(["PART", "VERSION", "DETAILS"], cells):
        print(line)
