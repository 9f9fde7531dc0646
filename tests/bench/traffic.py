"""Measure what Envoy and an endpoint picker add to the latency of a request.

Prints one JSON line: median and 99th percentile, in milliseconds, of chat requests on
one connection to a simulated engine; through Envoy to a plain Service; and through
Envoy and a picker to a pool of two pods. Every request is sent inside the network of
the pods, without the relays by which the machine reaches it. The three kinds of
requests take turns, so that a busy machine slows all of them.
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

ROUNDS, REQUESTS, WARM = 5, 400, 50
ENVOY_PORT = 10080
"""The port of Envoy's container for the listener at port 80."""


def measure(url: str, requests: int) -> list[float]:
    """Return the milliseconds of so many chat requests on one connection."""
    from tests.testbed.request_path.request_path import (  # noqa: PLC0415 - slow
        CHAT,
        chat,
    )

    parts = urlsplit(url)
    body = json.dumps(chat())
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    times = []
    for number in range(WARM + requests):
        begun = time.perf_counter()
        connection.request(
            "POST", f"{parts.path}{CHAT}", body, {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{url}: {answer.status}")
        if number >= WARM:
            times.append((time.perf_counter() - begun) * 1000)
    return times


def run(rounds: int, requests: int) -> dict[str, Any]:
    """Start the request path, and measure each way."""
    from tests.activities.render.builders import a_cluster  # noqa: PLC0415 - slow
    from tests.testbed.request_path.request_path import (  # noqa: PLC0415 - slow
        NAMESPACE,
        request_path,
    )

    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        request_path(Path(folder)) as path,
        path.model("picked") as picked,
        path.model("plain", cluster=a_cluster(routing="service")),
    ):
        pod = path.pods(picked)[0]["status"]["podIP"]
        envoy = f"http://{path.envoy()['status']['podIP']}:{ENVOY_PORT}/{NAMESPACE}"
        ways = {
            "direct": f"http://{pod}:8000",
            "envoy": f"{envoy}/plain",
            "envoy_and_picker": f"{envoy}/picked",
        }
        for _ in range(rounds):
            for name, url in ways.items():
                command = [sys.executable, __file__, "--send", url, str(requests)]
                found.setdefault(name, []).extend(json.loads(path.inside(*command)))
    figures: dict[str, Any] = {"bench": "traffic", "requests": rounds * requests}
    for name, times in found.items():
        cuts = statistics.quantiles(times, n=100)
        figures[f"{name}_p50_ms"] = round(statistics.median(times), 2)
        figures[f"{name}_p99_ms"] = round(cuts[98], 2)
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument(
        "--send", nargs=2, metavar=("URL", "COUNT"), help=argparse.SUPPRESS
    )
    options = parser.parse_args(arguments)
    if options.send:
        sys.stdout.write(json.dumps(measure(options.send[0], int(options.send[1]))))
        return
    from tests.bench.one_line import one_line  # noqa: PLC0415 - not for the sender

    with one_line() as say:
        say(run(options.rounds, options.requests))


if __name__ == "__main__":
    main()
