"""`modelplane describe`: spec, status, conditions, events and workflow of an object, for people."""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from api_types.clock import utc_now
from api_types.labels import LAST_APPLIED
from api_types.resources.kinds import BY_KIND
from api_types.text.printable import escaped
from client.asking.service import way_from_here
from client.commands import options
from client.configuration import load_settings
from client.errors import Forbidden, NoAnswer
from client.fleet.connection import fleet_objects
from client.fleet.objects import Objects
from client.follow.advice import advice, rollout_advice
from client.follow.request_path import request_path
from client.output.columns import Layout, header, row
from client.output.formats import as_yaml
from client.output.tables import INDENT, NONE, age, columns, indented
from client.refs.targets import Target, kinds_and_names
from client.refs.tree import Tree, at_path, clean, condition, conditions, deleting, events

_SHOWN_ELSEWHERE = ("conditions", "events", "phase", "observedGeneration", "teardown", "components", "stages")


def describe(
    objects: Annotated[list[str], typer.Argument(help="Objects (`md qwen`, `md/qwen ic/oslo`), or a kind for all objects of it.")],
    namespace: options.Namespace = None,
) -> None:
    """Show objects in detail: spec, status, conditions, what they wait for, events, and their page in the Temporal UI."""
    asyncio.run(_describe(objects, namespace))


async def _describe(words: Sequence[str], namespace: str | None) -> None:
    async with fleet_objects(load_settings()) as plane:
        targets: list[Target] = []
        for kind, name in kinds_and_names(words):
            named = (
                [Target.of(kind, namespace, name)]
                if name
                else [seen.target for seen in await plane.list(kind, Target.of(kind, namespace, "").namespace)]
            )
            targets += named
        for at, target in enumerate(targets):
            if at:
                print()
            print("\n".join(await description(plane, target)))


async def description(plane: Objects, target: Target) -> list[str]:
    """Give the lines that describe one object. Raises `NotFound`, `NoAnswer`, `Unreachable`."""
    try:
        tree = await plane.describe(target)
    except NoAnswer as error:
        failing = (await plane.execution(target)).failing
        raise NoAnswer(error.message, details=[*error.details, *failing], next_step=error.next_step) from error
    lines = _heading(target, tree)
    lines += ["Spec:", *indented(as_yaml(tree.get("spec") or {}).splitlines())]
    status = {key: value for key, value in (tree.get("status") or {}).items() if key not in _SHOWN_ELSEWHERE}
    if status:
        lines += ["Status:", *indented(as_yaml(status).splitlines())]
    lines += ["Conditions:", *indented(_conditions(tree))]
    if target.kind.kind == "ModelService":
        width = shutil.get_terminal_size().columns - len(INDENT) if sys.stdout.isatty() else 0
        way = [f"Note: {way}"] if (way := way_from_here(target, tree)) else []
        lines += ["Requests:", *indented(await request_path(plane, target, tree, width)), *way]
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
        lines += ["Failing steps, tried again:", *indented(execution.failing)]
    if not deleting(tree):
        next_steps = ["" if ready else advice(target, tree), rollout_advice(target, tree)]
        lines += [f"Next: {step}" for step in next_steps if step]
    return [*lines, *([f"Temporal: {execution.link}"] if execution.link else [])]


def _heading(target: Target, tree: Tree) -> list[str]:
    metadata = clean(tree).get("metadata") or {}
    facts = [
        ("Name", target.name),
        *([("Namespace", target.namespace)] if target.namespace else []),
        ("Kind", target.kind.kind),
        ("Phase", str(at_path(tree, ".status.phase") or "")),
        ("Labels", _pairs(metadata.get("labels"))),
        ("Annotations", _pairs(_by_people(metadata.get("annotations")))),
        ("Created", str(metadata.get("creationTimestamp") or "")),
        *([("Deleted", str(metadata["deletionTimestamp"]))] if deleting(tree) else []),
        ("Generation", f"{metadata.get('generation')} (observed {at_path(tree, '.status.observedGeneration')})"),
        ("UID", str(metadata.get("uid") or "")),
    ]
    width = max(len(title) for title, _ in facts) + 1
    # One line each, whatever an annotation says.
    return [f"{title + ':':<{width}} {escaped(value) or NONE}" for title, value in facts]


def _pairs(values: dict[str, str] | None) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted((values or {}).items()))


def _by_people(annotations: dict[str, str] | None) -> dict[str, str]:
    """Leave out the copy of the object that `kubectl apply` keeps in an annotation, as kubectl does."""
    return {key: value for key, value in (annotations or {}).items() if key != LAST_APPLIED}


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
    return columns(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], rows) if rows else [NONE]


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
    return columns(["LAST", "TYPE", "REASON", "COUNT", "MESSAGE"], rows) if rows else [NONE]


def teardown(tree: Tree) -> list[str]:
    """Give the steps of a teardown as a table, with what the current one waits for; nothing for an object without steps."""
    progress = at_path(tree, ".status.teardown") or {}
    awaited = [f"{item['object']} ({item['why']})" if item.get("why") else str(item["object"]) for item in progress.get("waitingFor", ())]
    waits = "; ".join(filter(None, (str(progress.get("problem") or ""), *awaited)))
    rows = [
        [str(step["number"]), step["title"], step["state"], waits if step["number"] == progress.get("step") else ""]
        for step in progress.get("steps", ())
    ]
    return columns(["STEP", "WHAT", "STATE", "WAITS FOR"], rows) if rows else []


def stack_parts(tree: Tree) -> list[str]:
    """Give the tables of a stack: its releases, and the stages that are not complete."""
    releases = [
        [
            *(str(part.get(field) or "-") for field in ("name", "release", "namespace", "version", "revision", "stage")),
            " ".join(str(part.get("lag") or "-").split()),
        ]
        for part in at_path(tree, ".status.components") or ()
    ]
    stages = [
        [str(part.get("stage")), f"{part.get('title')}{' (late)' if part.get('late') else ''}", " ".join(str(part.get("message")).split())]
        for part in at_path(tree, ".status.stages") or ()
    ]
    titles = ["COMPONENT", "RELEASE", "NAMESPACE", "VERSION", "REVISION", "STAGE", "LAG"]
    lines = ["Components:", *indented(columns(titles, releases) if releases else [NONE])]
    return [*lines, "Open stages:", *indented(columns(["STAGE", "WHAT", "WAITS FOR"], stages))] if stages else lines


async def _replicas(plane: Objects, target: Target) -> list[str]:
    kind = BY_KIND["ModelReplica"]
    layout = Layout(wide=True)
    try:
        found = await plane.list(kind, target.namespace, deployment=target.name)
    except Forbidden as failure:
        return [failure.message]
    return columns(header(kind, layout), [row(kind, seen, layout, utc_now()) for seen in found]) if found else [NONE]
