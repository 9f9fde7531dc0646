"""A second, naive scheduler that makes the decisions of the reference implementation.

It shares only the plain input data with the scheduler under test. It knows only the
selectors of random fleets and has no indices. It implements the filters, matching,
ranking and retention of the reference implementation, including the defects that
`compat: reference` keeps.
"""

import re
from collections import Counter
from dataclasses import dataclass

from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import (
    ClusterTaint,
    ClusterToleration,
    ClusterView,
    DeploymentView,
    DeviceSet,
    EngineView,
    LedgerEntry,
    MemberView,
    PoolView,
)

_AT_LEAST = re.compile(
    r'device\.capacity\["[^"]+"\]\.memory\.compareTo\(quantity\("(\d+)Gi"\)\) >= 0'
)
Charges = Counter[tuple[str, str]]


@dataclass(frozen=True)
class PlacedReplica:
    """One replica of the answer, with the pool of each engine by name."""

    cluster: str
    index: int
    pools: tuple[tuple[str, str], ...]


def decide_naively(
    clusters: list[ClusterView], replicas: list[LedgerEntry], wants: DeploymentView
) -> list[PlacedReplica]:
    """Return the final places of the replicas of one deployment."""
    selected = {
        c.name: c
        for c in clusters
        if all(c.labels.get(k) == v for k, v in wants.match_labels.items())
    }
    own = sorted(
        (
            r
            for r in replicas
            if (r.namespace, r.deployment) == (wants.namespace, wants.name)
        ),
        key=lambda r: r.name,
    )
    kept = scaled_down(retained(own, selected, wants), wants.replicas)
    used: Charges = Counter()
    for replica in replicas:
        if (replica.namespace, replica.deployment) != (
            wants.namespace,
            wants.name,
        ) or replica in kept:
            used.update(charged(replica))
    places = [
        PlacedReplica(
            r.cluster, r.index, tuple((e.engine, e.members[0].pool) for e in r.engines)
        )
        for r in kept
    ]
    while len(places) < wants.replicas:
        found = fill_one(selected, wants, places, used)
        if found is None:
            break
        places.append(found)
    return sorted(places, key=lambda s: (s.cluster, s.index))


def retained(
    own: list[LedgerEntry], selected: dict[str, ClusterView], wants: DeploymentView
) -> list[LedgerEntry]:
    kept: list[LedgerEntry] = []
    for replica in own:
        cluster = selected.get(replica.cluster)
        if cluster is None or any(
            (r.cluster, r.index) == (replica.cluster, replica.index) for r in kept
        ):
            continue
        if untolerated(
            cluster.taints, wants.tolerations, {"NoExecute"}
        ) or not pins_hold(replica.engines, cluster, wants.engines):
            continue
        kept.append(replica)
    return kept


def pins_hold(
    placed_engines: tuple[EnginePlacement, ...],
    cluster: ClusterView,
    engines: tuple[EngineView, ...],
) -> bool:
    names = {e.name: e for e in engines}
    if len(placed_engines) != len(engines) or any(
        current.engine not in names for current in placed_engines
    ):
        return False
    for current in placed_engines:
        members = names[current.engine].members
        if [m.role for m in current.members] != [m.role for m in members]:
            return False
        claims = []
        for placed, member in zip(current.members, members, strict=True):
            pool = next((p for p in cluster.pools if p.name == placed.pool), None)
            resolved = None if pool is None else resolve(member, pool.device_set)
            if resolved is None:
                return False
            claims.append(resolved > 0)
        if not any(claims):
            return False
    return True


def scaled_down(kept: list[LedgerEntry], wanted: int) -> list[LedgerEntry]:
    left = list(kept)
    while len(left) > wanted:
        load = Counter(r.cluster for r in left)
        left.remove(max(left, key=lambda r: (load[r.cluster], r.cluster, r.index)))
    return left


def fill_one(
    selected: dict[str, ClusterView],
    wants: DeploymentView,
    places: list[PlacedReplica],
    used: Charges,
) -> PlacedReplica | None:
    load = Counter(s.cluster for s in places)
    for name in sorted(selected, key=lambda name: (load[name], name)):
        cluster = selected[name]
        if (
            not cluster.ready
            or not cluster.gateway_address
            or untolerated(
                cluster.taints, wants.tolerations, {"NoSchedule", "NoExecute"}
            )
        ):
            continue
        placed = arranged(cluster, wants.engines, used)
        if placed is None:
            continue
        taken = {s.index for s in places if s.cluster == name}
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        for pool, nodes in placed.values():
            used[name, pool] += nodes
        return PlacedReplica(
            name,
            index,
            tuple((engine.name, placed[engine.name][0]) for engine in wants.engines),
        )
    return None


def arranged(
    cluster: ClusterView, engines: tuple[EngineView, ...], used: Charges
) -> dict[str, tuple[str, int]] | None:
    """Put every engine on its first pool with enough free nodes, or return None."""
    free = {p.name: p.nodes - used[cluster.name, p.name] for p in cluster.pools}
    placed: dict[str, tuple[str, int]] = {}
    for engine in engines:
        capable = [
            any((resolve(m, p.device_set) or 0) > 0 for p in cluster.pools)
            for m in engine.members
        ]
        for pool in cluster.pools:
            nodes = cost_on(pool, engine, capable)
            if nodes is not None and free[pool.name] >= nodes:
                free[pool.name] -= nodes
                placed[engine.name] = (pool.name, nodes)
                break
        else:
            return None
    return placed


def cost_on(pool: PoolView, engine: EngineView, capable: list[bool]) -> int | None:
    """Return the nodes of an engine on a pool, or None if it may not be placed there."""
    resolved = [resolve(member, pool.device_set) for member in engine.members]
    if any(r is None for r in resolved) or not any(resolved):
        return None
    if any(can and not r for can, r in zip(capable, resolved, strict=True)):
        return None
    return sum(
        pods(m) * engine.copies
        for m, r in zip(engine.members, resolved, strict=True)
        if r
    )


def resolve(member: MemberView, devices: DeviceSet) -> int | None:
    """Return the member's requests that claim devices here, or None if one is not
    satisfied.

    The first entry with enough devices left is used.
    """
    left = [max(0, entry.count) for entry in devices.entries]
    claimed = 0
    for request in member.requests:
        for j, entry in enumerate(devices.entries):
            memory = next(
                int(text.removesuffix("Gi"))
                for name, text in entry.capacity
                if name == "memory"
            )
            if left[j] >= request.count and all(
                memory >= least(selector) for selector in request.selectors
            ):
                left[j] -= request.count
                claimed += entry.claim != "Synthetic"
                break
        else:
            return None
    return claimed


def least(selector: str) -> int:
    found = _AT_LEAST.fullmatch(selector)
    assert found, selector
    return int(found[1])


def charged(replica: LedgerEntry) -> Charges:
    total: Charges = Counter()
    for engine in replica.engines:
        for member in engine.members:
            if member.requests:
                total[replica.cluster, member.pool] += (
                    member.worker_nodes if member.role == "Worker" else 1
                ) * engine.copies
    return total


def grows(
    replica: LedgerEntry, wants: DeploymentView, clusters: list[ClusterView]
) -> bool:
    """Return whether a kept replica would grow; the reference overcommits nodes in that
    case.
    """
    cluster = next((c for c in clusters if c.name == replica.cluster), None)
    engines = {e.name: e for e in wants.engines}
    if cluster is None:
        return False
    for current in replica.engines:
        engine = engines.get(current.engine)
        if engine is None or len(engine.members) != len(current.members):
            continue
        for placed, member in zip(current.members, engine.members, strict=True):
            pool = next((p for p in cluster.pools if p.name == placed.pool), None)
            now = (
                pods(member) * engine.copies
                if pool and resolve(member, pool.device_set)
                else 0
            )
            before = (
                (placed.worker_nodes if placed.role == "Worker" else 1) * current.copies
                if placed.requests
                else 0
            )
            if now > before:
                return True
    return False


def pods(member: MemberView) -> int:
    return member.worker_nodes if member.role == "Worker" else 1


def untolerated(
    taints: tuple[ClusterTaint, ...],
    tolerations: tuple[ClusterToleration, ...],
    effects: set[str],
) -> bool:
    return any(
        taint.effect in effects and not any(tolerated(taint, t) for t in tolerations)
        for taint in taints
    )


def tolerated(taint: ClusterTaint, toleration: ClusterToleration) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)
