"""Runs in virtual time, in which the libraries of the clouds do not pause either."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from botocore import endpoint
from botocore.useragent import UserAgentString
from google.api_core.retry import retry_base, retry_unary

from tests.simulation.clock import VirtualLoop

ResultT = TypeVar("ResultT")


def _without_pauses() -> SimpleNamespace:
    """Return the module `time` with pauses that only put its clock forward.

    The libraries of the clouds pause in the thread of a call before they repeat it, up
    to a time limit by this clock.
    """
    slept = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds

    def monotonic() -> float:
        return time.monotonic() + slept

    return SimpleNamespace(**{**vars(time), "sleep": sleep, "monotonic": monotonic})


def run(
    work: Callable[[], Coroutine[Any, Any, ResultT]], draw: random.Random
) -> ResultT:
    """Run in virtual time."""
    pauseless = _without_pauses()
    with (
        patch.object(endpoint, "time", pauseless),
        # botocore builds it twice for each call, and the fake does not read it.
        patch.object(UserAgentString, "to_string", lambda _: "lives"),
        patch.object(retry_unary, "time", pauseless),
        patch.object(retry_base, "time", pauseless),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner,
    ):
        return runner.run(work())
