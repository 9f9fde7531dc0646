"""Files with one mapping are read within bounds, and errors use the user's file name."""

import io
import sys
from pathlib import Path

import pytest

from client.manifests.policy_file import read_policy_file
from client.manifests.yaml_file import read_yaml
from fleet_client.errors import Refused

BOMB = "a0: &a0 [x, x]\n" + "\n".join(
    f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, 41)
)
BAD = [
    ("nothing", "", "standard input is empty"),
    ("no mapping", "- a", "standard input must hold a mapping, not list"),
    ("no YAML", "a: [", "standard input line 1: not YAML"),
    ("a key twice", "a: 1\na: 2", "standard input line 2: a key is given twice: a"),
    ("aliases of aliases", BOMB, "standard input line 1: has more than 20000 values"),
    (
        "an alias of itself",
        "a: &a [*a]",
        "standard input line 1: is nested more than 64 levels deep",
    ),
    (
        "depth",
        "{a: " * 5000,
        "standard input line 1: is nested more than 64 levels deep",
    ),
    (
        "a second document",
        "a: 1\n---\nb: 2",
        "standard input line 3: holds more than one document",
    ),
    ("another field", "qoutas: []", "standard input is not a usable policy"),
]


@pytest.mark.parametrize(
    ("text", "say"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_a_bad_policy_is_refused_and_standard_input_is_called_so(
    text: str, say: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises(Refused) as caught:
        read_policy_file(Path("-"))
    assert caught.value.message.startswith(say)


def test_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- a")
    with pytest.raises(Refused, match=f"{tmp_path}/a.yaml must hold a mapping"):
        read_yaml(tmp_path / "a.yaml", "policy")
