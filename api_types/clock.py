"""The wall clock for all code outside workflows.

Workflows read `workflow.now()`; all other code takes the time from here.
"""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the one place that may


def now_ms() -> int:
    """Return the current time in milliseconds since 1970, the scheduler's unit."""
    return int(utc_now().timestamp() * 1000)


def timestamp(moment: datetime) -> str:
    """Format a time as Kubernetes does: RFC 3339 in UTC with whole seconds."""
    # strftime imports a module on every call, which is slow in the workflow sandbox.
    return (
        f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
    )
