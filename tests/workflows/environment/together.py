"""Scenarios that mostly wait.

All of them run at once, and each is still its own test.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.workflows.environment.harness import ControlPlane

Scenario = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def together(
    plane: ControlPlane, scenarios: Mapping[str, Scenario]
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Start all scenarios; yield the task of each, which its test awaits.

    At the end, wait for the tasks of deselected tests, because a cancelled scenario
    would leave objects behind. Delete the remains of failed ones.
    """
    tasks = {
        name: asyncio.create_task(scenario(), name=name)
        for name, scenario in scenarios.items()
    }
    try:
        yield tasks
    finally:
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await plane.delete_deployments()
