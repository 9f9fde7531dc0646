"""The last failure of an activity, and how long to wait after it.

Entities keep the failure to show it in conditions.
"""

from datetime import timedelta
from typing import NamedTuple

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType

from api_types.errors import ClusterUnreachable, error_message, error_type, is_permanent
from workflows.entity import backoff

# A local activity that fails raises its own error. Other activities wrap it in an
# ActivityError.
LOCAL_FAILURES = (ActivityError, ApplicationError)


class Failure(NamedTuple):
    """The type and message of an error.

    Both are empty without a failure. In JSON it is a list of the two.
    """

    type: str = ""
    message: str = ""

    @property
    def is_unreachable(self) -> bool:
        """Return whether the cluster did not answer."""
        return self.type == ClusterUnreachable.__name__


NO_FAILURE = Failure()

# The type of a failure, and the reason of a condition: no worker took the task.
WAITING_FOR_WORKER = "WaitingForWorker"


def was_never_started(error: BaseException) -> bool:
    """Return whether no worker took an activity in time.

    The limit is its schedule-to-start timeout.
    """
    cause = error.cause if isinstance(error, ActivityError) else None
    return (
        isinstance(cause, exceptions.TimeoutError)
        and cause.type is TimeoutType.SCHEDULE_TO_START
    )


def failure_of(
    error: BaseException, default_type: str = ClusterUnreachable.__name__
) -> Failure:
    """Return the failure of an activity.

    `default_type` is for errors without a type of this project, such as a timeout.
    """
    if isinstance(error, ActivityError) and was_never_started(error):
        message = (
            f"no worker took {error.activity_type} in time: no worker serves the task queues "
            "of the cluster, or all slots are taken; "
            "the conditions of the InferenceCluster show the cause"
        )
        return Failure(WAITING_FOR_WORKER, message)
    return Failure(error_type(error) or default_type, error_message(error))


def backoff_after(failure: Failure, attempt: int) -> timedelta:
    """Return the wait before the next attempt; long if only a new spec can help."""
    return (
        backoff.permanent(attempt)
        if is_permanent(failure.type)
        else backoff.transient(attempt)
    )
