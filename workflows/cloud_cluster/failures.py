"""Decide what a failure at a cloud means for the next attempt.

Transient errors were already retried inside the activity for half an hour, so the next
attempt starts soon. Other errors wait until another attempt without a user's action
makes sense. A change of the spec or the signal `retry_now` ends every wait. All
functions are pure.
"""

from datetime import timedelta

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError

from api_types.errors import (
    CapacityUnavailable,
    CloudObjectBroken,
    CredentialsInvalid,
    Dependency,
    InvalidInput,
    ModelplaneError,
    OwnerMarkMissing,
    PermissionDenied,
    PlanOutdated,
    QuotaExceeded,
    ReplaceRequired,
    TransientError,
    WorkerClockWrong,
    is_permanent,
)
from api_types.messages.clouds import WAITS, CloudPlan
from workflows.entity.failures import Failure

_PAUSING = (CredentialsInvalid.__name__, WorkerClockWrong.__name__)
BROKEN = CloudObjectBroken.__name__
DEPENDENCY = Dependency.__name__
REFUSED = InvalidInput.__name__
MARK_MISSING = OwnerMarkMissing.__name__
OUTDATED = PlanOutdated.__name__

_CREDENTIALS_RETRY = timedelta(minutes=2)
_PERMISSION_RETRY = timedelta(minutes=15)
# A person restores the mark with one command. Each attempt costs calls and a report, so
# the delay grows while nobody does.
_MARK_RETRY = timedelta(minutes=2)
_MARK_RETRY_MAX = timedelta(minutes=15)
# Only a user can solve these. The workflow still checks now and then whether somebody
# solved the problem outside of Modelplane.
_PERSON_RETRY = timedelta(minutes=30)
_TRANSIENT_RETRY = timedelta(seconds=20)
_REBUILD_MAX = timedelta(hours=2)
_DOUBLINGS_MAX = 16


def failure_of(error: BaseException) -> Failure:
    """Return the failure of an activity.

    For a timeout over all attempts, return the failure of the last attempt.
    """
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, exceptions.TimeoutError):
        last = cause.cause
        if isinstance(last, ApplicationError):
            return Failure(last.type or TransientError.__name__, last.message)
        timeout = cause.type.name.lower() if cause.type else "timeout"
        ended = f"no result in time ({timeout})"
        return Failure(
            TransientError.__name__,
            "; ".join(filter(None, (_waited_for(cause), ended))),
        )
    if isinstance(cause, ApplicationError):
        return Failure(cause.type or TransientError.__name__, cause.message)
    return Failure(TransientError.__name__, str(cause or error))


def _waited_for(timeout: exceptions.TimeoutError) -> str:
    """Return the cloud's description of the state that the last attempt waited for.

    Activities send it in their heartbeats. It is in the failure of the last attempt,
    which is the cause of the failure of all attempts.
    """
    each: BaseException | None = timeout
    while isinstance(each, exceptions.TimeoutError):
        last = each.last_heartbeat_details[-1] if each.last_heartbeat_details else None
        if isinstance(last, dict) and last.get(WAITS):
            return str(last[WAITS])
        each = each.cause
    return ""


def pauses(failure: Failure) -> bool:
    """Return whether a failure pauses all operations at the cloud.

    No call with this credential from this worker would succeed.
    """
    return failure.type in _PAUSING


def delay_after(
    failure: Failure, plan: CloudPlan | None, lasted: timedelta = timedelta()
) -> timedelta:
    """Return the delay before the next attempt, for a failure that has `lasted`."""
    plan_seconds = {
        QuotaExceeded.__name__: plan.quota_seconds if plan else None,
        CapacityUnavailable.__name__: plan.capacity_seconds if plan else None,
    }
    seconds = plan_seconds.get(failure.type)
    if seconds is not None:
        return timedelta(seconds=seconds)
    if pauses(failure):
        return _CREDENTIALS_RETRY
    if failure.type == PermissionDenied.__name__:
        return _PERMISSION_RETRY
    if failure.type == MARK_MISSING:
        return max(_MARK_RETRY, min(lasted / 2, _MARK_RETRY_MAX))
    if is_permanent(failure.type) or failure.type in (ReplaceRequired.__name__, BROKEN):
        return _PERSON_RETRY
    return _TRANSIENT_RETRY


def delay_of_rebuild(
    failure: Failure, plan: CloudPlan | None, rebuilds: int
) -> timedelta:
    """Return the delay before a broken object is recreated once more.

    The delay doubles with each further rebuild in a row, because a group of machines that
    does not start costs money and takes quotas.
    """
    at_once = plan.rebuilds if plan else 0
    doubled = min(max(rebuilds - at_once, 0), _DOUBLINGS_MAX)
    delay = delay_after(failure, plan)
    factor: int = 2**doubled
    return max(delay, min(delay * factor, _REBUILD_MAX))


def may_pass(failure: Failure) -> bool:
    """Return whether a failure may pass without an action of a user."""
    return pauses(failure) or delay_after(failure, None) == _TRANSIENT_RETRY


def cause_of_broken(cause: str) -> str:
    """Return the error type for a broken object's cause.

    It is the cause itself if that names an error of Modelplane, otherwise
    `CloudObjectBroken`.
    """
    known = {each.__name__ for each in _all(ModelplaneError)}
    return cause if cause in known else BROKEN


def _all(root: type[ModelplaneError]) -> list[type[ModelplaneError]]:
    return [root, *(each for child in root.__subclasses__() for each in _all(child))]
