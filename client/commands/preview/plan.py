"""`modelplane plan`: what would happen, without touching anything.

Offline, manifests alone are the whole world. Otherwise the live fleet is read, and the plan is what files and options would change in it.
Instead of the whole plan one question can be answered about that world.
"""

import asyncio
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api_types.clock import now_ms
from client.commands import options
from client.configuration import load_settings
from client.errors import CommandFailed, Refused
from client.manifests.policy_file import read_policy_file
from client.manifests.status_trees import read_trees
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.plan_answers import answer_lines
from client.output.plan_text import plan_lines
from client.planning.hypothesis import Hypothesis, read_hypothesis
from client.planning.live_fleet import LiveFleet, read_live
from client.planning.questions import World, answer, read_question
from client.planning.whatif import live_plan, live_world
from client.refs.tree import Tree
from client.temporal.control_plane import control_plane
from scheduler import Changes, SchedulerOptions, offline_deployment, offline_fleet, plan_offline, sort_documents
from scheduler import plan as what_if


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
    headroom: Annotated[
        str | None, typer.Option("--headroom", help="Ask how many replicas of md/NAME fit at most.", show_default=False)
    ] = None,
    cheapest_cluster: Annotated[
        str | None,
        typer.Option(
            "--cheapest-cluster",
            help="Ask which cluster to add for the replicas of --for that have no place: FILE holds InferenceClusters to choose from, or "
            "InferenceClasses, each standing for a cluster of it.",
            show_default=False,
        ),
    ] = None,
    wanted_by: Annotated[
        str | None, typer.Option("--for", help="The deployment (md/NAME) that --cheapest-cluster is about.", show_default=False)
    ] = None,
    can_drain: Annotated[
        str | None, typer.Option("--can-drain", help="Ask whether CLUSTER can be drained now, and what stays.", show_default=False)
    ] = None,
    fail_on_shortfall: Annotated[
        bool, typer.Option("--fail-on-shortfall", help="Exit with 1 when a replica would find no place, or when the answer is no.")
    ] = False,
    output: Annotated[ReportFormat, typer.Option("--output", "-o", help="Form of the output; wide adds reasons and steps.")] = (
        ReportFormat.TABLE
    ),
) -> None:
    """Show where replicas would go, and why some would find no place. Nothing is changed."""
    given = read_policy_file(policy) if policy else None
    question = read_question(headroom, cheapest_cluster, wanted_by, can_drain, namespace)
    if question and compat:
        raise Refused("--compat decides as the reference does, which answers no such question", next_step="leave out --compat")
    if offline:
        if drain or delete_pool or scale:
            raise Refused(
                "--drain, --delete-pool and --scale ask about the live fleet", next_step="leave out --offline, or change the files instead"
            )
        trees = read_trees(files, namespace)
        chosen = given or SchedulerOptions()
        if question:
            _give_answer(answer(question, _offline_world(trees, chosen), now_ms()), output, fail=fail_on_shortfall)
            return
        tree = _offline(trees, chosen, compat, wide=output == ReportFormat.WIDE)
    else:
        if compat:
            raise Refused("--compat needs --offline", next_step="the live fleet decides by its own policy: see `modelplane plan --policy`")
        written = read_trees(files, namespace) if files else []
        wanted = read_hypothesis(written, drain, delete_pool, scale, namespace, may_be_nothing=question is not None)
        live = asyncio.run(_live(wanted))
        if question:
            _give_answer(answer(question, live_world(live, wanted, given, now_ms()), now_ms()), output, fail=fail_on_shortfall)
            return
        tree = live_plan(live, wanted, given, now_ms())
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


def _offline_world(trees: list[Tree], policy: SchedulerOptions) -> World:
    """Give the world of files for a question."""
    documents = sort_documents(trees)
    views = {(view.namespace, view.name): view for view in (offline_deployment(each, documents) for each in documents.deployments)}
    return World(offline_fleet(documents, policy), views, documents.classes)


async def _live(wanted: Hypothesis) -> LiveFleet:
    async with control_plane(load_settings()) as plane:
        return await read_live(plane, wanted.deployments)


def _give_answer(tree: Tree, output: ReportFormat, *, fail: bool) -> None:
    if output == ReportFormat.JSON:
        print(as_json(tree))
    elif output == ReportFormat.YAML:
        print(as_yaml(tree))
    else:
        print("\n".join(answer_lines(tree)))
    if fail and not tree["enough"]:
        raise CommandFailed("the answer is no", next_step="`modelplane plan` with the same options shows what keeps replicas away")


def _print(tree: Tree, output: ReportFormat) -> None:
    if output == ReportFormat.JSON:
        print(as_json(tree))
    elif output == ReportFormat.YAML:
        print(as_yaml(tree))
    else:
        print("\n".join(plan_lines(tree, wide=output == ReportFormat.WIDE)) or "Nothing would change.")
