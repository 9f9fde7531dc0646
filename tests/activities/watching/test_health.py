"""When a cluster counts as lost, in virtual time."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from activities.cluster_objects.cluster_api import ClusterApi
from activities.watching.health import (
    PROBE_LIMIT_SECONDS,
    PROBE_SECONDS,
    RETRY_SECONDS,
    Health,
)
from api_types.errors import ClusterUnreachable
from tests.environment.idle_clusters import IdleCluster
from tests.simulation.clock import VirtualLoop


class Line:
    """The connection to a cluster, which a test cuts or stalls."""

    def __init__(self) -> None:
        self.cut = self.stalled = False
        self.client = IdleCluster()

    async def resolve(self) -> ClusterApi:
        if self.cut:
            raise ClusterUnreachable("no response")
        if self.stalled:
            await asyncio.Event().wait()
        return self.client


def in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop whose time passes at once."""
    draw = random.Random(1)  # noqa: S311 - repeatable on purpose
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        runner.run(test)


async def until_lost(watched: Health) -> int:
    """Probe until the cluster counts as lost. Return the number of probes."""
    probes = 0
    while not watched.lost:
        pause = await watched.probe()
        probes += 1
        if not watched.lost:
            await asyncio.sleep(pause)
    return probes


def test_a_cluster_is_lost_after_three_failed_probes_in_a_row() -> None:
    async def life() -> None:
        line, recovered = Line(), list[Any]()
        watched = Health(line.resolve, recovered.append)
        assert (await watched.probe(), watched.lost) == (PROBE_SECONDS, False)
        assert recovered == [line.client]
        line.cut = True
        assert (await watched.probe(), await watched.probe()) == (
            RETRY_SECONDS,
            RETRY_SECONDS,
        )
        line.cut = False
        await watched.probe()
        line.cut = True
        assert await until_lost(watched) == 3
        assert round(watched.silent_seconds) == 2 * RETRY_SECONDS
        line.cut = False
        await watched.probe()
        assert (watched.lost, watched.silent_seconds, watched.error) == (
            False,
            0.0,
            None,
        )

    in_virtual_time(life())


def test_a_probe_without_an_answer_fails() -> None:
    async def life() -> None:
        line = Line()
        line.stalled = True
        watched = Health(line.resolve, lambda _: None)
        assert await until_lost(watched) == 3
        assert (
            round(watched.silent_seconds) == 3 * PROBE_LIMIT_SECONDS + 2 * RETRY_SECONDS
        )
        assert "did not answer within 10 s" in str(watched.error)

    in_virtual_time(life())
