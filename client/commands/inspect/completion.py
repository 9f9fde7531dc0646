"""`modelplane completion`: the script by which a shell completes command lines."""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

_PROGRAM = "modelplane"
# The parser answers a shell that sets this variable.
_VARIABLE = "_MODELPLANE_COMPLETE"


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell: bash, zsh or fish.")],
) -> None:
    """Print the script that completes verbs, options, kinds, names and namespaces.

    It completes clusters, pools, fields of `explain` and paths of --sort-by as well.
    Names come from the fleet, with the settings of the shell.

    For example:
      modelplane completion bash > ~/.local/share/bash-completion/completions/modelplane
      modelplane completion zsh > ~/.zfunc/_modelplane
      modelplane completion fish > ~/.config/fish/completions/modelplane.fish
    """
    print(
        get_completion_script(
            prog_name=_PROGRAM, complete_var=_VARIABLE, shell=shell.value
        )
    )
