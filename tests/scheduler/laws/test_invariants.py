"""The laws of the scheduler over random fleets:

1,500 in `make test`, 10,000 in `make campaign`.

A fleet follows from its number, and a failure names the number. Numbers in `FOUND` are
tried on every run.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.cel import SelectorError, compile_selector
from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.device_matching import member_need
from scheduler.hardware.template import charges
from scheduler.model.decision import Decision
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import DeploymentView, RequestView, ScheduleRequest
from scheduler.model.policy import PlacementPolicy, RolloutPolicy, SchedulerOptions
from scheduler.model.rules import MatchRules
from tests.environment.effort import effort_below
from tests.random_cases import SEED, cases, random_cases
from tests.scheduler.builders import (
    NOW,
    alone,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    pool,
)
from tests.scheduler.laws.fleets import World, random_world, worlds
from tests.scheduler.laws.naive import decide_naively, grows

FLEETS = 1_500
# Numbers of fleets that once broke a law.
FOUND: tuple[int, ...] = ()
# Chunks let processes share the fleets, and keep each test short.
SHARES = 10
# A rollout of five replicas one at a time, and drains in between.
STEPS_MAX = 12
# Processor seconds for a decision that loads the selector engine: far more than the
# usual half second.
EFFORT_MAX = 500
REFERENCE = SchedulerOptions(compat="reference")
fuzzed = random_cases(200)


def all_requests(world: World) -> list[ScheduleRequest]:
    return [ScheduleRequest(f"ask-{view.name}", view) for view in world.deployments]


@dataclass(frozen=True)
class Outcome:
    """A fleet after its requests were decided in one batch and applied, and the
    decisions.
    """

    world: World
    fleet: Fleet
    made: list[Decision]


def run(world: World) -> Outcome:
    built = world.build()
    made = decide(built, all_requests(world), NOW)
    for decision in made:
        apply(built, decision)
    return Outcome(world, built, made)


def free(built: Fleet) -> dict[tuple[str, str], int]:
    return {
        (name, at): nodes
        for name in built.clusters
        for at, nodes in built.free(name).items()
    }


def no_pool_is_promised_more_than_it_has(outcome: Outcome) -> None:
    world = outcome.world
    before = free(world.build())
    after = free(outcome.fleet)
    assert all(nodes >= 0 or nodes >= before[at] for at, nodes in after.items())


def new_engines_are_on_published_pools_with_something_to_claim(
    outcome: Outcome,
) -> None:
    built, made = outcome.fleet, outcome.made
    for decision in made:
        for placement in decision.placements:
            if placement.action not in ("Create", "Replace"):
                continue
            for placed in placement.engines:
                assert {member.pool for member in placed.members} <= set(
                    built.clusters[placement.cluster].positions
                )
                assert len({member.pool for member in placed.members}) == 1
                assert any(member.requests for member in placed.members)


def the_order_of_inputs_changes_nothing(outcome: Outcome) -> None:
    world = outcome.world
    clusters, replicas = list(world.clusters), list(world.replicas)
    dice = random.Random(world.seed)  # noqa: S311  # not for secrets
    dice.shuffle(clusters)
    dice.shuffle(replicas)
    other = replace(world, clusters=tuple(clusters), replicas=tuple(replicas))
    assert [d.digest for d in outcome.made] == [
        d.digest for d in decide(other.build(), all_requests(world), NOW)
    ]


def decided_replicas_stay(outcome: Outcome) -> None:
    """Rolling changes take several steps, so the steps are taken first; then nothing
    may move.
    """
    world = outcome.world
    built = outcome.fleet
    for step in range(STEPS_MAX):
        for entry in list(built.entries()):
            if entry.state == "Releasing":
                built.release(entry.uid)
            else:
                built.observe(entry.uid, ready=True, serving=True)
        version = built.version
        for view in world.deployments:
            apply(built, decided(built, view, request_id=f"step-{step}"))
        if built.version == version:
            break
    for view in world.deployments:
        again = decided(built, view, request_id="again")
        assert (again.evictions, again.victims) == ((), ())
        assert all(placement.action == "Keep" for placement in again.placements)


def no_identity_and_no_name_is_given_twice(outcome: Outcome) -> None:
    made = outcome.made
    placements = [(d.namespace, d.deployment, p) for d in made for p in d.placements]
    identities = Counter((ns, name, p.cluster, p.index) for ns, name, p in placements)
    names = Counter((ns, p.replica_name) for ns, _, p in placements)
    on_cluster = Counter((p.cluster, p.replica_name) for _, _, p in placements)
    assert all(
        count == 1
        for counts in (identities, names, on_cluster)
        for count in counts.values()
    )


def a_shortfall_has_a_reason_for_every_cluster(outcome: Outcome) -> None:
    built, made = outcome.fleet, outcome.made
    for decision in made:
        assert len(decision.placements) <= decision.desired
        assert decision.shortfall == decision.desired - len(decision.placements)
        if decision.shortfall:
            assert sum(group.count for group in decision.diagnosis.groups) == len(
                built.clusters
            )


def more_capacity_drops_no_kept_replica(outcome: Outcome) -> None:
    """An exception is a replica that stayed because its successor had no place; it is
    reported as such.
    """
    world = outcome.world
    view = world.deployments[0]
    more = 1 + world.seed % 4
    before = outcome.made[0]
    blocked = {note.replica_name for note in before.notes}
    larger = tuple(
        replace(c, pools=tuple(replace(p, nodes=p.nodes + more) for p in c.pools))
        for c in world.clusters
    )
    after = decided(replace(world, clusters=larger).build(), view)
    kept = {
        p.uid
        for p in before.placements
        if p.action in ("Keep", "Update") and p.replica_name not in blocked
    }
    assert kept <= {p.uid for p in after.placements} | {
        e.uid for e in after.evictions if blocked
    }


def a_kept_replica_stays_where_it_was_placed(outcome: Outcome) -> None:
    world = outcome.world
    existing = {entry.uid: entry for entry in world.replicas}
    for decision in outcome.made:
        for placement in decision.placements:
            entry = existing.get(placement.uid)
            if entry is None:
                continue
            assert (placement.cluster, placement.index, placement.replica_name) == (
                entry.cluster,
                entry.index,
                entry.name,
            )
            pools = {
                engine.engine: [member.pool for member in engine.members]
                for engine in entry.engines
            }
            assert {
                engine.engine: [member.pool for member in engine.members]
                for engine in placement.engines
            } == pools


def filling_never_stops_while_some_arrangement_fits(outcome: Outcome) -> None:
    """Brute force over every arrangement of one more replica's engines on every
    candidate cluster.
    """
    world = outcome.world
    view, decision = world.deployments[0], outcome.made[0]
    if not decision.shortfall:
        return
    built = world.build()
    apply(built, decision)
    for name in built.clusters:
        assert not fits_somewhere(built, view, name), name


def fits_somewhere(built: Fleet, view: DeploymentView, name: str) -> bool:
    info = built.clusters[name]
    seen = info.view
    taints = () if view.tolerations else seen.taints
    if not seen.ready or seen.deleting or not seen.gateway_address or taints:
        return False
    if any(seen.labels.get(key) != value for key, value in view.match_labels.items()):
        return False
    free_nodes = built.free(name)
    needs = [
        [member_need(m.requests, MatchRules()) for m in e.members] for e in view.engines
    ]

    def fit(i: int, free: dict[str, int]) -> bool:
        if i == len(view.engines):
            return True
        capable = [
            any(n.fit(p.device_set).resolved for p in info.pools) for n in needs[i]
        ]
        if not any(capable):
            return False
        cost = view.engines[i].copies * sum(
            (m.worker_nodes if m.role == "Worker" else 1)
            for m, claims in zip(view.engines[i].members, capable, strict=True)
            if claims
        )
        for one in info.pools:
            fits = [n.fit(one.device_set) for n in needs[i]]
            usable = all(
                f.fits and (bool(f.resolved) or not c)
                for f, c in zip(fits, capable, strict=True)
            )
            if (
                usable
                and free[one.name] >= cost
                and fit(i + 1, {**free, one.name: free[one.name] - cost})
            ):
                return True
        return False

    return fit(0, dict(free_nodes))


def the_ledger_equals_a_recount(outcome: Outcome) -> None:
    built = outcome.fleet
    assert built.audit() == []
    for entry in list(built.entries()):
        if entry.state == "Releasing":
            built.release(entry.uid)
    assert built.audit() == []
    for name in built.clusters:
        recount: Counter[str] = Counter()
        for entry in built.entries():
            if entry.cluster == name:
                recount.update(charges(entry.charged))
        used = {
            pool: built.clusters[name].pools[p].nodes - built.free(name)[pool]
            for pool, p in built.clusters[name].positions.items()
        }
        assert used == {pool: recount[pool] for pool in used}


# Each would take minutes, hours, or all memory without the limit that refuses it.
_NUMBERS = str(list(range(60)))
ENDLESS = [
    (f"{'!' * 20_000}true", "the selector has 20004 bytes, 10240 are allowed"),
    (
        (
            f"{_NUMBERS}.all(a, {_NUMBERS}.all(b, {_NUMBERS}.all(c, "
            f"{_NUMBERS}.all(d, a + b + c + d >= 0))))"
        ),
        "the selector may cost 145635251 units, 20000 are allowed",
    ),
    (f"{'(' * 5_000}true{')' * 5_000}", "the selector nests deeper than 250 levels"),
]


@pytest.mark.parametrize(("selector", "why"), ENDLESS, ids=["length", "cost", "depth"])
def test_a_practically_endless_selector_is_rejected_without_evaluation(
    selector: str, why: str
) -> None:
    with pytest.raises(SelectorError, match=why):
        compile_selector(selector)


@fuzzed
@example(ENDLESS[0][0], "1.0.0", "1Gi", 1, 1)
@example(ENDLESS[1][0], "1.0.0", "1Gi", 1, 1)
@example(ENDLESS[2][0], "1.0.0", "1Gi", 1, 1)
@given(
    st.text(max_size=40),
    st.text(max_size=12),
    st.text(max_size=12),
    st.integers(-2, 70),
    st.integers(1, 64),
)
def test_no_selector_and_no_device_stops_the_scheduler(
    selector: str, value: str, quantity: str, have: int, count: int
) -> None:
    entry = DeviceEntry(
        "gpu",
        "DRA",
        "d",
        "c",
        have,
        (("a", "version", value),),
        (("memory", quantity),),
    )
    built = fleet(cluster("a", pool("p", 1, entry)))
    with effort_below(EFFORT_MAX):
        decision = decided(
            built,
            deployment(engine("main", alone(RequestView("r", count, (selector,))))),
        )
    assert len(decision.placements) <= 1


def the_reference_decides_the_same(outcome: Outcome) -> None:
    """Compare with a second program; cases in which the reference overcommits nodes are
    skipped.
    """
    world = outcome.world
    view = world.deployments[0]
    clusters, replicas = list(world.clusters), list(world.replicas)
    if any(
        grows(entry, view, clusters)
        for entry in replicas
        if entry.deployment == view.name
    ):
        return
    built = world.build()
    built.set_options(REFERENCE)
    ours = decide(built, [ScheduleRequest("ask", view)], NOW)[0].placements
    placed = [
        (p.cluster, p.index, {e.engine: e.members[0].pool for e in p.engines})
        for p in ours
    ]
    assert placed == [
        (s.cluster, s.index, dict(s.pools))
        for s in decide_naively(clusters, replicas, view)
    ]


def a_batch_equals_its_single_decisions_in_order(outcome: Outcome) -> None:
    world = outcome.world
    single = world.build()
    one_by_one = []
    for request in all_requests(world):
        one_by_one += decide(single, [request], NOW)
        apply(single, one_by_one[-1])
    assert list(outcome.made) == one_by_one


LAWS = (
    no_pool_is_promised_more_than_it_has,
    new_engines_are_on_published_pools_with_something_to_claim,
    the_order_of_inputs_changes_nothing,
    no_identity_and_no_name_is_given_twice,
    a_shortfall_has_a_reason_for_every_cluster,
    more_capacity_drops_no_kept_replica,
    a_kept_replica_stays_where_it_was_placed,
    filling_never_stops_while_some_arrangement_fits,
    the_reference_decides_the_same,
    a_batch_equals_its_single_decisions_in_order,
    # These two laws change the fleet, so they come last.
    the_ledger_equals_a_recount,
    decided_replicas_stay,
)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.random
def test_every_law_holds_on_random_fleets(share: int) -> None:
    for number in (*FOUND, *range(SEED, SEED + cases(FLEETS)))[share::SHARES]:
        try:
            outcome = run(random_world(number))
            for law in LAWS:
                law(outcome)
        except Exception as broken:
            broken.add_note(f"fleet {number}")
            raise


@fuzzed
@given(worlds())
def test_a_decision_leaves_the_fleet_as_it_was(world: World) -> None:
    built = world.build()
    before = (
        built.version,
        sorted(built.entries(), key=lambda entry: entry.uid),
        [info.view for info in built.clusters.values()],
    )
    decide(built, all_requests(world), NOW)
    after = (
        built.version,
        sorted(built.entries(), key=lambda entry: entry.uid),
        [info.view for info in built.clusters.values()],
    )
    assert after == before
    assert built.audit() == []


@fuzzed
@given(
    worlds(),
    st.sampled_from(
        (
            RolloutPolicy("AllAtOnce"),
            RolloutPolicy(max_surge=1),
            RolloutPolicy(max_surge=2, max_unavailable=0),
        )
    ),
)
def test_every_rollout_ends_with_all_replicas_on_the_current_template(
    world: World, rollout: RolloutPolicy
) -> None:
    view = replace(world.deployments[0], policy=PlacementPolicy(rollout))
    built = world.build()
    for step in range(30):
        decision = decided(built, view, request_id=f"step-{step}")
        apply(built, decision)
        for entry in list(built.entries()):
            if entry.state == "Releasing":
                built.release(entry.uid)
            else:
                built.observe(entry.uid, ready=True, serving=True)
    stuck = {note.replica_name for note in decision.notes}
    old = [
        p.replica_name
        for p in decision.placements
        if p.template != view.template and p.replica_name not in stuck
    ]
    assert old == []
    assert len(decision.placements) <= view.replicas + 2
