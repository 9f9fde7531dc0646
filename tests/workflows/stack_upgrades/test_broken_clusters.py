"""Clusters that do not answer, refuse signals, or are gone hold up the turns of others for
a bounded time only.
"""

import asyncio
import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio import workflow

from activities.messaging.sending import ensure_upgrades
from api_types import names
from api_types.messages.signals import STACK_UPGRADES, StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.simulation.poisons import Poison
from tests.workflows.environment.simulated_clusters import a_class, a_cluster
from workflows.entity.timers.steady_time import SteadyTime
from workflows.stack_upgrades import survey
from workflows.stack_upgrades.state import UpgradesState
from workflows.stack_upgrades.turns import LEASE, UpgradeTurns

HEALTHY = names.workflow_id("InferenceCluster", "", "us")
BROKEN = names.workflow_id("InferenceCluster", "", "eu")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRANTED = "cluster us upgrades its stack"
AT_ONCE_SECONDS, SLACK_SECONDS = 10.0, 90.0
PAUSES_SECONDS = sum(each.total_seconds() for each in survey._PAUSES)


async def begin(plane: VirtualPlane) -> None:
    await plane.apply(a_class())
    for name in ("eu", "us"):
        await plane.apply(a_cluster(name))
        await plane.ready("InferenceCluster", name)


async def request(plane: VirtualPlane, cluster: str) -> None:
    """Request a turn in the name of a cluster, which returns it because it needs none."""
    wanted = UpgradeRequest(cluster=cluster, uid="u", turn=1, sequence=1)
    signal = StackUpgradesSignals.REQUEST_UPGRADE.request(STACK_UPGRADES, wanted)
    await ensure_upgrades(plane.client, signal)


def messages(plane: VirtualPlane) -> list[str]:
    """Return the texts of the events of StackUpgrades."""
    seen: Any = plane.world.peek(names.STACK_UPGRADES_ID, "describe") or {}
    return [each["message"] for each in seen.get("status", {}).get("events", ())]


async def granted(plane: VirtualPlane) -> float:
    """Return the seconds until the healthy cluster gets its turn."""
    begun = plane.world.clock.seconds()
    while GRANTED not in messages(plane):
        await asyncio.sleep(0.5)
        assert plane.world.clock.seconds() - begun < 2 * LEASE.total_seconds()
    return plane.world.clock.seconds() - begun


@on_a_virtual_loop
async def test_a_survey_waits_some_minutes_for_a_cluster_that_does_not_answer() -> None:
    async with virtual_plane() as plane:
        await begin(plane)
        plane.world.server.poisons[BROKEN] = Poison.SILENT
        await request(plane, "us")
        took = await granted(plane)
        assert PAUSES_SECONDS <= took < PAUSES_SECONDS + SLACK_SECONDS


@on_a_virtual_loop
async def test_a_survey_waits_for_nobody_if_all_clusters_answer() -> None:
    async with virtual_plane() as plane:
        await begin(plane)
        await request(plane, "us")
        assert await granted(plane) < AT_ONCE_SECONDS


@pytest.mark.parametrize("poison", Poison, ids=lambda each: each.value)
@on_a_virtual_loop
async def test_a_broken_holder_keeps_its_turn_for_a_lease_only(poison: Poison) -> None:
    async with virtual_plane() as plane:
        await begin(plane)
        # A first request ends the survey.
        await request(plane, "asia")
        await asyncio.sleep(AT_ONCE_SECONDS)
        plane.world.server.poisons[BROKEN] = poison
        await request(plane, "eu")
        await asyncio.sleep(AT_ONCE_SECONDS)
        # The other cluster needs no turn, and would return it while it waits.
        plane.world.server.poisons[HEALTHY] = Poison.SILENT
        await request(plane, "us")
        lease = LEASE.total_seconds()
        assert lease - SLACK_SECONDS < await granted(plane) < lease + AT_ONCE_SECONDS
        said = [each for each in messages(plane) if "takes no signals" in each]
        assert [BROKEN in each for each in said] == [True] * (poison is Poison.FULL)


@on_a_virtual_loop
async def test_a_cluster_without_a_workflow_loses_its_turn_at_once() -> None:
    async with virtual_plane() as plane:
        await begin(plane)
        await request(plane, "asia")
        await request(plane, "us")
        assert await granted(plane) < AT_ONCE_SECONDS


def test_an_answer_that_cannot_be_read_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A workflow's logger works only in a workflow.
    monkeypatch.setattr(workflow, "logger", logging.getLogger())
    turns = UpgradeTurns(UpgradesState(), lambda last: last + 1, lambda *_: None)
    wanted = UpgradeRequest(cluster="us", uid="u", turn=1, sequence=1)
    answers = {
        "inferencecluster/asia": None,
        "inferencecluster/eu": {"cluster": 7},
        "inferencecluster/us": wanted.wire(),
    }
    time = cast("SteadyTime", SimpleNamespace(now=lambda: NOW))
    survey._note(turns, answers, time)
    assert turns.waiting == ["us"]
