"""A workflow object outside Temporal.

A test calls its methods, sets the time, and sees the activities that it would execute.
"""

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from api_types.names import workflow_id
from api_types.resources.kinds import BY_KIND

NOW = datetime(2026, 1, 1, tzinfo=UTC)

# More turns than any condition needs that becomes true.
_TURNS_MAX = 100_000
_HISTORY_LENGTHS = count(1)


def id_of(kind: str, name: str = "qwen-eu-0") -> str:
    """Return a workflow id of this kind."""
    return workflow_id(kind, "ml" if BY_KIND[kind].namespaced else "", name)


def a_continued_run(workflow_id: str) -> SimpleNamespace:
    """Return the workflow info of a run that continues another, so that it accepts any state."""
    return SimpleNamespace(
        workflow_id=workflow_id,
        run_id="this run",
        continued_run_id="the run before",
        attempt=1,
        cron_schedule=None,
        # Each pass is in a task of its own, with a longer history.
        get_current_history_length=_HISTORY_LENGTHS.__next__,
    )


class Serverless:
    """The workflow's time and the names and arguments of its activities.

    `local` counts the local ones.

    `results` maps activity names to results, or to the failure that ends the attempts.
    An activity without a result fails as an unexpected attempt.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workflow_id: str) -> None:
        self.now = NOW
        self.executed: list[tuple[str, Any]] = []
        self.local = 0
        self.results: dict[str, Any] = {}
        monkeypatch.setattr(workflow, "upsert_memo", lambda _: None)
        monkeypatch.setattr(workflow, "wait_condition", _wait_condition)
        self.workflow_id = workflow_id
        monkeypatch.setattr(workflow, "info", lambda: a_continued_run(self.workflow_id))
        monkeypatch.setattr(workflow, "now", lambda: self.now)
        monkeypatch.setattr(workflow, "uuid4", uuid.uuid4)
        # The server changes the random seed of a workflow that an operator reset.
        self.seeded: list[Callable[[int], None]] = []
        monkeypatch.setattr(
            workflow, "register_random_seed_callback", self.seeded.append
        )
        monkeypatch.setattr(workflow, "time", self._time)
        # No earlier history is replayed.
        monkeypatch.setattr(workflow, "patched", lambda _: True)
        monkeypatch.setattr(workflow, "execute_activity_method", self._execute)
        monkeypatch.setattr(
            workflow, "execute_local_activity_method", self._execute_locally
        )

    def _time(self) -> float:
        return self.now.timestamp()

    async def _execute(self, method: Any, argument: Any, **_: Any) -> Any:
        self.executed.append((method.__name__, argument))
        if method.__name__ not in self.results:
            raise UnexpectedActivityError(method.__name__)
        result = self.results[method.__name__]
        if isinstance(result, ApplicationError):
            raise an_activity_error() from result
        return result

    async def _execute_locally(self, method: Any, argument: Any, **options: Any) -> Any:
        self.local += 1
        return await self._execute(method, argument, **options)


def an_activity_error() -> ActivityError:
    return ActivityError(
        "",
        scheduled_event_id=1,
        started_event_id=1,
        identity="",
        activity_type="",
        activity_id="",
        retry_state=None,
    )


class UnexpectedActivityError(Exception):
    """The workflow executed an activity for which the test has no result."""


async def _wait_condition(holds: Callable[[], bool], **_: Any) -> None:
    for _turn in range(_TURNS_MAX):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError(
        "the workflow waits for an event that never happens in this test"
    )
