"""`modelplane up`: start a whole fleet on this machine, wait until its clusters are Ready, and optionally apply a first model."""

import asyncio
import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api_types.resources.kinds import BY_KIND
from api_types.validation.manifests import Manifest
from client.commands import options
from client.follow.apply import AppliedObject, apply_manifests, until_applied_are_ready
from client.follow.requests import until_answered
from client.local.program import program_as_typed
from client.manifests.applicable import read_manifests
from client.output.columns import Layout
from client.output.formats import Format
from client.output.printer import ResourcePrinter
from client.temporal.control_plane import ControlPlane, ListedObject, control_plane
from client.temporal.links import list_link

if TYPE_CHECKING:
    from client.local.processes import LocalFleet


class Cloud(StrEnum):
    """Whether there are fake clouds."""

    FAKE = "fake"
    NONE = "none"


# The manifests that the testbed writes, each after those it refers to.
_FLEET_MANIFESTS = ("secrets.yaml", "classes.yaml", "clusters.yaml")
_FLEET_WAIT_SECONDS = 180.0
# The worker has just been started, perhaps over the data of an earlier fleet: it replays that before it tells what is there.
_LOOK_SECONDS = 60.0


def up(
    *,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", help="Describes the simulated clusters; default: the file of the last `up`, or two clusters."),
    ] = None,
    apply: Annotated[
        list[str] | None, typer.Option("--apply", help="Manifests to apply once the clusters are Ready. May be repeated.")
    ] = None,
    no_data_plane: Annotated[
        bool, typer.Option("--no-data-plane", help="Start no gateways and no engines: requests to models are answered by nobody.")
    ] = False,
    cloud: Annotated[
        Cloud | None,
        typer.Option(
            "--cloud", help="`fake`: clouds at which InferenceClusters of GKE and EKS are created, at no cost; default: as last time."
        ),
    ] = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Start Temporal, simulated GPU clusters, a worker and a front on this machine, and register the clusters. A restart keeps the data.

    With gateways and mock engines, so that requests travel, where the machine allows a network namespace (`unshare`).
    All files are in MODELPLANE_HOME (default: modelplane/testbed in the user's data folder). Programs that are missing are downloaded
    or built once, which takes a while. With --apply and --wait it ends when those objects are Ready.
    """
    from client.local.processes import start  # noqa: PLC0415 - the testbed would slow the start of every other command

    wanted = read_manifests(apply, None) if apply else []
    local = start(fleet, _say, data_plane=not no_data_plane, clouds=None if cloud is None else cloud is Cloud.FAKE)
    asyncio.run(_populate(local, wanted, wait=wait, seconds=timeout))


async def _populate(local: "LocalFleet", wanted: Sequence[Manifest], *, wait: bool, seconds: float) -> None:
    own = read_manifests([str(local.running.manifests / name) for name in _FLEET_MANIFESTS], None)
    async with control_plane(local.settings) as plane:
        await until_applied_are_ready(plane, await apply_manifests(plane, own, _LOOK_SECONDS), _FLEET_WAIT_SECONDS)
        applied = await apply_manifests(plane, wanted, _LOOK_SECONDS)
        if applied and wait:
            await until_applied_are_ready(plane, applied, seconds)
        await _summary(plane, local, applied)


async def _summary(plane: ControlPlane, local: "LocalFleet", applied: Sequence[AppliedObject]) -> None:
    from client.local.front import front_kubeconfig  # noqa: PLC0415 - as above
    from client.local.gateway import local_gateway_url  # noqa: PLC0415 - as above

    print()
    _table(await plane.list(BY_KIND["InferenceCluster"], None))
    deployments = [one.target for one in applied if one.target.kind.kind == "ModelDeployment"]
    for target in deployments:
        tree = await until_answered(partial(plane.describe, target))
        print()
        _table([ListedObject(target, tree)])
        pace = tree["status"].get("pace", {})
        if pace.get("readySeconds") is not None:
            print(f"\nplaced {pace['placedSeconds']:.2f} s and Ready {pace['readySeconds']:.1f} s after it was accepted")
        print()
        _table(await plane.list(BY_KIND["ModelReplica"], target.namespace, deployment=target.name))
        print(f"\n{target.title} in the Temporal UI: {(await plane.execution(target)).link}")
    print(f"\nTemporal UI   {list_link(local.settings)}")
    if local.running.clouds:
        await _clouds(plane)
    if gateway := local_gateway_url(local.running.home):
        print(f"Gateway       {gateway}")
    print(f"Front         {local.front}  (development mode: no users, no tokens; every program of this machine may do everything)")
    print(f"kubectl       KUBECONFIG={front_kubeconfig(local.running.home)}")
    print(f"Temporal CLI  {local.temporal_program} --address {local.running.temporal_address}")
    for cluster in local.running.clusters.values():
        print(f"{cluster.name:<13} KUBECONFIG={cluster.kubeconfig}")
    program = program_as_typed()
    print(f"Next          {program} get all, {program} describe {deployments[0].command if deployments else 'ic'}, {program} down")


async def _clouds(plane: ControlPlane) -> None:
    """Say where the fake clouds are shown, and which clusters they have lost: they keep nothing when they end."""
    from client.local.clouds import fake_clouds  # noqa: PLC0415 - as above

    program = program_as_typed()
    print(f"Fake clouds   {program} clouds")
    empty = {each.source for each in fake_clouds() if not each.objects}
    clusters = await plane.list(BY_KIND["InferenceCluster"], None)
    lost = [each.target for each in clusters if each.tree.get("spec", {}).get("cluster", {}).get("source") in empty]
    if lost:
        print("              They began empty, and these were created at them before; this creates them again, with what ran on them:")
    for target in lost:
        print(f"              {program} retry {target.command}")


def _table(found: Sequence[ListedObject]) -> None:
    ResourcePrinter(Format.WIDE, Layout(namespaces=True, wide=True), single=False).print_all(found)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
