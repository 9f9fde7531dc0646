"""Under which names requests ask for the model of an engine, as far as its command line tells."""

from collections.abc import Iterator
from itertools import takewhile

from activities.render.engines.flags import command_lines, find_flag
from activities.render.engines.spec import Member

_NAMES_FLAG = "--served-model-name"
# Of vLLM and of SGLang, which serve the model under what is written here unless they are told a name.
_MODEL_FLAGS = ("--model", "--model-path")
_SERVE = "serve"


def served_names(member: Member) -> set[str]:
    """Give the names; none where none is written."""
    model = find_flag(member, *_MODEL_FLAGS)
    return set(_names(member)) or {model.value if model else _first_word(member)} - {""}


def _names(member: Member) -> Iterator[str]:
    for _, words in command_lines(member):
        names: list[str] = []
        for position, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag.replace("_", "-") == _NAMES_FLAG:
                # vLLM takes several words, and those of the last flag alone.
                names = [value] if equals else list(takewhile(lambda each: not each.startswith("-"), words[position + 1 :]))
        yield from names


def _first_word(member: Member) -> str:
    """Give the model of `vllm serve MODEL`, also where the image has `vllm serve` as its entry point."""
    for _, words in command_lines(member):
        if _SERVE in words[:-1]:
            return _unless_flag(words[words.index(_SERVE) + 1])
    return _unless_flag(member.args[0]) if member.args and not member.command else ""


def _unless_flag(word: str) -> str:
    return "" if word.startswith("-") else word
