"""Sending a request and waiting until the workflow of the object has applied it.

A signal only means that Temporal has it. The workflow records the id of every request that it applied, so a command can report the result
of its own request, and notices within seconds that no worker runs.
"""

import asyncio
import getpass
import socket
import time
import uuid

from client.errors import RUN_WORKER, NoAnswer, NotFound
from client.refs.targets import Target
from client.refs.tree import Tree, has_applied
from client.temporal.control_plane import ControlPlane

_POLL_SECONDS = 0.2
_TIMEOUT_SECONDS = 15.0


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


async def until_applied(plane: ControlPlane, target: Target, request_id: str) -> Tree | None:
    """Poll until the workflow has applied the request and give the object; None if it is gone by then. Raises `NoAnswer` on timeout."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            tree = await plane.describe(target)
            if has_applied(tree, request_id):
                return tree
        except NotFound:
            return None
        except NoAnswer as error:
            if time.monotonic() >= deadline:
                raise _not_applied(target) from error
        if time.monotonic() >= deadline:
            raise _not_applied(target)
        await asyncio.sleep(_POLL_SECONDS)


def _not_applied(target: Target) -> NoAnswer:
    return NoAnswer(
        f"Temporal has the request for {target.title}, but no worker applied it within {_TIMEOUT_SECONDS:g} s",
        next_step=f"it will be applied once a worker runs: {RUN_WORKER}",
    )
