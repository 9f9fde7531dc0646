"""Run some cases of one target in this process.

    python -m tests.fuzz.batch TARGET --out FOLDER [--corpus] [--cases N] [--seed N]

The cases are the inputs of the corpus, unchanged and with drawn changes. The seed
determines the draws. FOLDER/current has the current input, which identifies a case that
ends the process. The result is written to FOLDER/result.json.
"""

import argparse
import json
import os
import random
from pathlib import Path
from time import monotonic
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.fuzz.cases import Finding, Target, limit_memory, run_case
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS
from tests.random_cases import FIXED_SEED, random_cases

# Larger inputs are in the corpus for their size, and changes would only repeat it.
_CHANGED_MAX = 100_000


class Batch:
    """The findings of a process."""

    def __init__(self, target: Target, folder: Path, seconds: float) -> None:
        self.target = target
        self.folder = folder
        self.until = monotonic() + seconds
        self.findings: dict[str, Finding] = {}
        self.slowest = 0.0
        self.count = 0
        self.memory_mib = 0.0

    def warm_up(self, text: str) -> None:
        """Load the modules that the target needs, so that no case includes their memory."""
        run_case(self.target, text)
        limit_memory()

    @property
    def is_over(self) -> bool:
        return monotonic() > self.until

    def run(self, text: str) -> None:
        (self.folder / "current").write_bytes(text.encode(errors="surrogatepass"))
        found, run = run_case(self.target, text)
        self.count += 1
        self.slowest = max(self.slowest, run.seconds)
        self.memory_mib = max(self.memory_mib, run.memory_mib)
        if found:
            self.findings.setdefault(found.signature, found)

    def result(self) -> dict[str, Any]:
        """Return the findings as JSON."""
        return {
            "count": self.count,
            "slowest": self.slowest,
            "memoryMib": self.memory_mib,
            "findings": [vars(finding) for finding in self.findings.values()],
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", action="store_true")
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--seed", type=int, default=FIXED_SEED)
    parser.add_argument("--seconds", type=float, default=3600)
    options = parser.parse_args()
    inputs = corpus.inputs(options.target)
    batch = Batch(TARGETS[options.target], options.out, options.seconds)
    # Targets write files and read settings.
    os.environ |= {
        "HOME": str(options.out),
        "MODELPLANE_HOME": str(options.out / "home"),
    }
    os.chdir(options.out)
    smallest = sorted(inputs.values(), key=len)
    batch.warm_up(next(text for text in smallest if text))
    for text in inputs.values() if options.corpus else ():
        if not batch.is_over:
            batch.run(text)
    if options.cases:
        small = [text for text in smallest if len(text) <= _CHANGED_MAX]
        _draw(batch, small, options.cases, options.seed)
    (options.out / "result.json").write_text(json.dumps(batch.result()))


def _draw(batch: Batch, inputs: list[str], count: int, seed: int) -> None:
    # Draw a generator's seed instead of each of its draws: one input needs hundreds.
    @random_cases(count, seed)
    @given(st.sampled_from(inputs), st.integers(0, 2**64 - 1))
    def case(text: str, start: int) -> None:
        if not batch.is_over:
            batch.run(mutated(text, random.Random(start)))  # noqa: S311 - repeatable on purpose

    case()


if __name__ == "__main__":
    main()
