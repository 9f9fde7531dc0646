"""Read flags out of an engine's command line without understanding the engine.

Only few things are read, such as where decode listens, how large a KV block is, and which KV connector is used. Many images are started
through a shell, so the arguments of a `sh -c` script are read as well. Engines take `--block_size` for `--block-size`, and so does this.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from activities.render.engines.spec import Member

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SHELL_OPTIONS = re.compile(r"[-+][A-Za-z]+|--[a-z][-a-z]*")
# Of the options of a shell, those that the next word belongs to: `-o pipefail`, `-O extglob`.
_SHELL_OPTIONS_WITH_NAME = frozenset({"--rcfile", "--init-file"})
_SHELL_ENDS = ";&|)"
_COMMAND_ENDS = ";&|"
# What a shell computes is one word, whatever blanks are in it.
_ARITHMETIC = re.compile(r"\$\(\(([^()\n]{1,80})\)\)")
# A replica is rendered while others wait: a script of more characters is read without its quotes, and no more than a few scripts are.
_QUOTED_TEXT_MAX = 16_384
_SHELL_TEXTS_MAX = 4
# More than any number that an engine takes; Python itself refuses to read one of more than 4,300.
_DIGITS_MAX = 18


@dataclass(frozen=True)
class Flag:
    """A flag as found: its name, its value (empty for a bare flag), and the place: `args`, `command` or `shell text`."""

    name: str
    value: str
    place: str

    @property
    def number(self) -> int | None:
        """The value as a number; None if it is none that can be read here. One that is too long stands for all that are too large."""
        if not (self.value.isascii() and self.value.isdecimal()):
            return None
        digits = self.value.lstrip("0")
        return int(digits or "0") if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX


def find_flag(member: Member, *names: str) -> Flag | None:
    """Give the last of the named flags, which engines take, as `--flag value` or `--flag=value`; in args, the command or shell text."""
    wanted = {_spelled(name) for name in names}
    for place, words in command_lines(member):
        found = None
        for position, word in enumerate(words):
            name, equals, value = word.partition("=")
            if _spelled(name) in wanted:
                following = words[position + 1] if position + 1 < len(words) else ""
                found = Flag(name, value if equals else following, place)
        if found:
            return found
    return None


def command_lines(member: Member) -> Iterator[tuple[str, list[str]]]:
    """Give the words of each command line of a member, and the place of each."""
    yield "args", list(member.args)
    yield "command", list(member.command)
    for text in islice(_shell_texts([*member.command, *member.args]), _SHELL_TEXTS_MAX):
        for words in _commands(text):
            yield "shell text", words


def _spelled(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _shell_texts(words: list[str]) -> Iterator[str]:
    for position, word in enumerate(words):
        if PurePosixPath(word).name in _SHELLS:
            yield from _shell_text(words, position + 1)


def _shell_text(words: list[str], position: int) -> Iterator[str]:
    # A shell reads all its options first, `-ceu` as well as `-e -c -u`; with `c` among them, the next word is its script.
    has_text = False
    while position < len(words) and _SHELL_OPTIONS.fullmatch(option := words[position]):
        short = "" if option.startswith("--") else option
        has_text = has_text or (short.startswith("-") and "c" in short)
        position += 1 + len(re.findall("[oO]", short)) + (option in _SHELL_OPTIONS_WITH_NAME)
    if has_text and position < len(words):
        yield words[position]


def _commands(text: str) -> Iterator[list[str]]:
    """Give the words of each command of a script: a proxy beside the engine has flags of the same names."""
    joined = _ARITHMETIC.sub(lambda found: f"$(({''.join(found[1].split())}))", text.replace("\\\n", " "))
    try:
        words = shlex.split(joined, comments=True) if len(joined) <= _QUOTED_TEXT_MAX else joined.split()
    except ValueError:  # an unclosed quote, which the shell reports in the log of the engine
        words = joined.split()
    command: list[str] = []
    for word in words:
        command.append(word.rstrip(_SHELL_ENDS))
        if word.endswith(tuple(_COMMAND_ENDS)):
            yield command
            command = []
    yield command
