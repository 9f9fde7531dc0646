"""`modelplane apply`: create or change objects.

All manifests are checked before any is sent.
"""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api_types.resources.secrets import DataManifest
from api_types.settings import Settings
from api_types.validation.manifests import Manifest
from client.commands import options
from client.follow.apply import (
    apply_manifests,
    check_manifests,
    until_applied_are_ready,
)
from client.follow.prune import marked
from client.follow.prune import prune as prune_members
from client.manifests.applicable import read_manifests
from client.manifests.kustomization import built
from client.manifests.secrets import STORED_ELSEWHERE, store_secrets
from fleet_client.configuration import load_settings, require_temporal
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused


class DryRun(StrEnum):
    """The values of `--dry-run`."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


def apply(
    *,
    files: options.Files = None,
    namespace: options.Namespace = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
    kustomization: Annotated[
        Path | None,
        typer.Option(
            "--kustomize",
            "-k",
            help="Folder of a kustomization, instead of -f.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        DryRun,
        typer.Option(
            "--dry-run",
            help="`server`: check also against the present objects and your rights, and "
            "print the changes. `client`: check the manifests on this machine alone.",
        ),
    ] = DryRun.NONE,
    apply_set: Annotated[
        str,
        typer.Option(
            "--applyset",
            help="With --prune: the name of the set that the manifests are.",
            show_default=False,
        ),
    ] = "",
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Delete the objects that an earlier apply of the set wrote, and that "
            "the manifests lack. No other object is deleted.",
        ),
    ] = False,
) -> None:
    """Create or change objects from manifests.

    A v1 Secret or ConfigMap goes to the secret store, and is never pruned.

    For example:
      modelplane apply -f examples/quickstart.yaml --wait
      modelplane apply -f manifests/ --dry-run=server    # the changes, without making them
      modelplane apply -k overlays/production
      modelplane apply -f manifests/ --applyset chat --prune
      cat model.yaml | modelplane apply -f -
    """
    if bool(apply_set) is not prune:
        raise Refused(
            "--prune and --applyset go together",
            next_step="add `--applyset NAME` with a name of your choice, the same each time",
        )
    if prune and dry_run == DryRun.CLIENT:
        raise Refused(
            "--prune needs the present objects, and --dry-run=client reads none",
            next_step="use --dry-run=server",
        )
    with built(kustomization, files) as paths:
        manifests = read_manifests(paths, namespace)
    if prune:
        manifests = marked(manifests, apply_set)
    if dry_run == DryRun.CLIENT:
        for each in manifests:
            print(f"{each.kind.lower()}/{each.metadata.name} valid (client dry run)")
        return
    if dry_run == DryRun.SERVER:
        asyncio.run(_dry_run(load_settings(), manifests, apply_set))
        return
    asyncio.run(
        _apply(load_settings(), manifests, apply_set, wait=wait, seconds=timeout)
    )


async def _dry_run(
    settings: Settings, manifests: Sequence[Manifest], apply_set: str
) -> None:
    async with fleet_objects(settings) as plane:
        await check_manifests(plane, manifests)
        if apply_set:
            await prune_members(plane, manifests, apply_set, dry=True)


async def _apply(
    settings: Settings,
    manifests: Sequence[Manifest],
    apply_set: str,
    *,
    wait: bool,
    seconds: float,
) -> None:
    if not apply_set and all(
        isinstance(manifest, DataManifest) for manifest in manifests
    ):
        require_temporal(STORED_ELSEWHERE)
        # the secret store needs no connection to Temporal
        await store_secrets(manifests, settings)
        return
    async with fleet_objects(settings) as plane:
        applied = await apply_manifests(plane, manifests)
        if apply_set:
            await prune_members(plane, manifests, apply_set, dry=False)
        if wait:
            await until_applied_are_ready(plane, applied, seconds)
