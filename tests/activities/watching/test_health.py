"""When a cluster counts as lost, by a clock that a test sets (spec/workflows.md 4)."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import ClusterApi
from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.watching import health
from activities.watching.health import Health
from api_types.errors import ClusterUnreachable
from api_types.messages.observations import Observed
from tests.environment.idle_clusters import IdleCluster


class Clock:
    """The loop's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        loop = SimpleNamespace(time=lambda: self.seconds)
        monkeypatch.setattr(health, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))


class Line:
    """The connection to a cluster, which a test cuts."""

    def __init__(self) -> None:
        self.cut = False
        self.client = IdleCluster()

    async def resolve(self) -> ClusterApi:
        if self.cut:
            raise ClusterUnreachable("no response")
        return self.client


async def test_a_cluster_is_lost_two_minutes_after_its_last_response_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, line, recovered = Clock(monkeypatch), Line(), list[Any]()
    watched = Health(line.resolve, recovered.append, health.UNREACHABLE_AFTER_SECONDS)
    assert (await watched.probe(), watched.lost, recovered) == (health.PROBE_SECONDS, False, [line.client])
    line.cut = True
    waited, pauses = 0.0, list[float]()
    while not watched.lost:
        pauses.append(await watched.probe())
        clock.seconds += pauses[-1]
        waited += pauses[-1]
    assert (waited, max(pauses)) == (120.0, health.RETRY_SECONDS)
    line.cut = False
    await watched.probe()
    assert (watched.lost, len(recovered)) == (False, 2)


@pytest.mark.parametrize(("given", "limit"), [((), 120.0), ((7.0,), 7.0)], ids=["by default", "as it is given"])
async def test_a_watch_has_a_limit(given: tuple[float, ...], limit: float) -> None:
    async def resolve() -> ClusterApi:
        return IdleCluster()

    async def send(owner: Owner, observed: Observed) -> bool:
        return bool(owner and observed)

    async def find_absent(here: frozenset[str]) -> AsyncIterator[Owner]:
        for name in here:
            yield Owner("ModelReplica", "ml", name, "u")

    watch = ClusterWatch(Owner("InferenceCluster", "", "eu", "u"), resolve, send, find_absent, *given)
    assert watch._health._unreachable_after_seconds == limit
