"""The errors of this project.

The class name is the failure type that Temporal records. The branch of the tree states
whether a retry can help:

- PermanentError: fails until the spec changes; not retried.
- ActionRequiredError: fails until a person changes something outside the control plane.
  Temporal does not retry it, but the workflow tries again by timer.
- TransientError: may succeed later; Temporal retries the activity.

Workflows call `error_type(error)`, because Temporal does not serialize the class.
"""

from datetime import timedelta

from temporalio.exceptions import ActivityError, ApplicationError

# A worker fails a query with this message if it cannot respond before the next workflow
# task. The caller can send the query again.
QUERY_REFUSED = "the history goes on beyond the last workflow task: query again"


class ModelplaneError(ApplicationError):
    """The base class: a message for people, with the class name as the failure type."""

    retryable = False

    def __init__(
        self, message: str, *details: object, after: timedelta | None = None
    ) -> None:
        """Create the error.

        Args:
            message: the reason, for people.
            details: further details; the first is the reason of a condition.
            after: the delay before the next attempt, from the `Retry-After` header.

        """
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
    """The input can never work as it is written."""


class Unsupported(PermanentError):
    """The input is valid, but the control plane does not support it."""


class NameConflict(PermanentError):
    """An object of this name exists and belongs to another owner."""


class Conflict(PermanentError):
    """The object changed since it was read, or is being deleted."""


class PlanOutdated(ModelplaneError):
    """The cloud rejected a part of the plan that the next plan leaves out."""


class ActionRequiredError(ModelplaneError):
    """A person must act outside the control plane.

    The workflow tries again by timer.
    """


class CredentialsInvalid(ActionRequiredError):
    """A credential is missing, malformed or refused."""


class WorkerClockWrong(CredentialsInvalid):
    """A cloud refuses the signatures of a worker whose clock is wrong.

    Everything pauses as for a missing credential. The credential may be valid.
    """


class PermissionDenied(ActionRequiredError):
    """The credential is accepted but lacks a permission."""


class OwnerMarkMissing(ActionRequiredError):
    """A cloud object that Modelplane created has lost the tag or label of its owner.

    It is not changed or deleted until a person restores the mark or deletes the object.
    """


class NoControlCluster(ActionRequiredError):
    """The operation needs a control cluster, and none is configured."""


class StillThere(ActionRequiredError):
    """An object that must be deleted first still exists, perhaps with a finalizer."""


class StorageClassMissing(ActionRequiredError):
    """The cluster does not have the storage class that a volume claim requests."""


class QuotaExceeded(ActionRequiredError):
    """A quota of the cloud account is used up.

    The message names the quota, its limit and the requested amount.
    """


class CapacityUnavailable(ActionRequiredError):
    """The cloud has no machines of the type in the zone at present."""


class ReplaceRequired(ActionRequiredError):
    """A cloud object differs in a field that cannot be changed in place."""


class CloudObjectBroken(ActionRequiredError):
    """A cloud object failed again after a rebuild.

    The cause is neither quota nor capacity.
    """


class TransientError(ModelplaneError):
    """The operation may succeed later; Temporal retries it."""

    retryable = True


class NotRunning(TransientError):
    """An entity that the operation waits for does not run yet."""


class ClusterUnreachable(TransientError):
    """The cluster's API server does not respond."""


class Throttled(TransientError):
    """The other side limits the request rate."""


class ServerError(TransientError):
    """The other side reported an internal error."""


class AnswerTooLarge(TransientError):
    """The response is larger than the limit for reading."""


class Busy(TransientError):
    """Another operation on the cloud object is in progress, and this one waits for it."""


class NotYet(TransientError):
    """The cloud has accepted a change that is not visible everywhere yet."""


class Dependency(TransientError):
    """A cloud object cannot be deleted while another one uses it.

    The message names the other object.
    """


class StackMissing(TransientError):
    """The cluster does not serve a kind that the control plane applies.

    Somebody may install the kind later.
    """


class ChartUnavailable(TransientError):
    """A Helm chart cannot be fetched.

    Its repository does not respond, or does not have this version.
    """


class ReleasePending(TransientError):
    """Another helm process may still be working on the release."""


class StaleSnapshot(TransientError):
    """The ledger changed since the request, or this worker does not have it."""


class UnreadableArgument(TransientError):
    """An activity's arguments are encrypted with a key that this worker does not have."""


_TYPES: dict[str, type[ModelplaneError]] = {}


def _collect(root: type[ModelplaneError]) -> None:
    _TYPES[root.__name__] = root
    for child in root.__subclasses__():
        _collect(child)


_collect(ModelplaneError)


def error_type(error: BaseException) -> str:
    """Return the type name of a failure, as a workflow or client receives it.

    It is empty if the failure is not an ApplicationError.
    """
    cause: BaseException | None = (
        error.cause if isinstance(error, ActivityError) else error
    )
    return (cause.type or "") if isinstance(cause, ApplicationError) else ""


def error_message(error: BaseException) -> str:
    """Return the message for people, without the wrapping that activities add."""
    cause: BaseException | None = (
        error.cause if isinstance(error, ActivityError) else error
    )
    return cause.message if isinstance(cause, ApplicationError) else str(cause or error)


def error_reason(error: BaseException) -> str:
    """Return the condition reason, which is the first detail of a failure, or ""."""
    cause: BaseException | None = (
        error.cause if isinstance(error, ActivityError) else error
    )
    details = cause.details if isinstance(cause, ApplicationError) else ()
    return str(details[0]) if details else ""


def is_permanent(type_name: str) -> bool:
    """Return whether only a change of the spec can help."""
    return issubclass(_TYPES.get(type_name, TransientError), PermanentError)
