"""Workflows that end because they refuse what they were started with."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

# A run that cannot fail would be asked for ever.
WITHIN_SECONDS = 240


async def refusal_of(handle: WorkflowHandle[Any, Any]) -> str:
    """Wait until a workflow has failed; gives what it says. It is not started again, whatever retry its starter asks for."""
    with pytest.raises(WorkflowFailureError) as failed:
        await asyncio.wait_for(handle.result(), WITHIN_SECONDS)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("InvalidInput", True)
    return cause.message
