"""`modelplane replay-decision`: repeat a past decision from its recorded inputs.

The scheduler's code on this machine decides, and nothing is changed.
"""

import asyncio
from typing import Annotated

import typer

from api_types.payloads.limits import shortened
from client.failures import ExitCode
from client.history.past_decisions import IN_HISTORY, DecisionId, decide_again, read_id
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.tables import indented
from fleet_client.configuration import load_settings
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import control_plane

# The part of a difference that a table shows; `-o json` has the whole text.
_SHOWN_BYTES = 500


def replay_decision(
    decision: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of a decision, as `modelplane decisions` lists it.",
        ),
    ],
    output: Annotated[
        ReportFormat, typer.Option("--output", "-o", help="Form of the output.")
    ] = ReportFormat.TABLE,
) -> None:
    """Repeat a past decision from its recorded inputs, and compare the answers.

    The exit code is 1 if they differ.

    For example:
      modelplane replay-decision 7b0c7f6e-8f7e-4b0e-9f57-2f4f0b0c3a11.0.0
    """
    tree = asyncio.run(_replay(read_id(decision)))
    if output in {ReportFormat.JSON, ReportFormat.YAML}:
        print(as_json(tree) if output == ReportFormat.JSON else as_yaml(tree))
    else:
        print("\n".join(replay_lines(tree)))
    if not tree["same"]:
        raise typer.Exit(ExitCode.FAILED)


async def _replay(wanted: DecisionId) -> Tree:
    async with control_plane(load_settings(), IN_HISTORY) as plane:
        return await decide_again(plane, wanted)


def replay_lines(tree: Tree) -> list[str]:
    lines = [
        (
            f"ModelDeployment {tree['namespace']}/{tree['name']}, request "
            f"{tree['requestId']}, decided at {tree['time']}"
        ),
        *indented(
            [
                f"inputs  {tree['inputs']}",
                f"reason  {tree['reason'] or tree['problem'] or '-'}",
            ]
        ),
    ]
    recorded, now = tree["schedulerVersion"], tree["replayedWith"]
    versions = (
        f"scheduler {now}"
        if recorded in {now, ""}
        else f"scheduler {now}, recorded by {recorded}"
    )
    if tree["same"]:
        return [*lines, f"Same answer ({versions})."]
    lines.append(f"Another answer ({versions}); `-` was recorded, `+` is decided now:")
    for each in tree["differences"]:
        lines += [
            f"  {sign} {each['what']}: {shortened(each[side], _SHOWN_BYTES)}"
            for sign, side in (("-", "recorded"), ("+", "now"))
            if each[side]
        ]
    if recorded not in {now, ""}:
        lines.append(
            "The versions differ. After an upgrade another answer can be "
            "intended; CHANGELOG.md lists the changes."
        )
    return lines
