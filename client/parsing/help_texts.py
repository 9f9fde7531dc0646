"""The help texts of commands, from their docstrings."""

from typing import Any

_WRITTEN, _SHOWN = "For example:\n", "Examples:\n"
# The parser wraps the lines of a paragraph, unless the paragraph begins with this mark.
_KEEP_LINES = "\b\n"


def with_examples(command: Any) -> Any:
    """Return a command that shows the examples of its docstring below its options."""
    for below in getattr(command, "commands", {}).values():
        with_examples(below)
    text, title, examples = (command.help or "").partition(f"\n\n{_WRITTEN}")
    if title:
        command.help, command.epilog = text, f"{_KEEP_LINES}{_SHOWN}{examples}"
    return command
