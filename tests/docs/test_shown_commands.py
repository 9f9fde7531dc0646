"""Commands of `modelplane` that the documents show are read by its own parser."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from client.main import COMMANDS, app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = "modelplane "
# A command in a sentence may leave out arguments, values and subcommands.
LEFT_OUT = {"MissingParameter", "BadOptionUsage", "NoArgsIsHelpError"}


def whole() -> Iterator[Any]:
    """The commands of every block of shell."""
    for path in DOCUMENTS:
        blocks = re.findall(
            r"^ *```sh\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL
        )
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            if line.strip().startswith(PROGRAM):
                yield pytest.param(
                    line.strip(), id=f"{path.name}: {line.strip()}"[:100]
                )


def in_sentences() -> list[str]:
    texts = " ".join(path.read_text() for path in DOCUMENTS)
    found = re.findall(r"`(modelplane [^`|…]+)`", texts)
    return sorted({" ".join(each.split()) for each in found})


def problem(line: str) -> tuple[str, str]:
    """Parse a command without running it; return the error and its message, both empty without."""
    command, words = typer.main.get_command(app), shlex.split(line, comments=True)[1:]
    context = None
    try:
        while True:
            context = command.make_context(command.name, words, parent=context)
            if not hasattr(command, "resolve_command"):
                return "", ""
            words = [*context._protected_args, *context.args]
            if not words:
                return "", ""
            _, command, words = command.resolve_command(context, words)
    except Exception as error:  # noqa: BLE001 - the parser's, which are nowhere public
        return type(error).__name__, str(error)


@pytest.mark.parametrize("line", list(whole()))
def test_every_command_in_a_block_of_shell_is_accepted(line: str) -> None:
    assert problem(line) == ("", "")


def commands(name: str) -> Iterator[Any]:
    """A command, or the subcommands of a group."""
    root: Any = typer.main.get_command(app)
    command = root.get_command(None, name)
    yield from getattr(command, "commands", {name: command}).values()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_has_examples_that_are_accepted(name: str) -> None:
    for command in commands(name):
        text = command.epilog or ""
        examples = re.findall(r"^ *(modelplane .*)$", text, re.MULTILINE)
        assert examples, command.name
        for line in examples:
            assert problem(re.sub(r" > .*", "", line)) == ("", ""), line


def test_the_table_of_verbs_names_every_command() -> None:
    """Fail if docs/reference/verbs.md lacks a command; those of one machine may be."""
    text = (ROOT / "docs/reference/verbs.md").read_text()
    column = " ".join(row.split("|")[2] for row in text.splitlines() if "| " in row)
    named = {each.split()[0] for each in re.findall(r"`([^`]+)`", column)}
    others = {"up", "down", "clouds", "ui", "policy", "retry", "force-finalizer"}
    assert set(COMMANDS) - named == others


@pytest.mark.parametrize("line", in_sentences())
def test_every_command_in_a_sentence_has_the_options_that_are_shown(line: str) -> None:
    error, said = problem(line)
    assert error in {"", *LEFT_OUT}, said


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("modelplane scal md/demo", "UsageError"),
        ("modelplane scale md/demo --replica 3", "NoSuchOption"),
        ("modelplane scale md/demo --replicas three", "BadParameter"),
        ("modelplane rollout restarts md/demo", "UsageError"),
        ("modelplane curl demo", "MissingParameter"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str, error: str) -> None:
    assert problem(line)[0] == error
