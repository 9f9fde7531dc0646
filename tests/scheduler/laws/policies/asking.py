"""Questions and repetition: I3, I4, I5, I10, I13 and that asking changes no later answer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from scheduler.decide import apply, decide, decide_and_explain
from scheduler.fleet.fleet import Fleet
from scheduler.model.decision import Decision
from scheduler.planning.questions import can_drain, headroom
from scheduler.planning.whatif import Changes, plan
from tests.scheduler.builders import NOW
from tests.scheduler.laws.policies.books import nodes_of
from tests.scheduler.laws.policies.steps import Outcome
from tests.scheduler.laws.policies.worlds import World

Found = Iterator[str]
# A rollout of five replicas one at a time, what drains meanwhile, and deployments that were preempted and are placed again.
STEPS_MAX = 16


def i3_the_order_of_what_is_known_changes_nothing(outcome: Outcome) -> Found:
    world = outcome.world
    dice = random.Random(world.seed)  # noqa: S311  # not for secrets
    clusters, replicas = list(world.clusters), list(world.replicas)
    dice.shuffle(clusters)
    dice.shuffle(replicas)
    other = replace(world, clusters=tuple(clusters), replicas=tuple(replicas))
    yield from _different(outcome.batch, decide(other.build(), other.requests(), NOW), "in another order")


def i5_no_identity_and_no_name_is_given_twice(outcome: Outcome) -> Found:
    running = [entry for entry in outcome.fleet.entries() if entry.state != "Releasing"]
    for what in (
        Counter((e.namespace, e.deployment, e.cluster, e.index) for e in running),
        Counter((e.namespace, e.name) for e in running),
        Counter((e.cluster, e.name) for e in running),
    ):
        yield from (f"{key} {count} times" for key, count in what.items() if count > 1)


def i7_more_capacity_drops_nothing_that_was_kept(outcome: Outcome) -> Found:
    """A replica that only stayed because its successor had no place is the exception, and is noted as such."""
    world, first = outcome.world, outcome.steps[0]
    if first.surges:
        return
    pools = {c.name: tuple(replace(p, nodes=p.nodes + 1 + world.seed % 3) for p in c.pools) for c in world.clusters}
    larger = replace(world, clusters=tuple(replace(c, pools=pools[c.name]) for c in world.clusters))
    after = decide(larger.build(), larger.requests()[:1], NOW)[0]
    noted = {note.replica_name for note in first.decision.notes}
    lost = {p.replica_name for p in first.kept} - noted - {p.replica_name for p in after.placements}
    # The budget of a rollout may go to one that was blocked, instead of to another.
    if lost and not noted:
        yield f"{sorted(lost)} are dropped once there is more"


def i13_a_batch_is_its_single_decisions_in_order(outcome: Outcome) -> Found:
    yield from _different([step.decision for step in outcome.steps[: len(outcome.batch)]], outcome.batch, "in a batch")


def asking_changes_no_later_answer(outcome: Outcome) -> Found:
    """One fleet is asked everything before it decides."""
    world = outcome.world
    built = world.build()
    views = world.deployments
    # Plans settle the whole fleet several times, and explanations visit every pool, so each is asked for in some worlds only.
    number = world.seed % 20
    if number == 0:
        plan(built, Changes(drained=(world.clusters[0].name,)), views, NOW)
    elif number == 1:
        headroom(built, views[-1], NOW)
    elif number == 2:
        can_drain(built, world.clusters[-1].name, views, NOW)
    elif number % 3 == 0:
        decide_and_explain(built, world.requests(), NOW)
    yield from _different(outcome.batch, decide(built, world.requests(), NOW), "after other questions")
    for step, decision in zip(outcome.steps[: len(outcome.batch)], _one_by_one(built, world), strict=True):
        yield from _different([step.decision], [decision], "one by one after other questions")


def _one_by_one(built: Fleet, world: World) -> Iterator[Decision]:
    """Decide each request after another deployment asked for the same without being placed."""
    for request in world.requests():
        twin = replace(request.deployment, name=f"{request.deployment.name}-twin", uid="twin")
        decide(built, [replace(request, deployment=twin, request_id="twin")], NOW)
        decision = decide(built, [request], NOW)[0]
        apply(built, decision, request.deployment)
        yield decision


def _different(expected: list[Decision], got: list[Decision], when: str) -> Found:
    for one, other in zip(expected, got, strict=True):
        if one != other:
            fields = [name for name in Decision.__slots__ if getattr(one, name) != getattr(other, name)]
            yield f"{one.deployment} {when}: {fields}, {one.message!r} and {other.message!r}"


def i10_the_ledger_equals_a_recount(outcome: Outcome) -> Found:
    built = outcome.fleet
    yield from built.audit()
    for name, info in built.clusters.items():
        state = outcome.steps[-1].after if outcome.steps else outcome.world.state()
        recount: Counter[str] = Counter()
        for entry in state.on(name):
            recount.update(nodes_of(entry.engines))
            # What a new replica reuses is charged once for it and for the one that leaves.
            recount.subtract(dict(entry.reuse))
        for pool in info.pools:
            used = pool.nodes - built.free(name)[pool.name]
            if used != recount[pool.name]:
                yield f"{name}/{pool.name}: {used} nodes charged, {recount[pool.name]} by recount"


def i4_the_same_question_again_keeps_everything(outcome: Outcome) -> Found:
    """Nothing has changed since the last decision, so its deployment is told the same; later ones may have freed or taken something."""
    step = outcome.steps[-1]
    if step.decision.more or step.updated:
        return
    again = decide(outcome.fleet, [replace(outcome.later[-1], request_id="again")], outcome.now)[0]
    moved = [p.replica_name for p in again.placements if p.action != "Keep"]
    if moved or again.evictions or again.victims:
        yield f"{again.deployment} asked again: {moved}, evictions {again.evictions}, victims {again.victims}"


def i4_what_was_decided_stays_decided(outcome: Outcome) -> Found:
    """What was released goes, what was placed gets Ready, every deployment asks again; in the end nothing moves any more."""
    built, now = outcome.fleet, outcome.now
    for number in range(STEPS_MAX):
        for entry in list(built.entries()):
            if entry.state == "Releasing":
                built.release(entry.uid)
            else:
                built.bind(entry.uid, now)
                built.observe(entry.uid, ready=True, serving=True)
        yield from built.audit()
        version = built.version
        for request in outcome.later:
            apply(built, decide(built, [replace(request, request_id=f"step-{number}")], now)[0], request.deployment)
        if built.version == version:
            return
    yield f"still moving after {STEPS_MAX} steps"


QUESTIONS = (
    i3_the_order_of_what_is_known_changes_nothing,
    i5_no_identity_and_no_name_is_given_twice,
    i7_more_capacity_drops_nothing_that_was_kept,
    i10_the_ledger_equals_a_recount,
    i13_a_batch_is_its_single_decisions_in_order,
    asking_changes_no_later_answer,
    i4_the_same_question_again_keeps_everything,
    # This one changes the fleet, so it comes last.
    i4_what_was_decided_stays_decided,
)
