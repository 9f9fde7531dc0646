"""Laws about questions and repetition.

Equal inputs give equal decisions, a repeated request changes nothing, and questions
change no later answer.
"""

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
# A rollout of five replicas one at a time, drains in between, and deployments that were
# preempted and are placed again.
STEPS_MAX = 16


def the_order_of_inputs_changes_nothing(outcome: Outcome) -> Found:
    world = outcome.world
    dice = random.Random(world.seed)  # noqa: S311  # not for secrets
    clusters, replicas = list(world.clusters), list(world.replicas)
    dice.shuffle(clusters)
    dice.shuffle(replicas)
    other = replace(world, clusters=tuple(clusters), replicas=tuple(replicas))
    yield from _different(
        outcome.batch, decide(other.build(), other.requests(), NOW), "in another order"
    )


def no_identity_and_no_name_is_given_twice(outcome: Outcome) -> Found:
    running = [entry for entry in outcome.fleet.entries() if entry.state != "Releasing"]
    for what in (
        Counter((e.namespace, e.deployment, e.cluster, e.index) for e in running),
        Counter((e.namespace, e.name) for e in running),
        Counter((e.cluster, e.name) for e in running),
    ):
        yield from (f"{key} {count} times" for key, count in what.items() if count > 1)


def more_capacity_drops_no_kept_replica(outcome: Outcome) -> Found:
    """An exception is a replica that stayed because its successor had no place; a note
    says so.
    """
    world, first = outcome.world, outcome.steps[0]
    if first.surges:
        return
    pools = {
        c.name: tuple(replace(p, nodes=p.nodes + 1 + world.seed % 3) for p in c.pools)
        for c in world.clusters
    }
    larger = replace(
        world, clusters=tuple(replace(c, pools=pools[c.name]) for c in world.clusters)
    )
    after = decide(larger.build(), larger.requests()[:1], NOW)[0]
    noted = {note.replica_name for note in first.decision.notes}
    lost = (
        {p.replica_name for p in first.kept}
        - noted
        - {p.replica_name for p in after.placements}
    )
    # The budget of a rollout may go to a blocked replica instead of another one.
    if lost and not noted:
        yield f"{sorted(lost)} are dropped once there is more"


def a_batch_equals_its_single_decisions_in_order(outcome: Outcome) -> Found:
    yield from _different(
        [step.decision for step in outcome.steps[: len(outcome.batch)]],
        outcome.batch,
        "in a batch",
    )


def asking_changes_no_later_answer(outcome: Outcome) -> Found:
    """One fleet answers all questions before it decides."""
    world = outcome.world
    built = world.build()
    views = world.deployments
    # Plans settle the whole fleet several times, and explanations visit every pool, so
    # only some worlds ask for each.
    number = world.seed % 20
    if number == 0:
        plan(built, Changes(drained=(world.clusters[0].name,)), views, NOW)
    elif number == 1:
        headroom(built, views[-1], NOW)
    elif number == 2:
        can_drain(built, world.clusters[-1].name, views, NOW)
    elif number % 3 == 0:
        decide_and_explain(built, world.requests(), NOW)
    yield from _different(
        outcome.batch, decide(built, world.requests(), NOW), "after other questions"
    )
    for step, decision in zip(
        outcome.steps[: len(outcome.batch)], _one_by_one(built, world), strict=True
    ):
        yield from _different(
            [step.decision], [decision], "one by one after other questions"
        )


def _one_by_one(built: Fleet, world: World) -> Iterator[Decision]:
    """Decide each request after a dry run of the same request for another deployment."""
    for request in world.requests():
        twin = replace(
            request.deployment, name=f"{request.deployment.name}-twin", uid="twin"
        )
        decide(built, [replace(request, deployment=twin, request_id="twin")], NOW)
        decision = decide(built, [request], NOW)[0]
        apply(built, decision, request.deployment)
        yield decision


def _different(expected: list[Decision], got: list[Decision], when: str) -> Found:
    for one, other in zip(expected, got, strict=True):
        if one != other:
            fields = [
                name
                for name in Decision.__slots__
                if getattr(one, name) != getattr(other, name)
            ]
            yield f"{one.deployment} {when}: {fields}, {one.message!r} and {other.message!r}"


def the_ledger_equals_a_recount(outcome: Outcome) -> Found:
    built = outcome.fleet
    yield from built.audit()
    for name, info in built.clusters.items():
        state = outcome.steps[-1].after if outcome.steps else outcome.world.state()
        recount: Counter[str] = Counter()
        for entry in state.on(name):
            recount.update(nodes_of(entry.charged))
            # Nodes that a new replica reuses are charged once for it and the leaving
            # one.
            recount.subtract(dict(entry.reuse))
        for pool in info.pools:
            used = pool.nodes - built.free(name)[pool.name]
            if used != recount[pool.name]:
                yield f"{name}/{pool.name}: {used} nodes charged, {recount[pool.name]} by recount"


def a_repeated_request_keeps_everything(outcome: Outcome) -> Found:
    """Nothing has changed since the last decision, so its deployment gets the same
    answer; later decisions may have freed or taken something.
    """
    step = outcome.steps[-1]
    if step.decision.more or step.updated:
        return
    again = decide(
        outcome.fleet, [replace(outcome.later[-1], request_id="again")], outcome.now
    )[0]
    moved = [p.replica_name for p in again.placements if p.action != "Keep"]
    if moved or again.evictions or again.victims:
        yield (
            f"{again.deployment} asked again: {moved}, evictions {again.evictions}, "
            f"victims {again.victims}"
        )


def decided_replicas_stay(outcome: Outcome) -> Found:
    """Released replicas go, placed ones become Ready, every deployment asks again; in
    the end nothing moves.
    """
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
            apply(
                built,
                decide(built, [replace(request, request_id=f"step-{number}")], now)[0],
                request.deployment,
            )
        if built.version == version:
            return
    yield f"still moving after {STEPS_MAX} steps"


QUESTIONS = (
    the_order_of_inputs_changes_nothing,
    no_identity_and_no_name_is_given_twice,
    more_capacity_drops_no_kept_replica,
    the_ledger_equals_a_recount,
    a_batch_equals_its_single_decisions_in_order,
    asking_changes_no_later_answer,
    a_repeated_request_keeps_everything,
    # This law changes the fleet, so it comes last.
    decided_replicas_stay,
)
