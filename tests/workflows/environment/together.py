"""Scenarios that wait far more than they work: all are under way at once, and each is still a test of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.workflows.environment.harness import ControlPlane

Scenario = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def together(plane: ControlPlane, scenarios: Mapping[str, Scenario]) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Start all scenarios; gives the task of each, to be awaited by its test.

    At the end those are waited for that no test did, when only some of the tests were wanted: cut short they would leave things behind.
    What failed ones left is deleted.
    """
    tasks = {name: asyncio.create_task(scenario(), name=name) for name, scenario in scenarios.items()}
    try:
        yield tasks
    finally:
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await plane.delete_deployments()
