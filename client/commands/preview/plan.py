"""`modelplane plan`: where replicas would be placed, without changing anything.

With --offline the manifests are the whole fleet. Otherwise the command reads the live
fleet, and the plan is the effect of the files and options on it. If the files hold
InferenceClusters and no ModelDeployment, the plan also has the objects that would be
created, changed or deleted at their clouds. An option can ask a single question about
the fleet instead.
"""

import asyncio
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api_types.clock import now_ms
from client.commands import options
from client.manifests.policy_file import read_policy_file
from client.manifests.price_file import Prices, read_price_file
from client.manifests.status_trees import read_trees
from client.output.cloud_text import cloud_lines, problem_text
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.plan_answers import answer_lines
from client.output.plan_text import plan_lines
from client.planning.cloud_changes import There
from client.planning.cloud_objects import LiveClouds, is_to_create, plan_clouds
from client.planning.live_plan import plan_live, question_context
from client.planning.proposed_changes import ProposedChanges, read_proposed_changes
from client.planning.questions import QuestionContext, answer, read_question
from fleet_client.configuration import load_settings
from fleet_client.errors import CommandFailed, Refused
from fleet_client.placement.live_fleet import LiveFleet, read_live
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import control_plane
from scheduler import (
    SchedulerOptions,
    offline_deployment,
    offline_fleet,
    plan_offline,
    priority_class_problem,
    sort_documents,
)


class Compat(StrEnum):
    """Another scheduler whose decisions a plan can show."""

    REFERENCE = "reference"


def plan(
    *,
    files: options.Files = None,
    namespace: options.Namespace = None,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline",
            help="Plan from the files alone, without connecting to anything.",
        ),
    ] = False,
    drain: Annotated[
        list[str] | None,
        typer.Option("--drain", help="Plan with CLUSTER drained. May be repeated."),
    ] = None,
    delete_pool: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-pool",
            help="Plan with the node pool CLUSTER/POOL removed. May be repeated.",
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            help="Plan with another replica count, as md/NAME=N. May be repeated.",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help="File with a fleet policy to plan with.",
            show_default=False,
        ),
    ] = None,
    compat: Annotated[
        Compat | None,
        typer.Option(
            "--compat",
            help="Offline: `reference` places by the rules of the original Modelplane "
            "scheduler, its known errors included, to compare the two: without "
            "profiles, preemption and rollout budgets.",
            show_default=False,
        ),
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(
            "--headroom",
            help="Show how many replicas of md/NAME fit at most.",
            show_default=False,
        ),
    ] = None,
    cheapest_cluster: Annotated[
        str | None,
        typer.Option(
            "--cheapest-cluster",
            help="Show which cluster to add for the unplaced replicas of --for: "
            "FILE contains the InferenceClusters to choose "
            "from, or InferenceClasses, each as a cluster of its own.",
            show_default=False,
        ),
    ] = None,
    wanted_by: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="The deployment (md/NAME) that --cheapest-cluster is about.",
            show_default=False,
        ),
    ] = None,
    can_drain: Annotated[
        str | None,
        typer.Option(
            "--can-drain",
            help="Show whether CLUSTER can be drained now.",
            show_default=False,
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices",
            help=(
                "File with prices of machines per hour, by region and type, for "
                "clusters that would be created."
            ),
            show_default=False,
        ),
    ] = None,
    fail_on_shortfall: Annotated[
        bool,
        typer.Option(
            "--fail-on-shortfall",
            help=(
                "Exit with 1 if a replica would not be placed, if part of a "
                "cluster cannot be created, or if the answer is no."
            ),
        ),
    ] = False,
    output: Annotated[
        ReportFormat,
        typer.Option(
            "--output",
            "-o",
            help="Form of the output; wide adds reasons, steps and parameters.",
        ),
    ] = (ReportFormat.TABLE),
) -> None:
    """Show where replicas would be placed, and why some would not.

    Nothing is changed. With InferenceClusters alone (-f cluster.yaml), also show the
    objects that would be created, changed or deleted for them on GKE or EKS.

    For example:
      modelplane plan -f model.yaml
      modelplane plan --drain oslo
      modelplane plan -f fleet.yaml -f model.yaml --offline
      modelplane plan --headroom md/qwen
    """
    given = read_policy_file(policy) if policy else None
    price_table = read_price_file(prices) if prices else None
    question = read_question(
        headroom, cheapest_cluster, wanted_by, can_drain, namespace
    )
    if question and compat:
        raise Refused(
            "--compat places by the rules of the original Modelplane scheduler, "
            "which answers no questions",
            next_step="remove --compat",
        )
    if offline:
        if drain or delete_pool or scale:
            raise Refused(
                "--drain, --delete-pool and --scale apply to the live fleet",
                next_step="remove --offline, or change the files instead",
            )
        trees = read_trees(files, namespace)
        chosen = given or SchedulerOptions()
        if not (question and question.offered):
            _warn_without_clusters(trees)
        _warn_of_priority_classes(trees, chosen)
        if question:
            _print_answer(
                answer(question, _offline_context(trees, chosen), now_ms()),
                output,
                fail=fail_on_shortfall,
            )
            return
        clouds = _clouds(trees, LiveClouds({}, {}), price_table)
        tree = (
            {"decisions": []}
            if clouds
            else _offline(trees, chosen, compat, wide=output == ReportFormat.WIDE)
        )
    else:
        if compat:
            raise Refused(
                "--compat needs --offline",
                next_step=(
                    "the live fleet decides by its own policy: see `modelplane plan "
                    "--policy`"
                ),
            )
        written = read_trees(files, namespace) if files else []
        wanted = read_proposed_changes(
            written,
            drain,
            delete_pool,
            scale,
            namespace,
            may_be_empty=question is not None,
        )
        live = asyncio.run(_live(wanted))
        if question:
            _print_answer(
                answer(
                    question, question_context(live, wanted, given, now_ms()), now_ms()
                ),
                output,
                fail=fail_on_shortfall,
            )
            return
        tree = plan_live(live, wanted, given, now_ms())
        clouds = _clouds(written, _live_clouds(live), price_table)
    _print(tree | ({"clouds": clouds} if clouds else {}), output)
    if fail_on_shortfall:
        _fail_on_shortfall(tree, clouds)


def _fail_on_shortfall(tree: Tree, clouds: list[Tree]) -> None:
    short = [decision for decision in tree["decisions"] if decision["shortfall"]]
    if short:
        raise CommandFailed(
            "some replicas would not be placed",
            details=[
                f"ModelDeployment {each['namespace']}/{each['name']}: {each['message']}"
                for each in short
            ],
            next_step="`-o wide` shows the reason for each cluster and pool",
        )
    refused = [
        f"InferenceCluster {cloud['cluster']}: {problem_text(each)}"
        for cloud in clouds
        for each in cloud["refused"]
    ]
    if refused:
        raise CommandFailed(
            "part of a cluster cannot be created",
            details=refused,
            next_step="fix these fields",
        )


def _live_clouds(live: LiveFleet) -> LiveClouds:
    return LiveClouds(
        live.classes,
        {
            name: There(live.clusters[name], rows)
            for name, rows in live.inventories.items()
        },
    )


def _clouds(trees: list[Tree], live: LiveClouds, prices: Prices | None) -> list[Tree]:
    """Plan the cloud objects of InferenceClusters, unless the files have deployments."""
    clusters = [
        tree
        for tree in trees
        if tree["kind"] == "InferenceCluster" and is_to_create(tree)
    ]
    if any(tree["kind"] == "ModelDeployment" for tree in trees) or not clusters:
        if prices is not None:
            raise Refused(
                "--prices applies to clusters that would be created",
                next_step=(
                    "give an InferenceCluster with source GKE or EKS with -f, and no "
                    "ModelDeployment"
                ),
            )
        return []
    written = {
        tree["metadata"]["name"]: tree
        for tree in trees
        if tree["kind"] == "InferenceClass"
    }
    known = {**live.classes, **written}
    return plan_clouds(clusters, known, load_settings(), prices, live)


def _offline(
    trees: list[Tree], policy: SchedulerOptions, compat: Compat | None, *, wide: bool
) -> Tree:
    if not any(tree["kind"] == "ModelDeployment" for tree in trees):
        raise Refused("no ModelDeployment to plan", next_step="add one with -f")
    chosen = replace(policy, compat=compat.value) if compat else policy
    return plan_offline(trees, chosen, now_ms(), with_steps=wide)


def _warn_without_clusters(trees: list[Tree]) -> None:
    if not any(tree["kind"] == "InferenceCluster" for tree in trees):
        print(
            "warning: no InferenceCluster was given, so no replica can be "
            "placed; add clusters and their classes with -f",
            file=sys.stderr,
        )


def _warn_of_priority_classes(trees: list[Tree], policy: SchedulerOptions) -> None:
    documents = sort_documents(trees)
    for view in (offline_deployment(each, documents) for each in documents.placed):
        if problem := priority_class_problem(view, policy):
            print(
                f"warning: ModelDeployment {view.namespace}/{view.name}: {problem}",
                file=sys.stderr,
            )


def _offline_context(trees: list[Tree], policy: SchedulerOptions) -> QuestionContext:
    """Return the fleet in the files, for a question without a live fleet."""
    documents = sort_documents(trees)
    views = {
        (view.namespace, view.name): view
        for view in (offline_deployment(each, documents) for each in documents.placed)
    }
    return QuestionContext(offline_fleet(documents, policy), views, documents.classes)


async def _live(wanted: ProposedChanges) -> LiveFleet:
    why = (
        "it plans from the scheduler's state; `modelplane plan "
        "--offline -f FOLDER` needs no server"
    )
    async with control_plane(load_settings(), why) as plane:
        at_clouds = {
            tree["metadata"]["name"]
            for tree in wanted.of("InferenceCluster")
            if is_to_create(tree)
        }
        return await read_live(plane, wanted.deployments, at_clouds)


def _print_answer(tree: Tree, output: ReportFormat, *, fail: bool) -> None:
    if output == ReportFormat.JSON:
        print(as_json(tree))
    elif output == ReportFormat.YAML:
        print(as_yaml(tree))
    else:
        print("\n".join(answer_lines(tree)))
    if fail and not tree["enough"]:
        raise CommandFailed(
            "the answer is no",
            next_step="`modelplane plan` with the same options shows why replicas are not placed",
        )


def _print(tree: Tree, output: ReportFormat) -> None:
    if output == ReportFormat.JSON:
        print(as_json(tree))
    elif output == ReportFormat.YAML:
        print(as_yaml(tree))
    else:
        wide = output == ReportFormat.WIDE
        blocks = [
            plan_lines(tree, wide=wide),
            *(cloud_lines(cloud, wide=wide) for cloud in tree.get("clouds", ())),
        ]
        print(
            "\n\n".join("\n".join(lines) for lines in blocks if lines)
            or "Nothing would change."
        )
