"""Which pools take which engines, regardless of capacity, also for engines that span
pools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from scheduler.model.decision import (
    EnginePlacement,
    MemberPlacement,
    ResolvedDeviceRequest,
)
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import (
    ClusterTaint,
    ClusterToleration,
    ClusterView,
    DeploymentView,
    MemberView,
    PoolView,
    RequestView,
)

_AT_LEAST = re.compile(
    r'device\.capacity\["[^"]+"\]\.memory\.compareTo\(quantity\("(\d+)Gi"\)\) >= 0'
)
_DRIVER = re.compile(r'device\.driver == "([^"]+)"')
DEVICES_MAX = 32
_CERTAINTY = {"DRA": 0, "DevicePlugin": 1, "Synthetic": 2}
# Per request the entries it draws on, by position, with a count.
Taken = list[tuple[tuple[int, int], ...]]
# The worlds have few classes and few different requests.
_known: dict[tuple[tuple[RequestView, ...], str], Taken | None] = {}


@dataclass(frozen=True)
class Unit:
    """A unit of placement: the members of an engine, or one member of a spanning
    engine.

    `pools` are the pools that take it.
    """

    engine: int
    members: tuple[int, ...]
    pools: tuple[int, ...]


def accepts(selector: str, entry: DeviceEntry) -> bool:
    """Evaluate the few selectors that the worlds use."""
    least, driver = _AT_LEAST.fullmatch(selector), _DRIVER.fullmatch(selector)
    if driver:
        return entry.driver == driver[1]
    assert least, selector
    memory = next(
        (
            int(text.removesuffix("Gi"))
            for name, text in entry.capacity
            if name == "memory"
        ),
        -1,
    )
    return entry.driver == "gpu.nvidia.com" and memory >= int(least[1])


def _ways(
    request: RequestView, entries: Sequence[DeviceEntry], left: Sequence[int]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Return the ways to cover a request: one entry, certain claims first, or several
    equal ones.
    """
    order = sorted(range(len(entries)), key=lambda j: (_CERTAINTY[entries[j].claim], j))
    fitting = [
        j
        for j in order
        if all(accepts(selector, entries[j]) for selector in request.selectors)
    ]
    yield from (((j, request.count),) for j in fitting if left[j] >= request.count)
    for kind in dict.fromkeys(
        (entries[j].claim, entries[j].device_class, entries[j].resource_name)
        for j in fitting
    ):
        alike = [
            j
            for j in fitting
            if (entries[j].claim, entries[j].device_class, entries[j].resource_name)
            == kind
        ]
        for counts in product(
            *(range(min(left[j], request.count), -1, -1) for j in alike)
        ):
            if sum(counts) == request.count and sum(n > 0 for n in counts) > 1:
                yield tuple((j, n) for j, n in zip(alike, counts, strict=True) if n)


def assigned(
    requests: Sequence[RequestView], entries: Sequence[DeviceEntry]
) -> Taken | None:
    """Cover all requests from one node with the fewest devices of entries that claim
    nothing.

    Return None if that is impossible.
    """
    best: Taken | None = None
    fewest = len(requests) + 1

    def descend(i: int, left: list[int], taken: Taken, synthetic: int) -> None:
        nonlocal best, fewest
        if synthetic >= fewest:
            return
        if i == len(requests):
            best, fewest = list(taken), synthetic
            return
        for way in _ways(requests[i], entries, left):
            for j, n in way:
                left[j] -= n
            descend(
                i + 1,
                left,
                [*taken, way],
                synthetic + (entries[way[0][0]].claim == "Synthetic"),
            )
            for j, n in way:
                left[j] += n

    descend(0, [max(0, entry.count) for entry in entries], [], 0)
    if (
        best is not None
        and sum(
            r.count
            for r, way in zip(requests, best, strict=True)
            if entries[way[0][0]].claim == "DRA"
        )
        > DEVICES_MAX
    ):
        return None
    return best


class Member:
    """A member on one pool: whether it matches, whether new ones may go there, and its
    placement.
    """

    def __init__(self, member: MemberView, pool: PoolView) -> None:
        entries = pool.device_set.entries
        key = (member.requests, pool.device_set.digest)
        if key not in _known:
            _known[key] = assigned(member.requests, entries)
        taken = _known[key]
        self.matches = taken is not None
        self.fits = self.matches and not (pool.class_missing or pool.unusable)
        resolved, draw = [], dict[str, int]()
        for request, way in zip(member.requests, taken or [], strict=False):
            source = entries[way[0][0]]
            if source.claim == "Synthetic":
                continue
            resolved.append(
                ResolvedDeviceRequest(
                    request.name,
                    source.device_class,
                    request.count,
                    request.selectors,
                    source.resource_name,
                )
            )
            for j, n in way:
                draw[entries[j].name] = draw.get(entries[j].name, 0) + n
        self.claims = self.fits and bool(resolved)
        self.placed = MemberPlacement(
            member.role,
            pool.name,
            tuple(resolved),
            member.worker_nodes,
            draw=tuple(draw.items()),
            pods_per_node=member.pods_per_node,
        )


class Match:
    """The engines of a deployment on the pools of one cluster; `units` is None if one
    fits no pool.
    """

    def __init__(self, view: DeploymentView, cluster: ClusterView) -> None:
        self.view = view
        self.cluster = cluster
        self.table = [
            [[Member(m, p) for p in cluster.pools] for m in engine.members]
            for engine in view.engines
        ]
        self.units = self._units()

    def _units(self) -> list[Unit] | None:
        units = []
        for e, engine in enumerate(self.view.engines):
            capable = [any(cell.claims for cell in row) for row in self.table[e]]
            if not any(capable):
                return None
            spans = engine.span_pools and len(engine.members) > 1
            groups = (
                [(m,) for m in range(len(engine.members))]
                if spans
                else [tuple(range(len(engine.members)))]
            )
            for group in groups:
                pools = tuple(
                    p
                    for p in range(len(self.cluster.pools))
                    if self._takes(e, group, p, capable, spans=spans)
                )
                if not pools:
                    return None
                units.append(Unit(e, group, pools))
        return units

    def _takes(
        self,
        e: int,
        group: tuple[int, ...],
        p: int,
        capable: list[bool],
        *,
        spans: bool,
    ) -> bool:
        cells = [self.table[e][m][p] for m in group]
        stranded = any(
            capable[m] and not cell.claims for m, cell in zip(group, cells, strict=True)
        )
        return (
            all(cell.fits for cell in cells)
            and not stranded
            and (spans or any(cell.claims for cell in cells))
        )

    def engines(self, pools: Sequence[int]) -> tuple[EnginePlacement, ...]:
        """Return the placed engines, each unit on its pool."""
        assert self.units is not None
        members: dict[int, dict[int, MemberPlacement]] = {}
        for unit, p in zip(self.units, pools, strict=True):
            for m in unit.members:
                members.setdefault(unit.engine, {})[m] = self.table[unit.engine][m][
                    p
                ].placed
        return tuple(
            EnginePlacement(
                engine.name,
                tuple(members[e][m] for m in range(len(engine.members))),
                engine.copies,
            )
            for e, engine in enumerate(self.view.engines)
        )

    def one_network(self, pools: Sequence[int]) -> bool:
        """Return whether all engines that must share a network do."""
        assert self.units is not None
        networks: dict[int, set[str]] = {}
        for unit, p in zip(self.units, pools, strict=True):
            networks.setdefault(unit.engine, set()).add(
                self.cluster.pools[p].network_domain
            )
        if any(len(found) > 1 for found in networks.values()):
            return False
        required = (
            self.view.policy.network_domain == "Required"
            and self.view.serving_mode == "PrefillDecode"
        )
        return not required or len(set[str]().union(*networks.values())) <= 1


def untolerated(
    taints: Sequence[ClusterTaint],
    tolerations: Sequence[ClusterToleration],
    effects: Sequence[str] = ("NoSchedule", "NoExecute"),
) -> bool:
    """Return whether a taint of these effects is not tolerated."""
    return any(
        taint.effect in effects and not any(_tolerates(t, taint) for t in tolerations)
        for taint in taints
    )


def _tolerates(toleration: ClusterToleration, taint: ClusterTaint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)


def first_failing(view: DeploymentView, cluster: ClusterView, match: Match) -> str:
    """Return the first of the cluster filters that a cluster fails, or ""."""
    cache = view.cache
    referenced = cache.state == "Present"
    checks = (
        ("LabelMismatch", has(cluster.labels, view.match_labels)),
        ("CacheFootprint", not referenced or has(cluster.labels, cache.match_labels)),
        ("CacheIncapable", not referenced or bool(cluster.cache_storage_class)),
        ("Deleting", not cluster.deleting),
        ("NotReady", cluster.ready),
        ("NoGateway", bool(cluster.gateway_address)),
        ("Tainted", not untolerated(cluster.taints, view.tolerations)),
        ("FeatureMissing", not {*view.features} & {*cluster.missing_features}),
        ("NoPools", bool(cluster.pools)),
        ("NoPoolMatches", match.units is not None),
    )
    return next((code for code, passes in checks if not passes), "")


def has(labels: object, wanted: object) -> bool:
    """Return whether labels contain every wanted pair; both are mappings or sequences
    of pairs.
    """
    found, needed = dict(labels), dict(wanted)  # type: ignore[call-overload]
    return all(found.get(key) == value for key, value in needed.items())


def with_slots(
    engines: Sequence[EnginePlacement], slots: dict[tuple[int, int], tuple[int, ...]]
) -> tuple[EnginePlacement, ...]:
    """Return engines whose members have node slots, by engine and member."""
    return tuple(
        replace(
            engine,
            members=tuple(
                replace(m, slots=slots.get((e, i), ()))
                for i, m in enumerate(engine.members)
            ),
        )
        for e, engine in enumerate(engines)
    )
