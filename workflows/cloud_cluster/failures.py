"""What a failure at a cloud means for the next attempt (spec/provisioning.md 4.1). Pure.

What may recover by itself was retried inside the activity for half an hour before it gets here, and is ordered again soon. The others wait
as long as it makes sense to look again without a person; a change of the spec or `retry_now` ends each wait.
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
    PermissionDenied,
    QuotaExceeded,
    ReplaceRequired,
    TransientError,
    is_permanent,
)
from api_types.messages.clouds import WAITS, CloudPlan
from workflows.entity.failures import Failure

CREDENTIALS = CredentialsInvalid.__name__
BROKEN = CloudObjectBroken.__name__
DEPENDENCY = Dependency.__name__
REFUSED = InvalidInput.__name__

_CREDENTIALS_RETRY = timedelta(minutes=2)
_PERMISSION_RETRY = timedelta(minutes=15)
# A person has to act. Whether that was done outside is looked at now and then.
_PERSON_RETRY = timedelta(minutes=30)
_TRANSIENT_RETRY = timedelta(seconds=20)


def failure_of(error: BaseException) -> Failure:
    """Give what failed in an activity; of one whose time was over, what its last attempt failed with."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, exceptions.TimeoutError):
        last = cause.cause
        if isinstance(last, ApplicationError):
            return Failure(last.type or TransientError.__name__, last.message)
        ended = f"no result in time ({cause.type.name.lower() if cause.type else 'timeout'})"
        return Failure(TransientError.__name__, "; ".join(filter(None, (_waited_for(cause), ended))))
    if isinstance(cause, ApplicationError):
        return Failure(cause.type or TransientError.__name__, cause.message)
    return Failure(TransientError.__name__, str(cause or error))


def _waited_for(timeout: exceptions.TimeoutError) -> str:
    """Give what the last attempt waited for, in the words of the cloud: its heartbeats say that.

    They are in the failure of the attempt, which is the cause of that of all attempts.
    """
    each: BaseException | None = timeout
    while isinstance(each, exceptions.TimeoutError):
        last = each.last_heartbeat_details[-1] if each.last_heartbeat_details else None
        if isinstance(last, dict) and last.get(WAITS):
            return str(last[WAITS])
        each = each.cause
    return ""


def delay_after(failure: Failure, plan: CloudPlan | None) -> timedelta:
    """Give how long the next attempt waits."""
    plan_seconds = {
        QuotaExceeded.__name__: plan.quota_seconds if plan else None,
        CapacityUnavailable.__name__: plan.capacity_seconds if plan else None,
    }
    if (seconds := plan_seconds.get(failure.type)) is not None:
        return timedelta(seconds=seconds)
    if failure.type == CREDENTIALS:
        return _CREDENTIALS_RETRY
    if failure.type == PermissionDenied.__name__:
        return _PERMISSION_RETRY
    if is_permanent(failure.type) or failure.type in (ReplaceRequired.__name__, BROKEN):
        return _PERSON_RETRY
    return _TRANSIENT_RETRY


def may_pass(failure: Failure) -> bool:
    """Tell whether a failure may pass without a person who changes something."""
    return failure.type == CREDENTIALS or delay_after(failure, None) == _TRANSIENT_RETRY


def cause_of_broken(cause: str) -> str:
    """Give the type of the error of a broken object: what the cloud's handler said, or that it is broken."""
    known = {each.__name__ for each in _all(ModelplaneError)}
    return cause if cause in known else BROKEN


def _all(root: type[ModelplaneError]) -> list[type[ModelplaneError]]:
    return [root, *(each for child in root.__subclasses__() for each in _all(child))]
