"""The clock of the worker, compared with a cloud's.

Signatures contain the time. A cloud refuses them a few minutes off, and its answer
looks like the answer to a wrong credential.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from api_types.errors import WorkerClockWrong

CLOCK_SECONDS = 240.0
"""A smaller difference is no reason to refuse a signature: AWS accepts five minutes."""


def offset_of(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds by which `now` is ahead of a response's header `Date`.

    Return None without a valid header. Names of headers are in lower case.
    """
    try:
        date = parsedate_to_datetime(str(headers.get("date", "")))
    except (ValueError, TypeError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return now - date.timestamp()


def is_wrong(offset: float | None) -> bool:
    return offset is not None and abs(offset) >= CLOCK_SECONDS


def seconds_between(worker: str, cloud: str) -> float:
    """Return the difference of two times such as `20240131T235959Z`."""
    read = [datetime.strptime(each, "%Y%m%dT%H%M%SZ") for each in (worker, cloud)]  # noqa: DTZ007
    return (read[0] - read[1]).total_seconds()


def clock_wrong(doing: str, cloud: str, offset: float | None) -> WorkerClockWrong:
    """Return the error. `offset` is None if the difference is unknown."""
    text = f"the clock of the worker is not that of {cloud}"
    if offset is not None:
        minutes = max(1, round(abs(offset) / 60))
        side = "ahead of" if offset > 0 else "behind"
        unit = "minute" if minutes == 1 else "minutes"
        text = f"the clock of the worker is {minutes} {unit} off, {side} {cloud}"
    return WorkerClockWrong(
        f"{doing}: {text}, so {cloud} refuses its signatures; synchronize the clock of the "
        "machine of the worker (NTP). The credential may be valid"
    )
