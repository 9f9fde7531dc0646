"""A loop whose time passes only while nothing else is to be done, so that hours of waiting cost nothing and every run is repeatable."""

import asyncio
import contextvars
import random
import selectors
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from botocore import endpoint
from google.api_core.retry import retry_unary

ResultT = TypeVar("ResultT")

_LATENCY = (0.05, 2.0)
"""Seconds that a call in a thread takes: what else runs goes on meanwhile."""


# The libraries of the clouds pause in the thread of a call before they repeat it.
_NO_PAUSES = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})


class NothingToWaitFor(Exception):
    """All tasks wait for something that nothing will bring."""


class _Selector(selectors.DefaultSelector):
    """Lets the loop's time pass in place of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingToWaitFor
        self.passed += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what would run in a thread at once, and gives its result a moment later, by the given source of random numbers."""

    def __init__(self, draw: random.Random) -> None:
        self._virtual = _Selector()
        self._draw = draw
        self.slow = 1.0
        super().__init__(self._virtual)

    def time(self) -> float:
        """Give the seconds since the start."""
        return self._virtual.passed

    def run_in_executor(self, executor: Any, func: Callable[..., ResultT], *args: Any) -> "asyncio.Future[ResultT]":  # type: ignore[override]
        """Do it now. As with a thread, it has its effect also when nobody waits for its result any more."""
        del executor
        future: asyncio.Future[ResultT] = self.create_future()
        try:
            result = contextvars.copy_context().run(func, *args)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            self.call_later(self._latency(), _fail, future, error)
        else:
            self.call_later(self._latency(), _finish, future, result)
        return future

    def _latency(self) -> float:
        return self._draw.uniform(*_LATENCY) * self.slow


def _finish(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def run(work: Callable[[], Coroutine[Any, Any, ResultT]], draw: random.Random) -> ResultT:
    """Run in virtual time."""
    without_pauses = patch.object(endpoint, "time", _NO_PAUSES), patch.object(retry_unary, "time", _NO_PAUSES)
    with without_pauses[0], without_pauses[1], asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        return runner.run(work())
