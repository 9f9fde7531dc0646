"""Workflows that end because they reject their arguments."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

# Limits the wait for a run that does not fail.
WITHIN_SECONDS = 240


async def refusal_of(handle: WorkflowHandle[Any, Any]) -> str:
    """Wait until a workflow has failed; return its message.

    Check that it is not started again, whatever retry policy its starter set.
    """
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(handle.result(), WITHIN_SECONDS)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("InvalidInput", True)
    return cause.message
