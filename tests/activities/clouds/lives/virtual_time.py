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
from google.api_core.retry import retry_unary

from tests.simulation.clock import VirtualLoop

ResultT = TypeVar("ResultT")

# The libraries of the clouds pause in the thread of a call before they repeat it.
_NO_PAUSES = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})


def run(
    work: Callable[[], Coroutine[Any, Any, ResultT]], draw: random.Random
) -> ResultT:
    """Run in virtual time."""
    with (
        patch.object(endpoint, "time", _NO_PAUSES),
        # botocore builds it twice for each call, and the fake does not read it.
        patch.object(UserAgentString, "to_string", lambda _: "lives"),
        patch.object(retry_unary, "time", _NO_PAUSES),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner,
    ):
        return runner.run(work())
