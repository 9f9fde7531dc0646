"""`modelplane decisions`: past decisions of the scheduler about a deployment.

Temporal keeps the scheduler's input and output. The command reads them and replays the
runs on this machine, so it needs no worker and changes nothing.
"""

import asyncio
import sys
from typing import Annotated

import typer

from client.commands import options
from client.failures import report
from client.history.past_decisions import IN_HISTORY, PastDecisions, past_decisions
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.progress import Progress, Row
from client.output.tables import columns
from fleet_client.configuration import load_settings
from fleet_client.errors import NotFound, Refused
from fleet_client.refs.targets import Target, objects_named
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import control_plane

_DIGEST_SHOWN = 12


def decisions(
    objects: Annotated[
        list[str],
        typer.Argument(
            help="A deployment, which may be deleted: `md/qwen`, or `md qwen`."
        ),
    ],
    namespace: options.Namespace = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            min=1,
            max=10_000,
            help="How many decisions to list, the latest ones.",
        ),
    ] = 20,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            min=1,
            max=1_000,
            help="How many runs of the scheduler to read; one has some thousand events.",
        ),
    ] = 5,
    output: Annotated[
        ReportFormat,
        typer.Option(
            "--output",
            "-o",
            help="Form of the output; wide shows the requests and the whole digests.",
        ),
    ] = ReportFormat.TABLE,
) -> None:
    """List past decisions of the scheduler about a deployment, the latest first.

    Each has its inputs, the version of the scheduler, the outcome and the reason.

    For example:
      modelplane decisions md/qwen -n ml
      modelplane decisions md/qwen --limit 100 -o wide
    """
    targets = objects_named(objects, namespace)
    if len(targets) != 1 or targets[0].kind.kind != "ModelDeployment":
        raise Refused(
            "`decisions` lists the decisions about one ModelDeployment",
            next_step="write `modelplane decisions md/NAME`",
        )
    found = asyncio.run(_read(targets[0], limit, runs))
    for failure in found.unread:
        print(report(failure).replace("error:", "warning:", 1), file=sys.stderr)
    if not found.decisions:
        raise NotFound(
            f"no decision about {targets[0].title} is in the latest {found.runs} of "
            f"{found.kept} stored runs of the scheduler",
            next_step="increase --runs to read earlier ones"
            if found.kept > found.runs
            else "`modelplane get md -A` lists deployments",
        )
    if output in {ReportFormat.JSON, ReportFormat.YAML}:
        print(
            as_json(found.decisions)
            if output == ReportFormat.JSON
            else as_yaml(found.decisions)
        )
        return
    print("\n".join(decision_rows(found.decisions, wide=output == ReportFormat.WIDE)))


async def _read(target: Target, limit: int, runs: int) -> PastDecisions:
    async with control_plane(load_settings(), IN_HISTORY) as plane:
        with Progress() as progress:

            def show(number: int, total: int, count: int) -> None:
                text = f"reading run {number + 1} of {total}, {count} decisions found"
                progress.show([Row("scheduler", text)])

            found = await past_decisions(
                plane, target, most=limit, runs_max=runs, show=show
            )
            progress.show([])
        return found


def decision_rows(trees: list[Tree], *, wide: bool) -> list[str]:
    request_title = ["REQUEST"] if wide else []
    titles = ["ID", "TIME", "VERSION", "INPUTS", *request_title]
    rows = []
    for tree in trees:
        request = [tree["requestId"]] if wide else []
        rows.append(
            [
                tree["id"],
                tree["time"],
                tree["schedulerVersion"] or "-",
                tree["inputs"] if wide else tree["inputs"][:_DIGEST_SHOWN],
                *request,
                str(tree["desired"]),
                outcome_text(tree),
                tree["reason"] or tree["problem"] or "-",
            ]
        )
    return columns([*titles, "WANTED", "OUTCOME", "REASON"], rows)


def outcome_text(tree: Tree) -> str:
    """Return the outcome of a decision in a few words."""
    if tree["problem"]:
        return "not decided"
    return (
        ", ".join(f"{count} {what}" for what, count in tree["outcome"].items() if count)
        or "no replicas"
    )
