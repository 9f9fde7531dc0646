"""The queue of owners to signal, as a task that is cancelled."""

import asyncio

import pytest

from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.notifier import ChangeNotifier
from activities.clusters.watch.observation_index import ObservationIndex
from api_types.messages.observations import Observed

CLUSTER = Owner("InferenceCluster", "", "prod-eu", "u1")


async def deliver(owner: Owner, observed: Observed) -> bool:
    del owner, observed
    return True


@pytest.mark.parametrize("due_in", [None, 10.0], ids=["no owner is due", "an owner is due later"])
async def test_it_stops_when_cancelled_while_waking(due_in: float | None) -> None:
    notifier = ChangeNotifier(deliver, lambda _: False)
    index = ObservationIndex(CLUSTER, lambda _: None)
    if due_in:
        notifier.enqueue(CLUSTER, due_in)
    task = asyncio.create_task(notifier.run(index))
    await asyncio.sleep(0.05)
    notifier.wake()
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
