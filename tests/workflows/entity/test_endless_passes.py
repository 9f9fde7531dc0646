"""An entity whose passes queue one another, which is a defect, does not block its worker.

These tests need no server.
"""

import asyncio
from types import SimpleNamespace

import pytest
from temporalio import workflow

from tests.workflows.environment.serverless import Serverless, a_continued_run, id_of
from workflows.entity.entity import PASSES_MAX, PAUSE_AFTER_PASSES
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow


@pytest.mark.parametrize(("tasks", "pauses"), [(1, True), (2, False)])
def test_passes_that_queue_one_another_pause_within_one_task(
    monkeypatch: pytest.MonkeyPatch, *, tasks: int, pauses: bool
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelCache"))
    history = [1]
    info = vars(a_continued_run(temporal.workflow_id))
    info["get_current_history_length"] = lambda: history[0]
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(**info))
    cache = ModelCacheWorkflow(CacheState())
    waited: list[bool] = []

    async def wait(_: object) -> None:
        waited.append(True)

    monkeypatch.setattr(workflow, "wait_condition", wait)
    monkeypatch.setattr(cache._timer, "update", lambda _: None)
    monkeypatch.setattr(cache, "publish", lambda: None)
    for number in range(PASSES_MAX + 1):
        history[0] = 1 + number * tasks // (PASSES_MAX + 1)
        cache.context.requeue()
        asyncio.run(cache._until_queued())
    assert waited == [True] * pauses
    due = cache.context.requeue_time
    assert due == (cache.context.moment() + PAUSE_AFTER_PASSES if pauses else None)
    assert [event.reason for event in cache.state.events] == ["PassesRepeat"] * pauses
