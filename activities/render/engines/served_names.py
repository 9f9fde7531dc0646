"""The model names that an engine serves, as far as its command line shows them."""

from collections.abc import Iterator
from itertools import takewhile

from activities.render.engines.spec import MemberSpec
from api_types.engines.flags import command_lines, find_flag

_NAMES_FLAG = "--served-model-name"
# vLLM and SGLang serve the model under the value of these flags unless a name is given.
_MODEL_FLAGS = ("--model", "--model-path")
_SERVE = "serve"


def served_names(member: MemberSpec) -> set[str]:
    """Return the names, or an empty set if the command line has none."""
    model = find_flag(member, *_MODEL_FLAGS)
    return set(_names(member)) or {model.value if model else _first_word(member)} - {""}


def _names(member: MemberSpec) -> Iterator[str]:
    for _, words in command_lines(member):
        names: list[str] = []
        for position, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag.replace("_", "-") == _NAMES_FLAG:
                # vLLM accepts several words for the flag, and only those of the last
                # flag are used.
                following = takewhile(
                    lambda each: not each.startswith("-"), words[position + 1 :]
                )
                names = [value] if equals else list(following)
        yield from names


def _first_word(member: MemberSpec) -> str:
    """Return the model of `vllm serve MODEL`.

    The image may have `vllm serve` as its entry point.
    """
    for _, words in command_lines(member):
        if _SERVE in words[:-1]:
            return _unless_flag(words[words.index(_SERVE) + 1])
    return _unless_flag(member.args[0]) if member.args and not member.command else ""


def _unless_flag(word: str) -> str:
    return "" if word.startswith("-") else word
