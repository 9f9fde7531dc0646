"""Measure the cost of decisions under policies that involve more than one replica.

Prints one JSON line per scenario. Each scenario makes a fleet, then decides and applies
deployments one at a time until a number or a time is reached. Figures are CPU time per
requested replica, so a busy machine does not matter. A decision with an unexpected
number of places or victims ends the measurement, because the cost of a refusal says
nothing about a placement.
"""

import argparse
import json
import platform
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from api_types import labels
from api_types.limits import AFFINITY_TERMS_MAX, ENGINES_MAX, REQUESTS_MAX, SPREADS_MAX
from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.device_sets import make_set
from scheduler.hardware.template import compile_template
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import (
    ClusterView,
    DeploymentView,
    DeviceSet,
    EngineView,
    LedgerEntry,
    MemberView,
    PoolView,
    RequestView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    DEVICE_PACKED,
    AffinityTerm,
    PlacementPolicy,
    Quota,
    SchedulerOptions,
    SpreadConstraint,
)
from scheduler.model.rules import MatchRules
from scheduler.placement.score import PROFILES, WEIGHTED
from tests.bench.decide import SELECTOR, percentile

GPUS = 8
NODES = 4
POOLS = 8
CLUSTERS = 10_000
CLASSES = 40
OWNED = 10
"""Replicas of each existing deployment."""
REGIONS = 20
ZONES = 60
NOW = 1_700_000_000_000
URGENT = SchedulerOptions(priority_classes={"high": 100})


class Scenario(NamedTuple):
    """A fleet of a size, the requests to it, and the cost limit per replica.

    `places` and `victims` are the expected result of each decision; without `victims`
    any number is accepted, for example if sizes of victims differ. `turns` is the
    number of measured decisions, for which the fleet has room. `between` runs before
    each decision and is not measured.
    """

    fleet: Callable[[int], Fleet]
    size: int
    deployment: DeploymentView
    at_most: Mapping[str, float] = {}
    places: int = 1
    victims: int | None = 0
    turns: int = 200
    between: Callable[[Fleet, int], None] = lambda _fleet, _turn: None


class Growth(NamedTuple):
    """A scenario whose cost limit is a multiple of another scenario's cost."""

    many: str
    few: str
    at_most: float


def gpus(memory_gi: int = 80, count: int = GPUS) -> DeviceSet:
    driver, memory = "gpu.nvidia.com", (("memory", f"{memory_gi}Gi"),)
    return make_set(
        (DeviceEntry("gpu", "DRA", driver, driver, count, capacity=memory),)
    )


def an_engine(nodes: int = 1, count: int = GPUS) -> EngineView:
    """Make an engine with this number of one-node copies."""
    return EngineView(
        "main",
        (MemberView(requests=(RequestView("gpu", count, (SELECTOR,)),)),),
        copies=nodes,
    )


def a_deployment(
    nodes: int = 1,
    replicas: int = 1,
    count: int = GPUS,
    name: str = "asked",
    **fields: Any,
) -> DeploymentView:
    """Make a deployment whose replicas need this number of nodes each."""
    return DeploymentView(
        "bench",
        name,
        uid=f"uid-{name}",
        replicas=replicas,
        engines=(an_engine(nodes, count),),
        template="t",
        **fields,
    )


def with_clusters(
    clusters: int, pools: Sequence[PoolView], options: SchedulerOptions
) -> Fleet:
    """Make an empty fleet whose clusters are spread over regions and zones."""
    fleet = Fleet(options)
    for i in range(clusters):
        where = {
            labels.REGION: f"region-{i % REGIONS}",
            labels.ZONE: f"zone-{i % ZONES}",
        }
        fleet.put_cluster(
            ClusterView(
                f"cluster-{i:05d}",
                where,
                (),
                ready=True,
                gateway_address="10.0.0.1",
                pools=tuple(pools),
            )
        )
    return fleet


def put(
    fleet: Fleet,
    view: DeploymentView,
    number: int,
    cluster: int,
    pool: str,
    **fields: Any,
) -> None:
    """Put a running replica into the fleet."""
    name = f"cluster-{cluster:05d}"
    info = fleet.clusters[name]
    devices = info.device_set(pool)
    assert devices is not None
    placed = compile_template(view.engines, MatchRules()).place(0, pool, devices)
    if "slots" in fields:
        placed = replace(
            placed,
            members=tuple(
                replace(member, slots=fields["slots"]) for member in placed.members
            ),
        )
        del fields["slots"]
    entry = LedgerEntry(
        f"uid-{number}",
        view.namespace,
        view.name,
        name,
        number,
        f"replica-{number}",
        (placed,),
        ready=True,
        serving=True,
        template="t",
        labels=tuple(sorted(view.labels.items())),
        **fields,
    )
    fleet.put_replica(entry)


def full(clusters: int, **fields: Any) -> Fleet:
    """Make a fleet without a free node.

    Ten replicas fill the pools of each cluster, six of four nodes and four of two.
    """
    sets = [gpus(memory) for memory in (80, 96, 141, 192)]
    pools = [
        PoolView(f"pool-{j}", NODES, sets[j % len(sets)], f"class-{j % len(sets)}")
        for j in range(POOLS)
    ]
    fleet = with_clusters(clusters, pools, URGENT)
    # A deployment has one replica on each of ten clusters.
    for cluster in range(clusters):
        for i in range(OWNED):
            pool, nodes = (
                (f"pool-{i}", NODES)
                if i < POOLS - 2
                else (f"pool-{POOLS - 2 + i % 2}", NODES // 2)
            )
            view = a_deployment(nodes, name=f"low-{cluster // OWNED}-{i}")
            put(fleet, view, cluster * OWNED + i, cluster, pool, **fields)
    return fleet


def urgent(nodes: int) -> DeploymentView:
    """Make a deployment that may preempt every existing replica."""
    return a_deployment(
        nodes, policy=PlacementPolicy(priority_class="high", preemption="LowerPriority")
    )


def neighbours(clusters: int, deployments: int) -> Fleet:
    """Make a fleet with spread deployments: twenty applications, one team."""
    fleet = with_clusters(
        clusters,
        [PoolView(f"pool-{j}", 32, gpus(), "class") for j in range(NODES)],
        SchedulerOptions(),
    )
    for number in range(deployments * OWNED):
        owner = number // OWNED
        view = a_deployment(
            name=f"there-{owner}", labels={"app": f"app-{owner % 20}", "team": "ml"}
        )
        put(
            fleet,
            view,
            number,
            (number * 7 + owner) % clusters,
            f"pool-{number % NODES}",
        )
    return fleet


def with_profile(clusters: int, profile: str) -> Fleet:
    """Make a fleet with pools of several prices, ten replicas on each cluster, and a
    profile.
    """
    weights = (
        {"spread": 3, "free": 2, "cost": 1, f"domain:{labels.REGION}": 1}
        if profile == WEIGHTED
        else {}
    )
    pools = [
        PoolView(
            f"pool-{j}",
            32,
            gpus(16 * (j + 1)),
            f"class-{j}",
            price_milli=100 * (POOLS - j),
        )
        for j in range(POOLS)
    ]
    fleet = with_clusters(
        clusters, pools, SchedulerOptions(profile=profile, weights=weights)
    )
    for number in range(clusters * OWNED):
        put(
            fleet,
            a_deployment(name=f"there-{number // OWNED}"),
            number,
            number % clusters,
            f"pool-{number * 7 % POOLS}",
        )
    return fleet


def gang(replicas: int, nodes: int) -> DeploymentView:
    """Make a gang that may preempt every existing replica."""
    policy = PlacementPolicy(
        priority_class="high", preemption="LowerPriority", gang_replicas=replicas
    )
    return a_deployment(nodes, replicas, policy=policy)


def choosy() -> DeploymentView:
    """Make a deployment with preferences.

    It prefers some applications, avoids another one and its team, and prefers an even
    spread over zones.
    """
    policy = PlacementPolicy(
        topology_spread=(
            SpreadConstraint(labels.ZONE, when_unsatisfiable="ScheduleAnyway"),
        ),
        affinity=(
            AffinityTerm({"app": "app-1"}, labels.REGION, weight=10),
            AffinityTerm({"app": "app-2"}, weight=3),
        ),
        anti_affinity=(
            AffinityTerm({"app": "app-3"}, labels.ZONE, weight=5),
            AffinityTerm({"team": "ml"}, weight=2),
        ),
    )
    return a_deployment(replicas=OWNED, policy=policy, labels={"app": "app-1"})


def under_quota(replicas: int, clusters: int = 200) -> Fleet:
    """Make a fleet with replicas where a namespace has a quota."""
    quotas = (
        Quota("bench", max_nodes=1_000_000),
        Quota("bench", max_devices=1_000_000, device_selector=SELECTOR),
    )
    fleet = with_clusters(
        clusters,
        [PoolView(f"pool-{j}", 64, gpus(), "class") for j in range(NODES)],
        SchedulerOptions(quotas=quotas),
    )
    for number in range(replicas):
        put(
            fleet,
            a_deployment(name=f"there-{number // OWNED}"),
            number,
            number % clusters,
            f"pool-{number // clusters % NODES}",
        )
    return fleet


def packed(replicas: int, nodes: int = 200) -> Fleet:
    """Make one cluster with replicas of one, two and four GPUs, three on each node."""
    options = SchedulerOptions(accounting=DEVICE_PACKED, packed_enforced=True)
    fleet = with_clusters(1, [PoolView("pool", nodes, gpus(), "class")], options)
    for number in range(replicas):
        view = a_deployment(
            count=(1, 2, 4)[number % 3], name=f"there-{number // OWNED}-{number % 3}"
        )
        put(fleet, view, number, 0, "pool", slots=(number // 3,))
    return fleet


def mixed(clusters: int) -> Fleet:
    """Make a fleet where few clusters are alike, with ten replicas on each."""
    dice = random.Random(1)  # noqa: S311  # repeatable on purpose
    sets = [gpus(16 + 4 * kind, 2 * REQUESTS_MAX) for kind in range(CLASSES)]
    fleet = Fleet()
    for i in range(clusters):
        where = {
            labels.REGION: f"region-{i % REGIONS}",
            labels.ZONE: f"zone-{i % ZONES}",
        }
        sizes = [dice.randint(NODES, 2 * NODES) for _ in range(POOLS)]
        pools = tuple(
            PoolView(f"pool-{j}", size, dice.choice(sets), "class")
            for j, size in enumerate(sizes)
        )
        name = f"cluster-{i:05d}"
        fleet.put_cluster(
            ClusterView(name, where, (), ready=True, gateway_address="gw", pools=pools)
        )
    for number in range(clusters * OWNED):
        owner = number // OWNED
        view = a_deployment(
            name=f"there-{owner}", labels={"app": f"app-{owner % 20}", "team": "ml"}
        )
        put(fleet, view, number, number % clusters, f"pool-{dice.randrange(POOLS)}")
    return fleet


def largest(copies: int) -> DeploymentView:
    """Make a deployment with as many engines, requests, spreads and terms as admission
    allows.
    """
    engines = []
    for number in range(ENGINES_MAX):
        selector = SELECTOR.replace("80Gi", f"{30 + number}Gi")
        requests = tuple(
            RequestView(f"gpu-{n}", 1, (selector,)) for n in range(REQUESTS_MAX)
        )
        members = (MemberView("Leader", 1, requests), MemberView("Worker", 1, requests))
        engines.append(EngineView(f"engine-{number}", members, copies=copies))
    terms = [
        AffinityTerm({"app": f"app-{n}"}, labels.ZONE)
        for n in range(AFFINITY_TERMS_MAX)
    ]
    keys = (labels.ZONE, labels.REGION)
    policy = PlacementPolicy(
        topology_spread=tuple(
            SpreadConstraint(keys[n % 2], n + 1) for n in range(SPREADS_MAX)
        ),
        affinity=tuple(replace(term, weight=n + 1) for n, term in enumerate(terms)),
        anti_affinity=tuple(
            replace(terms[0], match_labels={"app": f"none-{n}"})
            for n in range(len(terms))
        ),
    )
    return replace(a_deployment(policy=policy), engines=tuple(engines))


def tight(clusters: int) -> Fleet:
    """Make a fleet where only a long search finds that eight engines do not fit.

    The ten replicas of each cluster are on a pool that the engines cannot use.
    """
    large, sizes = gpus(160), (9, 7, 8, 6, 7, 9, 8)
    usable = [
        PoolView(f"pool-{j}", size, large, "large") for j, size in enumerate(sizes)
    ]
    pools = [*usable, PoolView("small", OWNED, gpus(16), "small")]
    fleet = with_clusters(clusters, pools, SchedulerOptions())
    for number in range(clusters * OWNED):
        view = a_deployment(name=f"there-{number // OWNED}")
        put(fleet, view, number, number % clusters, "small")
    return fleet


def eight_engines(*nodes: int) -> DeploymentView:
    """Make a deployment whose engines need this number of nodes each, of a large pool."""
    selector = SELECTOR.replace("80Gi", "150Gi")
    members = (MemberView(requests=(RequestView("gpu", GPUS, (selector,)),)),)
    engines = [
        EngineView(f"engine-{n}", members, copies) for n, copies in enumerate(nodes)
    ]
    return replace(a_deployment(), engines=tuple(engines))


def some_clusters_change(fleet: Fleet, turn: int) -> None:
    """Release a replica on ten clusters and put it back, which drops their cached free
    nodes.
    """
    for cluster in range(10 * turn, 10 * turn + 10):
        name = f"cluster-{cluster % len(fleet.clusters):05d}"
        entry = next(iter(fleet.on_cluster(name).values()))
        fleet.release(entry.uid)
        fleet.put_replica(entry)


# No decision takes two seconds, not even the first one for a template.
LONGEST_MS = 2_000
MEMORY_MB = 2_048
REFUSAL = {"p99_ms": 20, "first_ms": LONGEST_MS, "peak_mb": MEMORY_MB}
ONE_REPLICA = {"p99_ms": 50, "first_ms": LONGEST_MS, "peak_mb": MEMORY_MB}
PREEMPTION = {"p99_ms": 50}
SCENARIOS: Mapping[str, Scenario] = {
    "preemption, 1 node": Scenario(full, CLUSTERS, urgent(1), PREEMPTION, victims=1),
    "preemption, 4 nodes": Scenario(
        full, CLUSTERS, urgent(4), PREEMPTION, victims=None
    ),
    "preemption, more nodes than any pool has": Scenario(
        full, CLUSTERS, urgent(5), PREEMPTION, places=0
    ),
    "preemption, no replica can be spared": Scenario(
        partial(full, min_available=OWNED), CLUSTERS, urgent(1), PREEMPTION, places=0
    ),
    "preferred affinity and spread": Scenario(
        lambda clusters: neighbours(clusters, 2 * clusters),
        200,
        choosy(),
        {"p50_ms": 20, "p99_ms": 20},
        places=OWNED,
    ),
    "preferred affinity and spread, 10000 clusters, 100000 replicas": Scenario(
        lambda clusters: neighbours(clusters, clusters),
        CLUSTERS,
        choosy(),
        {"p50_ms": 20, "p99_ms": 20},
        places=OWNED,
    ),
    **{
        f"profile {name}, 10000 clusters, 100000 replicas": Scenario(
            partial(with_profile, profile=name),
            CLUSTERS,
            a_deployment(replicas=OWNED),
            {"p99_ms": 50},
            places=OWNED,
            turns=20,
        )
        for name in (*PROFILES, WEIGHTED)
    },
    **{
        f"profile {name}, one replica at a time, 10000 clusters, 100000 replicas": Scenario(
            partial(with_profile, profile=name), CLUSTERS, a_deployment(), ONE_REPLICA
        )
        for name in (*PROFILES, WEIGHTED)
    },
    **{
        f"refusal of {what}, 10000 clusters, 100000 replicas": Scenario(
            fleet, CLUSTERS, view, REFUSAL, places=0, between=some_clusters_change
        )
        for what, fleet, view in (
            ("the largest request, no pool has its nodes", mixed, largest(5)),
            ("the largest request, no cluster has its nodes", mixed, largest(4)),
            ("one engine", mixed, a_deployment(3 * NODES)),
        )
    },
    # Each decision searches further clusters until it may take no more steps.
    "refusal after a long search, eight engines, 10000 clusters, 100000 replicas": Scenario(
        tight,
        CLUSTERS,
        eight_engines(7, 7, 7, 6, 6, 4, 7, 6),
        {"p99_ms": LONGEST_MS, "first_ms": LONGEST_MS},
        places=0,
    ),
    "a gang of 200 that preempts, 10000 clusters, 100000 replicas": Scenario(
        full, CLUSTERS, gang(200, NODES), PREEMPTION, places=200, victims=None, turns=3
    ),
    "quota, 80 replicas": Scenario(under_quota, 80, a_deployment()),
    "quota, 8000 replicas": Scenario(under_quota, 8_000, a_deployment()),
    "device-packed, beside 400 replicas on a cluster": Scenario(
        packed, 400, a_deployment(count=2), {"p50_ms": 20, "p99_ms": 20}
    ),
    "device-packed, 400 replicas at once on a cluster": Scenario(
        partial(packed, 0),
        2_000,
        a_deployment(replicas=400, count=2),
        {"p50_ms": 20},
        places=400,
        turns=15,
    ),
}
GROWTH = (Growth("quota, 8000 replicas", "quota, 80 replicas", 1.5),)


def measure(
    scenario: Scenario, size: int, turns: int, seconds: float
) -> dict[str, Any]:
    """Decide and apply fresh deployments, each to its end, and return the cost of a replica.

    The first decision compiles the template, and is not counted.
    """
    fleet, asked = scenario.fleet(size), scenario.deployment
    # The sets of clusters are made once for all templates.
    fleet.index.refresh()
    spent = []
    until = time.monotonic() + seconds
    for turn in range(turns + 1):
        view = replace(asked, name=f"{asked.name}-{turn}", uid=f"{asked.uid}-{turn}")
        scenario.between(fleet, turn)
        started = time.process_time()
        while (
            decision := decide(fleet, [ScheduleRequest(f"ask-{turn}", view)], NOW)[0]
        ).search_goes_on:
            apply(fleet, decision, view)
        apply(fleet, decision, view)
        spent.append((time.process_time() - started) * 1000 / asked.replicas)
        if len(decision.placements) != scenario.places or scenario.victims not in (
            None,
            len(decision.victims),
        ):
            found = (
                f"{len(decision.placements)} places, {len(decision.victims)} victims: "
                f"{decision.conditions}"
            )
            raise SystemExit(f"a decision is not what is measured: {found}")
        if turn and time.monotonic() > until:
            break
    counted = sorted(spent[1:])
    return {
        "decisions": len(counted),
        "first_ms": round(spent[0], 3),
        "p50_ms": round(percentile(counted, 0.5), 3),
        "p99_ms": round(percentile(counted, 0.99), 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "python": platform.python_version(),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), required=True)
    parser.add_argument(
        "--seconds", type=float, default=30, help="no decision is begun after so long"
    )
    chosen = parser.parse_args(arguments)
    scenario = SCENARIOS[chosen.scenario]
    figures = measure(scenario, scenario.size, scenario.turns, chosen.seconds)
    sys.stdout.write(json.dumps({"scenario": chosen.scenario, **figures}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
