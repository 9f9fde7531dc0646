"""The errors of this project.

The class name is the failure type that Temporal records; the branch says whether retrying can help.

* PermanentError       fails until the spec changes; not retried
* ActionRequiredError  fails until a person changes something outside; not retried by Temporal, the workflow tries again by timer
* TransientError       may succeed later; Temporal retries the activity

A workflow reads `error_type(error)`: the class itself is not serialized.
"""

from datetime import timedelta

from temporalio.exceptions import ActivityError, ApplicationError

# What a worker answers to a query that it cannot answer before the next workflow task; the query can be sent again.
QUERY_REFUSED = "the history goes on beyond the last workflow task: query again"


class ModelplaneError(ApplicationError):
    """The base class: a message for people, the class name as failure type."""

    retryable = False

    def __init__(self, message: str, *details: object, after: timedelta | None = None) -> None:
        """Say what failed; `after` is the delay before the next attempt that the other side asked for (`Retry-After`)."""
        super().__init__(
            message,
            *details,
            type=type(self).__name__,
            non_retryable=not self.retryable,
            next_retry_delay=after if self.retryable else None,
        )


class PermanentError(ModelplaneError):
    """Fails until the spec changes."""


class InvalidInput(PermanentError):
    """The input can never work as written."""


class Unsupported(PermanentError):
    """Valid, but not offered here."""


class NameConflict(PermanentError):
    """An object of this name exists and belongs to another owner."""


class Conflict(PermanentError):
    """The object was changed since it was read, or is being deleted."""


class ActionRequiredError(ModelplaneError):
    """A person must act outside; the workflow tries again by timer."""


class CredentialsInvalid(ActionRequiredError):
    """A credential is missing, malformed or refused."""


class PermissionDenied(ActionRequiredError):
    """The credential is accepted but lacks a permission."""


class NoControlCluster(ActionRequiredError):
    """What is to be done is done on the control cluster, and none is configured."""


class StillThere(ActionRequiredError):
    """An object that must be deleted first still exists, for instance because of a finalizer."""


class StorageClassMissing(ActionRequiredError):
    """The cluster has no storage class of the name that a volume claim would ask for."""


class QuotaExceeded(ActionRequiredError):
    """A quota of the cloud account is used up; the message names it, its limit and what is needed."""


class CapacityUnavailable(ActionRequiredError):
    """The cloud has no machines of the type in the zone now."""


class ReplaceRequired(ActionRequiredError):
    """A cloud object differs in what cannot be changed in place."""


class CloudObjectBroken(ActionRequiredError):
    """A cloud object ended in a failed state for another reason than quota or capacity, also when it was built again."""


class TransientError(ModelplaneError):
    """May succeed later; retried."""

    retryable = True


class NotRunning(TransientError):
    """An entity that is waited for does not run yet."""


class ClusterUnreachable(TransientError):
    """No answer from the cluster's API server."""


class Throttled(TransientError):
    """The other side limits the request rate."""


class ServerError(TransientError):
    """The other side reported an internal error."""


class AnswerTooLarge(TransientError):
    """The other side sent more than is read."""


class Busy(TransientError):
    """Another operation on the cloud object runs; it is waited for."""


class NotYet(TransientError):
    """What the cloud was just told, it does not know everywhere yet."""


class Dependency(TransientError):
    """A cloud object cannot be deleted while another one uses it; the message names that."""


class StackMissing(TransientError):
    """The cluster does not serve a kind that we apply; it may be installed later."""


class ChartUnavailable(TransientError):
    """A Helm chart cannot be fetched: its repository does not answer, or does not have this version."""


class ReleasePending(TransientError):
    """Another helm process may still be working on a release."""


class StaleSnapshot(TransientError):
    """The ledger changed since the decision was requested, or this worker does not have it."""


class UnreadableArgument(TransientError):
    """The arguments of an activity were encrypted with a key that this worker does not have."""


_TYPES: dict[str, type[ModelplaneError]] = {}


def _collect(root: type[ModelplaneError]) -> None:
    _TYPES[root.__name__] = root
    for child in root.__subclasses__():
        _collect(child)


_collect(ModelplaneError)


def error_type(error: BaseException) -> str:
    """Give the type name of a failure as it reached a workflow or client; empty if it is not an ApplicationError."""
    cause: BaseException | None = error.cause if isinstance(error, ActivityError) else error
    return (cause.type or "") if isinstance(cause, ApplicationError) else ""


def error_message(error: BaseException) -> str:
    """Give the message for people, without the wrapping that activities add."""
    cause: BaseException | None = error.cause if isinstance(error, ActivityError) else error
    return cause.message if isinstance(cause, ApplicationError) else str(cause or error)


def error_reason(error: BaseException) -> str:
    """Give the condition reason that a failure carries as its first detail; empty if it carries none."""
    cause: BaseException | None = error.cause if isinstance(error, ActivityError) else error
    details = cause.details if isinstance(cause, ApplicationError) else ()
    return str(details[0]) if details else ""


def is_permanent(type_name: str) -> bool:
    """Whether only a change of the spec can help."""
    return issubclass(_TYPES.get(type_name, TransientError), PermanentError)
