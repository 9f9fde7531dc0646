"""The whole campaign:

`python -m tests.activities.clouds.lives --cloud gke --lives 500`.

See `make faults-clouds`. It prints how each life ended, and exits with 1 if a life
ended in a forbidden way. `--only NUMBER` repeats one life, with all attempts of its
activities.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from activities.clouds.eks import sessions
from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake
from tests.activities.clouds.lives.scripts import life_of
from tests.activities.clouds.requests import checking
from tests.random_cases import SEED

_SHOWN_ATTEMPTS, _SHOWN_LENGTH = 100, 200


@contextmanager
def _fakes(cloud: str) -> Iterator[tuple[Fake, "FakeAws | FakeGoogle"]]:
    if cloud == "gke":
        with FakeGoogle() as google:
            yield gke_fake(google), google
    else:
        sessions._core = checking(sessions._core)
        with FakeAws(role="provisioner") as aws, direct(aws):
            yield eks_fake(aws), aws


def main() -> int:
    """Run the campaign, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cloud", choices=("gke", "eks"), required=True)
    parser.add_argument("--lives", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    numbers = (
        [asked.only]
        if asked.only is not None
        else range(asked.first, asked.first + asked.lives)
    )
    began, wrong, ends = time.monotonic(), 0, Counter[str]()
    print(
        f"{asked.cloud}: lives {numbers[0]} to {numbers[-1]} of seed {asked.seed}",
        flush=True,
    )
    with _fakes(asked.cloud) as (fake, cloud):
        for number in numbers:
            cloud.reset()
            ended = life_of(fake, number, asked.seed)
            wrong += bool(ended.wrong)
            ends.update(
                "Ready"
                if how.endswith("Ready")
                else how.partition(": ")[2].partition(":")[0] or how
                for how in ended.how
            )
            print(ended.line, flush=True)
            if asked.only is not None:
                print(
                    *ended.faults,
                    *(
                        each[:_SHOWN_LENGTH]
                        for each in ended.attempts[-_SHOWN_ATTEMPTS:]
                    ),
                    sep="\n",
                )
    counts = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    print(
        f"{asked.cloud}: {len(numbers)} lives in {time.monotonic() - began:.0f} "
        f"s, {wrong} wrong; parts: {counts}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
