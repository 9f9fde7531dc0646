"""The last failure of an activity, as entities keep it to show it in conditions, and how long to wait after it."""

from datetime import timedelta
from typing import NamedTuple

from api_types.errors import ClusterUnreachable, error_message, error_type, is_permanent
from workflows.entity import backoff


class Failure(NamedTuple):
    """Type and message of an error; both are empty when nothing failed. In JSON a list of the two."""

    type: str = ""
    message: str = ""

    @property
    def is_unreachable(self) -> bool:
        """Tell whether the cluster did not answer."""
        return self.type == ClusterUnreachable.__name__


NO_FAILURE = Failure()


def failure_of(error: BaseException, default_type: str = ClusterUnreachable.__name__) -> Failure:
    """Give what failed in an activity; `default_type` is for failures without a type of ours, such as a timeout."""
    return Failure(error_type(error) or default_type, error_message(error))


def backoff_after(failure: Failure, attempt: int) -> timedelta:
    """Give the wait before the next attempt: long if only a new spec can fix it."""
    return backoff.permanent(attempt) if is_permanent(failure.type) else backoff.transient(attempt)
