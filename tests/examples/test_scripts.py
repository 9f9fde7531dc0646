"""Scripts in example manifests are valid for their shell, and end as an engine must."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from testbed.waiting import wait_until
from tests.environment.waiting import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2] / "examples"
# The engine images derive from Debian and Ubuntu, where /bin/sh is dash.
SHELLS = {"sh": "dash", "bash": "bash"}
WIDE = ROOT / "models" / "wide-expert-parallel.yaml"
RANKS = 8
# A rank, instead of vLLM. It prints its rank, exits with a given status, and records a
# SIGTERM.
RANK = """#!/bin/sh
for word; do
  case $word in --port=*) port=${word#--port=} ;; --data-parallel-rank=*) rank=${word#*=} ;; esac
done
trap 'echo SIGTERM > ended-$rank; exit 0' TERM
echo "$port $CUDA_VISIBLE_DEVICES" > started-$rank.new && mv started-$rank.new started-$rank
while [ ! -e status-$rank ]; do sleep 0.1; done
exit $(cat status-$rank)
"""


def containers(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object with a command below a node of a manifest."""
    if isinstance(node, dict):
        if "command" in node:
            yield node
        node = list(node.values())
    for each in node if isinstance(node, list) else ():
        yield from containers(each)


def scripts() -> Iterator[tuple[Path, str, str]]:
    """Return every script of the examples: file, shell and text."""
    for path in sorted(ROOT.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            for container in containers(document):
                words = [*container["command"], *container.get("args", ())]
                if PurePosixPath(words[0]).name in SHELLS and words[1:2] == ["-c"]:
                    yield path, PurePosixPath(words[0]).name, words[2]


SCRIPTS = list(scripts())


@pytest.mark.parametrize(
    ("path", "shell", "script"),
    SCRIPTS,
    ids=[f"{path.name}-{index}" for index, (path, *_) in enumerate(SCRIPTS)],
)
def test_the_scripts_are_valid_for_their_shell(
    path: Path, shell: str, script: str
) -> None:
    assert path.exists()
    done = subprocess.run(
        [SHELLS[shell], "-n", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The script of the example, with small scripts instead of its ranks."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(RANK)
    program.chmod(0o755)
    (shell, script), *others = [
        (shell, script) for path, shell, script in SCRIPTS if path == WIDE
    ]
    assert not others
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    running = subprocess.Popen(
        [SHELLS[shell], "-c", script],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        # As the end of a container's first process ends all others.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def until_all_have_begun(folder: Path) -> None:
    """Wait for all ranks, each with its port and device."""

    def begun() -> dict[int, str]:
        return {
            rank: file.read_text().strip()
            for rank in range(RANKS)
            if (file := folder / f"started-{rank}").exists()
        }

    wanted = {rank: f"{8000 + rank} {rank}" for rank in range(RANKS)}
    wait_until(lambda: begun() == wanted, TIMEOUT_SECONDS, lambda: f"began: {begun()}")


def test_all_ranks_of_the_example_end_when_one_ends(
    ranks: subprocess.Popen[str], tmp_path: Path
) -> None:
    until_all_have_begun(tmp_path)
    assert ranks.poll() is None
    (tmp_path / "status-3").write_text("7\n")
    assert ranks.wait(TIMEOUT_SECONDS) == 7


def test_the_ranks_of_the_example_receive_sigterm(
    ranks: subprocess.Popen[str], tmp_path: Path
) -> None:
    until_all_have_begun(tmp_path)
    ranks.terminate()
    ranks.wait(TIMEOUT_SECONDS)
    assert {file.name for file in tmp_path.glob("ended-*")} == {
        f"ended-{rank}" for rank in range(RANKS)
    }
