"""Random small fleets for property tests: clusters, pools, deployments and their
events.

A world follows from one number, so ten thousand of them are quickly made and a failure
is repeated by its number alone.
"""

import random
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import (
    ClusterTaint,
    ClusterView,
    DeploymentView,
    EngineView,
    LedgerEntry,
    MemberView,
    PoolView,
)
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    at_least,
    cluster,
    deployment,
    engine,
    fleet,
    gpu,
    leader,
    placed_engines,
    pool,
    tolerate,
    worker,
)

MEMORIES = ("40Gi", "80Gi", "141Gi")
ENTRIES = (
    *(gpu(memory, count) for memory in MEMORIES for count in (1, 8)),
    gpu("141Gi", claim="Synthetic"),
)
REGIONS = ("us", "eu")
TAINTS = (ClusterTaint("x", "", "NoSchedule"), ClusterTaint("x", "", "NoExecute"))
STATES = ("Bound", "Bound", "Reserved", "Releasing")
CLUSTERS_MAX = 12
POOLS_MAX = 8
ENGINES_MAX = 4


@dataclass(frozen=True)
class World:
    """A fleet as plain lists, so that it can be built in any order, and the scheduled
    deployments.
    """

    seed: int
    clusters: tuple[ClusterView, ...]
    replicas: tuple[LedgerEntry, ...]
    deployments: tuple[DeploymentView, ...]

    def build(self) -> Fleet:
        made = fleet(*self.clusters)
        for entry in self.replicas:
            made.put_replica(entry)
        return made

    def __repr__(self) -> str:
        return f"random_world({self.seed})"


def small(dice: random.Random, most: int) -> int:
    """Return a size from 1 to `most`; small ones are more frequent, because they
    collide more.
    """
    return min(dice.randint(1, most), dice.randint(1, most))


def chance(dice: random.Random, share: float) -> bool:
    return dice.random() < share


def random_engine(dice: random.Random, name: str) -> EngineView:
    request = ask(at_least(dice.choice(MEMORIES)), count=dice.choice((1, 4, 8)))
    if chance(dice, 0.6):
        return engine(name, alone(request), copies=dice.randint(1, 3))
    members: tuple[MemberView, ...] = (
        leader() if chance(dice, 0.5) else leader(request),
        worker(dice.randint(1, 3), request),
    )
    return engine(name, *members)


def random_pool(dice: random.Random, name: str) -> PoolView:
    return pool(name, dice.randint(0, 6), *dice.sample(ENTRIES, dice.randint(1, 2)))


def random_cluster(dice: random.Random, name: str) -> ClusterView:
    return cluster(
        name,
        *(random_pool(dice, f"p{i}") for i in range(small(dice, POOLS_MAX + 1) - 1)),
        labels={"region": dice.choice(REGIONS)},
        taints=[dice.choice(TAINTS)] if chance(dice, 0.2) else [],
        ready=chance(dice, 0.85),
        gateway_address="gw" if chance(dice, 0.85) else "",
        deleting=chance(dice, 0.1),
    )


def random_deployment(dice: random.Random, name: str) -> DeploymentView:
    return deployment(
        *(random_engine(dice, f"e{i}") for i in range(small(dice, ENGINES_MAX))),
        name=name,
        want=dice.randint(0, 5),
        match_labels={"region": "us"} if chance(dice, 0.3) else {},
        tolerations=(tolerate("x"),) if chance(dice, 0.3) else (),
    )


def random_world(seed: int) -> World:
    """Make a world.

    Its replicas were placed for deployments like the scheduled ones, some of them
    edited since.
    """
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    names = [f"c{i:02}" for i in range(small(dice, CLUSTERS_MAX))]
    views = tuple(random_cluster(dice, name) for name in names)
    asking = tuple(random_deployment(dice, f"d{i}") for i in range(dice.randint(1, 3)))
    built = fleet(*views)
    entries: dict[tuple[str, str, int], LedgerEntry] = {}
    for number in range(dice.randint(0, 6)):
        owner = dice.choice(asking)
        at = dice.choice((*names, *names, "gone"))
        index = dice.randint(0, 3)
        view = (
            owner
            if chance(dice, 0.6)
            else replace(random_deployment(dice, owner.name), template="v0")
        )
        published = [
            *(built.clusters[at].positions if at in built.clusters else ()),
            "lost",
        ]
        state = dice.choice(STATES)
        ready = state == "Bound" and chance(dice, 0.7)
        entries[owner.name, at, index] = LedgerEntry(
            f"uid-{number}",
            owner.namespace,
            owner.name,
            at,
            index,
            f"{owner.name}-{at}-{index}",
            placed_engines(
                view, [dice.choice(published) for _ in view.engines], built, at
            ),
            state,
            since=NOW,
            ready=ready,
            serving=ready,
            template=view.template,
        )
    return World(seed, views, tuple(entries.values()), asking)


def worlds() -> st.SearchStrategy[World]:
    """Yield worlds by their numbers."""
    return st.integers(0, 2**32 - 1).map(random_world)
