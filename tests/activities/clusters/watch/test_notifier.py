"""The queue of owners to tell, as a task that somebody ends."""

import asyncio

import pytest

from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.notifier import ChangeNotifier
from activities.clusters.watch.observation_index import ObservationIndex
from api_types.messages.observations import Observed

CLUSTER = Owner("InferenceCluster", "", "prod-eu", "u1")


async def nobody_to_tell(owner: Owner, observed: Observed) -> bool:
    del owner, observed
    return True


@pytest.mark.parametrize("due_in", [None, 10.0], ids=["nobody is due", "somebody is due later"])
async def test_it_ends_even_when_it_is_woken_in_the_same_moment(due_in: float | None) -> None:
    teller = ChangeNotifier(nobody_to_tell, lambda _: False)
    board = ObservationIndex(CLUSTER, lambda _: None)
    if due_in:
        teller.touch(CLUSTER, due_in)
    task = asyncio.create_task(teller.run(board))
    await asyncio.sleep(0.05)
    teller.wake()
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
