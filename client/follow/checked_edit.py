"""Edits of manifests that users write: the result is checked before it is sent."""

from collections.abc import Callable, Sequence
from copy import deepcopy

from pydantic import ValidationError

from api_types.validation.manifests import InvalidManifest, admit_update, dump, load
from client.follow.edit import as_manifest, change_manifest
from client.follow.results import request_each
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree

_FIXED = ("apiVersion", "kind")


async def edit_each(
    targets: Sequence[Target], edit: Callable[[Tree], Tree], done: str
) -> None:
    """Change the manifest of each object, and print `done`, or that nothing changed.

    `edit` gets a copy of the manifest. Raise the errors of `edit` and of
    `change_manifest`, and `Refused` for a result that the control plane would refuse.
    """
    async with fleet_objects(load_settings()) as plane:
        await request_each(
            targets,
            lambda target: change_manifest(
                plane, target, lambda tree: checked(target, as_manifest(tree), edit)
            ),
            lambda one: done if one.request_id else "not changed",
        )


def checked(target: Target, before: Tree, edit: Callable[[Tree], Tree]) -> Tree:
    """Return an edited manifest. Raise `Refused` if the control plane would refuse it."""
    after = edit(deepcopy(before))
    named = after.get("metadata") or {}
    known = before["metadata"]
    renamed = [field for field in _FIXED if after.get(field) != before[field]]
    renamed += [
        f"metadata.{field}"
        for field in ("name", "namespace")
        if named.get(field) != known.get(field)
    ]
    if renamed:
        raise Refused(
            f"{target.title}: {', '.join(renamed)} cannot be changed",
            next_step="leave these fields as they are, or apply another manifest",
        )
    try:
        present, wanted = load(before), load(after)
        admit_update(present, wanted)
    except InvalidManifest as refused:
        raise _refused(target, refused.lines()) from refused
    except ValidationError as refused:
        lines = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in refused.errors()
        ]
        raise _refused(target, lines) from refused
    # Equal forms of one value, such as "1Gi" and 1073741824, are no change.
    return before if dump(present) == dump(wanted) else dump(wanted)


def _refused(target: Target, lines: list[str]) -> Refused:
    return Refused(
        f"{target.title} cannot be changed in this way; nothing was sent for it",
        details=lines,
        next_step="correct these fields and try again",
    )
