"""Measure how fast the pure scheduler decides on a synthetic fleet; prints one JSON
line.

Cluster i is in region us, eu, ap or sa by i mod 4. Its pool j has 64 nodes of 8 GPUs
with 24, 80, 141 or 192 Gi by j mod 4. Existing replicas are spread evenly over the
clusters on pool 1. Every deployment wants 10 replicas in one region, each with one GPU
of at least 80 Gi. Only decisions and their application are timed, not the construction
of the fleet.
"""

import argparse
import json
import platform
import resource
import sys
import time
from collections.abc import Sequence

from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.device_sets import make_set
from scheduler.model.decision import (
    EnginePlacement,
    MemberPlacement,
    ResolvedDeviceRequest,
)
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import (
    ClusterView,
    DeploymentView,
    EngineView,
    LedgerEntry,
    MemberView,
    PoolView,
    RequestView,
    ScheduleRequest,
)

REGIONS = ("us", "eu", "ap", "sa")
MEMORY_GI = (24, 80, 141, 192)
NODES = 64
GPUS = 8
WANTED = 10
SELECTOR = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'


def synthetic_fleet(clusters: int, pools: int, replicas: int) -> Fleet:
    sets = [
        make_set(
            (
                DeviceEntry(
                    "gpu",
                    "DRA",
                    "gpu.nvidia.com",
                    "gpu.nvidia.com",
                    GPUS,
                    capacity=(("memory", f"{memory}Gi"),),
                ),
            )
        )
        for memory in MEMORY_GI
    ]
    views = tuple(
        PoolView(f"pool-{j}", NODES, sets[j % len(sets)], f"class-{j % len(sets)}")
        for j in range(pools)
    )
    fleet = Fleet()
    for i in range(clusters):
        labels = {"modelplane.ai/region": REGIONS[i % len(REGIONS)]}
        fleet.put_cluster(
            ClusterView(
                f"cluster-{i:05d}",
                labels,
                (),
                ready=True,
                gateway_address="10.0.0.1",
                pools=views,
            )
        )
    request = ResolvedDeviceRequest("gpu", "gpu.nvidia.com", 1, (SELECTOR,))
    engines = (
        EnginePlacement("main", (MemberPlacement("Standalone", "pool-1", (request,)),)),
    )
    for k in range(replicas):
        cluster = f"cluster-{k % clusters:05d}"
        name = f"existing-{k // WANTED}"
        fleet.put_replica(
            LedgerEntry(
                f"uid-{k}",
                "others",
                name,
                cluster,
                k // clusters,
                f"{name}-{k:08x}",
                engines,
                ready=True,
                serving=True,
            )
        )
    return fleet


def requests_of(deployments: int) -> list[ScheduleRequest]:
    """Make the requests, with regions in turn."""
    member = MemberView(requests=(RequestView("gpu", 1, (SELECTOR,)),))
    return [
        ScheduleRequest(
            f"request-{d}",
            DeploymentView(
                "bench",
                f"deployment-{d}",
                uid=f"uid-{d}",
                replicas=WANTED,
                match_labels={"modelplane.ai/region": REGIONS[d % len(REGIONS)]},
                engines=(EngineView("main", (member,)),),
                template="t",
            ),
        )
        for d in range(deployments)
    ]


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def measure(
    clusters: int, pools: int, replicas: int, deployments: int
) -> dict[str, object]:
    """Decide and apply every request, one at a time, and return how long it took."""
    fleet = synthetic_fleet(clusters, pools, replicas)
    requests = requests_of(deployments)
    decide(fleet, [ScheduleRequest("warm-up", requests[0].deployment, dry_run=True)], 0)
    placed = 0
    times = []
    started, cpu_started = time.perf_counter(), time.process_time()
    for request in requests:
        before = time.perf_counter()
        decision = decide(fleet, [request], 0)[0]
        apply(fleet, decision)
        times.append(time.perf_counter() - before)
        placed += len(decision.placements)
    seconds, cpu_seconds = (
        time.perf_counter() - started,
        time.process_time() - cpu_started,
    )
    times.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "clusters": clusters,
        "pools": pools,
        "existing": replicas,
        "deployments": deployments,
        "placed": placed,
        "s": round(seconds, 4),
        "placed_per_s": round(placed / seconds),
        "cpu_s": round(cpu_seconds, 4),
        "p50_ms": round(percentile(times, 0.5) * 1000, 3),
        "p99_ms": round(percentile(times, 0.99) * 1000, 3),
        "peak_mb": round(peak / 1024),
        "python": platform.python_version(),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("clusters", 1000),
        ("pools", 4),
        ("replicas", 10_000),
        ("deployments", 200),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args(arguments)
    result = measure(chosen.clusters, chosen.pools, chosen.replicas, chosen.deployments)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
