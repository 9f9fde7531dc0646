"""A name that several classes or modules share is found."""

from pathlib import Path

import pytest

from tools import names


def test_classes_and_modules_of_one_name_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("a/state.py", "b/state.py", "a/calls.py", "b/calls.py")
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            f"class {name[0].upper()}{name[2:-3].title()}: ...\n"
        )
    (tmp_path / "b/state.py").write_text("class AState: ...\n")
    monkeypatch.setattr(names, "ROOT", tmp_path)
    assert names.repeated_classes(list(files)) == {
        "AState": ["a/state.py", "b/state.py"]
    }
    assert names.repeated_modules(list(files)) == {
        "calls": ["a/calls.py", "b/calls.py"]
    }
