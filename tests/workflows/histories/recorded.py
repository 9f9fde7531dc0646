"""Where recorded histories are: `tests/histories/<release or commit>/<workflow type>/<kind of life>.json`.

Files are only added. `test_kept_histories.py` refuses a change of one that a release has.
"""

import subprocess
from pathlib import Path

HISTORIES = Path(__file__).parents[2] / "histories"
LIFE = "life"
"""A life without anything special."""


def recorded(kind: str = "*", life: str = "*") -> list[Path]:
    """List recorded histories, those of one workflow type or kind of life."""
    return sorted(HISTORIES.glob(f"*/{kind}/{life}.json"))


def title(path: Path) -> str:
    """Name a recorded history in the id of a test."""
    return " ".join([*path.parts[-3:-1], path.stem])


def git(repository: Path, *words: str) -> str:
    """Run git, and return what it prints."""
    return subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True, text=True).stdout


def changed_since_releases(repository: Path) -> list[str]:
    """List histories that a release has and that are changed or gone since; releases are the tags `v1.2.3` that HEAD descends from."""
    found = []
    for tag in git(repository, "tag", "--list", "v[0-9]*", "--merged", "HEAD").split():
        # Against the files as they are, so that a change is found before it is committed.
        lines = git(repository, "diff", "--name-status", "--no-renames", "--diff-filter=DMT", tag, "--", "tests/histories/*/*/*.json")
        found += [f"{tag}: {line}" for line in lines.splitlines()]
    return found
