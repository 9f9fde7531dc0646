"""`modelplane label` and `modelplane annotate`, as kubectl has them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from client.commands import options
from client.follow.checked_edit import edit_each
from fleet_client.errors import Refused
from fleet_client.refs.targets import objects_named
from fleet_client.refs.tree import Tree

Words = Annotated[
    list[str],
    typer.Argument(
        help="Objects (`md/qwen`), then `KEY=VALUE` to set and `KEY-` to remove."
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace values that exist already.")
]


def label(
    words: Words, overwrite: Overwrite = False, namespace: options.Namespace = None
) -> None:
    """Set and remove labels: `modelplane label md/qwen tier=gold old-`.

    Labels of a ModelDeployment are its own. Those of its replicas are in its template.

    For example:
      modelplane label md/qwen tier=gold old-
      modelplane label ic/oslo tier=silver --overwrite
    """
    _edit("labels", words, namespace, overwrite=overwrite, done="labeled")


def annotate(
    words: Words, overwrite: Overwrite = False, namespace: options.Namespace = None
) -> None:
    """Set and remove annotations: `modelplane annotate ic/oslo contact=ann old-`.

    For example:
      modelplane annotate ic/oslo contact=ann
      modelplane annotate md/qwen contact-
    """
    _edit("annotations", words, namespace, overwrite=overwrite, done="annotated")


def _edit(
    field: str,
    words: Sequence[str],
    namespace: str | None,
    *,
    overwrite: bool,
    done: str,
) -> None:
    changes = [word for word in words if "=" in word or word.endswith("-")]
    objects = [word for word in words if word not in changes]
    if not changes:
        raise Refused(
            f"no {field} to change",
            next_step="write KEY=VALUE to set one, or KEY- to remove one",
        )
    targets = objects_named(objects, namespace)
    edit = _editor(field, changes, overwrite=overwrite)
    asyncio.run(edit_each(targets, edit, done))


def _editor(
    field: str, changes: Sequence[str], *, overwrite: bool
) -> Callable[[Tree], Tree]:
    removed = [word[:-1] for word in changes if "=" not in word]
    wanted = dict(word.split("=", 1) for word in changes if "=" in word)

    def edit(manifest: Tree) -> Tree:
        known = dict(manifest["metadata"].get(field) or {})
        taken = [key for key in wanted if known.get(key, wanted[key]) != wanted[key]]
        if taken and not overwrite:
            raise Refused(
                f"{manifest['kind']} {manifest['metadata']['name']} already has {field} "
                f"{', '.join(f'{key}={known[key]}' for key in taken)}",
                next_step="add --overwrite to replace them",
            )
        kept = {key: value for key, value in known.items() if key not in removed}
        manifest["metadata"][field] = {**kept, **wanted}
        if not manifest["metadata"][field]:
            del manifest["metadata"][field]
        return manifest

    return edit
