"""Laws about existing replicas (growth, edits, budgets) and the clusters of missing
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import LedgerEntry
from tests.scheduler.laws.policies.books import Pods, State, admits, nodes_of, pods_of
from tests.scheduler.laws.policies.matching import untolerated
from tests.scheduler.laws.policies.rules import Places
from tests.scheduler.laws.policies.search import Filler
from tests.scheduler.laws.policies.steps import SUCCEEDED, Step

Found = Iterator[str]


def wanted_on_its_pools(
    step: Step, entry: LedgerEntry
) -> tuple[EnginePlacement, ...] | None:
    """Return a replica's engines of the current template on their present pools.

    Return None if these pools no longer take them.
    """
    view = step.after.clusters.get(entry.cluster)
    names = {pool.name: p for p, pool in enumerate(view.pools)} if view else {}
    placed = {engine.engine: engine for engine in entry.engines}
    if len(entry.engines) != len(step.view.engines) or any(
        engine.name not in placed for engine in step.view.engines
    ):
        return None
    found = []
    for e, engine in enumerate(step.view.engines):
        known = placed[engine.name]
        if [m.role for m in known.members] != [m.role for m in engine.members] or any(
            m.pool not in names for m in known.members
        ):
            return None
        cells = [
            step.filler.matches[entry.cluster].table[e][m][names[member.pool]]
            for m, member in enumerate(known.members)
        ]
        if not all(cell.matches for cell in cells) or not any(
            cell.placed.requests for cell in cells
        ):
            return None
        found.append(
            EnginePlacement(
                engine.name, tuple(cell.placed for cell in cells), engine.copies
            )
        )
    return tuple(found)


def _shape(engines: tuple[EnginePlacement, ...]) -> object:
    return [
        (
            engine.engine,
            engine.copies,
            [(m.role, m.pool, m.pods, m.requests) for m in engine.members],
        )
        for engine in sorted(engines, key=lambda engine: engine.engine)
    ]


def what_is_not_blocked_has_the_current_template(step: Step) -> Found:
    """Without budgets every replica gets the current template, unless a note explains
    why not.
    """
    policy = step.view.policy
    if (
        policy.rollout.type != "AllAtOnce"
        or policy.rollout.partition
        or step.decision.more
        or step.is_held
    ):
        return
    noted = {note.replica_name for note in step.decision.notes}
    for placement in step.kept:
        entry = step.after.entries[placement.uid]
        wanted = wanted_on_its_pools(step, entry)
        if entry.name in noted:
            continue
        if wanted is None:
            yield f"{entry.name} stays although its pools do not take it"
        elif (
            _shape(wanted) != _shape(entry.engines)
            or entry.template != step.view.template
        ):
            yield (
                f"{entry.name} has {_shape(entry.engines)} of {entry.template}, "
                f"wanted {_shape(wanted)}"
            )


def what_could_grow_is_not_blocked(step: Step) -> Found:
    blocked = {
        note.replica_name
        for note in step.decision.notes
        if note.reason == "ResizeBlocked"
    }
    for placement in step.kept:
        entry = step.after.entries[placement.uid]
        wanted = wanted_on_its_pools(step, entry) if entry.name in blocked else None
        if wanted is not None and _grows(step, entry, wanted):
            yield f"{entry.name} could grow to {_shape(wanted)}"


def _grows(step: Step, entry: LedgerEntry, wanted: tuple[EnginePlacement, ...]) -> bool:
    """Return whether the updated replica fits in addition to its present pods."""
    state, view = step.after, step.after.clusters[entry.cluster]
    for quota in state.options.quotas:
        if quota.namespace != step.view.namespace:
            continue
        old, new = (
            state.quota_amount(quota, entry.cluster, entry.engines),
            state.quota_amount(quota, entry.cluster, wanted),
        )
        more = (new[0] - old[0], new[1] - old[1])
        used = state.quota_used(quota, step.me)
        if (
            max(more) > 0
            and quota.priority_floor is not None
            and step.priority < quota.priority_floor
        ):
            return False
        if (more[0] > 0 and 0 <= quota.max_nodes < used[0] + more[0]) or (
            more[1] > 0 and 0 <= quota.max_devices < used[1] + more[1]
        ):
            return False
    # A growing replica takes over no releasing nodes, since its pods do not wait for
    # them.
    if state.counts_devices:
        pods = {
            pool.name: state.pods_on(entry.cluster, pool, ("", ""))
            for pool in view.pools
        }
        return all(
            admits(state.accounting(p), p, pods[p.name], pods_of(wanted, p))
            for p in view.pools
            if pods_of(wanted, p)
        )
    free, held = state.free_nodes(entry.cluster, ("", "")), state.nodes_of(entry)
    return all(
        nodes - held[pool] <= max(0, free[pool])
        for pool, nodes in nodes_of(wanted).items()
    )


def amount(value: int | str, total: int, *, up: bool) -> int:
    """Read a number or a percentage."""
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * total
    return -(-share // 100) if up else share // 100


def may_be_unavailable(step: Step) -> int:
    value = step.view.policy.rollout.max_unavailable
    return amount(
        step.before.options.rollout_max_unavailable if value is None else value,
        step.view.replicas,
        up=False,
    )


def a_rollout_keeps_to_its_budget(step: Step) -> Found:
    """At most `maxUnavailable` replicas are changed or not Ready with their new
    template.
    """
    if step.view.policy.rollout.type != "Rolling" or step.surges:
        return
    limit = max(1, may_be_unavailable(step))
    before = [e for e in step.before.of(step.me) if e.state != "Releasing"]
    under_way = sum(
        e.template == step.view.template
        and not e.ready
        and e.uid in {p.uid for p in step.kept}
        for e in before
    )
    changed = len(step.updated) + sum(
        e.reason in ("TemplateChanged", "PinMismatch") for e in step.decision.evictions
    )
    if (
        changed
        and changed + under_way > limit
        and step.view.replicas >= len(step.kept) + step.succeeded
    ):
        yield f"{changed} changed, {under_way} are not Ready, {limit} may be unavailable"


def a_surge_is_limited_and_takes_nothing_that_serves_too_early(step: Step) -> Found:
    """At most `maxSurge` more than wanted; a Ready replica goes only while enough
    others are Ready.
    """
    if step.view.policy.rollout.type != "Rolling" or not step.surges:
        return
    surge = amount(step.view.policy.rollout.max_surge, step.view.replicas, up=True)
    own = len([e for e in step.before.of(step.me) if e.state != "Releasing"])
    if len(step.decision.placements) > max(step.view.replicas + surge, own):
        yield (
            f"{len(step.decision.placements)} replicas, {step.view.replicas} wanted "
            f"and {surge} more allowed"
        )
    gone = [
        step.before.entries[e.uid]
        for e in step.decision.evictions
        if e.reason == "RolledOut"
    ]
    floor = step.view.replicas - may_be_unavailable(step)
    left = sum(step.after.entries[p.uid].ready for p in step.kept)
    if any(entry.ready for entry in gone) and left < floor:
        yield (
            f"{[entry.name for entry in gone if entry.ready]} are gone, {left} are "
            f"Ready, {floor} have to be"
        )


def a_partition_keeps_replicas_on_the_old_template(step: Step) -> Found:
    """The partition keeps its number of replicas, however many steps a rollout takes."""
    old = [
        e
        for e in step.before.of(step.me)
        if e.state != "Releasing" and e.template not in ("", step.view.template)
    ]
    evicted = {e.uid: e.reason for e in step.decision.evictions}
    # Replicas that leave for another reason than the rollout.
    left = [
        e
        for e in old
        if evicted.get(e.uid, "RolledOut")
        in ("RolledOut", "TemplateChanged", "PinMismatch", "NotAdmitted")
    ]
    still = [
        e
        for e in left
        if e.uid not in evicted and step.after.entries[e.uid].template == e.template
    ]
    kept = min(step.view.policy.rollout.partition, len(left))
    if len(still) < kept and len(still) < len(left):
        yield f"{len(still)} of {len(left)} have the old template, {kept} have to"


def a_kept_replica_stays_where_it_is(step: Step) -> Found:
    for placement in step.kept:
        was, entry = (
            step.before.entries[placement.uid],
            step.after.entries[placement.uid],
        )
        pools = [
            {engine.engine: [m.pool for m in engine.members] for engine in one.engines}
            for one in (was, entry)
        ]
        if (was.cluster, was.index, was.name, pools[0]) != (
            entry.cluster,
            entry.index,
            entry.name,
            pools[1],
        ):
            yield (
                f"{was.name} on {was.cluster}/{was.index} is {entry.name} on "
                f"{entry.cluster}/{entry.index}: {pools}"
            )


def the_least_useful_are_scaled_down(step: Step) -> Found:
    """Replicas without traffic go first, then the most loaded cluster, the later name,
    the higher index.
    """
    reasons = {eviction.reason for eviction in step.decision.evictions}
    own = [entry for entry in step.before.of(step.me) if entry.state != "Releasing"]
    # Outdated, drained or replaced replicas are checked before.
    if (
        reasons != {"ScaledDown"}
        or step.surges
        or len({(e.cluster, e.index) for e in own}) < len(own)
    ):
        return
    if any(
        entry.template != step.view.template or wanted_on_its_pools(step, entry) is None
        for entry in own
    ):
        return
    left = list(own)
    while len(left) > step.view.replicas:
        load = Counter(entry.cluster for entry in left)
        left.remove(
            max(
                left,
                key=lambda e: (
                    *_uselessness(step, e),
                    load[e.cluster],
                    e.cluster,
                    e.index,
                ),
            )
        )
    if {entry.uid for entry in left} != {placement.uid for placement in step.kept}:
        yield (
            f"{sorted(p.replica_name for p in step.kept)} stay, expected "
            f"{sorted(entry.name for entry in left)}"
        )


def _uselessness(step: Step, entry: LedgerEntry) -> tuple[bool, bool, bool]:
    view = step.after.clusters.get(entry.cluster)
    if view is None:
        return True, not entry.ready, False
    broken = view.deleting or not view.ready or not view.gateway_address
    return broken, not entry.ready, untolerated(view.taints, step.view.tolerations)


def the_missing_are_spread_as_the_default_profile_says(step: Step) -> Found:
    """The fewest own replicas, then the name, if only rules about places and room
    decide.
    """
    policy, options = step.view.policy, step.after.options
    preferred = any(t.weight for t in (*policy.affinity, *policy.anti_affinity))
    preferred |= (
        any(r.when_unsatisfiable != "DoNotSchedule" for r in policy.topology_spread)
        or policy.network_domain == "Preferred"
    )
    plain = (policy.profile or options.profile) == "default" and not preferred
    if (
        not plain
        or step.victims
        or step.updated
        or step.surges
        or policy.gang_replicas > 1
        or not step.new
    ):
        return
    if any(e.reason in SUCCEEDED for e in step.decision.evictions):
        return
    new = {entry.uid for entry in step.new}
    entries = {
        uid: replace(entry)
        for uid, entry in step.after.entries.items()
        if uid not in new
    }
    state = State(
        step.after.clusters,
        entries,
        step.after.options,
        step.after.preempted_at,
        step.after.now,
    )
    filler = Filler(state, step.view, step.priority)
    chosen: list[str] = []
    for number in range(len(step.new)):
        places = Places(state, step.view, filler.matches)
        if any(
            places.allows(c, strict=True) != places.allows(c, strict=False)
            for c in filler.candidates
        ):
            return
        free = {
            c: next(filler.arrangements(state, c), None)
            for c in filler.candidates
            if places.allows(c, strict=True)
        }
        taking = [(places.own[c], c) for c, pools in free.items() if pools is not None]
        if not taking:
            return
        chosen.append(min(taking)[1])
        state = state.with_entries(
            filler.placed(state, chosen[-1], free[chosen[-1]] or (), number)
        )
    if Counter(chosen) != Counter(entry.cluster for entry in step.new):
        yield f"placed on {sorted(entry.cluster for entry in step.new)}, expected {sorted(chosen)}"


def pods_of_earlier_templates_stay_charged(step: Step) -> Found:
    """A replica that is not Ready with its template may still run its earlier pods."""
    for uid, versions in step.after.older.items():
        entry = step.after.entries[uid]
        for version in versions:
            missing = nodes_of(version) - nodes_of(entry.charged)
            if missing and not step.after.counts_devices:
                yield f"{entry.name}: nodes {dict(missing)} are not charged"
            for pool in step.after.clusters[entry.cluster].pools:
                charged = pods_of(entry.charged, pool)
                yield from (
                    f"{entry.name}: {pods} on {pool.name} are not charged"
                    for pods in pods_of(version, pool)
                    if step.after.accounting(pool) != "node"
                    and not any(_covers(group, pods) for group in charged)
                )


def _covers(charged: Pods, pods: Pods) -> bool:
    return (
        charged.count >= pods.count
        and all(a >= b for a, b in zip(charged.size, pods.size, strict=True))
        and set(pods.slots) <= set(charged.slots)
    )


KEPT = (
    pods_of_earlier_templates_stay_charged,
    what_is_not_blocked_has_the_current_template,
    what_could_grow_is_not_blocked,
    a_rollout_keeps_to_its_budget,
    a_surge_is_limited_and_takes_nothing_that_serves_too_early,
    a_partition_keeps_replicas_on_the_old_template,
    a_kept_replica_stays_where_it_is,
    the_least_useful_are_scaled_down,
    the_missing_are_spread_as_the_default_profile_says,
)
