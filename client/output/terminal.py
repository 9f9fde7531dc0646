"""Protects the terminal from control characters in untrusted text.

Names, messages and logs have many authors: a worker, a cluster, another user's
manifest. Escape sequences in them could recolour, move or hide text, or send input in
the user's name. So every text that a command prints goes through a stream that escapes
control characters. Only `progress.py` draws on the underlying stream, and escapes its
texts.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from api_types.text.printable import escaped

_LAYOUT = "\n\t"


class EscapingStream:
    """A text stream that escapes control characters, except line breaks and tabs."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        self.below.write(escaped(text, _LAYOUT))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the underlying stream."""
        return getattr(self.below, name)


@contextmanager
def escaping() -> Iterator[None]:
    """Make standard output and standard error escape control characters."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, EscapingStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def unescaped(stream: TextIO) -> TextIO:
    """Return the underlying stream, for code that draws with control characters."""
    return stream.below if isinstance(stream, EscapingStream) else stream
