"""The parts of timestamps and durations: `getFullYear`, `getHours` and the like."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.times import EPOCH, NANOS_PER_SECOND
from scheduler.cel.runtime.values import Duration, Timestamp, no_overload

_WHOLE = re.compile(r"[+-]?[0-9]{1,9}\Z")
_UTC_NAMES = frozenset({"", "UTC", "Local"})
_MILLISECOND = 10**6
_MINUTE = 60
_HOUR = 60 * _MINUTE
# Python counts the days of a week from Monday, CEL from Sunday.
_DAYS = 7

_OF_MOMENT: dict[str, Callable[[datetime, int], int]] = {
    "getFullYear": lambda moment, _: moment.year,
    "getMonth": lambda moment, _: moment.month - 1,
    "getDayOfYear": lambda moment, _: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment, _: moment.day - 1,
    "getDate": lambda moment, _: moment.day,
    "getDayOfWeek": lambda moment, _: moment.isoweekday() % _DAYS,
    "getHours": lambda moment, _: moment.hour,
    "getMinutes": lambda moment, _: moment.minute,
    "getSeconds": lambda moment, _: moment.second,
    "getMilliseconds": lambda _, nanos: nanos // _MILLISECOND,
}
_NANOS_OF_DURATION = {
    "getHours": _HOUR * NANOS_PER_SECOND,
    "getMinutes": _MINUTE * NANOS_PER_SECOND,
    "getSeconds": NANOS_PER_SECOND,
    "getMilliseconds": _MILLISECOND,
}


def _offset_minutes(zone: str) -> int | None:
    """Parse `-08:00` as Kubernetes does, without a range check."""
    hours, _, minutes = zone.partition(":")
    if not _WHOLE.match(hours) or not _WHOLE.match(minutes):
        return None
    sign = -1 if zone.startswith("-") else 1
    return int(hours) * 60 + sign * int(minutes)


def _in_zone(moment: datetime, zone: str) -> datetime | EvalError:
    if zone in _UTC_NAMES:
        return moment
    try:
        if ":" not in zone:
            return moment.astimezone(zoneinfo.ZoneInfo(zone))
        offset = _offset_minutes(zone)
        if offset is not None:
            return moment + timedelta(minutes=offset)
    except (OSError, ValueError, OverflowError, zoneinfo.ZoneInfoNotFoundError):
        return EvalError(f"the time zone {zone!r} is not known")
    return EvalError(f"the time zone {zone!r} is neither a name nor an offset")


def _part(name: str) -> Callable[..., Any]:
    of_moment = _OF_MOMENT[name]
    unit = _NANOS_OF_DURATION.get(name)

    def part(value: Any, *zones: Any) -> Any:
        if type(value) is Duration and unit is not None and not zones:
            whole = abs(value.nanos) // unit
            return whole if value.nanos >= 0 else -whole
        zone = zones[0] if zones else "UTC"
        if type(value) is not Timestamp or type(zone) is not str:
            return no_overload(value, *zones)
        seconds, nanos = divmod(value.nanos, NANOS_PER_SECOND)
        moment = _in_zone(EPOCH + timedelta(seconds=seconds), zone)
        if isinstance(moment, EvalError):
            return moment
        return of_moment(moment, nanos)

    return part


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    name: _part(name) for name in _OF_MOMENT
}
