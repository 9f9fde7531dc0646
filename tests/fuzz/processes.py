"""Batches in processes of their own: what one breaks ends with it."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.cases import SECONDS_MAX, Finding

# Beyond the time of the cases themselves: imports, and a case that cannot be interrupted.
_START_SECONDS = 120.0
_LAST_LINES = 2000


@dataclass
class Outcome:
    """What batches of one target found."""

    count: int = 0
    slowest: float = 0.0
    memory_mib: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, result: dict[str, Any]) -> None:
        """Count another batch."""
        self.count += result["count"]
        self.slowest = max(self.slowest, result["slowest"])
        self.memory_mib = max(self.memory_mib, result["memoryMib"])
        for found in result["findings"]:
            self.findings.setdefault(found["signature"], Finding(**found))


def run_batch(target: str, seed: int, outcome: Outcome, *, corpus: bool = False, cases: int = 0, seconds: float = 600.0) -> None:
    """Run a batch: the corpus as it is, and so many cases that are drawn from `seed`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        command = [sys.executable, "-m", "tests.fuzz.batch", target, "--out", folder, "--cases", str(cases), "--seconds", str(seconds)]
        command += ["--corpus"] if corpus else []
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MODELPLANE_")}
        environment |= {
            "MODELPLANE_TEST_SEED": str(seed),
            "MODELPLANE_TEMPORAL__ADDRESS": "127.0.0.1:1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds + _START_SECONDS, check=False
            )
            said = f"exit code {ended.returncode}: {ended.stderr[-_LAST_LINES:]}"
        except subprocess.TimeoutExpired:
            said = f"one case did not end, and could not be interrupted after {SECONDS_MAX:g} s"
        result = out / "result.json"
        if result.exists():
            outcome.add(json.loads(result.read_text()))
        else:
            current = out / "current"
            text = current.read_bytes().decode(errors="surrogatepass") if current.exists() else ""
            outcome.findings.setdefault(f"{target} ended", Finding(f"{target} ended", said, text))
