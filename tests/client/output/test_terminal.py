"""A terminal shows the texts of others, and never obeys them."""

import io
import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from ruamel.yaml import YAML

from client.commands.inspect.describe import _heading
from client.failures import report
from client.output.formats import as_json, as_yaml
from client.output.progress import Progress, Row
from client.output.tables import columns
from client.output.terminal import escaping
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target, kind_named
from tests.client.conftest import Cli

# A colour, a cleared screen, the same by one byte, a bell, reversed text, an invisible
# line end, half a surrogate pair.
HOSTILE = "\x1b[31m\x1b[2J\x9b2J\x07\x7f\u202egnp\u2066\u2028\x85\r\ud800"
SHOWN = r"\x1b[31m\x1b[2J\x9b2J\x07\x7f\u202egnp\u2066\u2028\x85\x0d\ud800"
CONTROLS = [
    chr(code)
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0xD800,
        0xDFFF,
    )
]


def harmless(text: str) -> bool:
    """Return whether a terminal only shows a text."""
    return all(character not in CONTROLS or character in "\n\t" for character in text)


@pytest.mark.usefixtures("nowhere")
def test_control_characters_in_logs_are_escaped(cli: Cli, nowhere: Path) -> None:
    (nowhere / "logs").mkdir(parents=True)
    (nowhere / "logs" / "worker.log").write_text(
        "one\ttwo\n" + HOSTILE.replace("\ud800", "").replace("\r", "") + "\n",
        newline="",
    )
    result = cli("logs", "worker")
    assert (
        result.out
        == "one\ttwo\n" + SHOWN.replace(r"\ud800", "").replace(r"\x0d", "") + "\n"
    )


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "words",
    [
        ["get", f"md{HOSTILE}"],
        [f"get{HOSTILE}"],
        ["get", "md", f"--{HOSTILE}"],
        ["get", "md", "-l", HOSTILE],
        ["validate", "-f", f"/{HOSTILE}"],
    ],
    ids=["a kind", "a command", "an option", "a selector", "a file"],
)
def test_texts_quoted_in_an_error_are_escaped(cli: Cli, words: list[str]) -> None:
    result = cli(*words)
    assert result.code == 2
    assert harmless(result.out + result.err)
    assert r"\x1b[31m" in result.err


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "command", [["validate"], ["plan", "--offline"], ["render"]], ids=" ".join
)
def test_names_and_fields_of_a_manifest_are_escaped(
    cli: Cli, tmp_path: Path, command: list[str]
) -> None:
    hostile = HOSTILE.replace("\ud800", "")
    tree = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelCache",
        "metadata": {"name": hostile},
        "spec": {hostile: hostile},
    }
    (tmp_path / "a.json").write_text(json.dumps(tree))
    result = cli(*command, "-f", str(tmp_path / "a.json"))
    assert result.code == 2
    assert harmless(result.out + result.err)
    assert r"\x1b[31m" in result.err


def test_streams_are_restored_when_a_command_ends(cli: Cli) -> None:
    before = sys.stdout, sys.stderr
    cli("--version")
    assert (sys.stdout, sys.stderr) == before


def test_machine_readable_forms_escape_in_their_own_way_and_keep_the_value() -> None:
    tree = {
        "a\x9b": ["b\u202e\x7f", "ü😀", "line\nline"],
        "c": HOSTILE.replace("\ud800", ""),
    }
    assert harmless(as_json(tree))
    assert json.loads(as_json(tree)) == tree
    assert harmless(as_yaml(tree))
    assert YAML(typ="safe", pure=True).load(as_yaml(tree)) == tree
    assert "ü" in as_json({"a": "ü"}) + as_yaml({"a": "ü"})
    assert harmless(as_json({"a": "\ud800"}))


def test_a_cell_cannot_end_its_row_nor_shift_its_columns() -> None:
    lines = columns(["A", "B"], [["x\ny", "1"], ["\x1b[31m", "2"]])
    assert lines == ["A          B", r"x\x0ay     1", r"\x1b[31m   2"]


def test_an_annotation_cannot_look_like_a_line_of_a_description() -> None:
    target = Target.of(kind_named("md"), "ml", "qwen")
    lines = _heading(target, {"metadata": {"annotations": {"a": "b\nPhase: Ready"}}})
    assert [line for line in lines if line.startswith("Phase:")] == [
        "Phase:       <none>"
    ]
    assert all("\n" not in line for line in lines)


def test_a_text_quoted_in_a_failure_cannot_look_like_its_next_step() -> None:
    text = report(
        CommandFailed("a\nnext: b", details=["c\nerror: d"], next_step="e\nnext: f")
    )
    assert text.splitlines() == [
        "error: a",
        "    next: b",
        "  c",
        "    error: d",
        "next: e",
        "    next: f",
    ]


def test_a_failure_with_many_details_shows_the_first_and_counts_the_rest() -> None:
    text = report(
        CommandFailed(
            "a" * 100_000,
            details=[f"{number} {'x' * 1000}" for number in range(1000)],
            next_step="b",
        )
    )
    assert len(text) < 64 * 1024
    assert text.splitlines()[-2] == f"  and {1000 - len(text.splitlines()) + 3} more"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_draws_with_control_characters_of_its_own_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    with (
        escaping(),
        Progress(
            Console(file=stream, force_terminal=is_terminal, highlight=False)
        ) as progress,
    ):
        progress.show([Row(f"md/{HOSTILE}", HOSTILE)])
        sys.stdout.write(f"printed {HOSTILE}\n")
    written = stream.getvalue()
    assert "\x1b[2J" not in written
    assert "\x1b[31m" not in written
    assert r"\x1b[31m" in written
    assert "printed " + SHOWN.split(r"\ud800", maxsplit=1)[0] in written.replace(
        "\n", ""
    )
    assert ("\x1b[" in written) is is_terminal


def test_progress_writes_below_the_stream_that_escapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    cast(Any, stream).isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with escaping(), Progress() as progress:
        progress.show([Row("md/qwen", "Ready", done=True)])
    assert "\x1b[" in stream.getvalue()
