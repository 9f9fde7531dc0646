"""Charged devices that follow the change log equal a recount."""

import random
from dataclasses import replace

import pytest

from scheduler.fleet.ledger import Ledger
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import ClusterLoad
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import BOUND, RELEASING
from tests.scheduler.builders import (
    NAMESPACE,
    NOW,
    cluster,
    deployment,
    engine,
    fleet,
    pool,
    put_replicas,
)

OWNER = (NAMESPACE, "m")
OTHER = (NAMESPACE, "other")


def changed(dice: random.Random, entry: LedgerEntry) -> LedgerEntry:
    state = dice.choice((BOUND, RELEASING))
    return replace(
        entry,
        state=state,
        nominated_for=dice.choice((None, OWNER, OTHER)) if state == RELEASING else None,
    )


def recounted(ledger: Ledger, name: str, load: ClusterLoad) -> ClusterLoad:
    leaving = {entry.uid for entry in ledger.leaving_for(OWNER)}
    return ClusterLoad(
        load.pools,
        [entry for uid, entry in ledger.on_cluster(name).items() if uid not in leaving],
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_load_without_a_deployment_equals_a_recount(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
    world = fleet(*(cluster(name, pool("p", 9), pool("q", 9)) for name in "ab"))
    for name in ("m", "other", "third"):
        for at in "ab":
            for pools in "pq":
                put_replicas(
                    world,
                    deployment(engine(copies=2), name=name),
                    f"{at}/{'pq'.index(pools)}",
                    pools=pools,
                )
    overlay = FleetOverlay(world, NOW)
    ledger = overlay.ledger
    for _ in range(60):
        entry = dice.choice(sorted(ledger.entries(), key=lambda each: each.uid))
        if dice.random() < 0.05:
            ledger.remove(entry.uid)
        else:
            ledger.put(changed(dice, entry))
        for name, info in overlay.clusters.items():
            if dice.random() < 0.5:
                load = overlay.loads_beside(OWNER).on(name, info.pools)
                assert load.differences(recounted(ledger, name, load)) == []
                assert sorted(e.uid for e in ledger.leaving_on(OWNER, name)) == sorted(
                    e.uid for e in ledger.leaving_for(OWNER) if e.cluster == name
                )
