"""The queue of owners to signal, as a task that is cancelled."""

import asyncio
from datetime import datetime
from itertools import count, pairwise
from typing import cast

import pytest

from activities.cluster_objects.cluster_api import ObjectId
from activities.cluster_objects.kinds import DEPLOYMENT
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch import observation_index
from activities.clusters.watch.observation_index import (
    ObservationIndex,
    PendingObservation,
)
from activities.observe.objects import ObjectSeen
from activities.watching import notifier as notifier_module
from activities.watching.notifier import ChangeNotifier, Undelivered
from activities.watching.reflector import NamespacedName
from api_types.clock import utc_now
from api_types.messages.observations import Observed
from tests.environment.background import in_background

pytestmark = pytest.mark.slow

CLUSTER = ObjectOwner("InferenceCluster", "", "prod-eu", "u1")


async def deliver(owner: ObjectOwner, observed: Observed) -> bool:
    del owner, observed
    return True


@pytest.mark.parametrize(
    "due_in", [None, 10.0], ids=["no owner is due", "an owner is due later"]
)
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


class Changing:
    """An index whose every observation differs from the previous one."""

    def __init__(self) -> None:
        self.numbers = count()

    def observation_for(self, owner: ObjectOwner, now: datetime) -> PendingObservation:
        del now
        return PendingObservation(
            Observed(owner_uid=owner.uid, digest=str(next(self.numbers)))
        )


async def test_an_owner_that_changes_while_it_is_signalled_waits_until_its_second_is_over() -> (
    None
):
    sent: list[float] = []
    enough = asyncio.Event()

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        del observed
        sent.append(asyncio.get_running_loop().time())
        notifier.enqueue(owner)
        if len(sent) == 3:
            enough.set()
        return True

    notifier = ChangeNotifier(send, lambda _: False)
    notifier.enqueue(CLUSTER)
    task = asyncio.create_task(notifier.run(cast(ObservationIndex, Changing())))
    async with asyncio.timeout(60):
        await enough.wait()
    task.cancel()
    assert min(later - earlier for earlier, later in pairwise(sent)) >= 0.99


class Unchanging:
    """An index whose observations are all equal."""

    def observation_for(self, owner: ObjectOwner, now: datetime) -> PendingObservation:
        del now
        return PendingObservation(Observed(owner_uid=owner.uid, digest="same"))


async def test_an_owner_whose_last_run_was_closed_gets_the_same_observation_again() -> (
    None
):
    sent: list[ObjectOwner] = []
    arrived = asyncio.Event()

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        del observed
        sent.append(owner)
        arrived.set()
        return True

    notifier = ChangeNotifier(send, lambda _: False)
    other = CLUSTER._replace(name="prod-us")
    index = cast(ObservationIndex, Unchanging())
    async with in_background(notifier.run(index)), asyncio.timeout(60):
        for owner, repeated in ((CLUSTER, other), (other, other), (CLUSTER, CLUSTER)):
            arrived.clear()
            notifier.enqueue(owner)
            notifier.repeat(repeated.workflow_id)
            await arrived.wait()
    assert sent == [CLUSTER, other, CLUSTER]


async def test_an_owner_whose_signal_takes_long_delays_no_other_owner() -> None:
    slow, other = CLUSTER, ObjectOwner("ModelReplica", "ml", "chat", "u2")
    begun: list[ObjectOwner] = []
    arrived = asyncio.Event()
    hangs = asyncio.Event()

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        del observed
        begun.append(owner)
        if owner == slow:
            await hangs.wait()
        elif begun.count(other) == 2:
            arrived.set()
        else:
            notifier.enqueue(other)
        return True

    notifier = ChangeNotifier(send, lambda _: False)
    notifier.enqueue(slow, 0.0)
    notifier.enqueue(other, 0.0)
    task = asyncio.create_task(notifier.run(cast(ObservationIndex, Changing())))
    async with asyncio.timeout(60):
        await arrived.wait()
    notifier.enqueue(slow, 0.0)
    await asyncio.sleep(0.05)
    assert begun == [slow, other, other], "one signal to a workflow at a time"
    hangs.set()
    async with asyncio.timeout(60):
        while begun.count(slow) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    task.cancel()


async def test_the_error_of_a_signal_ends_it() -> None:
    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        raise KeyError(owner.name, observed.digest)

    notifier = ChangeNotifier(send, lambda _: False)
    notifier.enqueue(CLUSTER, 0.0)
    with pytest.raises(KeyError):
        await asyncio.wait_for(notifier.run(cast(ObservationIndex, Changing())), 60)


async def test_an_owner_that_does_not_run_is_signalled_when_it_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing changes meanwhile, like for a replica whose workflow was terminated."""
    monkeypatch.setattr(notifier_module, "_ABSENT_SECONDS", 0.01)
    answers = iter((False, False, True))
    sent: list[bool] = []
    runs = asyncio.Event()

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        del owner, observed
        sent.append(next(answers))
        if sent[-1]:
            runs.set()
        return sent[-1]

    notifier = ChangeNotifier(send, lambda _: False)
    notifier.enqueue(CLUSTER)
    task = asyncio.create_task(notifier.run(ObservationIndex(CLUSTER, lambda _: None)))
    async with asyncio.timeout(60):
        await runs.wait()
    notifier.enqueue(CLUSTER)
    await asyncio.sleep(0.05)
    task.cancel()
    assert sent == [False, False, True]


async def test_owners_with_the_same_workflow_take_turns_with_its_second() -> None:
    """A cluster that invents uids signals a workflow no more often than another one."""
    sent: list[tuple[str, float]] = []
    enough = asyncio.Event()

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        del observed
        sent.append((owner.uid, asyncio.get_running_loop().time()))
        notifier.enqueue(owner)
        if len(sent) == 3:
            enough.set()
        return True

    notifier = ChangeNotifier(send, lambda _: False)
    for uid in ("u1", "u2", "u3"):
        notifier.enqueue(CLUSTER._replace(uid=uid), 0.0)
    task = asyncio.create_task(notifier.run(cast(ObservationIndex, Changing())))
    async with asyncio.timeout(60):
        await enough.wait()
    task.cancel()
    assert [uid for uid, _ in sent] == ["u1", "u2", "u3"]
    assert min(later - earlier for (_, earlier), (_, later) in pairwise(sent)) >= 0.99


def test_a_cluster_that_makes_up_replicas_reports_so_many_as_a_cluster_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observation_index, "REPLICAS_ON_CLUSTER_MAX", 3)
    index = ObservationIndex(CLUSTER, lambda _: None)
    for name in "edcba":
        for uid in ("u1", "u2"):
            owner = ObjectOwner("ModelReplica", "ml", name, uid)
            target = ObjectId(DEPLOYMENT, "ml", f"{name}-{uid}")
            index.put_object(
                DEPLOYMENT,
                NamespacedName("ml", target.name),
                ObjectSeen(target, owner, "d"),
            )
    index.put_listed()
    observed = index.observation_for(CLUSTER, utc_now()).observed.cluster
    assert observed is not None
    assert observed.replicas == ["ml/a", "ml/b", "ml/c"]


async def test_observations_are_numbered_in_their_order_also_when_one_seemed_lost() -> (
    None
):
    sent: list[int] = []
    enough = asyncio.Event()

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        notifier.enqueue(owner)
        sent.append(observed.order.sequence)
        if len(sent) == 2:
            enough.set()
            raise Undelivered
        return True

    notifier = ChangeNotifier(send, lambda _: False)
    notifier.enqueue(CLUSTER)
    task = asyncio.create_task(notifier.run(cast(ObservationIndex, Changing())))
    async with asyncio.timeout(60):
        await enough.wait()
    task.cancel()
    assert sent == [1, 2]
