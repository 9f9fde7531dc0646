"""Sending a request for each of several objects, and showing the result of each."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from client.failures import combine
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target
from fleet_client.requests import HOW_TO_SEE, UNSEEN, Requested

ResultT = TypeVar("ResultT")
RequestedT = TypeVar("RequestedT", bound=Requested)


async def request_each(
    targets: Sequence[Target],
    request: Callable[[Target], Awaitable[RequestedT | None]],
    done: Callable[[RequestedT], str],
) -> list[RequestedT]:
    """Run a request for each object concurrently, and print the results in order.

    `done` returns the text for a request that was applied. A request may return None if
    nothing had to be changed. The failures are raised together after the other results
    are printed.
    """
    results = await asyncio.gather(*(result_of(request(target)) for target in targets))
    requested = show_results(results, done)
    raise_failures(results)
    return requested


async def result_of(request: Awaitable[ResultT]) -> ResultT | CommandFailed:
    """Return the result of a request, or its failure as a value."""
    try:
        return await request
    except CommandFailed as failure:
        return failure


def show_results(
    results: Sequence[RequestedT | CommandFailed | None],
    done: Callable[[RequestedT], str],
) -> list[RequestedT]:
    """Print a line for each request, and what to do if no worker has seen some of them.

    Return all requests.
    """
    requested = [
        result
        for result in results
        if result is not None and not isinstance(result, CommandFailed)
    ]
    for one in requested:
        print(f"{one.target.label} {done(one) if one.seen else UNSEEN}", flush=True)
    if not all(one.seen for one in requested):
        print(f"next: {HOW_TO_SEE}", file=sys.stderr, flush=True)
    return requested


def raise_failures(results: Sequence[object]) -> None:
    """Raise the failures among the results of several requests as one error."""
    failures = [result for result in results if isinstance(result, CommandFailed)]
    if failures:
        raise combine(failures)
