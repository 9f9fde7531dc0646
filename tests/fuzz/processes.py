"""Batches in separate processes, so that the damage of a case ends with its process.

They are forks of a process that has imported all targets, because the imports take most
of the time of a small batch.
"""

import json
import os
import signal
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.cases import SECONDS_MAX, Finding
from tests.workflows.environment.forking import Forks

ROOT = Path(__file__).parents[2]
_BATCHES = "tests.fuzz.batch"

# In addition to the time of the cases: the start, and a case that cannot be
# interrupted.
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_LAST_LINES = 2000


@dataclass
class Outcome:
    """The findings of the batches of one target."""

    count: int = 0
    slowest: float = 0.0
    memory_mib: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, result: dict[str, Any]) -> None:
        """Add the result of a batch."""
        self.count += result["count"]
        self.slowest = max(self.slowest, result["slowest"])
        self.memory_mib = max(self.memory_mib, result["memoryMib"])
        for found in result["findings"]:
            self.findings.setdefault(found["signature"], Finding(**found))


def run_batch(
    target: str,
    seed: int,
    outcome: Outcome,
    *,
    corpus: bool = False,
    cases: int = 0,
    seconds: float = 600.0,
) -> None:
    """Run a batch: the unchanged corpus, and a number of cases drawn from `seed`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        result, log = out / "result.json", out / "log"
        words = [target, "--out", folder, "--cases", str(cases), "--seed", str(seed)]
        words += ["--seconds", str(seconds)]
        if corpus:
            words.append("--corpus")
        code = _exit_code(words, log, seconds + _START_SECONDS)
        if result.exists():
            outcome.add(json.loads(result.read_text()))
            return
        said = f"exit code {code}: {log.read_text(errors='replace')[-_LAST_LINES:]}"
        if code is None:
            said = f"one case did not end, and could not be interrupted after {SECONDS_MAX:g} s"
        current = out / "current"
        text = (
            current.read_bytes().decode(errors="surrogatepass")
            if current.exists()
            else ""
        )
        signature = f"{target} ended"
        outcome.findings.setdefault(signature, Finding(signature, said, text))


def _exit_code(words: list[str], log: Path, within: float) -> int | None:
    """Run the batch program; return its exit code, or None if it had to be killed."""
    batches = _forks()
    pid, until = batches.start({}, log, _BATCHES, words), time.monotonic() + within
    while (code := batches.exit_code(pid)) is None:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            while batches.exit_code(pid) is None:
                time.sleep(_LOOK_SECONDS)
            return None
        time.sleep(_LOOK_SECONDS)
    return code


@cache
def _forks() -> Forks:
    """Return the process with all imported targets, without this process's settings."""
    mine = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("MODELPLANE_")
    }
    more = {"MODELPLANE_TEMPORAL__ADDRESS": "127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    return Forks(_BATCHES, mine | more)
