"""`modelplane plan`: what would happen, without touching anything.

Offline, manifests alone are the whole world. Otherwise the live fleet is read, and the plan is what files and options would change in it.
"""

import asyncio
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from client import options
from client.configuration import load_settings
from client.control import control_plane
from client.deciding import now_ms
from client.errors import CommandFailed, Refused
from client.hypothesis import Hypothesis, read_hypothesis
from client.live import read_live
from client.objects import Tree
from client.output import ReportFormat, as_json, as_yaml
from client.plan_text import plan_lines
from client.policyfile import read_policy_file
from client.status_trees import read_trees
from client.whatif import live_plan
from scheduler.offline import offline_deployment, offline_fleet, sort_documents
from scheduler.plan import plan_offline
from scheduler.policy import SchedulerOptions
from scheduler.whatif import Changes
from scheduler.whatif import plan as what_if


class Compat(StrEnum):
    """Whose decisions a plan shows."""

    REFERENCE = "reference"


def plan(
    *,
    files: options.Files = None,
    namespace: options.Namespace = None,
    offline: Annotated[bool, typer.Option("--offline", help="Plan from the files alone; nothing is connected to.")] = False,
    drain: Annotated[list[str] | None, typer.Option("--drain", help="What if CLUSTER were drained. May be repeated.")] = None,
    delete_pool: Annotated[
        list[str] | None, typer.Option("--delete-pool", help="What if CLUSTER/POOL were removed. May be repeated.")
    ] = None,
    scale: Annotated[list[str] | None, typer.Option("--scale", help="What if md/NAME=REPLICAS. May be repeated.")] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="File with a fleet policy to plan with.", show_default=False)] = None,
    compat: Annotated[
        Compat | None, typer.Option("--compat", help="Offline: decide as the reference does, defects included.", show_default=False)
    ] = None,
    fail_on_shortfall: Annotated[bool, typer.Option("--fail-on-shortfall", help="Exit with 1 when a replica would find no place.")] = False,
    output: Annotated[ReportFormat, typer.Option("--output", "-o", help="Form of the output; wide adds reasons and steps.")] = (
        ReportFormat.TABLE
    ),
) -> None:
    """Show where replicas would go, and why some would find no place. Nothing is changed."""
    given = read_policy_file(policy) if policy else None
    if offline:
        if drain or delete_pool or scale:
            raise Refused(
                "--drain, --delete-pool and --scale ask about the live fleet", next_step="leave out --offline, or change the files instead"
            )
        tree = _offline(read_trees(files, namespace), given or SchedulerOptions(), compat, wide=output == ReportFormat.WIDE)
    else:
        if compat:
            raise Refused("--compat needs --offline", next_step="the live fleet decides by its own policy: see `modelplane plan --policy`")
        wanted = read_hypothesis(read_trees(files, namespace) if files else [], drain, delete_pool, scale, namespace)
        tree = asyncio.run(_live(wanted, given))
    _print(tree, output)
    short = [decision for decision in tree["decisions"] if decision["shortfall"]]
    if fail_on_shortfall and short:
        raise CommandFailed(
            "some replicas would find no place",
            details=[f"ModelDeployment {each['namespace']}/{each['name']}: {each['message']}" for each in short],
            next_step="`-o wide` shows what keeps them from each cluster and pool",
        )


def _offline(trees: list[Tree], policy: SchedulerOptions, compat: Compat | None, *, wide: bool) -> Tree:
    if not any(tree["kind"] == "ModelDeployment" for tree in trees):
        raise Refused("there is no ModelDeployment to plan", next_step="add one with -f")
    chosen = replace(policy, compat=compat.value) if compat else policy
    now = now_ms()
    planned: Tree = plan_offline(trees, chosen, now)
    if wide:
        documents = sort_documents(trees)
        views = tuple(offline_deployment(manifest, documents) for manifest in documents.deployments)
        planned["steps"] = what_if(offline_fleet(documents, chosen), Changes(deployments=views), (), now).steps
    return planned


async def _live(wanted: Hypothesis, policy: SchedulerOptions | None) -> Tree:
    async with control_plane(load_settings()) as plane:
        live = await read_live(plane, wanted.deployments)
    return live_plan(live, wanted, policy, now_ms())


def _print(tree: Tree, output: ReportFormat) -> None:
    if output == ReportFormat.JSON:
        print(as_json(tree))
    elif output == ReportFormat.YAML:
        print(as_yaml(tree))
    else:
        print("\n".join(plan_lines(tree, wide=output == ReportFormat.WIDE)) or "Nothing would change.")
