"""A fleet with caches decides like a fresh fleet with the same state."""

from dataclasses import replace
from itertools import product

import pytest

from api_types import labels
from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import ClusterView, PoolObservation, PoolView
from scheduler.model.policy import BEST_EFFORT, STRICT_ORDER
from scheduler.placement.score import PROFILES, WEIGHABLE, WEIGHTED
from tests.random_cases import SEED, cases
from tests.scheduler.builders import NOW
from tests.scheduler.laws.policies.steps import pass_time
from tests.scheduler.laws.policies.worlds import Dice, World, edited_later, random_world

WORLDS = 60
ROUNDS = 3


def varied(world: World, dice: Dice) -> World:
    """Return a world with other profiles, more engines, and pools that an adapter
    observed.
    """
    profile = dice.choice((*PROFILES, WEIGHTED))
    options = replace(
        world.options,
        profile=profile,
        weights={name: dice.randint(1, 9) for name in WEIGHABLE}
        if profile == WEIGHTED
        else {},
        queue_order=dice.choice((BEST_EFFORT, BEST_EFFORT, STRICT_ORDER)),
        accounting=dice.choice(("node", "node", world.options.accounting)),
        quotas=world.options.quotas if dice.chance(0.5) else (),
    )
    deployments = []
    for view in world.deployments:
        names = [str(n) for n in range(dice.choice((1, 1, 3)))]
        engines = tuple(
            replace(one, name=f"{one.name}-{n}")
            for n, one in product(names, view.engines)
        )
        policy = replace(view.policy, profile=dice.choice(("", view.policy.profile)))
        deployments.append(replace(view, engines=engines, policy=policy))
    clusters = tuple(_observed(dice, view) for view in world.clusters)
    return replace(
        world, options=options, clusters=clusters, deployments=tuple(deployments)
    )


def _observed(dice: Dice, view: ClusterView) -> ClusterView:
    where = {
        labels.REGION: dice.choice(("us", "eu")),
        labels.ZONE: dice.choice(("z1", "z2")),
    }
    pools = tuple(_seen(dice, pool) for pool in view.pools)
    return replace(view, labels={**view.labels, **where}, pools=pools)


def _seen(dice: Dice, pool: PoolView) -> PoolView:
    at = NOW - dice.randint(0, 600) * 1000
    seen = PoolObservation(schedulable=dice.randint(0, 3), observed_at=at)
    return replace(pool, observed=seen) if dice.chance(0.2) else pool


def rebuilt(built: Fleet) -> Fleet:
    made = Fleet(built.options)
    for info in built.clusters.values():
        made.put_cluster(info.view)
    for entry in built.entries():
        made.put_replica(entry)
    made.preempted_at.update(built.preempted_at)
    made.refused.update(built.refused)
    made.queue_reservations.update(built.queue_reservations)
    made.unfinished_searches.update(built.unfinished_searches)
    made.ended_searches.update(built.ended_searches)
    return made


def published_again(built: Fleet, dice: Dice, now: int) -> None:
    """Publish some clusters with more or fewer nodes."""
    for name in sorted(built.clusters):
        if dice.chance(0.3):
            view = built.clusters[name].view
            nodes = [
                max(0, pool.nodes + dice.choice((-1, 0, 1))) for pool in view.pools
            ]
            pools = (
                replace(pool, nodes=n)
                for pool, n in zip(view.pools, nodes, strict=True)
            )
            built.put_cluster(replace(view, pools=tuple(pools)), now)


@pytest.mark.random
def test_earlier_decisions_change_no_decision() -> None:
    for number in range(SEED, SEED + cases(WORLDS)):
        dice = Dice(number)
        world = varied(random_world(number), dice)
        built, now, requests = world.build(), NOW, world.requests()
        for turn in range(ROUNDS):
            for request in requests:
                asked = replace(request, request_id=f"{turn}-{request.request_id}")
                cold = rebuilt(built)
                found = decide(built, [asked], now)
                assert found == decide(cold, [asked], now), (
                    f"world {number}, round {turn}"
                )
                apply(built, found[0], asked.deployment)
            now += dice.choice((1, 60, 600)) * 1000
            pass_time(built, dice, now)
            published_again(built, dice, now)
            later = [edited_later(dice, request.deployment) for request in requests]
            requests = [
                replace(r, deployment=v) for r, v in zip(requests, later, strict=True)
            ]
