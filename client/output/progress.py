"""Progress of a wait: a live table on a terminal, one line per change elsewhere.

It goes to standard error, so that standard output can be piped.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from api_types.text.printable import escaped
from client.output.terminal import escaping, unescaped


@dataclass(frozen=True)
class Row:
    """One object and its state."""

    name: str
    state: str
    done: bool = False


class Progress:
    """Shows rows while the context is open. `show` may be called repeatedly."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=unescaped(sys.stderr), highlight=False)
        self._live = (
            Live(console=self._console, transient=True, refresh_per_second=8)
            if self._console.is_terminal
            else None
        )
        self._shown: dict[str, Row] = {}
        self._spinner = Spinner("dots")
        self._redirected = ExitStack()

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
            # The live table replaces the standard streams with its own.
            self._redirected.enter_context(escaping())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing, and print the last state so that it stays in the scrollback."""
        self._redirected.close()
        if self._live:
            self._live.stop()
            for row in self._shown.values():
                self._console.print(_line(row), soft_wrap=True)

    def show(self, rows: Sequence[Row]) -> None:
        """Show the given rows, and drop all others."""
        rows = [
            Row(escaped(row.name), escaped(row.state), done=row.done) for row in rows
        ]
        changed = [row for row in rows if self._shown.get(row.name) != row]
        self._shown = {row.name: row for row in rows}
        if self._live:
            self._live.update(self._table(rows))
            return
        for row in changed:
            self._console.print(_line(row), soft_wrap=True)

    def _table(self, rows: Sequence[Row]) -> Table:
        table = Table.grid(padding=(0, 2))
        for row in rows:
            mark: Text | Spinner = (
                Text("✓", style="green") if row.done else self._spinner
            )
            table.add_row(mark, Text(row.name, style="bold"), Text(row.state))
        return table


def _line(row: Row) -> Text:
    return Text(f"{'✓' if row.done else '…'} {row.name}: {row.state}")
