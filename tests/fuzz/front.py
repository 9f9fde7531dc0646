"""Ask a front what Schemathesis draws from its OpenAPI documents, from one seed after the other: `python -m tests.fuzz.front --minutes 30`.

Ends at the first seed with a finding, which is printed as the request that a client would make; the exit code is 1 then.
"""

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path
from time import monotonic

from tests.random_cases import FIXED_SEED, SEED

_CASES = 10
_ROOT = Path(__file__).parents[2]
_TESTS = "tests/front/test_drawn_requests.py"


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    until = monotonic() + 60 * options.minutes
    # A seed that was given is repeated; otherwise each run tries something else.
    seeds = random.Random(SEED if SEED != FIXED_SEED else None)  # noqa: S311
    rounds = 0
    while monotonic() < until or not rounds:
        seed = SEED if SEED != FIXED_SEED and not rounds else seeds.randrange(2**32)
        asked = {"MODELPLANE_TEST_SEED": str(seed), "MODELPLANE_TEST_CASES": str(_CASES)}
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-x", "-m", "random", _TESTS]
        ended = subprocess.run(command, cwd=_ROOT, env=os.environ | asked, stdout=subprocess.PIPE, text=True, check=False)
        rounds += 1
        if ended.returncode:
            sys.stdout.write(
                f"{ended.stdout}\nto repeat it: {' '.join(f'{name}={value}' for name, value in asked.items())} pytest {_TESTS}\n"
            )
            return 1
    sys.stdout.write(f"{rounds} seeds, nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
