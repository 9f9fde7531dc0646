"""The steps of a replica's teardown that happen on its cluster: what each deletes, and what is left when patience ends."""

import asyncio
from datetime import timedelta
from itertools import groupby

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Json, Kind, ObjectId, Selection
from activities.cluster_objects.deletion import Deleter, DeletionResult, awaited, list_served
from activities.cluster_objects.ownership import conflict, owner_of
from activities.render.objects import teardown
from activities.workloads.copies import copies_of, is_copy, release_all
from api_types import labels
from api_types.messages.cluster_work import RemainingObject, TeardownStep, TeardownStepResult

# The component label that each step of a teardown takes; what an inventory does not know of is found by it.
_COMPONENTS = {3: "routing", 4: "routing", 5: "epp", 6: "monitoring", 7: "engine", 8: "gang", 9: "device-claim"}


async def take_step(leaver: Deleter, order: TeardownStep) -> TeardownStepResult:
    """Do one step: delete in order, and come back when nothing of it is left, or with what remains when patience ends."""
    patience = _Patience(order.wait_seconds)
    if order.number == teardown.SWEEP:
        departure = await _sweep(leaver, order, patience)
    elif order.number == teardown.COPIES:
        departure = await _release_copies(leaver, order, patience)
    else:
        departure = await _delete(leaver, order, patience)
    return TeardownStepResult(skipped=departure.skipped, remaining=departure.remaining)


class _Patience:
    """What is left of the time of one step; no limit if it is 0 seconds."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = asyncio.get_running_loop().time() + seconds if seconds else None

    def left(self) -> timedelta | None:
        """Give the time that is left, None for however long it takes."""
        if self._ends_at is None:
            return None
        return timedelta(seconds=max(0.0, self._ends_at - asyncio.get_running_loop().time()))


async def _delete(leaver: Deleter, order: TeardownStep, patience: _Patience) -> DeletionResult:
    """Delete what belongs to one step: known from the inventory, or found by its marks where the inventory was lost.

    What an interrupted update made beside the inventory is left to the sweep; to look for it in every step would cost each teardown as
    many lists as there are kinds.
    """
    step = next(step for step in teardown.STEPS if step.number == order.number)
    ordered = [ObjectId.parse(entry.id) for entry in teardown.deletions(step, order.inventory)]
    for kind in [] if order.inventory else kinds.resolve_all(step.kinds, await leaver.cluster.resources()):
        component = _COMPONENTS.get(step.number)
        marked = await _marked(leaver, kind, order)
        ordered += [ObjectId.of(item) for item in marked if item["metadata"]["labels"].get(labels.COMPONENT) == component]
    skipped: list[str] = []
    # Engines end together: nobody waits for one to free the other's nodes.
    for _, group in groupby(ordered, key=lambda target: None if step.wait_kinds else target.kind):
        departure = await leaver.until_gone(list(group), patience.left())
        skipped += departure.skipped
        if departure.remaining:
            return DeletionResult(skipped, departure.remaining)
    return DeletionResult(skipped, [])


async def _release_copies(leaver: Deleter, order: TeardownStep, patience: _Patience) -> DeletionResult:
    """Give up this replica's share in copies: those of the inventory, and those that an interrupted update marked beside it."""
    targets = {ObjectId.parse(entry.id): None for entry in order.inventory if is_copy(entry)}
    targets |= dict.fromkeys(await copies_of(leaver.cluster, order.workload_namespace, order.workload_name))
    skipped: list[str] = []
    for target in targets:
        left = patience.left()
        try:
            async with asyncio.timeout(None if left is None else left.total_seconds()):
                skipped += await release_all(leaver.cluster, [target], order.workload_name)
        except TimeoutError:
            found = await leaver.cluster.get(target)
            return DeletionResult(skipped, [awaited(found) if found else RemainingObject(id=str(target))])
    return DeletionResult(skipped, [])


async def _sweep(leaver: Deleter, order: TeardownStep, patience: _Patience) -> DeletionResult:
    """Delete everything with the replica's mark, of every kind that we know, until a whole look finds nothing more."""
    served = await leaver.cluster.resources(refresh=True)
    while True:
        found = [item for kind in kinds.ours(served) for item in await _marked(leaver, kind, order)]
        mine = [ObjectId.of(item) for item in found if owner_of(item).uid == order.uid]
        awaited_still = [target for target in mine if str(target) not in order.given_up]
        if not awaited_still:
            return DeletionResult([conflict(item, order.uid) for item in found if ObjectId.of(item) not in mine], [])
        departure = await leaver.until_gone(awaited_still, patience.left())
        if departure.remaining:
            return departure


async def _marked(leaver: Deleter, kind: Kind, order: TeardownStep) -> list[Json]:
    return await list_served(leaver.cluster, Selection(kind, labels=f"{labels.REPLICA}={order.workload_name}", metadata_only=True))
