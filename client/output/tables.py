"""Tables as kubectl prints them, readable for people and `awk`.

They have no lines, three spaces between columns, and no truncated cells.
"""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from api_types.text.printable import escaped

_GAP = "   "
NONE = "<none>"
INDENT = "  "


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int] = ()
) -> list[str]:
    """Return the lines of a table.

    An empty cell shows as `<none>`. `widths` are minimal widths, so that later rows of
    a watch line up.
    """
    # Escape line breaks, so that a row is one line.
    shown = [[escaped(cell) or NONE for cell in row] for row in rows]
    table = ([list(header)] if header else []) + shown
    wide = measure(table, widths)
    return [_line(row, wide) for row in table]


def indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line for line in lines]


def measure(rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> list[int]:
    """Return the width that each column needs, at least `widths`."""
    count = max([len(row) for row in rows] + [len(widths)], default=0)
    least = [*widths, *([0] * (count - len(widths)))]
    for row in rows:
        for at, cell in enumerate(row):
            least[at] = max(least[at], cell_len(escaped(cell)))
    return least


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell + " " * (widths[at] - cell_len(cell)) for at, cell in enumerate(row)]
    return _GAP.join(padded).rstrip()
