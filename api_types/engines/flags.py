"""Read flags from an engine's command line without knowing the engine.

Only a few flags are read, such as ports, the size of a KV block, and the number of
parallel ranks. Many images start through a shell, so the arguments of a `sh -c` script
are read as well. Engines accept `--block_size` for `--block-size`, and so does this
module.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from api_types.engines.program import EngineProgram

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SHELL_OPTIONS = re.compile(r"[-+][A-Za-z]+|--[a-z][-a-z]*")
# Long shell options that take the next word as their value, as `-o` and `-O` do.
_SHELL_OPTIONS_WITH_NAME = frozenset({"--rcfile", "--init-file"})
_SHELL_ENDS = ";&|)"
_COMMAND_ENDS = ";&|"
# Arithmetic that a shell computes is one word, whatever blanks it contains.
_ARITHMETIC = re.compile(r"\$\(\(([^()\n]{1,80})\)\)")
# Rendering blocks other work, so only a few scripts are read, and a longer script is
# read without its quotes.
_QUOTED_TEXT_MAX = 16_384
_SHELL_TEXTS_MAX = 4
# More digits than any number that an engine accepts. Python itself refuses to parse a
# number of more than 4,300 digits.
_DIGITS_MAX = 18


@dataclass(frozen=True)
class Flag:
    """A flag of a command line.

    `value` is empty for a bare flag. `place` is `args`, `command` or `shell text`.
    """

    name: str
    value: str
    place: str

    @property
    def number(self) -> int | None:
        """The value as a number, or None if it is not a number.

        A number with too many digits is replaced by a number above every limit.
        """
        if not (self.value.isascii() and self.value.isdecimal()):
            return None
        digits = self.value.lstrip("0")
        return int(digits or "0") if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX


def find_flag(program: EngineProgram, *names: str) -> Flag | None:
    """Return the last of the named flags of a command line.

    A flag is `--flag value` or `--flag=value`. The args are searched first, then the
    command, then shell text.
    """
    wanted = {_spelled(name) for name in names}
    for place, words in command_lines(program):
        found = None
        for position, word in enumerate(words):
            name, equals, value = word.partition("=")
            if _spelled(name) in wanted:
                following = words[position + 1] if position + 1 < len(words) else ""
                found = Flag(name, value if equals else following, place)
        if found:
            return found
    return None


def command_lines(program: EngineProgram) -> Iterator[tuple[str, list[str]]]:
    """Yield each command line of a program as its place and its words."""
    yield "args", list(program.args)
    yield "command", list(program.command)
    for text in islice(
        _shell_texts([*program.command, *program.args]), _SHELL_TEXTS_MAX
    ):
        for words in _commands(text):
            yield "shell text", words


def _spelled(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _shell_texts(words: list[str]) -> Iterator[str]:
    for position, word in enumerate(words):
        if PurePosixPath(word).name in _SHELLS:
            yield from _shell_text(words, position + 1)


def _shell_text(words: list[str], position: int) -> Iterator[str]:
    # A shell reads all its options first, `-ceu` as well as `-e -c -u`. If `c` is among
    # them, the next word is its script.
    has_text = False
    while position < len(words) and _SHELL_OPTIONS.fullmatch(option := words[position]):
        short = "" if option.startswith("--") else option
        has_text = has_text or (short.startswith("-") and "c" in short)
        position += (
            1 + len(re.findall("[oO]", short)) + (option in _SHELL_OPTIONS_WITH_NAME)
        )
    if has_text and position < len(words):
        yield words[position]


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a script.

    The commands are separate, because a proxy next to the engine has flags of the same
    names.
    """

    def without_blanks(arithmetic: re.Match[str]) -> str:
        return f"$(({''.join(arithmetic[1].split())}))"

    joined = _ARITHMETIC.sub(without_blanks, text.replace("\\\n", " "))
    try:
        words = (
            shlex.split(joined, comments=True)
            if len(joined) <= _QUOTED_TEXT_MAX
            else joined.split()
        )
    except ValueError:
        # The text has an unclosed quote, which the shell reports in the log of the
        # engine.
        words = joined.split()
    command: list[str] = []
    for word in words:
        command.append(word.rstrip(_SHELL_ENDS))
        if word.endswith(tuple(_COMMAND_ENDS)):
            yield command
            command = []
    yield command
