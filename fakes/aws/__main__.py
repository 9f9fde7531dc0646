"""Serve a fake AWS account: `python -m fakes.aws --region us-east-2 --port 4566`."""

import argparse
import json
import random
import signal
import threading

from fakes.aws.fake import FakeAws
from fakes.aws.faults import random_script


def main() -> None:
    """Serve until a signal.

    Print JSON on the first line: `url`, and the answer of `about`.
    """
    parser = argparse.ArgumentParser(description="Serve a fake AWS account")
    parser.add_argument("--region", default="us-east-2")
    parser.add_argument("--port", type=int, default=0, help="a free one where it is 0")
    parser.add_argument(
        "--create-reads",
        type=int,
        default=2,
        help="how many reads show an object as being created",
    )
    parser.add_argument(
        "--delete-reads",
        type=int,
        default=2,
        help="how many reads show an object as being deleted",
    )
    parser.add_argument("--faults", type=int, default=0, help="so many random faults")
    parser.add_argument(
        "--seed", type=int, default=0, help="where the random faults start"
    )
    given = parser.parse_args()
    zones = [f"{given.region}{letter}" for letter in "abc"]
    faults = random_script(random.Random(given.seed), given.faults, zones)  # noqa: S311
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    reads = {"create_reads": given.create_reads, "delete_reads": given.delete_reads}
    with FakeAws(given.region, port=given.port, faults=faults, **reads) as aws:
        print(json.dumps({"url": aws.url, **aws.control("about", {})}), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
