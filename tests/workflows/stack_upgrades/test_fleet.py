"""A fleet that upgrades its stacks: real Temporal, real workflows, simulated clusters."""

from datetime import timedelta
from itertools import groupby
from pathlib import Path

import pytest

from api_types import names
from api_types.clock import utc_now
from api_types.sections.stacks import StackSettings
from tests.workflows.environment.harness import (
    ControlPlane,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.protocol_fleet import protocol_fleet
from tests.workflows.environment.replaying import replay_all
from tests.workflows.environment.simulated_clusters import a_class, plane_of
from tests.workflows.stack_upgrades.simulated_stacks import (
    SimulatedStacks,
    a_managed_cluster,
)
from workflows.entity import periods

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(300)]

KIND, NEWER = "InferenceCluster", "v0.8.1"
CLUSTERS = ("asia", "eu", "us")


async def turns(plane: ControlPlane) -> tuple[list[str], list[str]]:
    """Return the upgrading and the waiting clusters."""
    described = await plane.client.get_workflow_handle(names.STACK_UPGRADES_ID).query(
        "describe"
    )
    return described["status"]["upgrading"], sorted(described["status"]["waiting"])


async def waits_for(plane: ControlPlane, cluster: str, holder: str) -> None:
    """Wait until a Ready cluster reports which cluster it waits for."""
    seen = await plane.until(
        KIND,
        cluster,
        lambda seen: (
            message(seen, "BackendReady")
            == f"waiting for the upgrade of cluster {holder}"
        ),
    )
    assert (condition(seen, "Ready"), reason(seen, "BackendReady")) == (
        "True",
        "BackendHealthy",
    )


@pytest.mark.soak
async def test_three_clusters_upgrade_one_at_a_time_through_losses_and_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StackUpgrades is terminated, workers are lost, and the holder is deleted.

    Installations wait for no turn.
    """
    monkeypatch.setattr(periods, "RESYNC", timedelta(seconds=5))
    began, clusters = utc_now(), SimulatedStacks()
    clusters.open.set()
    async with protocol_fleet(clients=1) as fleet, plane_of(fleet, clusters) as plane:
        await plane.apply(a_class())
        for cluster in CLUSTERS:
            await plane.apply(a_managed_cluster(cluster))
        for cluster in CLUSTERS:
            await plane.ready(KIND, cluster)
        clusters.open.clear()
        clusters.began.clear()
        clusters.written.clear()
        clusters.stack_settings = StackSettings(versions={"leaderWorkerSet": NEWER})

        async def upgrading() -> list[str]:
            return clusters.began

        (holder,) = await eventually(upgrading, bool, what="an upgrade")
        first, second = (cluster for cluster in CLUSTERS if cluster != holder)
        for cluster in (first, second):
            await waits_for(plane, cluster, holder)

        await fleet.restart_workers()
        await plane.client.get_workflow_handle(names.STACK_UPGRADES_ID).terminate(
            "lost on purpose"
        )
        found = await eventually(
            lambda: running_turns(plane),
            lambda found: found == ([holder], sorted([first, second])),
            what="the turns",
        )
        assert found
        assert clusters.began == [holder]

        # A cluster that installs its stack meanwhile waits for no turn.
        await plane.apply(a_managed_cluster("new"))
        await eventually(
            upgrading, lambda found: found[-1] == "new", what="an installation"
        )

        await plane.delete(KIND, holder)
        await eventually(
            lambda: running_turns(plane),
            lambda found: bool(found) and found[0] not in ([], [holder]),
            what="the next turn",
        )
        clusters.open.set()
        await plane.gone(KIND, holder)

        async def versions() -> dict[str, str]:
            return dict(clusters.written)

        await eventually(
            versions,
            lambda found: {first, second, "new"} <= found.keys(),
            what="the upgrade of the others",
        )
        await eventually(
            lambda: running_turns(plane),
            lambda found: found == ([], []),
            what="the end of all turns",
        )
        for cluster in (first, second, "new"):
            seen = await plane.ready(KIND, cluster)
            assert "waiting" not in message(seen, "BackendReady")
        assert set((await versions()).values()) == {NEWER}
        of_upgrades = [cluster for cluster in clusters.began if cluster != "new"]
        assert next(iter(of_upgrades)) == holder
        assert len([*groupby(of_upgrades)]) == len(CLUSTERS), "one after the other"
        await replay_all(fleet.client, began, tmp_path)


async def running_turns(plane: ControlPlane) -> tuple[list[str], list[str]] | None:
    """Return the upgrading and the waiting clusters; None while StackUpgrades is unavailable."""
    handle = plane.client.get_workflow_handle(names.STACK_UPGRADES_ID)
    if not (await handle.describe()).status or (await handle.describe()).close_time:
        return None
    return await turns(plane)
