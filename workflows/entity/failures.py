"""The last failure of an activity, as entities keep it to show it in conditions, and how long to wait after it."""

from datetime import timedelta
from typing import NamedTuple

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType

from api_types.errors import ClusterUnreachable, error_message, error_type, is_permanent
from workflows.entity import backoff

# What a workflow gets of a local activity that failed: what was raised in it, without the ActivityError that is around that of others.
LOCAL_FAILURES = (ActivityError, ApplicationError)


class Failure(NamedTuple):
    """Type and message of an error; both are empty when nothing failed. In JSON a list of the two."""

    type: str = ""
    message: str = ""

    @property
    def is_unreachable(self) -> bool:
        """Tell whether the cluster did not answer."""
        return self.type == ClusterUnreachable.__name__


NO_FAILURE = Failure()

# The type of a failure, and the reason of a condition: a task that no worker took.
WAITING_FOR_WORKER = "WaitingForWorker"


def was_never_started(error: BaseException) -> bool:
    """Tell whether an activity failed because no worker took it within its schedule-to-start timeout."""
    cause = error.cause if isinstance(error, ActivityError) else None
    return isinstance(cause, exceptions.TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START


def failure_of(error: BaseException, default_type: str = ClusterUnreachable.__name__) -> Failure:
    """Give what failed in an activity; `default_type` is for failures without a type of ours, such as a timeout."""
    if isinstance(error, ActivityError) and was_never_started(error):
        message = (
            f"no worker took {error.activity_type} in time: the task queues of the cluster are not served, or all slots are taken; "
            "the conditions of the InferenceCluster tell which"
        )
        return Failure(WAITING_FOR_WORKER, message)
    return Failure(error_type(error) or default_type, error_message(error))


def backoff_after(failure: Failure, attempt: int) -> timedelta:
    """Give the wait before the next attempt: long if only a new spec can fix it."""
    return backoff.permanent(attempt) if is_permanent(failure.type) else backoff.transient(attempt)
