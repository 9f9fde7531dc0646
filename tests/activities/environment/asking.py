"""Activities as they run for the workflow of an object: an order of another one is refused."""

from dataclasses import replace
from typing import Any

from temporalio.testing import ActivityEnvironment


def asked_by(workflow_id: str, client: Any = None, *, attempt: int = 1) -> ActivityEnvironment:
    """Give the environment of an activity that a workflow has asked for, in one of its attempts."""
    environment = ActivityEnvironment(client=client)
    environment.info = replace(ActivityEnvironment.default_info(), workflow_id=workflow_id, attempt=attempt)
    return environment
