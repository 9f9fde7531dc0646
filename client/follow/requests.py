"""Sending requests and waiting until the workflows of their objects have applied them.

Temporal keeps a signal for as long as it takes, so a request is sent before anything is asked of a worker: one that has just died, or is
still replaying, delays the answer and never the request. The workflow records the id of every request that it applied; by that a command
reports the result of its own request, and says so when no worker has seen it yet.
"""

import asyncio
import getpass
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from client.errors import RUN_WORKER, CommandFailed, Forbidden, NoAnswer, NotFound, combine
from client.fleet.objects import Objects
from client.refs.targets import Target
from client.refs.tree import Tree, has_applied

# How long a command waits for the answer to its request; Temporal keeps the request however long that takes.
ANSWER_SECONDS = 15.0
# How long it waits for what it has to read before it can make one. Nothing is kept yet, so this is long enough for workers that were just
# started and replay their workflows.
READ_SECONDS = 45.0
# Where an answer takes long, workers are behind, and are not asked more often than this helps.
_POLL_SECONDS = 0.2
_POLL_SECONDS_MAX = 1.0
_POLL_GROWTH = 1.3

UNSEEN = "accepted by Temporal, not yet seen by a worker"
HOW_TO_SEE = f"it is applied once a worker runs: {RUN_WORKER}"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Requested:
    """A request that Temporal has. `tree` is the object since its workflow applied it, `gone` that the object is gone since.

    `hidden`: the user may change the object and not read it. Only the front says so, and it had answered that the request was applied.
    """

    target: Target
    request_id: str
    tree: Tree | None = None
    gone: bool = False
    hidden: bool = False

    @property
    def seen(self) -> bool:
        """Whether a worker has seen it."""
        return self.tree is not None or self.gone or self.hidden


def new_request_id() -> str:
    """Give an id by which a repeat of this request is recognised."""
    return uuid.uuid4().hex


def current_user() -> str:
    """Give the user of this process, for events and `lastScale`: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"  # a container may run under a number that has no name
    return f"{user}@{socket.gethostname()}"


async def until_answered(read: Callable[[], Awaitable[ResultT]], seconds: float = READ_SECONDS) -> ResultT:
    """Read what only a worker can answer, again and again while none does. Raises the last `NoAnswer` when the time is over."""
    deadline = time.monotonic() + seconds
    pauses = _pauses()
    while True:
        try:
            return await read()
        except NoAnswer:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(next(pauses))


async def until_applied(plane: Objects, target: Target, request_id: str, seconds: float | None = None) -> Requested:
    """Wait until the workflow of the object has applied a request that was sent, or for `ANSWER_SECONDS` if nothing else is said."""
    deadline = time.monotonic() + (ANSWER_SECONDS if seconds is None else seconds)
    pauses = _pauses()
    while True:
        try:
            with suppress(NoAnswer):  # the next one may be answered
                tree = await plane.describe(target)
                if has_applied(tree, request_id):
                    return Requested(target, request_id, tree)
        except NotFound:
            return Requested(target, request_id, gone=True)
        except Forbidden:
            return Requested(target, request_id, hidden=True)
        if time.monotonic() >= deadline:
            return Requested(target, request_id)
        await asyncio.sleep(next(pauses))


def _pauses() -> Iterator[float]:
    pause = _POLL_SECONDS
    while True:
        yield pause
        pause = min(_POLL_GROWTH * pause, _POLL_SECONDS_MAX)


RequestedT = TypeVar("RequestedT", bound=Requested)


async def request_each(
    targets: Sequence[Target], request: Callable[[Target], Awaitable[RequestedT | None]], done: Callable[[RequestedT], str]
) -> list[RequestedT]:
    """Make a request for each object, all at once, and show in order what became of them; `done` says it of one that was applied.

    A request that is None was not needed. The failures are raised together, after the others are shown.
    """
    results = await asyncio.gather(*(result_of(request(target)) for target in targets))
    requested = show_results(results, done)
    raise_failures(results)
    return requested


async def result_of(request: Awaitable[ResultT]) -> ResultT | CommandFailed:
    """Give the result of a request, or its failure, so that one that fails keeps no other from being made."""
    try:
        return await request
    except CommandFailed as failure:
        return failure


def show_results(results: Sequence[RequestedT | CommandFailed | None], done: Callable[[RequestedT], str]) -> list[RequestedT]:
    """Print a line for each request that was made, and what is to be done about those that no worker has seen; gives them all."""
    requested = [result for result in results if result is not None and not isinstance(result, CommandFailed)]
    for one in requested:
        print(f"{one.target.label} {done(one) if one.seen else UNSEEN}", flush=True)
    if not all(one.seen for one in requested):
        print(f"next: {HOW_TO_SEE}", file=sys.stderr, flush=True)
    return requested


def raise_failures(results: Sequence[object]) -> None:
    """Raise the failures among the results of several requests as one."""
    failures = [result for result in results if isinstance(result, CommandFailed)]
    if failures:
        raise combine(failures)
