"""Sending an order and learning that its owner has taken it.

A signal only says that Temporal has it. The owner notes the id of every request that it took, so a command can say what became of its
own order, and a worker that is down is noticed within seconds.
"""

import asyncio
import getpass
import socket
import time
import uuid

from client.errors import NoAnswer, NotFound
from client.refs.targets import Target
from client.refs.tree import Tree, took
from client.temporal.control_plane import ControlPlane

_LOOK_EVERY_SECONDS = 0.2
_PATIENCE_SECONDS = 15.0


def new_request_id() -> str:
    """Give an id under which a repeat of this order is recognised."""
    return uuid.uuid4().hex


def who() -> str:
    """Say who gives the order, as far as this machine knows: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "nobody"  # a container may run under a number that has no name
    return f"{user}@{socket.gethostname()}"


async def until_taken(plane: ControlPlane, wanted: Target, request_id: str) -> Tree | None:
    """Look until the owner has taken the request and give the object; None if it is gone by then. Raises `NoAnswer` when time is up."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            tree = await plane.describe(wanted)
            if took(tree, request_id):
                return tree
        except NotFound:
            return None
        except NoAnswer as silence:
            if time.monotonic() >= deadline:
                raise _untaken(wanted) from silence
        if time.monotonic() >= deadline:
            raise _untaken(wanted)
        await asyncio.sleep(_LOOK_EVERY_SECONDS)


def _untaken(wanted: Target) -> NoAnswer:
    return NoAnswer(
        f"Temporal has the order for {wanted.title}, but no worker took it within {_PATIENCE_SECONDS:g} s",
        next_step="it will be carried out once a worker runs: `modelplane up` on this machine, `modelplane-worker` elsewhere",
    )
