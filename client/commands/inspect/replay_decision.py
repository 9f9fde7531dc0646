"""`modelplane replay-decision`: one past decision, made again from what it was made from.

The scheduler's code on this machine decides, and nothing is changed.
"""

import asyncio
from typing import Annotated

import typer

from api_types.payloads.limits import shortened
from client.configuration import load_settings
from client.errors import ExitCode
from client.history.past_decisions import IN_HISTORY, DecisionId, decide_again, read_id
from client.output.formats import ReportFormat, as_json, as_yaml
from client.output.tables import indented
from client.refs.tree import Tree
from client.temporal.control_plane import control_plane

# Of one difference; `-o json` has them whole.
_SHOWN_BYTES = 500


def replay_decision(
    decision: Annotated[str, typer.Argument(metavar="ID", help="The id of a decision, as `modelplane decisions` lists it.")],
    output: Annotated[ReportFormat, typer.Option("--output", "-o", help="Form of the output.")] = ReportFormat.TABLE,
) -> None:
    """Decide again from the recorded inputs of a past decision, and say whether the answer is the same; exits with 1 when it is not."""
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
    """Give the lines of the report."""
    lines = [
        f"ModelDeployment {tree['namespace']}/{tree['name']}, request {tree['requestId']}, decided at {tree['time']}",
        *indented([f"inputs  {tree['inputs']}", f"reason  {tree['reason'] or tree['problem'] or '-'}"]),
    ]
    recorded, now = tree["schedulerVersion"], tree["replayedWith"]
    versions = f"scheduler {now}" if recorded in {now, ""} else f"scheduler {now}, recorded by {recorded}"
    if tree["same"]:
        return [*lines, f"Same answer ({versions})."]
    lines.append(f"Another answer ({versions}); `-` is what was recorded, `+` what is decided now:")
    for each in tree["differences"]:
        lines += [
            f"  {sign} {each['what']}: {shortened(each[side], _SHOWN_BYTES)}"
            for sign, side in (("-", "recorded"), ("+", "now"))
            if each[side]
        ]
    if recorded not in {now, ""}:
        lines.append("The versions differ: after an upgrade another answer may be what was wanted. CHANGELOG.md says what changed.")
    return lines
