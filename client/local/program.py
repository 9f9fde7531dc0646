"""The command by which the user's shell starts this program."""

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "modelplane"


def program_as_typed() -> str:
    """Return the words that start this program again.

    They are its name if PATH has it, else the typed path, or the module.
    """
    started = Path(sys.argv[0])
    if started.name != _NAME:
        return f"{shlex.quote(sys.executable)} -m client.main"  # started by `python -m`
    on_path = shutil.which(_NAME)
    if on_path and Path(on_path).resolve() == started.resolve():
        return _NAME
    return shlex.quote(str(started))
