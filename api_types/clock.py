"""The wall clock of everything that is not a workflow.

Workflows read `workflow.now()`; everything else takes the time from here.
"""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Give the present moment in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - the one place that may


def now_ms() -> int:
    """Give the present moment as the scheduler counts it: milliseconds since 1970."""
    return int(utc_now().timestamp() * 1000)


def timestamp(moment: datetime) -> str:
    """Format a moment as Kubernetes does: RFC 3339 in UTC with whole seconds."""
    # Not strftime: that imports a module at every call, which the sandbox of workflows makes slow.
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
