"""Send drawn requests to a front: `python -m tests.fuzz.front --minutes 30`.

Schemathesis draws the requests from the front's OpenAPI documents, with one seed after
the other. The program ends with exit code 1 at the first seed with a finding, and
prints the finding as a client's request.
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    until = monotonic() + 60 * options.minutes
    # A given seed is repeated; otherwise each run uses a new one.
    seeds = random.Random(SEED if SEED != FIXED_SEED else None)  # noqa: S311
    rounds = 0
    while monotonic() < until or not rounds:
        seed = SEED if SEED != FIXED_SEED and not rounds else seeds.randrange(2**32)
        asked = {
            "MODELPLANE_TEST_SEED": str(seed),
            "MODELPLANE_TEST_CASES": str(_CASES),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "worksteal",
            "-x",
            "-m",
            "random",
            _TESTS,
        ]
        ended = subprocess.run(
            command,
            cwd=_ROOT,
            env=os.environ | asked,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        rounds += 1
        if ended.returncode:
            settings = " ".join(f"{name}={value}" for name, value in asked.items())
            sys.stdout.write(
                f"{ended.stdout}\nto repeat it: {settings} pytest {_TESTS}\n"
            )
            return 1
    sys.stdout.write(f"{rounds} seeds, nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
