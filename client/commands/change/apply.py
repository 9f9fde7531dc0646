"""`modelplane apply`: create or change objects.

All manifests are checked before any is sent.
"""

import asyncio
from collections.abc import Sequence
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
from client.manifests.applicable import read_manifests
from client.manifests.secrets import STORED_ELSEWHERE, store_secrets
from fleet_client.configuration import load_settings, require_temporal
from fleet_client.connection import fleet_objects


def apply(
    *,
    files: options.Files = None,
    namespace: options.Namespace = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check everything, print the changes, and send no request.",
        ),
    ] = False,
) -> None:
    """Create or change objects from manifests.

    A v1 Secret or ConfigMap goes to the secret store.
    """
    manifests = read_manifests(files, namespace)
    asyncio.run(
        _dry_run(load_settings(), manifests)
        if dry_run
        else _apply(load_settings(), manifests, wait=wait, seconds=timeout)
    )


async def _dry_run(settings: Settings, manifests: Sequence[Manifest]) -> None:
    async with fleet_objects(settings) as plane:
        await check_manifests(plane, manifests)


async def _apply(
    settings: Settings, manifests: Sequence[Manifest], *, wait: bool, seconds: float
) -> None:
    if all(isinstance(manifest, DataManifest) for manifest in manifests):
        require_temporal(STORED_ELSEWHERE)
        # the secret store needs no connection to Temporal
        await store_secrets(manifests, settings)
        return
    async with fleet_objects(settings) as plane:
        applied = await apply_manifests(plane, manifests)
        if wait:
            await until_applied_are_ready(plane, applied, seconds)
