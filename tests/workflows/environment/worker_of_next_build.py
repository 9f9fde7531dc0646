"""The worker as users run it, of a build with one more command in each pass of a
deployment or a replica.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow

import worker
from workflows.model_deployment.workflow import ModelDeploymentWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow

PATCH = "a-timer-before-each-pass"


def _after_a_timer(
    reconcile: Callable[[Any], Awaitable[bool]],
) -> Callable[[Any], Awaitable[bool]]:
    async def with_timer(entity: Any) -> bool:
        if workflow.patched(PATCH):
            await workflow.sleep(timedelta(milliseconds=10), summary=PATCH)
        return await reconcile(entity)

    return with_timer


if __name__ == "__main__":
    for kind in (ModelDeploymentWorkflow, ModelReplicaWorkflow):
        kind.reconcile = _after_a_timer(kind.reconcile)  # type: ignore[assignment, method-assign]
    worker.main()
