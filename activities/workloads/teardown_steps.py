"""The steps of a replica's teardown that run on its cluster."""

import asyncio
from datetime import timedelta
from itertools import groupby

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import (
    Deleter,
    DeletionResult,
    list_served,
    poll_intervals,
    remaining_object,
)
from activities.cluster_objects.ownership import conflict, owner_of
from activities.render.objects import teardown
from activities.secrets.shared_copies import copies_of, release_all
from api_types import labels
from api_types.messages.cluster_work import (
    RemainingObject,
    RunTeardownStep,
    TeardownStepResult,
)


async def run_step(deleter: Deleter, order: RunTeardownStep) -> TeardownStepResult:
    """Run one step: delete its objects in order.

    Returns when they are gone, or with the remaining objects at the time limit.
    """
    limit = _TimeLimit(order.wait_seconds)
    if order.number == teardown.SWEEP:
        result = await _sweep(deleter, order, limit)
    elif order.number == teardown.COPIES:
        result = await _release_copies(deleter, order, limit)
    else:
        result = await _delete(deleter, order, limit)
    return TeardownStepResult(skipped=result.skipped, remaining=result.remaining)


class _TimeLimit:
    """The time limit of one step. 0 seconds means no limit."""

    def __init__(self, seconds: float) -> None:
        self._deadline = (
            asyncio.get_running_loop().time() + seconds if seconds else None
        )

    def left(self) -> timedelta | None:
        """Return the remaining time, or None without a limit."""
        if self._deadline is None:
            return None
        return timedelta(
            seconds=max(0.0, self._deadline - asyncio.get_running_loop().time())
        )


async def _delete(
    deleter: Deleter, order: RunTeardownStep, limit: _TimeLimit
) -> DeletionResult:
    """Delete the objects of one step, from the inventory or by labels if it was lost.

    The sweep deletes objects that an interrupted update created outside the inventory.
    A search in every step would add one list request per kind to each teardown.
    """
    step = teardown.step_of_number(order.number)
    ordered = [
        ObjectId.parse(entry.id) for entry in teardown.deletions(step, order.inventory)
    ]
    searched = (
        []
        if order.inventory
        else kinds.resolve_all(step.kinds, await deleter.cluster.resources())
    )
    for kind in searched:
        marked = await _marked(deleter, kind, order)
        ordered += [
            ObjectId.of(item)
            for item in marked
            if item["metadata"]["labels"].get(labels.COMPONENT) == step.component
        ]
    skipped: list[str] = []
    # Engines are deleted together, because no engine waits for the nodes of another.
    for _, group in groupby(
        ordered, key=lambda target: None if step.wait_kinds else target.kind
    ):
        result = await deleter.until_gone(list(group), limit.left())
        skipped += result.skipped
        if result.remaining:
            return DeletionResult(skipped, result.remaining)
    return DeletionResult(skipped, [])


async def _release_copies(
    deleter: Deleter, order: RunTeardownStep, limit: _TimeLimit
) -> DeletionResult:
    """Release this replica's copies.

    These are the copies of the inventory, and copies that an interrupted update created
    outside it.
    """
    step = teardown.step_of_number(order.number)
    targets = {
        ObjectId.parse(entry.id): None
        for entry in teardown.deletions(step, order.inventory)
    }
    targets |= dict.fromkeys(
        await copies_of(deleter.cluster, order.workload_namespace, order.workload_name)
    )
    skipped: list[str] = []
    for target in targets:
        left = limit.left()
        try:
            async with asyncio.timeout(None if left is None else left.total_seconds()):
                skipped += await release_all(
                    deleter.cluster, [target], order.workload_name
                )
        except TimeoutError:
            found = await deleter.cluster.get(target)
            return DeletionResult(
                skipped,
                [remaining_object(found) if found else RemainingObject(id=str(target))],
            )
    return DeletionResult(skipped, [])


async def _sweep(
    deleter: Deleter, order: RunTeardownStep, limit: _TimeLimit
) -> DeletionResult:
    """Delete all objects with the replica's label until a list contains no more.

    The sweep covers every kind that a replica may have. It also waits for the serving
    pods: if their workload was deleted before this teardown began, they may remain and
    occupy the nodes. If another owner has objects of this name, the pods are assumed to
    belong to that owner.
    """
    served = await deleter.cluster.resources(refresh=True)
    async for _ in poll_intervals():
        found = []
        for kind in kinds.replica_kinds(served):
            found += await _marked(deleter, kind, order)
        own = [ObjectId.of(item) for item in found if owner_of(item).uid == order.uid]
        targets = [target for target in own if str(target) not in order.skipped]
        if targets:
            result = await deleter.until_gone(targets, limit.left())
            if result.remaining:
                return result
            continue
        foreign = [item for item in found if ObjectId.of(item) not in own]
        pods = []
        if not foreign:
            pods = [
                pod
                for pod in await _serving_pods(deleter, order)
                if str(ObjectId.of(pod)) not in order.skipped
            ]
        if not pods:
            return DeletionResult([conflict(item, order.uid) for item in foreign], [])
        if limit.left() == timedelta():
            return DeletionResult([], [remaining_object(pod) for pod in pods])
    raise AssertionError("poll_intervals never ends")


async def _serving_pods(deleter: Deleter, order: RunTeardownStep) -> list[Json]:
    """List the serving pods of all engines. The other pods of a gang end with them."""
    selector = f"{labels.SERVING}={order.workload_name}"
    return await list_served(
        deleter.cluster,
        Selection(kinds.POD, order.workload_namespace, selector, metadata_only=True),
    )


async def _marked(
    deleter: Deleter, kind: GroupVersionKind, order: RunTeardownStep
) -> list[Json]:
    return await list_served(
        deleter.cluster,
        Selection(
            kind, labels=f"{labels.REPLICA}={order.workload_name}", metadata_only=True
        ),
    )
