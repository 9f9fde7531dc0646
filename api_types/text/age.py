"""The age of an object and the length of a wait, as kubectl shows them."""

from datetime import datetime, timedelta

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


def age(since: str, now: datetime) -> str:
    """Return the age of an RFC 3339 time in kubectl's format.

    Examples are `45s`, `3m20s`, `5h`, `12d` and `2y30d`; no time is `<unknown>`.
    """
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return "<unknown>"
    return duration(now - then)


def duration(length: timedelta) -> str:
    """Return a duration with at most two units, in kubectl's format."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _two(seconds: int, large: int, large_sign: str, small: int, small_sign: str) -> str:
    rest = seconds % large // small
    return (
        f"{seconds // large}{large_sign}{rest}{small_sign}"
        if rest
        else f"{seconds // large}{large_sign}"
    )
