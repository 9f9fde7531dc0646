"""`modelplane diff`: the difference between manifests and the present objects."""

import asyncio
import difflib
from collections.abc import Sequence

import typer

from api_types.resources.kinds import BY_KIND
from api_types.validation.manifests import Manifest, dump, load
from client.commands import options
from client.follow.edit import as_manifest
from client.manifests.applicable import read_manifests
from client.output.formats import as_yaml
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, clean
from fleet_client.requests import until_answered

_DIFFERENT = 1


def diff(files: options.Files = None, namespace: options.Namespace = None) -> None:
    """Show what applying manifests would change, as a unified diff.

    Exit code 0 means no difference, and 1 that there are some, as `kubectl diff` has
    it. Secrets and ConfigMaps are not compared.

    For example:
      modelplane diff -f examples/quickstart.yaml
      modelplane diff -f manifests/ -n ml
    """
    manifests = read_manifests(files, namespace)
    lines = asyncio.run(_diff([each for each in manifests if each.kind in BY_KIND]))
    for line in lines:
        print(line)
    if lines:
        raise typer.Exit(_DIFFERENT)


async def _diff(manifests: Sequence[Manifest]) -> list[str]:
    async with fleet_objects(load_settings()) as plane:
        found = await asyncio.gather(*(_of_one(plane, each) for each in manifests))
    return [line for lines in found for line in lines]


async def _of_one(plane: FleetObjects, manifest: Manifest) -> list[str]:
    target = Target.of(
        BY_KIND[manifest.kind], manifest.metadata.namespace, manifest.metadata.name
    )
    present = await until_answered(lambda: plane.find(target))
    before = _written(dump(load(clean(present)))) if present else []
    after = _written(dump(manifest))
    return list(
        difflib.unified_diff(
            before,
            after,
            f"present/{target.label}",
            f"applied/{target.label}",
            lineterm="",
        )
    )


def _written(document: Tree) -> list[str]:
    """Return the fields that a manifest sets, as lines of YAML."""
    return as_yaml(as_manifest(document)).splitlines()
