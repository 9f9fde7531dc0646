"""Find the workflows of which a watch sees nothing, though they may have objects: what was deleted while no watch ran leaves no trace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from temporalio.service import RPCError

from activities.cluster_objects.ownership import Owner
from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey, SurveyResult

FindAbsent = Callable[[frozenset[str]], AsyncIterator[Owner]]
_RETRY_SECONDS = 5.0
Asked = TypeVar("Asked", Survey, QueryEach)


async def answers_of_others(kinds: list[str], query: str, here: frozenset[str], *, cluster: str = "") -> AsyncIterator[tuple[str, Any]]:
    """Query every running workflow of some kinds that is not among `here`; give the id and the answer of each.

    One that does not answer is queried until it does or does not run any more, after all others.
    """
    messaging, after, late = EntityClient(), "", list[str]()
    while True:
        page = await _until_answered(messaging.survey, Survey(kinds=kinds, cluster=cluster, after=after))
        left = sorted(page.answers.keys() - here)
        while left:
            found = await _until_answered(messaging.query_each, QueryEach(workflow_ids=left, query=query))
            for answer in found.answers.items():
                yield answer
            late += found.unresponsive
            left = list(found.left)
        after = page.after
        if not after:
            break
    while late:
        await asyncio.sleep(_RETRY_SECONDS)
        found = await _until_answered(messaging.query_each, QueryEach(workflow_ids=late, query=query))
        for answer in found.answers.items():
            yield answer
        late = [*found.unresponsive, *found.left]


async def _until_answered(call: Callable[[Asked], Awaitable[SurveyResult]], asked: Asked) -> SurveyResult:
    """Make a call until the server answers it."""
    while True:
        try:
            return await call(asked)
        except RPCError:
            await asyncio.sleep(_RETRY_SECONDS)
