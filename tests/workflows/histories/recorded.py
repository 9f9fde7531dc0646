"""Recorded histories:

`tests/histories/<release or commit>/<workflow type>/<kind of life>.json`.

Files are only added. `test_kept_histories.py` rejects a change of a released file.
"""

import subprocess
from pathlib import Path

HISTORIES = Path(__file__).parents[2] / "histories"
LIFE = "life"
"""The ordinary lifecycle."""


def recorded(kind: str = "*", life: str = "*") -> list[Path]:
    """List the recorded histories of a workflow type and a kind of life."""
    return sorted(HISTORIES.glob(f"*/{kind}/{life}.json"))


def title(path: Path) -> str:
    """Return the test id of a recorded history."""
    return " ".join([*path.parts[-3:-1], path.stem])


def git(repository: Path, *words: str) -> str:
    """Run git, and return its standard output."""
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def changed_since_releases(repository: Path) -> list[str]:
    """List the released histories that were changed or deleted since their release.

    A release is a tag such as `v1.2.3` that HEAD descends from.
    """
    options = ["--name-status", "--no-renames", "--diff-filter=DMT"]
    found = []
    for tag in git(repository, "tag", "--list", "v[0-9]*", "--merged", "HEAD").split():
        # Compare the files in the working tree, so that the test finds a change before
        # its commit.
        lines = git(
            repository, "diff", *options, tag, "--", "tests/histories/*/*/*.json"
        )
        found += [f"{tag}: {line}" for line in lines.splitlines()]
    return found
