"""`modelplane up`: start a whole fleet on this machine, and apply a first model."""

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
from client.follow.apply import ApplyResult, apply_manifests, until_applied_are_ready
from client.local.program import program_as_typed
from client.manifests.applicable import read_manifests
from client.output.chosen import OutputChoice
from client.output.columns import TableLayout
from client.output.formats import Format
from client.output.printer import ResourcePrinter
from fleet_client.refs.seen import ListedObject
from fleet_client.requests import until_answered
from fleet_client.temporal.control_plane import ControlPlane, control_plane
from fleet_client.temporal.links import list_link

if TYPE_CHECKING:
    from client.local.processes import LocalFleet


class CloudChoice(StrEnum):
    """The kind of clouds that the fleet has."""

    FAKE = "fake"
    NONE = "none"


class GatewayChoice(StrEnum):
    """The gateway of the simulated clusters and of the control cluster."""

    TRAEFIK = "traefik"
    ENVOY = "envoy"


# The manifests that the testbed writes. Each comes after the ones that it refers to.
_FLEET_MANIFESTS = ("secrets.yaml", "classes.yaml", "clusters.yaml")
_FLEET_WAIT_SECONDS = 180.0
# The worker has just started, and may have to replay the workflows of an earlier fleet
# first.
_LOOK_SECONDS = 60.0


def up(
    *,
    fleet: Annotated[
        Path | None,
        typer.Option(
            "--fleet",
            help=(
                "Describes the simulated clusters; default: the file of the last "
                "`up`, or two clusters."
            ),
        ),
    ] = None,
    apply: Annotated[
        list[str] | None,
        typer.Option(
            "--apply",
            help="Manifests to apply once the clusters are Ready. May be repeated.",
        ),
    ] = None,
    no_data_plane: Annotated[
        bool,
        typer.Option(
            "--no-data-plane",
            help="Start no gateways and no engines: requests to models get no answer.",
        ),
    ] = False,
    gateway: Annotated[
        GatewayChoice,
        typer.Option(
            "--gateway",
            help=(
                "`envoy`: requests pass Envoy Gateway and Envoy, on the control cluster "
                "too, and an endpoint picker, as on real clusters; their programs are "
                "built once, which takes about 15 minutes. The InferenceGateway needs "
                "`backend: Envoy`. `traefik` needs less memory and starts faster."
            ),
        ),
    ] = GatewayChoice.TRAEFIK,
    cloud: Annotated[
        CloudChoice | None,
        typer.Option(
            "--cloud",
            help=(
                "`fake`: start fake clouds, where InferenceClusters of GKE and EKS are "
                "created at no cost; default: as at the last `up`."
            ),
        ),
    ] = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Start a whole fleet on this machine, and register its clusters.

    It has Temporal, simulated GPU clusters, a worker and a front. A restart keeps the
    data. Where the machine allows a network namespace (`unshare`), gateways and mock
    engines answer requests.

    All files are in MODELPLANE_HOME (default: modelplane/testbed in the user's data
    folder). Missing programs are downloaded or built once, which takes a while. With
    --apply and --wait the command ends when those objects are Ready.

    For example:
      modelplane up
      modelplane up --apply examples/testbed/demo.yaml --wait
      modelplane up --cloud fake
    """
    from client.local.processes import start  # noqa: PLC0415 - the testbed is slow to import

    wanted = read_manifests(apply, None) if apply else []
    local = start(
        fleet,
        _say,
        data_plane=not no_data_plane,
        envoy=gateway is GatewayChoice.ENVOY,
        clouds=None if cloud is None else cloud is CloudChoice.FAKE,
    )
    asyncio.run(_populate(local, wanted, wait=wait, seconds=timeout))


async def _populate(
    local: "LocalFleet", wanted: Sequence[Manifest], *, wait: bool, seconds: float
) -> None:
    own = read_manifests(
        [str(local.running.manifests / name) for name in _FLEET_MANIFESTS], None
    )
    async with control_plane(local.settings) as plane:
        await until_applied_are_ready(
            plane, await apply_manifests(plane, own, _LOOK_SECONDS), _FLEET_WAIT_SECONDS
        )
        applied = await apply_manifests(plane, wanted, _LOOK_SECONDS)
        if applied and wait:
            await until_applied_are_ready(plane, applied, seconds)
        await _summary(plane, local, applied)


async def _summary(
    plane: ControlPlane, local: "LocalFleet", applied: Sequence[ApplyResult]
) -> None:
    from client.local.front import front_kubeconfig  # noqa: PLC0415 - as above
    from client.local.gateway import local_gateway_url  # noqa: PLC0415 - as above

    print()
    _table(await plane.list(BY_KIND["InferenceCluster"], None))
    deployments = [
        one.target for one in applied if one.target.kind.kind == "ModelDeployment"
    ]
    for target in deployments:
        tree = await until_answered(partial(plane.describe, target))
        print()
        _table([ListedObject(target, tree)])
        pace = tree["status"].get("pace", {})
        if pace.get("readySeconds") is not None:
            print(
                f"\nplaced {pace['placedSeconds']:.2f} s and Ready "
                f"{pace['readySeconds']:.1f} s after it was accepted"
            )
        print()
        _table(
            await plane.list(
                BY_KIND["ModelReplica"], target.namespace, deployment=target.name
            )
        )
        print(
            f"\n{target.title} in the Temporal UI: {(await plane.execution(target)).link}"
        )
    print(f"\nTemporal UI   {list_link(local.settings)}")
    if local.running.clouds:
        await _clouds(plane)
    if gateway := local_gateway_url(local.running.home):
        print(f"Gateway       {gateway}")
    print(
        f"Front         {local.front}  (development mode: no users, no tokens; "
        "every program on this machine has all rights)"
    )
    print(f"kubectl       KUBECONFIG={front_kubeconfig(local.running.home)}")
    print(
        f"Temporal CLI  {local.temporal_program} --address {local.running.temporal_address}"
    )
    for cluster in local.running.clusters.values():
        print(f"{cluster.name:<13} KUBECONFIG={cluster.kubeconfig}")
    program = program_as_typed()
    print(
        f"Next          {program} get all, {program} describe "
        f"{deployments[0].command if deployments else 'ic'}, {program} down"
    )


async def _clouds(plane: ControlPlane) -> None:
    """Print how to list the fake clouds, and the clusters that they have lost.

    Fake clouds keep their objects in memory only.
    """
    from client.local.clouds import fake_clouds  # noqa: PLC0415 - as above

    program = program_as_typed()
    print(f"Fake clouds   {program} clouds")
    empty = {each.source for each in fake_clouds() if not each.objects}
    clusters = await plane.list(BY_KIND["InferenceCluster"], None)
    lost = [
        each.target
        for each in clusters
        if each.tree.get("spec", {}).get("cluster", {}).get("source") in empty
    ]
    if lost:
        print(
            "              The fake clouds are empty, and these clusters were created there "
            "before. These commands create them again, with their replicas:"
        )
    for target in lost:
        print(f"              {program} retry {target.command}")


def _table(found: Sequence[ListedObject]) -> None:
    ResourcePrinter(
        OutputChoice(Format.WIDE), TableLayout(namespaces=True, wide=True), single=False
    ).print_all(found)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
