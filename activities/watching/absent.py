"""Find the workflows of which a watch sees nothing, though they may have objects: what was deleted while no watch ran leaves no trace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio import activity
from temporalio.service import RPCError

from activities.cluster_objects.ownership import Owner
from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult

FindAbsent = Callable[[frozenset[str]], AsyncIterator[Owner]]
_RETRY_SECONDS = 5.0
# Between two queries to workflows of which none answers: some may not do so for as long as the watch runs.
_RETRY_SECONDS_MAX = 600.0
Asked = TypeVar("Asked", Survey, QueryEach)


@dataclass(frozen=True)
class Search:
    """Query the running workflows of a kind, in all namespaces; `cluster` narrows that to those of one cluster.

    `read` gets the id and the answer of one, and gives the owner that may have lost all its objects; None if it is to have none. It raises
    ValueError for an answer that it cannot read.
    """

    kind: str
    query: str
    read: Callable[[str, Any], Owner | None]
    cluster: str = ""


async def owners_of_others(searches: Sequence[Search], here: frozenset[str]) -> AsyncIterator[Owner]:
    """Give the owners that are found and not among `here`. The searches run beside each other: one may not end for days."""
    waiting = {_next(found): found for found in (_owners(search, here) for search in searches)}
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


def _next(owners: AsyncIterator[Owner]) -> "asyncio.Task[Owner | None]":
    async def awaited() -> Owner | None:
        return await anext(owners, None)

    return asyncio.create_task(awaited())


async def _owners(search: Search, here: frozenset[str]) -> AsyncIterator[Owner]:
    async for workflow_id, answer in _answers(search, here):
        try:
            owner = search.read(workflow_id, answer)
        except ValueError:
            # That of another version. Without it the watch is told of all others.
            activity.logger.exception("%s: its answer to %s could not be read", workflow_id, search.query)
            continue
        if owner is not None:
            yield owner


async def _answers(search: Search, here: frozenset[str]) -> AsyncIterator[tuple[str, Any]]:
    """Query every workflow; give the id and the answer of each.

    One that does not answer is queried until it does or does not run any more, after all others, and ever more rarely.
    """
    messaging, after, late = EntityClient(), "", list[str]()
    while True:
        page = await _until_answered(messaging.survey, Survey(kinds=[search.kind], cluster=search.cluster, after=after))
        left = sorted(page.answers.keys() - here)
        while left:
            found = await _until_answered(messaging.query_each, QueryEach(workflow_ids=left, query=search.query))
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
        found = await _until_answered(messaging.query_each, QueryEach(workflow_ids=late, query=search.query))
        for answer in found.answers.items():
            yield answer
        late = [*found.unresponsive, *found.left]
        pause = _RETRY_SECONDS if found.answers else min(pause * 2, _RETRY_SECONDS_MAX)


async def _until_answered(call: Callable[[Asked], Awaitable[SurveyResult]], asked: Asked) -> SurveyResult:
    """Make a call until the server answers it."""
    while True:
        try:
            return await call(asked)
        except RPCError:
            await asyncio.sleep(_RETRY_SECONDS)
