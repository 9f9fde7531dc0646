"""How this program is called at the shell from which it was started."""

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "modelplane"


def program_as_typed() -> str:
    """Give the words that start this program again: its name if PATH has it, else the path that was typed, or that of its module."""
    started = Path(sys.argv[0])
    if started.name != _NAME:
        return f"{shlex.quote(sys.executable)} -m client.main"  # as a module, by `python -m`
    on_path = shutil.which(_NAME)
    if on_path and Path(on_path).resolve() == started.resolve():
        return _NAME
    return shlex.quote(str(started))
