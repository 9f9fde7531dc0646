"""Measure the page in a browser with 1,000 clusters and 10,000 replicas.

Prints one JSON line. `first_paint_ms` is the time until the browser paints the empty
page, `problems_ms` until it shows the problems of the whole fleet. Then 60 objects a
second change for `--seconds`: `shown_ms` is the largest delay until the page shows a
change, `longest_task_ms` the longest time in which the page does not react, and `dropped`
the number of connections that broke. The front runs in this process, so its work counts.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.one_line import one_line
from tests.front.browser import Tab, a_browser
from tests.front.page_states import a_version, thousand_clusters
from tests.front.shown_fleet import a_deployment, put
from tests.front.shown_page import CONNECTED, served, shows

TARGETS = {"first_paint_ms": 1_000.0, "changes_per_second": 60.0, "dropped": 0.0}
RATE = 60
# Counts broken connections by the text that the page shows, and tasks over 50 ms.
_OBSERVE = """window.seen = {dropped: 0, longest: 0};
new MutationObserver(() => {
  if (document.getElementById('connection').className === 'problem') window.seen.dropped += 1;
}).observe(document.getElementById('connection'), {attributes: true, childList: true});
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) {
    window.seen.longest = Math.max(window.seen.longest, each.duration);
  }
}).observe({type: 'longtask'});"""
_PAINT = (
    "performance.getEntriesByName('first-contentful-paint').map((e) => e.startTime)[0]"
)


async def measured(clusters: int, replicas: int, seconds: float) -> dict[str, float]:
    """Return the figures of one run."""
    state = thousand_clusters(clusters, replicas)
    with tempfile.TemporaryDirectory() as folder:
        async with a_browser(Path(folder)) as browser, served(state) as url:
            began = time.monotonic()
            async with browser.tab(url) as tab:
                await shows(tab, state.expected[0], "#problems")
                problems_ms = 1000 * (time.monotonic() - began)
                await shows(tab, CONNECTED, "#connection")
                paint = await tab.value(_PAINT)
                return {
                    "first_paint_ms": round(paint),
                    "problems_ms": round(problems_ms),
                    **await _changes(tab, state.projection, seconds),
                }


async def _changes(tab: Tab, projection: Any, seconds: float) -> dict[str, float]:
    await tab.value(_OBSERVE)
    number, delays = 0, []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        number += 1
        name = f"m{number % 10:04d}"
        put(
            projection,
            a_deployment(name, wanted=100_000, ready=number, version=a_version(number)),
        )
        if number % (2 * RATE) == 0:
            sent = time.monotonic()
            await shows(tab, f"{number} of 100000 replicas Ready", "#deployments")
            delays.append(1000 * (time.monotonic() - sent))
        late = began + number / RATE - time.monotonic()
        await asyncio.sleep(max(0.0, late))
    took = time.monotonic() - began
    seen = await tab.value("window.seen")
    return {
        "changes_per_second": round(number / took, 1),
        "shown_ms": round(max(delays, default=0.0)),
        "longest_task_ms": round(seen["longest"]),
        "dropped": seen["dropped"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=1_000)
    parser.add_argument("--replicas", type=int, default=10, help="of each cluster")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with one_line() as say:
        found = asyncio.run(
            measured(options.clusters, options.replicas, options.seconds)
        )
        say({"benchmark": "page", **found, "targets": TARGETS})


if __name__ == "__main__":
    main()
