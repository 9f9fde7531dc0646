"""Find workflows that may have lost all their objects.

A watch cannot detect them: an object that was deleted while no watch ran leaves no
trace.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio import activity
from temporalio.service import RPCError

from activities.cluster_objects.ownership import ObjectOwner
from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult

FindAbsent = Callable[[frozenset[str]], AsyncIterator[ObjectOwner]]
_RETRY_SECONDS = 5.0
# The pause between two queries of workflows that do not respond. Some may not respond
# for as long as the watch runs.
_RETRY_SECONDS_MAX = 600.0
Asked = TypeVar("Asked", Survey, QueryEach)


@dataclass(frozen=True)
class Search:
    """A query of the running workflows of a kind, in all namespaces.

    `cluster` narrows the search to the workflows of one cluster. `read` gets the id and
    the response of a workflow. It returns the owner that may have lost all its objects,
    or None if the workflow wants none. It raises ValueError for an unreadable response.
    """

    kind: str
    query: str
    read: Callable[[str, Any], ObjectOwner | None]
    cluster: str = ""


async def owners_of_others(
    searches: Sequence[Search], here: frozenset[str]
) -> AsyncIterator[ObjectOwner]:
    """Yield the owners that are found and not among `here`.

    The searches run concurrently, because one may not end for days.
    """
    found_owners = [_owners(search, here) for search in searches]
    waiting = {_next(found): found for found in found_owners}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                found = waiting.pop(task)
                owner = task.result()
                if owner is not None:
                    waiting[_next(found)] = found
                    yield owner
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _next(owners: AsyncIterator[ObjectOwner]) -> "asyncio.Task[ObjectOwner | None]":
    async def awaited() -> ObjectOwner | None:
        return await anext(owners, None)

    return asyncio.create_task(awaited())


async def _owners(search: Search, here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
    async for workflow_id, answer in _answers(search, here):
        try:
            owner = search.read(workflow_id, answer)
        except ValueError:
            # The response is from another version. Without it, the search continues
            # with all others.
            activity.logger.exception(
                "%s: its answer to %s could not be read", workflow_id, search.query
            )
            continue
        if owner is not None:
            yield owner


async def _answers(
    search: Search, here: frozenset[str]
) -> AsyncIterator[tuple[str, Any]]:
    """Query every workflow, and yield the id and the response of each.

    A workflow that does not respond is queried after all others, at growing intervals,
    until it responds or no longer runs.
    """
    messaging, after, late = EntityClient(), "", list[str]()
    while True:
        page = await _until_answered(
            messaging.survey,
            Survey(kinds=[search.kind], cluster=search.cluster, after=after),
        )
        left = sorted(page.answers.keys() - here)
        while left:
            found = await _until_answered(
                messaging.query_each, QueryEach(workflow_ids=left, query=search.query)
            )
            for answer in found.answers.items():
                yield answer
            late += found.unresponsive
            left = list(found.left)
        after = page.after
        if not after:
            break
    pause = _RETRY_SECONDS
    while late:
        await asyncio.sleep(pause)
        found = await _until_answered(
            messaging.query_each, QueryEach(workflow_ids=late, query=search.query)
        )
        for answer in found.answers.items():
            yield answer
        late = [*found.unresponsive, *found.left]
        pause = _RETRY_SECONDS if found.answers else min(pause * 2, _RETRY_SECONDS_MAX)


async def _until_answered(
    call: Callable[[Asked], Awaitable[SurveyResult]], asked: Asked
) -> SurveyResult:
    """Repeat a call until the server responds."""
    while True:
        try:
            return await call(asked)
        except RPCError:
            await asyncio.sleep(_RETRY_SECONDS)
