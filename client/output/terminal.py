"""The edge to the terminal: nothing that comes from outside is obeyed by it.

Names, messages and logs have many authors: a worker, a cluster, another user's manifest. Escape sequences in them would recolour,
move or hide text, or answer for the user. So everything that a command prints goes through a stream that shows control characters as
escapes. Only what draws by itself (`progress.py`) writes to the stream below, and escapes its texts.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from api_types.text.printable import escaped

_LAYOUT = "\n\t"


class EscapingStream:
    """A text stream that shows control characters as escapes, except ends of lines and tabs."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        """Write a text as it may be shown."""
        self.below.write(escaped(text, _LAYOUT))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Be the stream below in everything else."""
        return getattr(self.below, name)


@contextmanager
def escaping() -> Iterator[None]:
    """Let standard output and standard error escape what they are given."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, EscapingStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unescaped(stream: TextIO) -> TextIO:
    """Give the stream below, for what draws with control characters of its own."""
    return stream.below if isinstance(stream, EscapingStream) else stream
