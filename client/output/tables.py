"""Tables as kubectl prints them: no lines, three spaces between columns, nothing truncated, readable for people and `awk`."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rich.cells import cell_len

from api_types.text.printable import escaped

_GAP = "   "
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY

NONE = "<none>"
INDENT = "  "


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> list[str]:
    """Give the lines of a table; an empty cell shows as `<none>`. `widths` are least widths, so that later rows of a watch line up."""
    # A row is one line, whatever its cells say.
    shown = [[escaped(cell) or NONE for cell in row] for row in rows]
    table = ([list(header)] if header else []) + shown
    wide = measure(table, widths)
    return [_line(row, wide) for row in table]


def indented(lines: Iterable[str]) -> list[str]:
    """Give lines as the content of the line above them."""
    return [INDENT + line for line in lines]


def measure(rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> list[int]:
    """Give the width that each column needs, at least `widths`."""
    count = max([len(row) for row in rows] + [len(widths)], default=0)
    least = [*widths, *([0] * (count - len(widths)))]
    return [max([least[at], *(cell_len(escaped(row[at])) for row in rows if at < len(row))]) for at in range(count)]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (widths[at] - cell_len(cell)) for at, cell in enumerate(row)]
    return _GAP.join(padded).rstrip()


def age(since: str, now: datetime) -> str:
    """Give the time since an RFC 3339 time the way kubectl does: `45s`, `3m20s`, `5h`, `12d`, `2y30d`; `<unknown>` for no time."""
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return "<unknown>"
    return duration(now - then)


def duration(length: timedelta) -> str:
    """Give a length of time with at most two units, the smaller one only for short times, as kubectl does."""
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
    return f"{seconds // large}{large_sign}{rest}{small_sign}" if rest else f"{seconds // large}{large_sign}"
