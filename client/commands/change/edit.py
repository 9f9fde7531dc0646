"""`modelplane edit`: change objects in an editor."""

import asyncio
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from api_types.text.merge_patch import merged, patch_between
from client.commands import options
from client.follow.checked_edit import checked, edit_each
from client.follow.edit import as_manifest, raise_without_spec
from client.manifests.yaml_file import parse_yaml
from client.output.formats import as_yaml
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target, objects_named
from fleet_client.refs.tree import Tree, clean
from fleet_client.requests import until_answered

# As kubectl reads them.
_EDITOR_VARIABLES = ("KUBE_EDITOR", "EDITOR")
_DEFAULT_EDITOR = "vi"
_COMMENT = "# "
_HELP = [
    "Edit the object below. These comments at the top are ignored, and an unchanged or",
    "empty file changes nothing.",
]

Editor = Callable[[Path], None]


def edit(
    objects: Annotated[
        list[str], typer.Argument(help="Objects (`md/qwen ic/oslo`, `md qwen`).")
    ],
    namespace: options.Namespace = None,
) -> None:
    """Change objects in an editor, one after the other.

    The editor is KUBE_EDITOR, else EDITOR, else vi. The changed fields are sent, so that
    changes of others in the meantime stay. A manifest that would be refused is opened
    again with the reasons; an unchanged file then ends the command.

    For example:
      modelplane edit md/qwen -n ml
      EDITOR=nano modelplane edit ic/oslo
    """
    targets = objects_named(objects, namespace)
    for target, before in zip(targets, asyncio.run(_read(targets)), strict=True):
        patch = patch_from_editor(target, before, run_editor)
        if patch:
            asyncio.run(_send(target, patch))
        else:
            print(f"{target.label} not changed")


async def _read(targets: Sequence[Target]) -> list[Tree]:
    async with fleet_objects(load_settings()) as plane:
        trees = []
        for target in targets:
            tree = await until_answered(partial(plane.describe, target))
            raise_without_spec(target, tree)
            trees.append(as_manifest(clean(tree)))
        return trees


async def _send(target: Target, patch: Tree) -> None:
    await edit_each([target], lambda manifest: merged(manifest, patch), "edited")


def patch_from_editor(target: Target, before: Tree, editor: Editor) -> Tree:
    """Return the changes that a user makes to a manifest, or an empty tree.

    Raise `Refused` if the user gives up on a manifest that would be refused.
    """
    written = as_yaml(before)
    with tempfile.TemporaryDirectory(prefix="modelplane-edit-") as folder:
        file = Path(folder) / f"{target.name}.yaml"
        said: Sequence[str] = _HELP
        while True:
            offered = "".join(f"{_COMMENT}{line}\n" for line in said) + f"{written}\n"
            file.write_text(offered, encoding="utf-8")
            editor(file)
            given = file.read_text(encoding="utf-8", errors="replace")
            text = _without_comments(given)
            unchanged = text.strip() == written.strip()
            if not text.strip() or (unchanged and said is _HELP):
                return {}
            try:
                return _patch(target, before, text)
            except Refused as refused:
                if unchanged:
                    raise
                written = text.rstrip("\n")
                said = [refused.message, *(f"  {each}" for each in refused.details)]


def _patch(target: Target, before: Tree, text: str) -> Tree:
    after = dict(parse_yaml(text, "the edited text", "manifest"))
    checked(target, before, lambda _: after)
    return patch_between(before, after)


def _without_comments(text: str) -> str:
    """Return the text below the comments at its top, which this command has written."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(_COMMENT.strip()):
        lines.pop(0)
    return "".join(lines)


def run_editor(file: Path) -> None:
    """Run the user's editor until it ends. Raise `Refused` if it fails."""
    named = next(filter(None, map(os.environ.get, _EDITOR_VARIABLES)), _DEFAULT_EDITOR)
    how = "set KUBE_EDITOR or EDITOR to the command of an editor"
    try:
        # The user chose this program.
        ended = subprocess.run([*shlex.split(named), str(file)], check=False)  # noqa: S603
    except (OSError, ValueError) as error:
        raise Refused(
            f"the editor {named!r} does not start: {error}", next_step=how
        ) from error
    if ended.returncode:
        raise Refused(
            f"the editor {named!r} ended with exit code {ended.returncode}; nothing was sent",
            next_step=how,
        )
