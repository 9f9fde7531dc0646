"""Show that tests notice mutants: `kept`, or `drawn --package P --sample N --seed S`."""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants import near
from tests.mutants.drawn import draw
from tests.mutants.edits import Mutant, difference
from tests.mutants.kept import KEPT
from tests.mutants.trials import LIMIT_SECONDS, Trial, run


def main() -> int:
    """Run the chosen mutants. Return 1 if a kept mutant is not killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kept = commands.add_parser("kept", help="mutants that were found once, each with its test")
    kept.add_argument(
        "--only", default="", help="only the mutants whose description contains this text"
    )
    drawn = commands.add_parser(
        "drawn", help="random mutants of a package, with the tests near their modules"
    )
    drawn.add_argument("--package", required=True, help="a package or a module, as a path")
    drawn.add_argument("--sample", type=int, default=50)
    drawn.add_argument("--seed", type=int, default=None)
    drawn.add_argument(
        "--map",
        type=Path,
        default=None,
        help="a coverage file with contexts, which names the tests of each line",
    )
    drawn.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, help="processor seconds of one mutant's tests"
    )
    chosen = parser.parse_args()
    if chosen.command == "kept":
        mutants = [each for each in KEPT if chosen.only in str(each)]
        if not mutants:
            parser.error(f"--only {chosen.only}: no kept mutant has this text in its description")
        return try_kept(mutants)
    seed = secrets.randbelow(2**32) if chosen.seed is None else chosen.seed
    return try_drawn(chosen.package, chosen.sample, seed, chosen.map, chosen.limit)


def try_kept(mutants: Sequence[Mutant]) -> int:
    """Try kept mutants, each with the test that it names."""
    trials = [
        Trial(each.module, each.symbol, each.applied(), str(each), [each.killed_by])
        for each in mutants
    ]
    run(trials)
    return summed_up(trials)


def try_drawn(package: str, sample: int, seed: int, coverage: Path | None, limit: float) -> int:
    """Try random mutants with the tests near them, and show the survivors."""
    print(f"package {package}, sample {sample}, seed {seed}")
    finder = near.Covered(coverage) if coverage else near.Importing()
    trials = [
        Trial(
            each.module,
            each.symbol,
            each.tree,
            f"{each.module}:{each.line} {each.symbol}: {each.description}",
            finder.tests(each.module, each.line),
        )
        for each in draw(package, sample, seed)
    ]
    run(trials, limit=limit)
    for trial in trials:
        if not trial.killer:
            print(f"\n{trial.title}  ({trial.tried} tests)\n{difference(trial.module, trial.tree)}")
    summed_up(trials)
    return 0


def summed_up(trials: Sequence[Trial]) -> int:
    """Print the score of the decided mutants. Return 1 if a mutant is not killed."""
    decided = [trial for trial in trials if not trial.undecided]
    killed = sum(bool(trial.killer) for trial in decided)
    seconds = sum(trial.seconds for trial in trials)
    percent = 100 * killed / max(1, len(decided))
    print(f"\n{killed} of {len(decided)} killed ({percent:.0f} %) in {seconds:.0f} s")
    for trial in trials:
        if trial.verdict != "killed":
            print(f"{trial.verdict}: {trial.title}")
    return int(killed < len(trials))


if __name__ == "__main__":
    sys.exit(main())
