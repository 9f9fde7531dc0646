"""`modelplane explain`: the fields of a kind, and the placement of a deployment.

`explain md.spec` shows fields, as kubectl does. `explain md/NAME` shows why each replica
of a deployment has its place, or none. The scheduler's own code decides on this
machine, over a copy of the live fleet. The conditions of the deployment are shown as
well. If they differ, the fleet changed a moment ago.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from api_types.clock import now_ms
from api_types.validation.schema import json_schema
from client.commands import options
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.plan_text import cluster_lines, pools_text, suggestion_lines
from client.output.schema_text import schema_lines
from client.output.tables import columns, indented
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target, kind_named, objects_named
from fleet_client.refs.tree import Tree

_WHY = (
    "it explains from the scheduler's state; `modelplane describe md/NAME` "
    "shows the conditions of a deployment through the front"
)


def explain(
    objects: Annotated[
        list[str],
        typer.Argument(
            help="A kind or field (`md`, `md.spec.template`), or deployments "
            "(`md/qwen`, `md qwen`)."
        ),
    ],
    namespace: options.Namespace = None,
    recursive: Annotated[
        bool,
        typer.Option(
            "--recursive", help="Of a kind or field: list all fields below it."
        ),
    ] = False,
    output: Annotated[
        ReportFormat,
        typer.Option(
            "--output",
            "-o",
            help="Form of the output; wide shows every cluster even when all replicas are placed.",
        ),
    ] = ReportFormat.TABLE,
    after: Annotated[
        str,
        typer.Option(
            "--after",
            help="Show the clusters whose names follow this one: the next page of a large fleet.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Describe the fields of a kind, or explain the placement of a deployment.

    With KIND or KIND.FIELD, show the fields and their descriptions. With md/NAME, show
    why each replica is on its cluster, and why a missing one fits no pool. Nothing is
    changed.

    For example:
      modelplane explain md                      # the fields of a ModelDeployment
      modelplane explain md.spec.template        # those of one field
      modelplane explain ic.spec --recursive     # all fields below it
      modelplane explain md/qwen -n ml           # the placement of a deployment
    """
    if len(objects) == 1 and "/" not in objects[0]:
        kind, *path = objects[0].split(".")
        info = kind_named(kind)
        fields = json_schema(info.kind)
        print("\n".join(schema_lines(info, fields, path, recursive=recursive)))
        return
    targets = objects_named(objects, namespace)
    for target in targets:
        if target.kind.kind != "ModelDeployment":
            raise Refused(
                f"{target.title} is not placed by the scheduler",
                next_step="explain a ModelDeployment: `modelplane explain md/NAME`",
            )
    trees = asyncio.run(_explain(targets, after))
    if output in {ReportFormat.JSON, ReportFormat.YAML}:
        value = trees[0] if len(trees) == 1 else trees
        print(as_json(value) if output == ReportFormat.JSON else as_yaml(value))
        return
    print(
        "\n\n".join(
            "\n".join(explanation_lines(tree, wide=output == ReportFormat.WIDE))
            for tree in trees
        )
    )


async def _explain(targets: Sequence[Target], after: str) -> list[Tree]:
    # Slow to import, and the fields of a kind need none of it.
    from fleet_client.configuration import load_settings  # noqa: PLC0415
    from fleet_client.placement.explanation import explanation  # noqa: PLC0415
    from fleet_client.placement.live_fleet import read_live  # noqa: PLC0415
    from fleet_client.temporal.control_plane import control_plane  # noqa: PLC0415

    async with control_plane(load_settings(), _WHY) as plane:
        for target in targets:
            await plane.describe(target)  # fail before the whole fleet is read
        live = await read_live(plane)
    return [explanation(live, target, now_ms(), after) for target in targets]


def explanation_lines(tree: Tree, *, wide: bool) -> list[str]:
    existing = sum(replica["action"] != "Create" for replica in tree["replicas"])
    lines = [
        (
            f"ModelDeployment {tree['namespace']}/{tree['name']}: {existing} "
            f"replicas, {tree['desired']} wanted"
        )
    ]
    lines += indented([f"warning: {text}" for text in tree["warnings"]])
    rows = [
        [
            replica["replica"],
            replica["cluster"],
            pools_text(replica["engines"]),
            replica["state"] or "-",
            replica["action"],
            replica["why"],
        ]
        for replica in tree["replicas"]
    ]
    if rows:
        lines += indented(
            columns(["REPLICA", "CLUSTER", "POOLS", "STATE", "ACTION", "REASON"], rows)
        )
    if tree["shortfall"]:
        lines += [
            "",
            f"{tree['shortfall']} not placed: {tree['message']}",
            *indented(suggestion_lines(tree["suggestions"])),
        ]
    if tree["clusters"] and (wide or tree["shortfall"]):
        lines += indented(cluster_lines(tree["clusters"]))
        if tree["clustersAfter"]:
            lines += indented([f"more clusters: --after {tree['clustersAfter']}"])
    lines += ["", "Conditions:"]
    rows = [
        [
            row.get("type", ""),
            row.get("status", ""),
            row.get("reason", ""),
            row.get("message", ""),
        ]
        for row in tree["conditions"]
    ]
    return [
        *lines,
        *indented(
            columns(["TYPE", "STATUS", "REASON", "MESSAGE"], rows)
            if rows
            else ["none yet"]
        ),
    ]
