"""Every way this project fails on purpose.

The class name is the failure type that Temporal records; the branch says whether retrying can help.

* PermanentError    nothing changes until the spec does; leaves the activity at once
* NeedsPersonError  somebody must act in the world; leaves the activity at once, the workflow tries again by timer
* TransientError    the world may heal; the activity is retried

A workflow reads `error_type(error)`: the class itself does not travel.
"""

from datetime import timedelta

from temporalio.exceptions import ActivityError, ApplicationError


class ModelplaneError(ApplicationError):
    """The root: a message for people, the class name as type."""

    retryable = False

    def __init__(self, message: str, *details: object, after: timedelta | None = None) -> None:
        """Say what failed; `after` is how long the other side asked to be left alone."""
        super().__init__(
            message,
            *details,
            type=type(self).__name__,
            non_retryable=not self.retryable,
            next_retry_delay=after if self.retryable else None,
        )


class PermanentError(ModelplaneError):
    """Nothing changes until the spec does."""


class InvalidInput(PermanentError):
    """What was asked for can never work as written."""


class Unsupported(PermanentError):
    """Valid, but not offered here."""


class NameConflict(PermanentError):
    """The name belongs to somebody else."""


class Conflict(PermanentError):
    """The object was changed since it was read, or is being deleted."""


class NeedsPersonError(ModelplaneError):
    """Somebody must act outside; repeated by timer."""


class CredentialsInvalid(NeedsPersonError):
    """A credential is missing, malformed or refused."""


class PermissionDenied(NeedsPersonError):
    """The credential is known but lacks a right."""


class QuotaExceeded(NeedsPersonError):
    """A quota of the outside system is spent."""


class Broken(NeedsPersonError):
    """The outside object is in a state that only a person can mend."""


class StillThere(NeedsPersonError):
    """What must be gone first is still there, perhaps held by somebody's finalizer."""


class TransientError(ModelplaneError):
    """The world may heal; retried."""

    retryable = True


class ClusterUnreachable(TransientError):
    """No answer from the cluster's API server."""


class Throttled(TransientError):
    """Asked to slow down."""


class ServerError(TransientError):
    """The other side failed."""


class StackMissing(TransientError):
    """The cluster does not serve a kind that we need; it may be installed later."""


class StaleSnapshot(TransientError):
    """The ledger changed, or is not here, since the decision was asked for."""


_TYPES: dict[str, type[ModelplaneError]] = {}


def _collect(root: type[ModelplaneError]) -> None:
    _TYPES[root.__name__] = root
    for child in root.__subclasses__():
        _collect(child)


_collect(ModelplaneError)


def error_type(error: BaseException) -> str:
    """Give the type name of a failure as it reached a workflow or client; empty if it is none of ours."""
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
    """Tell whether only a change of the spec can help."""
    return issubclass(_TYPES.get(type_name, TransientError), PermanentError)
