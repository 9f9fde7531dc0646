"""Released histories stay unchanged, because workers of that release produced more of
the same kind.
"""

import shutil
from pathlib import Path

import pytest

from tests.workflows.histories.recorded import HISTORIES, changed_since_releases, git

ROOT = HISTORIES.parents[1]


def test_no_history_of_a_release_is_changed_or_deleted() -> None:
    remedy = "record the new life under another folder, and keep the old one"
    assert changed_since_releases(ROOT) == [], remedy


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with two histories and one file besides them that may change."""
    for words in (
        ["init", "-q"],
        ["config", "user.name", "ann"],
        ["config", "user.email", "ann@example.com"],
    ):
        git(tmp_path, *words)
    for name in (
        "a1b2c3d4/ModelReplica/life.json",
        "a1b2c3d4/ModelReplica/routed.json",
        "wire_names.json",
    ):
        write(tmp_path, name, "{}")
    commit(tmp_path)
    return tmp_path


def write(repository: Path, name: str, text: str) -> None:
    path = repository / "tests" / "histories" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit(repository: Path) -> None:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "histories")


LIFE = "tests/histories/a1b2c3d4/ModelReplica/life.json"


def test_before_the_first_release_histories_may_change(repository: Path) -> None:
    write(repository, "a1b2c3d4/ModelReplica/life.json", "[]")
    assert changed_since_releases(repository) == []


def test_a_changed_history_is_found_before_it_is_committed_and_after(
    repository: Path,
) -> None:
    git(repository, "tag", "v0.1.0")
    write(repository, "a1b2c3d4/ModelReplica/life.json", "[]")
    assert changed_since_releases(repository) == [f"v0.1.0: M\t{LIFE}"]
    commit(repository)
    assert changed_since_releases(repository) == [f"v0.1.0: M\t{LIFE}"]


def test_a_deleted_or_renamed_history_is_found(repository: Path) -> None:
    git(repository, "tag", "v0.1.0")
    (repository / LIFE).unlink()
    assert changed_since_releases(repository) == [f"v0.1.0: D\t{LIFE}"]
    git(repository, "checkout", "-q", "--", ".")
    shutil.move(
        repository / "tests/histories/a1b2c3d4", repository / "tests/histories/0.1.0"
    )
    commit(repository)
    assert [line.partition("\t")[2] for line in changed_since_releases(repository)] == [
        LIFE,
        LIFE.replace("life", "routed"),
    ]


def test_an_added_history_and_the_names_on_the_wire_are_no_change(
    repository: Path,
) -> None:
    git(repository, "tag", "v0.1.0")
    write(repository, "0.1.0/ModelReplica/life.json", "{}")
    write(repository, "wire_names.json", "[]")
    commit(repository)
    assert changed_since_releases(repository) == []


def test_each_release_keeps_its_own_histories(repository: Path) -> None:
    git(repository, "tag", "v0.1.0")
    write(repository, "0.2.0/ModelReplica/life.json", "{}")
    commit(repository)
    git(repository, "tag", "v0.2.0")
    write(repository, "0.2.0/ModelReplica/life.json", "[]")
    assert changed_since_releases(repository) == [
        "v0.2.0: M\ttests/histories/0.2.0/ModelReplica/life.json"
    ]
