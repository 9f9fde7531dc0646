"""Laws of completeness: no decision misses room for a replica or the best set of
victims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from scheduler.model.inputs import LedgerEntry
from tests.scheduler.laws.policies.books import nodes_of
from tests.scheduler.laws.policies.search import Filler, Victims
from tests.scheduler.laws.policies.steps import Step

Found = Iterator[str]
# Limit of sets of victims that are tried for one decision.
SETS_MAX = 64


def _missing(step: Step) -> int:
    """Return the number of replicas to place together next; 0 if nothing may be placed."""
    left = step.decision.desired - len(step.decision.placements)
    return (
        0
        if step.is_held or step.surges
        else min(left, max(1, step.view.policy.gang_replicas))
    )


def _fits(step: Step, size: int, gone: Collection[str] = ()) -> bool:
    """Return whether replicas fit together, each placed without regard to later ones.

    A gang is placed replica by replica: one replica may take the only pools of a later
    one.
    """
    if size == 1 or not step.filler.takes(size, gone):
        return size == 1 and step.filler.takes(1, gone)
    policy = step.view.policy
    ruled = any(
        not term.weight for term in (*policy.affinity, *policy.anti_affinity)
    ) or bool(policy.topology_spread)
    ruled = ruled or any(
        quota.namespace == step.view.namespace for quota in step.after.options.quotas
    )
    alike = all(
        len(step.filler.matches[cluster].units or ()) == 1
        for cluster in step.filler.candidates
    )
    return not ruled and (
        alike
        or sum(
            step.filler.takes_one(cluster, gone) for cluster in step.filler.candidates
        )
        >= size
    )


def filling_never_stops_while_more_fits(step: Step) -> Found:
    size = _missing(step)
    if size > 0 and _fits(step, size):
        yield f"{size} more would fit without preemption"


def preemption_never_stops_while_it_would_help(step: Step) -> Found:
    """Victims are on the cluster that they free; a gang may need several clusters."""
    size = _missing(step)
    if size <= 0 or step.view.policy.preemption != "LowerPriority":
        return
    for cluster in step.filler.candidates if size == 1 else ("",):
        for victims in islice(
            step.filler.largest_sets(step.filler.lower(cluster)), SETS_MAX
        ):
            gone = {victim.uid for victim in victims}
            if victims and (
                step.filler.takes_one(cluster, gone)
                if size == 1
                else _fits(step, size, gone)
            ):
                yield f"{size} more would fit without {[(v.cluster, v.name) for v in victims]}"
                return


def no_victim_could_have_stayed(step: Step) -> Found:
    """With everything placed on its cluster, every victim was necessary.

    The law does not apply if a profile chose pools that leave less room for later
    replicas, or if a victim was going to reuse nodes itself: a releasing replica is
    nominated as a whole, so all replicas that were going to reuse its nodes go
    together.
    """
    if any(victim.reuse for victim in step.victims):
        return
    profile = step.view.policy.profile or step.after.options.profile
    if profile != "default" and any(
        len(step.filler.matches[cluster].units or ()) > 1
        for cluster in step.filler.candidates
    ):
        return
    for victim in step.victims:
        state = step.after.with_entries(victim)
        others = {
            uid: entry for uid, entry in state.entries.items() if entry not in step.new
        }
        start = type(state)(
            state.clusters,
            others,
            state.options,
            state.preempted_at,
            state.now,
            state.older,
        )
        filler = Filler(start, step.view, step.priority)
        if _placed_again(filler, step.new):
            yield f"{victim.name} on {victim.cluster} could have stayed"


def _placed_again(filler: Filler, new: list[LedgerEntry]) -> bool:
    """Return whether the same replicas fit again, each on its cluster, in the order of
    their names.
    """
    now = filler.state
    for number, entry in enumerate(sorted(new, key=lambda e: (e.cluster, e.index))):
        if entry.cluster not in filler.candidates:
            return False
        pools = next(filler.arrangements(now, entry.cluster), None)
        if pools is None:
            return False
        now = now.with_entries(filler.placed(now, entry.cluster, pools, number))
    return True


def cost_of(victims: Victims, needed: int) -> tuple[object, ...]:
    """Return the sort key of a set of victims, without ages and names."""
    freed = sum(sum(nodes_of(victim.engines).values()) for victim in victims)
    return (
        max(victim.priority for victim in victims),
        len(victims),
        sum(victim.priority for victim in victims),
        freed - needed,
        tuple(sorted(-victim.since for victim in victims)),
        tuple(
            sorted(
                f"{victim.cluster}/{victim.namespace}/{victim.name}"
                for victim in victims
            )
        ),
    )


def the_victims_are_the_cheapest(step: Step) -> Found:
    """Only decisions with exactly one missing replica are checked."""
    if (
        step.missing_before_fill != 1
        or not step.victims
        or step.filled != 1
        or step.surges
        or step.succeeded
        or step.updated
    ):
        return
    filler = Filler(step.before, step.view, step.priority)
    evicted = {eviction.uid for eviction in step.decision.evictions}
    needed = sum(nodes_of(step.new[0].engines).values())
    # The surplus is defined by whole nodes; it is undefined if devices are counted.
    depth = 3 if step.before.counts_devices else 6
    chosen = cost_of(tuple(step.victims), needed)[:depth]
    for cluster in filler.candidates:
        for victims in filler.sets(cluster):
            cost = cost_of(victims, needed)[:depth]
            if cost < chosen and filler.takes_one(
                cluster, {*(v.uid for v in victims), *evicted}
            ):
                yield (
                    f"{[v.name for v in victims]} on {cluster} cost {cost}, "
                    f"{[v.name for v in step.victims]} {chosen}"
                )
                return


COMPLETE = (
    filling_never_stops_while_more_fits,
    preemption_never_stops_while_it_would_help,
    no_victim_could_have_stayed,
    the_victims_are_the_cheapest,
)
