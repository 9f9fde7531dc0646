"""Simulate whole fleets: `python -m tests.simulation --seeds 1-1000 --days 0.5 --fleet small`.

Each seed prints one line. A finding prints its sentences and the last steps before it, and the
exit code is 1.
`--seed N --verbose` repeats one and prints every step.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation import coverage
from tests.simulation.script import FLEETS
from tests.simulation.world import Result, simulate


def main() -> int:
    """Simulate the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-20", help="ranges and numbers, as in 1-1000,2007")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--days", type=float, default=0.5, help="the virtual days of each seed")
    parser.add_argument(
        "--fleet", default="small", choices=sorted(FLEETS), help="the size of the fleet"
    )
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="count actions and reasons, and list missing reasons",
    )
    parser.add_argument("--verbose", action="store_true", help="print every step")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args()
    if wanted.verbose and wanted.seed is None:
        parser.error("--verbose needs --seed")
    try:
        seeds = [wanted.seed] if wanted.seed is not None else list(seeds_of(wanted.seeds))
    except ValueError as error:
        parser.error(f"--seeds {wanted.seeds}: {error}")
    begun = time.monotonic()
    results = list(
        shown(_results(seeds, wanted.days, wanted.fleet, wanted.processes, verbose=wanted.verbose))
    )
    wall = time.monotonic() - begun
    days = sum(result.days for result in results)
    findings = [result for result in results if result.finding]
    print(
        f"{len(results)} seeds, {days:g} simulated days, {days / wall * 60:.1f} days per minute, "
        f"{sum(result.replays for result in results)} replays, {len(findings)} findings"
    )
    if wanted.coverage:
        print("\n".join(coverage.report([result.coverage for result in results])))
    return 1 if findings else 0


def seeds_of(text: str) -> Iterator[int]:
    """Parse a list of seeds and ranges of seeds."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        if not seeds:
            raise ValueError(f"{part}: the last seed is less than the first")
        yield from seeds


def _results(
    seeds: list[int], days: float, fleet: str, processes: int, *, verbose: bool
) -> Iterator[Result]:
    if len(seeds) == 1 or processes == 1:
        for seed in seeds:
            yield simulate(seed, days, fleet, verbose=verbose)
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(processes, len(seeds)), mp_context=context) as pool:
        for done in as_completed([pool.submit(simulate, seed, days, fleet) for seed in seeds]):
            yield done.result()


def shown(results: Iterable[Result]) -> Iterator[Result]:
    """Print each result as it comes."""
    for result in results:
        print(result, flush=True)
        if result.finding:
            print("\n".join(("", *result.steps, "", result.finding)), flush=True)
            print(f"repeat it: {result.command}\n", flush=True)
        yield result


if __name__ == "__main__":
    sys.exit(main())
