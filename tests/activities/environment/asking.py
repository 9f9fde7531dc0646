"""Run activities for the workflow of an object.

An order of another object is refused.
"""

from dataclasses import replace
from typing import Any

from temporalio.testing import ActivityEnvironment


def asked_by(
    workflow_id: str, client: Any = None, *, attempt: int = 1
) -> ActivityEnvironment:
    """Return the environment of an attempt of an activity that a workflow called."""
    environment = ActivityEnvironment(client=client)
    environment.info = replace(
        ActivityEnvironment.default_info(), workflow_id=workflow_id, attempt=attempt
    )
    return environment
