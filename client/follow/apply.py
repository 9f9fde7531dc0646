"""Applying manifests.

Objects are sent as `set_spec`. Secrets and ConfigMaps go to the secret store and never
to Temporal.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from pydantic import ValidationError

from api_types.messages.entities import SetSpec
from api_types.resources.kinds import BY_KIND
from api_types.resources.secrets import DataManifest
from api_types.validation.manifests import (
    InvalidManifest,
    Manifest,
    admit_update,
    dump,
    is_taken_while_deleting,
    load,
    update_warnings,
)
from client.follow.edit import being_deleted, raise_if_not_accepted
from client.follow.fleet_warnings import warnings_of
from client.follow.results import raise_failures, result_of, show_results
from client.follow.waiting import Goal, wait_until_ready
from client.manifests.secrets import STORED_ELSEWHERE, store_secrets
from fleet_client.errors import CommandFailed, NoAnswer, NotFound, Refused
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, deleting, has_changed
from fleet_client.requests import (
    Requested,
    current_user,
    new_request_id,
    until_answered,
    until_applied,
)

# "applied" means that no worker has reported what changed.
Outcome = Literal["created", "configured", "unchanged", "applied"]

_PROBLEMS_SHOWN = 10

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ApplyResult(Requested):
    """The result of applying one manifest."""

    outcome: Outcome = "applied"


@dataclass(frozen=True)
class _Checked:
    """A manifest that passed all checks."""

    target: Target
    manifest: Manifest
    exists: bool
    request_id: str = ""
    before: Tree | None = None


async def apply_manifests(
    plane: FleetObjects, manifests: Sequence[Manifest], look_seconds: float = 0.0
) -> list[ApplyResult]:
    """Send manifests in the order of their kinds, and print the outcome of each.

    Sending needs no worker. If a worker describes the present object in time, a change
    that cannot be made is not sent. The object is queried for `look_seconds`, and at
    least once. All failures are raised together at the end.
    """
    stored = [manifest for manifest in manifests if isinstance(manifest, DataManifest)]
    if stored:
        await store_secrets(stored, plane.temporal(STORED_ELSEWHERE).settings)
    failures: list[CommandFailed] = []
    checked = await _each(
        plane,
        partial(_check, look_seconds=look_seconds),
        [manifest for manifest in manifests if manifest.kind in BY_KIND],
        failures,
    )
    sent: list[_Checked] = []
    for kind in dict.fromkeys(one.target.kind.kind for one in checked):
        sent += await _each(
            plane,
            _send,
            [one for one in checked if one.target.kind.kind == kind],
            failures,
        )
    for warning in await warnings_of(plane, manifests):
        print(f"warning: {warning}", file=sys.stderr)
    applied = show_results(
        await _each(plane, _answer, sent, failures), lambda one: one.outcome
    )
    raise_failures(failures)
    return applied


async def check_manifests(plane: FleetObjects, manifests: Sequence[Manifest]) -> None:
    """Check manifests as `apply_manifests` does, without sending them.

    Print the expected outcome of each. Raise the failures together.
    """
    failures: list[CommandFailed] = []
    stored = [manifest for manifest in manifests if isinstance(manifest, DataManifest)]
    if stored:
        plane.temporal(STORED_ELSEWHERE)
    written = [manifest for manifest in manifests if manifest.kind in BY_KIND]
    checked = await _each(plane, partial(_check, look_seconds=0.0), written, failures)
    good = await _each(plane, _check_only, checked, failures)
    for warning in await warnings_of(plane, manifests):
        print(f"warning: {warning}", file=sys.stderr)
    for manifest in stored:
        print(f"{manifest.kind.lower()}/{manifest.metadata.name} applied (dry run)")
    for one in good:
        print(f"{one.target.label} {_expected_outcome(one)} (dry run)")
    raise_failures(failures)


async def until_applied_are_ready(
    plane: FleetObjects, applied: Sequence[ApplyResult], seconds: float
) -> list[Tree]:
    """Wait, showing progress, until each applied object is Ready at its new generation."""
    return await wait_until_ready(plane, [Goal.of(one) for one in applied], seconds)


async def _each(
    plane: FleetObjects,
    step: Callable[[FleetObjects, ItemT], Awaitable[ResultT]],
    items: Sequence[ItemT],
    failures: list[CommandFailed],
) -> list[ResultT]:
    """Run one step for all items concurrently.

    Return the results, and append the failures.
    """
    results = await asyncio.gather(*(result_of(step(plane, item)) for item in items))
    failures += [result for result in results if isinstance(result, CommandFailed)]
    return [result for result in results if not isinstance(result, CommandFailed)]


async def _check(
    plane: FleetObjects, manifest: Manifest, *, look_seconds: float
) -> _Checked:
    """Read the object and check that it can be changed in this way.

    Raise `WriteConflict`, `Refused` or `Unreachable`.
    """
    target = Target.of(
        BY_KIND[manifest.kind], manifest.metadata.namespace, manifest.metadata.name
    )
    if not await plane.exists(target):
        return _Checked(target, manifest, exists=False)
    try:
        before = await until_answered(lambda: plane.describe(target), look_seconds)
    except NotFound:
        return _Checked(target, manifest, exists=False)
    except NoAnswer:
        return _Checked(
            target, manifest, exists=True
        )  # its workflow makes the same checks
    _check_change(target, before, manifest)
    return _Checked(target, manifest, exists=True, before=before)


async def _send(plane: FleetObjects, checked: _Checked) -> _Checked:
    request = _request(checked)
    await plane.set_spec(checked.target, request)
    return replace(checked, request_id=request.request_id)


async def _check_only(plane: FleetObjects, checked: _Checked) -> _Checked:
    await plane.check_spec(checked.target, _request(checked))
    return checked


def _request(checked: _Checked) -> SetSpec:
    return SetSpec(
        request_id=new_request_id(), by=current_user(), manifest=dump(checked.manifest)
    )


async def _answer(plane: FleetObjects, sent: _Checked) -> ApplyResult:
    requested = await until_applied(plane, sent.target, sent.request_id)
    if _taken_while_deleting(sent, requested.tree):
        return ApplyResult(**vars(requested), outcome="configured")
    raise_if_not_accepted(requested)
    return ApplyResult(**vars(requested), outcome=_outcome(sent, requested.tree))


def _taken_while_deleting(sent: _Checked, tree: Tree | None) -> bool:
    """Return whether an object that is being deleted accepted the options in a request."""
    if not tree or not deleting(tree) or not sent.before or not deleting(sent.before):
        return False
    return not is_taken_while_deleting(_loaded(sent.target, tree), sent.manifest)


def _check_change(target: Target, before: Tree, manifest: Manifest) -> None:
    """Raise `WriteConflict` or `Refused` if the change cannot be made.

    Otherwise print its warnings.
    """
    if deleting(before):
        known = before.get("spec") and _loaded(target, before)
        if not known or not is_taken_while_deleting(known, manifest):
            raise being_deleted(target)
        return
    if not before.get("spec"):
        return  # every earlier spec was refused, so there is nothing to compare with
    old = _loaded(target, before)
    try:
        admit_update(old, manifest)
    except InvalidManifest as refused:
        raise Refused(
            f"{target.title} cannot be changed in this way; nothing was sent for it",
            details=refused.lines(),
            next_step="delete the object and create it again, or leave these fields as they are",
        ) from refused
    for warning in update_warnings(old, manifest):
        print(f"warning: {warning}", file=sys.stderr)


def _loaded(target: Target, tree: Tree) -> Manifest:
    """Return the present object as a manifest.

    Raise `CommandFailed` if this program does not know its form, so that a change
    cannot be checked.
    """
    try:
        return load(tree)
    except ValueError as error:
        problems = (
            error.errors()[:_PROBLEMS_SHOWN]
            if isinstance(error, ValidationError)
            else []
        )
        raise CommandFailed(
            f"this program does not know the present form of {target.title}; "
            "nothing was sent for it",
            details=[
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems
            ]
            or [str(error)],
            next_step="use the version of modelplane that the control plane has",
        ) from error


def _expected_outcome(checked: _Checked) -> Outcome:
    """Return the expected outcome, as far as the present object shows it."""
    if not checked.exists:
        return "created"
    if checked.before is None or not checked.before.get("spec"):
        return "applied"
    return (
        "unchanged"
        if _written(dump(_loaded(checked.target, checked.before)))
        == _written(dump(checked.manifest))
        else "configured"
    )


def _written(document: Tree) -> list[object]:
    metadata = document["metadata"]
    return [
        document["spec"],
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
    ]


def _outcome(sent: _Checked, after: Tree | None) -> Outcome:
    """Return the outcome.

    A worker that answered too late for `_check` reports it here.
    """
    if not sent.exists:
        return "created"
    if after is None:
        return "applied"
    return "configured" if has_changed(after, sent.request_id) else "unchanged"
