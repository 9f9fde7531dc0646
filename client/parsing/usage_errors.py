"""Reports of command lines that the parser rejects: the error, and the next step."""

from collections.abc import Collection, Sequence
from typing import Any

import typer

from api_types.hints import nearest

# The parser's class of all its errors, which it does not name in public.
UsageProblem: Any = typer.BadParameter.__mro__[2]

_NO_COMMAND = "No such command"
# The verbs of kubectl, of shells and of similar programs, with ours.
_VERBS = {
    "create": "apply",
    "replace": "apply",
    "ls": "get",
    "list": "get",
    "show": "describe",
    "rm": "delete",
    "remove": "delete",
    "start": "up",
    "stop": "down",
    "log": "logs",
    "resources": "api-resources",
}


def usage_report(problem: Any, commands: Collection[str], words: Sequence[str]) -> str:
    """Return the text about a rejected command line, for standard error.

    `commands` are the names of the program's own commands, and `words` the command
    line. A group without a subcommand is answered with its help.
    """
    said = problem.format_message().strip()
    context = getattr(problem, "ctx", None)
    if type(problem).__name__ == "NoArgsIsHelpError":
        return str(said)
    lines = [f"error: {said[:1].lower()}{said[1:].removesuffix('.')}"]
    # The parser knows no command yet when an option has no value.
    named = [word for word in words if word in commands][:1]
    path = context.command_path if context else " ".join(["modelplane", *named])
    if context and said.startswith(_NO_COMMAND) and context.parent is None:
        word = said.split("'")[1] if "'" in said else ""
        close = _VERBS.get(word) or nearest(word, commands)
        if close:
            lines.append(f"  did you mean {close}?")
        lines.append(f"next: `{path} --help` lists the commands")
    elif said.startswith(_NO_COMMAND):
        lines.append(f"next: `{path} --help` lists its commands")
    else:
        if context:
            lines.append(f"  {' '.join(context.get_usage().split())}")
        lines.append(f"next: `{path} --help` shows the options and examples")
    return "\n".join(lines)
