"""Sends requests, and waits until the workflows of their objects have applied them.

Temporal stores a signal until a worker takes it, so a request is sent before any query.
A worker that has just died or is still replaying delays the response, but never the
request. The workflow records the id of every applied request. So a command reports
either the result of its own request, or that no worker has seen the request yet.
"""

import asyncio
import getpass
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from fleet_client.errors import RUN_WORKER, Forbidden, NoAnswer, NotFound
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, has_applied

# How long a command waits until its request is applied. Temporal keeps the request
# longer.
ANSWER_SECONDS = 15.0
# How long a command waits for an object that it must read first. Nothing is stored yet,
# so the time is long enough for workers that have just started and replay their
# workflows.
READ_SECONDS = 45.0
# The pause grows, because a slow worker is overloaded and polling adds to its load.
_POLL_SECONDS = 0.2
_POLL_SECONDS_MAX = 1.0
_POLL_GROWTH = 1.3

UNSEEN = "accepted by Temporal, not yet seen by a worker"
HOW_TO_SEE = f"it is applied once a worker has time; if none runs: {RUN_WORKER}"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Requested:
    """A request that Temporal or the front has accepted.

    `tree` is the object after its workflow applied the request. `gone` means that the
    object no longer existed. `hidden` means that the user may change the object but not
    read it. Only the front reports that, after the request was applied.
    """

    target: Target
    request_id: str
    tree: Tree | None = None
    gone: bool = False
    hidden: bool = False

    @property
    def seen(self) -> bool:
        """Whether a worker has seen the request."""
        return self.tree is not None or self.gone or self.hidden


def new_request_id() -> str:
    """Return a new request id, by which a repeated request is recognised."""
    return uuid.uuid4().hex


def current_user() -> str:
    """Return the user of this process as `user@host`, for events and `lastScale`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"  # a container may run under a user id without a name
    return f"{user}@{socket.gethostname()}"


async def until_answered(
    read: Callable[[], Awaitable[ResultT]], seconds: float = READ_SECONDS
) -> ResultT:
    """Call `read` until a worker answers. Raise the last `NoAnswer` after `seconds`."""
    deadline = time.monotonic() + seconds
    pauses = _pauses()
    while True:
        try:
            return await read()
        except NoAnswer:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(next(pauses))


async def until_applied(
    plane: FleetObjects, target: Target, request_id: str, seconds: float | None = None
) -> Requested:
    """Wait until the object's workflow has applied a request.

    The default limit is `ANSWER_SECONDS`.
    """
    deadline = time.monotonic() + (ANSWER_SECONDS if seconds is None else seconds)
    pauses = _pauses()
    while True:
        try:
            with suppress(NoAnswer):  # a later query may be answered
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
