"""Laws that every decision obeys; each returns a text for every violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations

from scheduler.model.inputs import LedgerEntry, PoolView
from tests.scheduler.laws.policies.books import (
    Pods,
    State,
    capacity_of,
    is_safe,
    nodes_of,
    nominee_of,
    owner_of,
    pods_of,
    slots_left,
)
from tests.scheduler.laws.policies.matching import accepts, first_failing, untolerated
from tests.scheduler.laws.policies.rules import Places
from tests.scheduler.laws.policies.steps import Step

Found = Iterator[str]


def no_pool_is_over_capacity(step: Step) -> Found:
    for name, view in step.after.clusters.items():
        for pool in view.pools:
            if step.after.counts_devices:
                yield from _devices(step, name, pool)
            else:
                before, after = (
                    _charged(step.before, name, pool),
                    _charged(step.after, name, pool),
                )
                if after > max(before, pool.nodes):
                    yield (
                        f"{name}/{pool.name}: {after} nodes charged, {before} before, "
                        f"{pool.nodes} exist"
                    )


def _charged(state: State, cluster: str, pool: PoolView) -> int:
    """Count the nodes that no other replica may use."""
    return pool.nodes - state.free_nodes(cluster, ("", ""))[pool.name]


def _grew(step: Step, entry: LedgerEntry, pool: PoolView) -> bool:
    """Return whether a replica has more on a pool than before, per member and per size
    of pods.
    """
    was = step.before.entries.get(entry.uid)
    now, before = (
        pods_of(entry.engines, pool),
        pods_of(was.engines, pool) if was else [],
    )
    if len(now) != len(before):
        return bool(now)
    counts = Counter[object]()
    for group in now:
        counts[group.size, group.siblings] += group.count
    for group in before:
        counts[group.size, group.siblings] -= group.count
    return any(count > 0 for count in counts.values()) and any(
        new.count > old.count
        or new.siblings > old.siblings
        or any(a > b for a, b in zip(new.size, old.size, strict=True))
        for new, old in zip(now, before, strict=True)
    )


def _devices(step: Step, name: str, pool: PoolView) -> Found:
    changed = [
        e
        for e in (*step.new, *step.updated)
        if e.cluster == name and _grew(step, e, pool)
    ]
    if not changed:
        return
    state = State(
        step.after.clusters, step.after.entries, step.after.options, {}, step.after.now
    )
    # A placed replica waits for the replicas whose devices it takes over; a growing one
    # does not.
    waits = any(entry.cluster == name for entry in step.new)
    mine = step.me if waits else ("", "")
    pods, before = (
        state.pods_on(name, pool, mine),
        step.before.pods_on(name, pool, mine),
    )
    accounting = state.accounting(pool)
    if accounting == "node":
        count = sum(group.count for group in pods)
        if count > pool.nodes:
            yield f"{name}/{pool.name}: {count} pods that each take a node, {pool.nodes} nodes"
    elif accounting == "device-packed" and all(
        len(group.slots) == group.count for group in pods
    ):
        over = [
            n for n in _slots_over(pool, pods) if n not in _slots_over(pool, before)
        ]
        beyond = [
            slot
            for entry in changed
            for group in pods_of(entry.engines, pool)
            for slot in group.slots
            if slot >= pool.nodes
        ]
        shared = [
            g
            for e in changed
            for g in pods_of(e.engines, pool)
            if g.siblings and len(set(g.slots)) < len(g.slots)
        ]
        if over or beyond or shared:
            yield (
                f"{name}/{pool.name}: nodes {over} over their devices, slots {beyond} "
                f"do not exist, pods of a gang share {shared}"
            )
    elif not is_safe(capacity_of(pool), pool.nodes, pods):
        yield (
            f"{name}/{pool.name}: {pods} on {pool.nodes} nodes of {capacity_of(pool)} "
            "are not safe"
        )


def _slots_over(pool: PoolView, pods: list[Pods]) -> list[int]:
    return [
        n
        for n, left in enumerate(slots_left(capacity_of(pool), pool.nodes, pods))
        if min(left, default=0) < 0
    ]


def new_replicas_are_on_pools_that_take_them(step: Step) -> Found:
    for entry in step.new:
        match = step.filler.matches[entry.cluster]
        failing = first_failing(step.view, step.after.clusters[entry.cluster], match)
        if failing:
            yield f"{entry.name} on {entry.cluster} in spite of {failing}"
            continue
        pools = {
            pool.name: p
            for p, pool in enumerate(step.after.clusters[entry.cluster].pools)
        }
        chosen = [
            {entry.engines[unit.engine].members[m].pool for m in unit.members}
            for unit in match.units or ()
        ]
        for unit, names in zip(match.units or (), chosen, strict=True):
            if len(names) != 1 or pools[next(iter(names))] not in unit.pools:
                yield f"{entry.name}: engine {unit.engine}, members {unit.members} on {names}"
                return
        if not match.one_network([pools[next(iter(names))] for names in chosen]):
            yield f"{entry.name}: {chosen} are not one network"
        yield from _claims(step, entry)


def _claims(step: Step, entry: LedgerEntry) -> Found:
    """Check that the draw of each pod exists and matches its requests."""
    match = step.filler.matches[entry.cluster]
    pools = {
        pool.name: p for p, pool in enumerate(step.after.clusters[entry.cluster].pools)
    }
    for e, engine in enumerate(entry.engines):
        wanted = step.view.engines[e]
        if (engine.engine, engine.copies) != (wanted.name, wanted.copies):
            yield f"{entry.name}: engine {engine.engine} x{engine.copies}"
        for m, (member, asked) in enumerate(
            zip(engine.members, wanted.members, strict=True)
        ):
            expected = match.table[e][m][pools[member.pool]].placed
            if [r.name for r in member.requests] != [r.name for r in expected.requests]:
                yield (
                    f"{entry.name}: {member.role} claims {member.requests}, "
                    f"{expected.requests} are possible"
                )
            entries = {
                one.name: one
                for one in step.after.pool(  # type: ignore[union-attr]
                    entry.cluster, member.pool
                ).device_set.entries
            }
            drawn = dict(member.draw)
            if any(count > entries[name].count for name, count in drawn.items()):
                yield f"{entry.name}: draws {drawn}"
            for request in asked.requests:
                held = sum(
                    n
                    for name, n in drawn.items()
                    if all(accepts(s, entries[name]) for s in request.selectors)
                )
                if held < request.count and any(
                    r.name == request.name for r in member.requests
                ):
                    yield f"{entry.name}: {request} is met by {drawn}"


def quotas_hold_for_what_is_placed_and_what_grows(step: Step) -> Found:
    for quota in step.after.options.quotas:
        if quota.namespace != step.view.namespace:
            continue
        more = [
            step.after.quota_amount(quota, entry.cluster, entry.engines)
            for entry in step.new
        ]
        for entry in step.updated:
            old = step.before.quota_amount(
                quota, entry.cluster, step.before.entries[entry.uid].engines
            )
            new = step.after.quota_amount(quota, entry.cluster, entry.engines)
            more.append((new[0] - old[0], new[1] - old[1]))
        if not any(nodes > 0 or devices > 0 for nodes, devices in more):
            continue
        if quota.priority_floor is not None and step.priority < quota.priority_floor:
            yield f"priority {step.priority} is below the floor of {quota}"
        state = State(
            step.after.clusters,
            step.after.entries,
            step.after.options,
            {},
            step.after.now,
        )
        nodes, devices = state.quota_used(quota, step.me)
        if 0 <= quota.max_nodes < nodes and any(n > 0 for n, _ in more):
            yield f"{nodes} nodes used of {quota}"
        if 0 <= quota.max_devices < devices and any(d > 0 for _, d in more):
            yield f"{devices} devices used of {quota}"


def gangs_are_whole(step: Step) -> Found:
    size = step.view.policy.gang_replicas
    if (
        size > 1
        and not step.surges
        and step.filled not in (0, step.missing_before_fill)
        and step.filled % size
    ):
        yield f"{step.filled} of {step.missing_before_fill} placed by gangs of {size}"


def anti_affinity_holds_both_ways(step: Step) -> Found:
    for entry in step.new:
        others = {
            uid: other for uid, other in step.after.entries.items() if uid != entry.uid
        }
        places = Places(
            State(step.after.clusters, others, step.after.options, {}, step.after.now),
            step.view,
            step.filler.matches,
        )
        yield from (
            f"{entry.name} on {entry.cluster}: {rule}"
            for rule in places.broken(entry.cluster, strict=False)
            if "anti" in rule
        )


def affinity_and_spread_hold_at_each_placement(step: Step) -> Found:
    """Some order of the new replicas must be lawful at each of them."""
    policy = step.view.policy
    ruled = any(not t.weight for t in policy.affinity) or any(
        r.when_unsatisfiable == "DoNotSchedule" for r in policy.topology_spread
    )
    if (
        not ruled
        or not step.new
        or step.succeeded
        or any(e.reason == "RolledOut" for e in step.decision.evictions)
    ):
        return
    for order in permutations(step.new):
        if _lawful(step, order):
            return
    yield f"no order of {[(entry.name, entry.cluster) for entry in step.new]} is lawful"


def _lawful(step: Step, order: tuple[LedgerEntry, ...]) -> bool:
    placed = {entry.uid for entry in order}
    there = {
        uid: entry for uid, entry in step.after.entries.items() if uid not in placed
    }
    for entry in order:
        state = State(
            step.after.clusters, there, step.after.options, {}, step.after.now
        )
        broken = Places(state, step.view, step.filler.matches).broken(
            entry.cluster, strict=False
        )
        if any("anti" not in rule for rule in broken):
            return False
        there = {**there, entry.uid: entry}
    return True


def there_are_no_more_than_wanted(step: Step) -> Found:
    """Only a surge has more, and only while a replica has the old template."""
    placements = step.decision.placements
    outdated = (
        any(p.template not in ("", step.view.template) for p in placements)
        or step.decision.notes
    )
    surge = step.view.replicas if step.surges and outdated else 0
    if (
        len(placements) > step.view.replicas + surge
        and not step.is_held
        and not step.decision.more
    ):
        yield f"{len(placements)} of {step.view.replicas} wanted"
    if step.decision.shortfall != max(0, step.view.replicas - len(placements)):
        yield f"shortfall {step.decision.shortfall} with {len(placements)} of {step.view.replicas}"


def victims_are_lawful(step: Step) -> Found:
    cooldown = step.before.options.preemption_cooldown_seconds * 1000
    for victim in step.victims:
        of = owner_of(victim)
        last = step.before.preempted_at.get(of)
        if victim.priority >= step.priority:
            yield f"{victim.name} has priority {victim.priority}, its preemptor {step.priority}"
        if step.view.policy.preemption != "LowerPriority":
            yield (
                f"{victim.name} was preempted although preemption is "
                f"{step.view.policy.preemption}"
            )
        if last is not None and step.before.now - last < cooldown:
            yield (
                f"{victim.name}: its deployment was preempted "
                f"{(step.before.now - last) // 1000} s ago"
            )
        if victim.state == "Releasing":
            yield f"{victim.name} was leaving already"
        if step.after.preempted_at.get(of) != step.after.now:
            yield f"{victim.name}: its preemption is not remembered"
        left = sum(entry.state != "Releasing" for entry in step.after.of(of))
        if left < victim.min_available:
            yield (
                f"{victim.deployment} has {left} replicas left, minAvailable "
                f"{victim.min_available}"
            )


def a_deployment_is_preempted_once(step: Step) -> Found:
    """One unit may need several victims of a deployment, on its cluster; a second unit
    must spare it.
    """
    # A namespace over its quota may need more victims than the nodes suggest.
    if step.view.policy.gang_replicas > 1 or any(
        quota.namespace == step.view.namespace for quota in step.after.options.quotas
    ):
        return
    for of in {owner_of(victim) for victim in step.victims}:
        victims = [victim for victim in step.victims if owner_of(victim) == of]
        clusters = {victim.cluster for victim in victims}
        if len(clusters) > 1:
            yield f"{of} is preempted on {clusters}"
            continue
        cluster = clusters.pop()
        units = step.filler.matches[cluster].units or ()
        room = step.before.free_nodes(cluster, step.me)
        if (
            len(units) > 1
            or step.before.counts_devices
            or min(room.values()) < 0
            or any(victim.reuse for victim in victims)
        ):
            continue
        for victim in victims:
            left: Counter[str] = Counter()
            for other in victims:
                if other is not victim:
                    left.update(nodes_of(other.engines))
            needs = [
                nodes_of(entry.engines)
                for entry in step.new
                if entry.cluster == cluster
            ]
            if needs and all(
                left[pool] >= nodes for need in needs for pool, nodes in need.items()
            ):
                yield (
                    f"{of}: {[one.name for one in victims]} are more than one replica "
                    f"of {needs} needs"
                )
                break


def reused_nodes_are_there(step: Step) -> Found:
    """Nodes that new replicas reuse belong to releasing replicas, and the new ones wait
    for those.
    """
    for name in step.after.clusters:
        entries = step.after.on(name)
        held: Counter[str] = Counter()
        for entry in entries:
            if entry.state == "Releasing" and nominee_of(entry) == step.me:
                held.update(nodes_of(entry.engines))
        reused: Counter[str] = Counter()
        for entry in entries:
            if nominee_of(entry) == step.me:
                reused.update(dict(entry.reuse))
        if any(nodes > held[pool] for pool, nodes in reused.items()):
            yield f"{name}: {dict(reused)} nodes reused, {dict(held)} are being released"
    for entry in step.new:
        awaited: Counter[str] = Counter()
        for uid in next(
            p.after for p in step.decision.placements if p.uid == entry.uid
        ):
            awaited.update(nodes_of(step.after.entries[uid].engines))
        if any(nodes > awaited[pool] for pool, nodes in entry.reuse):
            yield f"{entry.name} reuses {entry.reuse} and waits for {dict(awaited)}"


def replicas_leave_for_a_reason(step: Step) -> Found:
    """Of other deployments only victims leave; of its own only replicas with a listed
    reason.
    """
    victims = {victim.uid for victim in step.decision.victims}
    evicted = {eviction.uid: eviction.reason for eviction in step.decision.evictions}
    for uid, entry in step.before.entries.items():
        now = step.after.entries.get(uid)
        if now is None:
            yield f"{entry.name} is gone"
        elif (
            entry.state != "Releasing"
            and now.state == "Releasing"
            and uid not in victims
            and uid not in evicted
        ):
            yield f"{entry.name} was released without a reason"
    for uid, reason in evicted.items():
        entry = step.before.entries[uid]
        view = step.before.clusters.get(entry.cluster)
        drained = view is not None and untolerated(
            view.taints, step.view.tolerations, ("NoExecute",)
        )
        if (
            owner_of(entry) != step.me
            or (reason == "Drained") > drained
            or (reason == "ClusterGone") > (view is None)
        ):
            yield f"{entry.name} was evicted: {reason}"


def the_ledger_says_what_was_decided(step: Step) -> Found:
    """Replicas are protected, found and avoided by the current policy of their
    deployment.
    """
    policy = step.view.policy
    avoids = {
        (t.topology_key, t.namespaces, tuple(sorted(t.match_labels.items())))
        for t in policy.anti_affinity
        if not t.weight
    }
    for placement in step.decision.placements:
        entry = step.after.entries[placement.uid]
        if (entry.cluster, entry.index, entry.name, entry.engines) != (
            placement.cluster,
            placement.index,
            placement.replica_name,
            placement.engines,
        ):
            yield f"{entry.name} is not as decided"
        known = (
            entry.priority,
            entry.min_available,
            dict(entry.labels),
            set(entry.avoids),
        )
        if known != (
            step.priority,
            policy.min_available,
            dict(step.view.labels),
            avoids,
        ):
            yield f"{entry.name} has {known}"
    for victim in step.decision.victims:
        entry = step.after.entries[victim.uid]
        if (entry.state, entry.nominated_for) != ("Releasing", step.me):
            yield f"{entry.name} is {entry.state} for {entry.nominated_for}"


LAWFUL = (
    no_pool_is_over_capacity,
    new_replicas_are_on_pools_that_take_them,
    quotas_hold_for_what_is_placed_and_what_grows,
    gangs_are_whole,
    anti_affinity_holds_both_ways,
    affinity_and_spread_hold_at_each_placement,
    there_are_no_more_than_wanted,
    victims_are_lawful,
    a_deployment_is_preempted_once,
    reused_nodes_are_there,
    replicas_leave_for_a_reason,
    the_ledger_says_what_was_decided,
)
