"""The output of a command that a document shows."""

import io
import shlex
from contextlib import redirect_stdout

from client.main import run

PROGRAM = ".venv/bin/modelplane"


def output_of(line: str) -> str:
    """Run a command of this repository in this process and return its standard output."""
    program, *words = shlex.split(line)
    assert program == PROGRAM, line
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(words)
    return printed.getvalue().strip()
