"""Measure the wider targets of the scheduler on a large mixed fleet.

Prints one JSON line per target. The fleet has 40 classes, 20 regions and 8 pools per
cluster. Deployments want 10 replicas each, in one region, with one of many selectors.
Times are CPU time, so a busy machine does not matter. The digest covers every decision
of the cold placement: with equal sizes and seed it must be equal everywhere.
"""

import argparse
import hashlib
import json
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from scheduler import SCHEDULER_VERSION
from scheduler.decide import apply, decide, decide_and_explain
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots import snapshot
from scheduler.fleet.snapshots.snapshot import SnapshotReader
from scheduler.hardware.device_sets import make_set
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import (
    ClusterTaint,
    ClusterView,
    DeploymentView,
    DeviceSet,
    EngineView,
    MemberView,
    PoolView,
    RequestView,
    ScheduleRequest,
)
from workflows.fleet_scheduler.continue_as_new import paused_collections

CLASSES = 40
REGIONS = 20
POOLS = 8
NODES = 4
WANTED = 10
DRIVER = "gpu.nvidia.com"


def a_set(memory: int) -> DeviceSet:
    """Make the devices of one class: eight GPUs and a synthetic interconnect."""
    gpu = DeviceEntry(
        "gpu", "DRA", DRIVER, DRIVER, 8, capacity=(("memory", f"{memory}Gi"),)
    )
    return make_set((gpu, DeviceEntry("link", "Synthetic", "link.example.com", "", 1)))


def mixed_fleet(clusters: int, dice: random.Random) -> Fleet:
    sets = [a_set(16 + 4 * i) for i in range(CLASSES)]
    fleet = Fleet()
    for i in range(clusters):
        pools = tuple(
            PoolView(f"pool-{j}", NODES, dice.choice(sets), "class")
            for j in range(POOLS)
        )
        labels = {
            "modelplane.ai/region": f"region-{i % REGIONS:02}",
            "tier": dice.choice(("gold", "silver")),
        }
        fleet.put_cluster(
            ClusterView(
                f"cluster-{i:05d}",
                labels,
                (),
                ready=True,
                gateway_address="10.0.0.1",
                pools=pools,
            )
        )
    return fleet


def requests_of(deployments: int, dice: random.Random) -> list[ScheduleRequest]:
    """Make requests with mixed selectors."""
    made = []
    for d in range(deployments):
        memory = dice.choice(range(20, 140, 8))
        selector = (
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{memory}Gi")) >= 0'
        )
        engine = EngineView(
            "main",
            (
                MemberView(
                    requests=(RequestView("gpu", dice.choice((1, 4, 8)), (selector,)),)
                ),
            ),
        )
        region = {"modelplane.ai/region": f"region-{dice.randrange(REGIONS):02}"}
        view = DeploymentView(
            "bench",
            f"d-{d:05}",
            uid=f"u-{d}",
            replicas=WANTED,
            match_labels=region,
            engines=(engine,),
            template="t",
        )
        made.append(ScheduleRequest(f"r-{d}", view))
    return made


def timed(work: Callable[[int], object], times: int) -> dict[str, float]:
    """Run work several times; return the median, the 99th percentile and the maximum in
    CPU ms.
    """
    spent = []
    for i in range(times):
        started = time.process_time()
        work(i)
        spent.append(time.process_time() - started)
    spent.sort()
    names = {
        "p50_ms": spent[len(spent) // 2],
        "p99_ms": spent[min(len(spent) - 1, int(len(spent) * 0.99))],
        "max_ms": spent[-1],
    }
    return {name: round(value * 1000, 3) for name, value in names.items()}


def say(target: str, **figures: object) -> None:
    sys.stdout.write(json.dumps({"target": target, **figures}) + "\n")
    sys.stdout.flush()


def cold(fleet: Fleet, requests: Sequence[ScheduleRequest]) -> None:
    """Place everything, 256 requests at a time, and let it become Ready."""
    digest = hashlib.sha256()
    placed = 0
    started = time.process_time()
    for first in range(0, len(requests), 256):
        for decision in decide(fleet, requests[first : first + 256], 0):
            apply(fleet, decision)
            digest.update(decision.digest.encode())
            placed += len(decision.placements)
    seconds = time.process_time() - started
    say(
        "cold placement",
        placed=placed,
        s=round(seconds, 2),
        placed_per_s=round(placed / seconds),
        digest=digest.hexdigest()[:16],
    )
    for entry in list(fleet.entries()):
        fleet.bind(entry.uid)
        fleet.observe(entry.uid, ready=True, serving=True)


def fresh(request: ScheduleRequest, number: int, **fields: Any) -> ScheduleRequest:
    """Return a copy of a request, for a deployment that does not exist yet."""
    view = replace(request.deployment, name=f"fresh-{number}", **fields)
    return ScheduleRequest(f"fresh-{number}", view, dry_run=True)


def measure(clusters: int, deployments: int, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    fleet = mixed_fleet(clusters, dice)
    requests = requests_of(deployments, dice)
    cold(fleet, requests)
    packed: list[list[bytes]] = []
    dumped = timed(lambda _: packed.append(snapshot.dump(fleet)), 1)
    say("dump", bytes=sum(map(len, packed[0])), parts=len(packed[0]), **dumped)
    say("load", **timed(lambda _: snapshot.load(packed[0]), 1))
    reading = SnapshotReader(packed[0])

    def read_part(_: int) -> None:
        with paused_collections():  # as the scheduler's workflow does
            reading.read_next()

    say("load, one part at a time", **timed(read_part, len(packed[0])))
    say(
        "one deployment of 10, warm",
        **timed(lambda i: decide(fleet, [fresh(requests[i], i)], 0), 100),
    )
    say("nothing to do", **timed(lambda i: decide(fleet, [requests[i]], 0), 200))
    huge = replace(requests[0].deployment.engines[0], copies=NODES + 1)
    say(
        "infeasible, headline",
        **timed(
            lambda i: decide(fleet, [fresh(requests[0], i, engines=(huge,))], 0), 50
        ),
    )
    say(
        "infeasible, full detail",
        **timed(
            lambda _: decide_and_explain(
                fleet, [fresh(requests[0], 0, engines=(huge,))], 0
            ),
            1,
        ),
    )
    names = sorted(fleet.clusters)

    def update(i: int) -> None:
        view = fleet.clusters[names[i % len(names)]].view
        fleet.put_cluster(
            replace(
                view,
                labels={**view.labels, "round": str(i)},
                taints=(ClusterTaint("x"),),
            ),
            0,
        )

    say("cluster update", **timed(update, 300))

    def edit_class(_: int) -> None:
        edited = a_set(999)
        for name in names[:2000]:
            view = fleet.clusters[name].view
            fleet.put_cluster(
                replace(
                    view,
                    pools=(replace(view.pools[0], device_set=edited), *view.pools[1:]),
                ),
                0,
            )

    say("class edit under 2,000 pools", **timed(edit_class, 1))
    drained = names[0]
    view = fleet.clusters[drained].view
    fleet.put_cluster(
        replace(view, taints=(ClusterTaint("maintenance", "", "NoExecute"),)), 0
    )
    owners = {
        (entry.namespace, entry.deployment)
        for entry in fleet.on_cluster(drained).values()
    }
    concerned = [
        request
        for request in requests
        if (request.deployment.namespace, request.deployment.name) in owners
    ]
    say(
        "drain of one cluster",
        deployments=len(concerned),
        **timed(lambda _: decide(fleet, concerned, 0), 1),
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=10_000)
    parser.add_argument("--deployments", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    say(
        "run",
        clusters=chosen.clusters,
        deployments=chosen.deployments,
        seed=chosen.seed,
        python=platform.python_version(),
        scheduler=SCHEDULER_VERSION,
    )
    measure(chosen.clusters, chosen.deployments, chosen.seed)


if __name__ == "__main__":
    main(sys.argv[1:])
