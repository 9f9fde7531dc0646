"""`modelplane describe`: everything about an object, formatted for people."""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from api_types.clock import utc_now
from api_types.labels import LAST_APPLIED
from api_types.resources.kinds import BY_KIND
from api_types.text.age import age
from api_types.text.printable import escaped
from client.asking.service import way_from_here
from client.commands import options
from client.follow.request_path import request_path
from client.output.columns import TableLayout, header, row
from client.output.formats import as_yaml
from client.output.tables import INDENT, NONE, columns, indented
from fleet_client.advice import advice, rollout_advice
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Forbidden, NoAnswer, NotFound
from fleet_client.lookup import with_nearest
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, kinds_and_names
from fleet_client.refs.tree import (
    Tree,
    at_path,
    clean,
    condition,
    conditions,
    deleting,
    events,
)

_SHOWN_ELSEWHERE = (
    "conditions",
    "events",
    "phase",
    "observedGeneration",
    "teardown",
    "components",
    "stages",
)


def describe(
    objects: Annotated[
        list[str],
        typer.Argument(
            help="Objects (`md qwen`, `md/qwen ic/oslo`), or a kind for all objects of it."
        ),
    ],
    namespace: options.Namespace = None,
) -> None:
    """Show objects in detail.

    That is the spec, the status, conditions, pending steps, events, and the page in the
    Temporal UI.

    For example:
      modelplane describe md/qwen -n ml
      modelplane describe ic
      modelplane describe ms/chat md/qwen
    """
    asyncio.run(_describe(objects, namespace))


async def _describe(words: Sequence[str], namespace: str | None) -> None:
    async with fleet_objects(load_settings()) as plane:
        targets: list[Target] = []
        for kind, name in kinds_and_names(words):
            if name:
                targets.append(Target.of(kind, namespace, name))
                continue
            scope = Target.of(kind, namespace, "").namespace
            targets += [seen.target for seen in await plane.list(kind, scope)]
        for at, target in enumerate(targets):
            if at:
                print()
            print("\n".join(await description(plane, target)))


async def description(plane: FleetObjects, target: Target) -> list[str]:
    """Return the lines that describe one object.

    Raise `NotFound`, `NoAnswer` or `Unreachable`.
    """
    try:
        tree = await plane.describe(target)
    except NotFound as failure:
        raise await with_nearest(plane, target, failure) from failure
    except NoAnswer as error:
        failing = (await plane.execution(target)).failing
        raise NoAnswer(
            error.message, details=[*error.details, *failing], next_step=error.next_step
        ) from error
    lines = _heading(target, tree)
    lines += ["Spec:", *indented(as_yaml(tree.get("spec") or {}).splitlines())]
    status = {
        key: value
        for key, value in (tree.get("status") or {}).items()
        if key not in _SHOWN_ELSEWHERE
    }
    if status:
        lines += ["Status:", *indented(as_yaml(status).splitlines())]
    lines += ["Conditions:", *indented(_conditions(tree))]
    if target.kind.kind == "ModelService":
        width = (
            shutil.get_terminal_size().columns - len(INDENT)
            if sys.stdout.isatty()
            else 0
        )
        lines += [
            "Requests:",
            *indented(await request_path(plane, target, tree, width)),
        ]
        if note := way_from_here(target, tree):
            lines.append(f"Note: {note}")
    if target.kind.kind == "ServingStack":
        lines += stack_parts(tree)
    if target.kind.kind == "ModelDeployment":
        lines += ["Replicas:", *indented(await _replicas(plane, target))]
    ready = condition(tree, "Ready").get("status") == "True"
    if steps := teardown(tree):
        lines += ["Teardown:", *indented(steps)]
    if deleting(tree):
        lines += ["Waiting for:", *indented(await plane.waiting(target) or [NONE])]
    lines += ["Events:", *indented(_events(tree))]
    execution = await plane.execution(target)
    if execution.failing:
        lines += ["Failing steps, which are retried:", *indented(execution.failing)]
    if not deleting(tree):
        next_steps = [
            "" if ready else advice(target, tree),
            rollout_advice(target, tree),
        ]
        lines += [f"Next: {step}" for step in next_steps if step]
    if execution.link:
        lines.append(f"Temporal: {execution.link}")
    return lines


def _heading(target: Target, tree: Tree) -> list[str]:
    metadata = clean(tree).get("metadata") or {}
    observed = at_path(tree, ".status.observedGeneration")
    facts = [("Name", target.name)]
    if target.namespace:
        facts.append(("Namespace", target.namespace))
    facts += [
        ("Kind", target.kind.kind),
        ("Phase", str(at_path(tree, ".status.phase") or "")),
        ("Labels", _pairs(metadata.get("labels"))),
        ("Annotations", _pairs(_by_people(metadata.get("annotations")))),
        ("Created", str(metadata.get("creationTimestamp") or "")),
    ]
    if deleting(tree):
        facts.append(("Deleted", str(metadata["deletionTimestamp"])))
    facts += [
        ("Generation", f"{metadata.get('generation')} (observed {observed})"),
        ("UID", str(metadata.get("uid") or "")),
    ]
    width = max(len(title) for title, _ in facts) + 1
    # Escape line breaks, so that each fact takes one line.
    return [
        f"{title + ':':<{width}} {escaped(value) or NONE}" for title, value in facts
    ]


def _pairs(values: dict[str, str] | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted((values or {}).items()))


def _by_people(annotations: dict[str, str] | None) -> dict[str, str]:
    """Drop the copy of the object that `kubectl apply` keeps in an annotation."""
    return {
        key: value for key, value in (annotations or {}).items() if key != LAST_APPLIED
    }


def _conditions(tree: Tree) -> list[str]:
    now = utc_now()
    rows = [
        [
            str(row.get("type") or ""),
            str(row.get("status") or ""),
            str(row.get("reason") or ""),
            age(str(row.get("lastTransitionTime") or ""), now),
            " ".join(str(row.get("message") or "").split()),
        ]
        for row in conditions(tree)
    ]
    return (
        columns(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], rows)
        if rows
        else [NONE]
    )


def _events(tree: Tree) -> list[str]:
    now = utc_now()
    rows = [
        [
            age(str(event.get("last") or ""), now),
            str(event.get("type") or ""),
            str(event.get("reason") or ""),
            str(event.get("count") or 1),
            " ".join(str(event.get("message") or "").split()),
        ]
        for event in events(tree)
    ]
    return (
        columns(["LAST", "TYPE", "REASON", "COUNT", "MESSAGE"], rows)
        if rows
        else [NONE]
    )


def teardown(tree: Tree) -> list[str]:
    """Return the steps of a teardown as a table, or an empty list without a teardown.

    The row of the current step names the objects that it waits for.
    """
    progress = at_path(tree, ".status.teardown") or {}
    awaited = [
        f"{item['object']} ({item['why']})" if item.get("why") else str(item["object"])
        for item in progress.get("waitingFor", ())
    ]
    waits = "; ".join(filter(None, (str(progress.get("problem") or ""), *awaited)))
    rows = [
        [
            str(step["number"]),
            step["title"],
            step["state"],
            waits if step["number"] == progress.get("step") else "",
        ]
        for step in progress.get("steps", ())
    ]
    return columns(["STEP", "WHAT", "STATE", "WAITS FOR"], rows) if rows else []


def stack_parts(tree: Tree) -> list[str]:
    """Return the tables of a stack: its releases, and the stages that are not complete."""
    fields = ("name", "release", "namespace", "version", "revision", "stage")
    releases = []
    for part in at_path(tree, ".status.components") or ():
        lag = " ".join(str(part.get("lag") or "-").split())
        releases.append([*(str(part.get(field) or "-") for field in fields), lag])
    stages = [
        [
            str(part.get("stage")),
            f"{part.get('title')}{' (late)' if part.get('late') else ''}",
            " ".join(str(part.get("message")).split()),
        ]
        for part in at_path(tree, ".status.stages") or ()
    ]
    titles = [
        "COMPONENT",
        "RELEASE",
        "NAMESPACE",
        "VERSION",
        "REVISION",
        "STAGE",
        "LAG",
    ]
    lines = [
        "Components:",
        *indented(columns(titles, releases) if releases else [NONE]),
    ]
    if stages:
        titles = ["STAGE", "WHAT", "WAITS FOR"]
        lines += ["Open stages:", *indented(columns(titles, stages))]
    return lines


async def _replicas(plane: FleetObjects, target: Target) -> list[str]:
    kind = BY_KIND["ModelReplica"]
    layout = TableLayout(wide=True)
    try:
        found = await plane.list(kind, target.namespace, deployment=target.name)
    except Forbidden as failure:
        return [failure.message]
    return (
        columns(
            header(kind, layout), [row(kind, seen, layout, utc_now()) for seen in found]
        )
        if found
        else [NONE]
    )
