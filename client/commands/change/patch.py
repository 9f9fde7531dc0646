"""`modelplane patch`: change fields of objects with a merge patch."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from api_types.text.merge_patch import merged
from client.commands import options
from client.follow.checked_edit import edit_each
from client.manifests.yaml_file import parse_yaml, read_yaml
from fleet_client.errors import Refused
from fleet_client.refs.targets import objects_named


def patch(
    objects: Annotated[
        list[str], typer.Argument(help="Objects (`md/qwen ic/oslo`, `md qwen`).")
    ],
    text: Annotated[
        str | None,
        typer.Option(
            "--patch", "-p", help="The patch, in YAML or JSON.", show_default=False
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--patch-file", help="A file with the patch.", show_default=False),
    ] = None,
    kind: Annotated[
        str,
        typer.Option("--type", help="`merge` (RFC 7386) is the only type."),
    ] = "merge",
    namespace: options.Namespace = None,
) -> None:
    """Change fields of objects: null removes a field, other values replace it.

    For example:
      modelplane patch md/qwen -p '{"spec": {"replicas": 3}}'
      modelplane patch ic/oslo --patch-file patch.yaml
    """
    if kind != "merge":
        raise Refused(
            f"--type {kind} is not supported",
            next_step="write a merge patch; a list in it replaces the whole list",
        )
    if (text is None) == (file is None):
        raise Refused(
            "give exactly one of --patch and --patch-file",
            next_step="""for example `-p '{"spec": {"replicas": 3}}'`""",
        )
    wanted = (
        read_yaml(file, "patch") if file else parse_yaml(text or "", "--patch", "patch")
    )
    targets = objects_named(objects, namespace)
    asyncio.run(
        edit_each(targets, lambda manifest: merged(manifest, wanted), "patched")
    )
