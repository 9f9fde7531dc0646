"""Measure the speed of placement and protocol against their targets.

`python -m tests.bench` prints one JSON line per row. `ratio` is the measurement over
the target if less is better, and its inverse if more is better: a ratio of at most 1
meets the target. Each measurement is a process of its own, so that no row warms up
another one. The run takes ten minutes, plus the start of 10,000 replicas for the rows
about a lost scheduler.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.broadcast import AT_LEAST as BROADCAST_AT_LEAST
from tests.bench.broadcast import AT_MOST as BROADCAST_AT_MOST
from tests.bench.lost_scheduler import TARGETS as LOST_SCHEDULER
from tests.bench.policies import GROWTH, SCENARIOS
from tests.bench.storm import TARGETS as STORM
from tests.bench.temporal_burst import LARGE_BURST, LARGE_BURST_SECONDS, OVER_SKELETON
from tests.bench.temporal_burst import TARGETS as THROUGH_TEMPORAL

HERE = Path(__file__).parent


class Pure(NamedTuple):
    """A fleet for `decide.py`, the target rate, and figures that may not be exceeded."""

    clusters: int
    pools: int
    existing: int
    placed_per_s: float
    at_most: Mapping[str, float] = {}


PURE = (
    Pure(10, 4, 0, 5_000),
    Pure(100, 4, 1_000, 5_000),
    Pure(1_000, 4, 10_000, 5_000, {"p99_ms": 20}),
    Pure(10_000, 8, 100_000, 2_000, {"peak_mb": 2_048}),
)
# The cost of a decision with a hundred times as many replicas. A ratio above 1 is noise
# and caches of the processor.
FEW, MANY, GROWS_AT_MOST = 1_000, 100_000, 1.5


def run(script: str, *options: str, **sizes: int) -> dict[str, Any]:
    """Run a benchmark of this folder and read its line."""
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    ended = subprocess.run(
        [sys.executable, str(HERE / script), *options, *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    line: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return line


def report(
    row: str, measured: float, target: float, *, more_is_better: bool = False
) -> None:
    # If the target is zero, any measurement makes the ratio infinite.
    if more_is_better:
        ratio = target / measured
    elif target:
        ratio = measured / target
    else:
        ratio = math.inf if measured else 0.0
    line = {
        "row": row,
        "measured": measured,
        "target": target,
        "ratio": round(ratio, 3) if math.isfinite(ratio) else None,
        "met": ratio <= 1,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def policies() -> None:
    """Measure the decisions under policies that need more work."""
    seen = {name: run("policies.py", "--scenario", name) for name in SCENARIOS}
    for name, scenario in SCENARIOS.items():
        for figure, most in scenario.at_most.items():
            report(f"{name}: {figure} a replica", seen[name][figure], most)
    for growth in GROWTH:
        ratio = seen[growth.many]["p50_ms"] / seen[growth.few]["p50_ms"]
        report(
            f"{growth.many}: p50 over p50 with {growth.few}",
            round(ratio, 3),
            growth.at_most,
        )


def beside_skeleton(name: str, through: Mapping[str, Any]) -> None:
    """Print how many times as long as the bare skeleton the product takes."""
    for figure, ratio in through["over_skeleton"].items():
        report(
            f"through Temporal, {name}: {figure} over the skeleton's",
            ratio,
            OVER_SKELETON,
        )


def broadcast() -> None:
    """Measure broadcasts, one of them with a worker that is killed."""
    seen = run("broadcast.py")
    name = f"broadcast to {seen['receivers']} receivers"
    for figure, least in BROADCAST_AT_LEAST.items():
        report(f"{name}: {figure}", seen[figure], least, more_is_better=True)
    for figure, most in BROADCAST_AT_MOST.items():
        report(f"{name}: {figure}", seen[figure], most)


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__
    ).parse_args()
    for fleet in PURE:
        seen = run(
            "decide.py",
            clusters=fleet.clusters,
            pools=fleet.pools,
            replicas=fleet.existing,
        )
        name = (
            f"decide, {fleet.clusters} clusters x {fleet.pools} pools, "
            f"{fleet.existing} existing"
        )
        report(
            f"{name}: placed per s",
            seen["placed_per_s"],
            fleet.placed_per_s,
            more_is_better=True,
        )
        for figure, most in fleet.at_most.items():
            report(f"{name}: {figure}", seen[figure], most)
    costs = [
        run("decide.py", clusters=1_000, pools=4, replicas=existing)["p50_ms"]
        for existing in (FEW, MANY)
    ]
    report(
        f"decide, 1000 clusters x 4 pools: p50 with {MANY} existing over p50 with {FEW}",
        round(costs[1] / costs[0], 3),
        GROWS_AT_MOST,
    )
    policies()
    through = run("temporal_burst.py")
    for figure, most in THROUGH_TEMPORAL.items():
        report(f"through Temporal: {figure}", through[figure], most)
    beside_skeleton(f"{through['deployments']} deployments", through)
    large = run("temporal_burst.py", "--burst-only", deployments=LARGE_BURST)
    report(
        f"through Temporal: burst of {LARGE_BURST} deployments decided, s",
        large["burst_decided_s"],
        LARGE_BURST_SECONDS,
    )
    beside_skeleton(f"{LARGE_BURST} deployments", large)
    beside = run("storm.py")
    for figure, most in STORM.items():
        report(
            f"with {beside['signals']} bad signals a minute: "
            f"{figure} of the time of {beside['deployments']} deployments",
            beside[figure],
            most,
        )
    broadcast()
    lost = run("lost_scheduler.py")
    for figure, most in LOST_SCHEDULER.items():
        report(
            f"scheduler and workers lost, {lost['clusters']} clusters, "
            f"{lost['replicas']} replicas: {figure}",
            lost[figure],
            most,
        )


if __name__ == "__main__":
    main()
