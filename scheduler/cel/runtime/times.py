"""Timestamps and durations as text, in whole nanoseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.values import INT64_MAX, INT64_MIN, Duration, Timestamp

NANOS_PER_SECOND = 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Years 1 to 9999, the range of CEL.
TIMESTAMP_SECONDS_MIN = -62_135_596_800
TIMESTAMP_SECONDS_MAX = 253_402_300_799

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))\Z",
)
_FRACTION_DIGITS_MAX = 30
_GO_FRACTION_DIGITS = 18
_OFFSET_HOURS_MAX = 23
_OFFSET_MINUTES_MAX = 59


def duration(nanos: int) -> Duration | EvalError:
    """Return a duration, or an error value if 64 bits do not hold it."""
    return (
        Duration(nanos)
        if INT64_MIN <= nanos <= INT64_MAX
        else EvalError("duration overflow")
    )


def timestamp(nanos: int) -> Timestamp | EvalError:
    """Return a timestamp, or an error value outside years 1 to 9999."""
    inside = TIMESTAMP_SECONDS_MIN <= nanos // NANOS_PER_SECOND <= TIMESTAMP_SECONDS_MAX
    return Timestamp(nanos) if inside else EvalError("timestamp overflow")


def parse_duration(text: str) -> Duration | EvalError:
    """Read text such as `1h30m` or `-1.5s`."""
    bad = EvalError(f"{text!r} is not a duration; write for example 1h30m")
    negative = text[:1] == "-"
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    nanos, offset = 0, 0
    while offset < len(rest):
        part = _DURATION_PART.match(rest, offset)
        if part is None:
            return bad
        whole, fraction, unit = part.groups()
        if (
            not (whole or fraction)
            or len(whole) > _FRACTION_DIGITS_MAX
            or len(fraction or "") > _FRACTION_DIGITS_MAX
        ):
            return bad
        nanos += int(whole or "0") * _UNITS[unit]
        if fraction:
            # Go computes the fraction in doubles. Another computation may differ by a
            # nanosecond.
            digits = fraction[:_GO_FRACTION_DIGITS]
            nanos += int(
                float(int(digits)) * (float(_UNITS[unit]) / float(10 ** len(digits)))
            )
        offset = part.end()
    if not rest:
        return bad
    return duration(-nanos if negative else nanos)


def parse_timestamp(text: str) -> Timestamp | EvalError:
    """Read an RFC 3339 timestamp."""
    bad = EvalError(
        f"{text!r} is not an RFC 3339 timestamp; write for example 2026-01-31T12:00:00Z"
    )
    found = _TIMESTAMP.match(text)
    if found is None or len(found.group(7) or "") > _FRACTION_DIGITS_MAX:
        return bad
    zone = UTC
    if found.group(8):
        hours, minutes = int(found.group(9)), int(found.group(10))
        if hours > _OFFSET_HOURS_MAX or minutes > _OFFSET_MINUTES_MAX:
            return bad
        away = timedelta(hours=hours, minutes=minutes)
        zone = timezone(-away if found.group(8) == "-" else away)
    try:
        year, month, day, hour, minute, second = map(int, found.groups()[:6])
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return bad
    nanos = int(((found.group(7) or "") + "0" * 9)[:9])
    return timestamp(
        (moment - EPOCH) // timedelta(seconds=1) * NANOS_PER_SECOND + nanos
    )


def format_duration(value: Duration) -> str:
    """Return seconds with an `s`, as CEL writes a duration."""
    whole, rest = divmod(abs(value.nanos), NANOS_PER_SECOND)
    return (
        f"{'-' if value.nanos < 0 else ''}{whole}"
        + (f".{rest:09}".rstrip("0") if rest else "")
        + "s"
    )


def format_timestamp(value: Timestamp) -> str:
    """Return RFC 3339 in UTC, with as many digits of a second as needed."""
    seconds, rest = divmod(value.nanos, NANOS_PER_SECOND)
    moment = EPOCH + timedelta(seconds=seconds)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    # strftime does not pad years below 1000.
    return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}{fraction}Z"
