"""Fuzz every target for a given time: `python -m tests.fuzz --minutes 30`.

The corpus runs first, then batches of drawn cases, target after target, each from
another seed. A finding is printed with its location in the code, and its input is
written into the corpus, so that every later run tries it.
"""

import argparse
import itertools
import random
import sys
from time import monotonic

from tests.fuzz import corpus
from tests.fuzz.processes import Outcome, run_batch
from tests.fuzz.targets import TARGETS
from tests.random_cases import FIXED_SEED, SEED

_BATCH_SECONDS = 20.0
_BATCH_CASES = 2_000
_DETAIL = 3_000


def main() -> int:
    """Run the program; the exit code is 1 if there was a finding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--targets", nargs="+", choices=sorted(TARGETS), default=list(TARGETS)
    )
    options = parser.parse_args()
    until = monotonic() + 60 * options.minutes
    # A given seed is repeated; otherwise each run uses a new one.
    seeds = random.Random(SEED if SEED != FIXED_SEED else None)  # noqa: S311
    outcomes = {target: Outcome() for target in options.targets}
    for target in options.targets:
        _batch(target, 1, outcomes[target], seconds=600.0)
    for target in itertools.cycle(options.targets):
        left = until - monotonic()
        if left <= 0:
            break
        _batch(
            target,
            seeds.randrange(2**32),
            outcomes[target],
            cases=_BATCH_CASES,
            seconds=min(_BATCH_SECONDS, left),
        )
    _print(outcomes)
    return any(outcome.findings for outcome in outcomes.values())


def _batch(
    target: str, seed: int, outcome: Outcome, *, cases: int = 0, seconds: float
) -> None:
    known = set(outcome.findings)
    run_batch(target, seed, outcome, corpus=not cases, cases=cases, seconds=seconds)
    for signature in outcome.findings.keys() - known:
        found = outcome.findings[signature]
        kept = f", kept as {corpus.keep(target, found.text)}" if cases else ""
        print(
            f"\n{target}: {signature} (seed {seed}){kept}\n{found.detail[-_DETAIL:]}",
            flush=True,
        )


def _print(outcomes: dict[str, Outcome]) -> None:
    print(f"\n{'TARGET':<12}{'CASES':>9}{'SLOWEST':>10}{'MEMORY':>10}{'FINDINGS':>10}")
    for target, outcome in outcomes.items():
        slowest, memory = f"{outcome.slowest:.2f} s", f"{outcome.memory_mib:.0f} MiB"
        print(
            f"{target:<12}{outcome.count:>9}{slowest:>10}{memory:>10}"
            f"{len(outcome.findings):>10}"
        )
    total = sum(outcome.count for outcome in outcomes.values())
    findings = sum(len(outcome.findings) for outcome in outcomes.values())
    print(f"{total} cases, {findings} findings")


if __name__ == "__main__":
    sys.exit(main())
