"""`modelplane service shift`: change the weights of the entries of a ModelService."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from api_types import labels
from api_types.hints import nearest
from client.commands import options
from client.follow.edit import change
from client.follow.waiting import Goal, wait_until_ready
from client.output.tables import columns
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target, kind_named
from fleet_client.refs.tree import Tree
from fleet_client.requests import until_answered

WEIGHT_MAX = 1_000_000

service = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Change where a ModelService sends requests.",
)


@service.callback()
def group() -> None:
    """Make typer treat `service` as a group although it has a single command."""


@service.command("shift")
def shift(
    name: Annotated[str, typer.Argument(help="The ModelService.")],
    shares: Annotated[
        list[str],
        typer.Argument(help="Entries and their weights: `stable=90 canary=10`."),
    ],
    namespace: options.Namespace = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Set the weights of entries.

    An entry without a name goes by the deployment that it selects, or by the value of
    its only label.

    For example:
      modelplane service shift chat stable=90 canary=10 --wait
    """
    wanted = read_shares(shares)
    target = Target.of(kind_named("ModelService"), namespace, name.removeprefix("ms/"))
    asyncio.run(_shift(target, wanted, wait=wait, seconds=timeout))


def read_shares(written: Sequence[str]) -> dict[str, int]:
    """Parse arguments of the form `entry=weight`. Raise `Refused` with all problems."""
    wanted, problems = dict[str, int](), list[str]()
    for each in written:
        name, equals, number = each.rpartition("=")
        weight = number.removesuffix("%")
        if (
            not equals
            or not name
            or not (weight.isascii() and weight.isdigit())
            or len(weight) > len(str(WEIGHT_MAX))
        ):
            problems.append(
                f"{each!r} is not written as entry=weight, such as canary=10"
            )
        elif not 1 <= int(weight) <= WEIGHT_MAX:
            problems.append(
                f"{name}: the weight must be between 1 and {WEIGHT_MAX}, got "
                f"{weight}; remove an entry that should get no requests"
            )
        elif name in wanted:
            problems.append(f"{name} is given twice")
        else:
            wanted[name] = int(weight)
    if problems:
        raise Refused(
            "these shares cannot be set",
            details=problems,
            next_step="fix them; nothing was sent",
        )
    return wanted


def entry_name(entry: Mapping[str, Any]) -> str:
    """Return the name by which this command refers to an entry.

    It is empty for an entry without a name that selects by several labels.
    """
    if entry.get("name"):
        return str(entry["name"])
    selected: Mapping[str, str] = (entry.get("selector") or {}).get("matchLabels") or {}
    if labels.DEPLOYMENT in selected:
        return selected[labels.DEPLOYMENT]
    return next(iter(selected.values())) if len(selected) == 1 else ""


def shifted(tree: Tree, wanted: Mapping[str, int]) -> Tree:
    """Return the spec with other weights.

    Raise `Refused` for a name that matches no entry or several entries.
    """
    entries = [dict(entry) for entry in tree["spec"]["endpoints"]]
    names = [entry_name(entry) for entry in entries]
    problems = []
    for name in wanted:
        if names.count(name) > 1:
            problems.append(
                f"{name}: {names.count(name)} entries have this name; set spec.endpoints[].name"
            )
        elif name not in names:
            close = nearest(name, {each: None for each in names if each})
            problems.append(
                f"{name}: no entry has this name{f', did you mean {close}?' if close else ''}"
            )
    if problems:
        known = (
            ", ".join(each for each in names if each)
            or "none has a name; set spec.endpoints[].name"
        )
        raise Refused(
            "these shares cannot be set",
            details=problems,
            next_step=f"the entries are {known}",
        )
    for entry, name in zip(entries, names, strict=True):
        if name in wanted:
            entry["weight"] = wanted[name]
    return {**tree["spec"], "endpoints": entries}


def shares_table(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a table of the weights of all entries, before and after.

    The table also shows each entry's share among the entries of its priority.
    """
    totals = [Counter[int](), Counter[int]()]
    for total, entries in zip(totals, (before, after), strict=True):
        for entry in entries:
            total[_priority(entry)] += int(entry.get("weight", 1))
    rows = []
    for old, new in zip(before, after, strict=True):
        weights = [int(entry.get("weight", 1)) for entry in (old, new)]
        shares = [
            f"{weight} ({weight / total[_priority(new)]:.1%})"
            for weight, total in zip(weights, totals, strict=True)
        ]
        rows.append([entry_name(new) or "<none>", str(_priority(new)), *shares])
    return columns(["ENTRY", "PRIORITY", "BEFORE", "AFTER"], rows)


def _priority(entry: Mapping[str, Any]) -> int:
    return int(entry.get("priority") or 0)


async def _shift(
    target: Target, wanted: Mapping[str, int], *, wait: bool, seconds: float
) -> None:
    async with fleet_objects(load_settings()) as plane:
        before = (
            (await until_answered(lambda: plane.describe(target)))
            .get("spec", {})
            .get("endpoints", [])
        )
        requested = await change(plane, target, lambda tree: shifted(tree, wanted))
        after = (requested.tree or {}).get("spec", {}).get("endpoints", before)
        print(f"{target.label} {'shifted' if requested.request_id else 'unchanged'}")
        if len(before) == len(after):
            print("\n".join(shares_table(before, after)))
        if wait:
            await wait_until_ready(plane, [Goal.of(requested)], seconds)
