"""The compiled template of a deployment, with matches per pool arrangement.

Clusters whose pools have the same device sets in the same order share a `PoolLayout`.
The work per deployment therefore grows with the number of hardware arrangements, not
with the number of clusters. Node counts do not matter here; `node_fitting` adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace

from scheduler.cel.bounded_cache import bounded_cache, remember
from scheduler.cel.limits import REQUEST_WORK_MAX
from scheduler.hardware.device_matching import (
    MemberFit,
    MemberNeed,
    member_need,
    selectors_length,
)
from scheduler.model.decision import EnginePlacement, MemberPlacement
from scheduler.model.digests import digest_of
from scheduler.model.inputs import DeviceSet, EngineView, MemberView
from scheduler.model.rules import MatchRules

# Cached matches per template, by device set and pool, and by layout: each cluster may
# have its own layout.
_KEPT = 4_096
_LAYOUTS_KEPT = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class PoolLayout:
    """The device sets of a cluster's pools in published order.

    A pool that takes no new replica has None. The fleet keeps one object per key, so
    layouts are compared by identity.
    """

    key: tuple[str, ...]
    sets: tuple[DeviceSet | None, ...]


@dataclass(frozen=True, slots=True)
class EngineFit:
    """Where one engine fits on a layout.

    Attributes:
        positions: pools that fit, regardless of capacity, in published order.
        cost: nodes that the engine takes, the same on each of these pools.
        claims: for each member, whether it claims devices there.

    """

    positions: tuple[int, ...]
    cost: int
    claims: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class LayoutFit:
    """One `EngineFit` per engine.

    `blocked` is the first engine that fits no pool, -1 if every engine fits some pool.
    """

    engines: tuple[EngineFit, ...]
    blocked: int = -1


class CompiledTemplate:
    def __init__(self, engines: tuple[EngineView, ...], rules: MatchRules) -> None:
        self.engines = engines
        self.rules = rules
        self.needs: tuple[tuple[MemberNeed, ...], ...] = tuple(
            tuple(member_need(member.requests, rules) for member in engine.members)
            for engine in engines
        )
        self.digest = digest_of(
            [[_engine_content(engine) for engine in engines], astuple(rules)]
        )
        # Members that are placed separately because their engine may span pools.
        self.spanning = frozenset(
            i
            for i, engine in enumerate(engines)
            if engine.span_pools and len(engine.members) == 1
        )
        # Every engine has one member, so none can be stranded. The fit of a device set
        # then decides.
        self._alone = not self.spanning and all(len(needs) == 1 for needs in self.needs)
        # Per engine, its outcome on each device set, and its fit by the outcomes of a
        # layout.
        self._codes: list[dict[str, int]] = [{} for _ in engines]
        self._engine_fits: list[dict[tuple[int, ...], EngineFit]] = [
            {} for _ in engines
        ]
        self._fits: dict[tuple[str, ...], LayoutFit] = {}
        self._placed: dict[tuple[int, str, str], EnginePlacement] = {}

    def on(self, layout: PoolLayout) -> LayoutFit:
        """Match all engines against a layout."""
        known = self._fits.get(layout.key)
        if known is None:
            known = remember(self._fits, layout.key, self._match(layout), _LAYOUTS_KEPT)
        return known

    def _match(self, layout: PoolLayout) -> LayoutFit:
        fits = tuple(self.engine_on(i, layout) for i in range(len(self.engines)))
        claiming = {
            engine.name
            for engine, fit in zip(self.engines, fits, strict=True)
            if any(fit.claims)
        }
        blocked = next(
            (
                i
                for i, fit in enumerate(fits)
                if not fit.positions or self.engines[i].name not in claiming
            ),
            -1,
        )
        return LayoutFit(fits, blocked)

    def work(self, sets: Iterable[DeviceSet]) -> int:
        """Match every member with device sets and return the work of matching.

        The result does not depend on the cache, so a decision does not depend on the
        process that makes it. Matching stops above `REQUEST_WORK_MAX`.
        """
        distinct: dict[int, MemberNeed] = {}
        for needs in self.needs:
            distinct |= {id(need): need for need in needs if need.requests}
        total = 0
        for devices in sets:
            for need in distinct.values():
                total += need.fit(devices).work
                if total > REQUEST_WORK_MAX:
                    return REQUEST_WORK_MAX + 1
        return total

    def claimable_sets(self, sets: Iterable[DeviceSet]) -> list[set[str]] | None:
        """Return per engine the digests of the device sets it fits, or None.

        The digests are sufficient if every engine has one member, because none can be
        stranded then. Otherwise return None; the caller must match each layout.
        """
        if not self._alone:
            return None
        known = list(sets)
        found: list[set[str]] = []
        for needs in self.needs:
            fits = [(devices.digest, needs[0].fit(devices)) for devices in known]
            found.append({digest for digest, fit in fits if fit.fits and fit.resolved})
        return found

    def engine_on(self, i: int, layout: PoolLayout) -> EngineFit:
        """Match one engine against a layout.

        On a pool, all members must fit, none may be stranded, and one of them must
        claim devices.
        """
        codes, fits = self._codes[i], self._engine_fits[i]
        try:
            key = tuple(map(codes.__getitem__, layout.key))
        except KeyError:
            key = tuple(self._code(i, devices) for devices in layout.sets)
            for digest, code in zip(layout.key, key, strict=True):
                remember(codes, digest, code, _KEPT)
        known = fits.get(key)
        return (
            remember(fits, key, self._match_engine(i, layout), _KEPT)
            if known is None
            else known
        )

    def _code(self, i: int, devices: DeviceSet | None) -> int:
        """Return the outcome of an engine's members on a device set as a number."""
        if devices is None:
            return 0
        code = 0
        for need in self.needs[i]:
            fit = need.fit(devices)
            code = 3 * code + (1 + bool(fit.resolved) if fit.fits else 0)
        return code

    def _match_engine(self, i: int, layout: PoolLayout) -> EngineFit:
        table = self.member_fits(i, layout)
        capable = tuple(
            any(fit is not None and fit.fits and fit.resolved for fit in row)
            for row in table
        )
        positions = tuple(
            p
            for p in range(len(layout.sets))
            if self._takes(table, capable, p, claims=i in self.spanning)
        )
        return EngineFit(positions, engine_cost(self.engines[i], capable), capable)

    def member_fits(self, i: int, layout: PoolLayout) -> list[list[MemberFit | None]]:
        """Return each member's fit on each pool; None if a pool takes no new one."""
        return [
            [None if devices is None else need.fit(devices) for devices in layout.sets]
            for need in self.needs[i]
        ]

    @staticmethod
    def _takes(
        table: list[list[MemberFit | None]],
        capable: tuple[bool, ...],
        p: int,
        *,
        claims: bool,
    ) -> bool:
        for row, can_claim in zip(table, capable, strict=True):
            fit = row[p]
            if fit is None or not fit.fits or (can_claim and not fit.resolved):
                return False
            claims = claims or bool(fit.resolved)
        return claims

    def place(self, i: int, pool: str, devices: DeviceSet) -> EnginePlacement:
        """Place an engine on a pool; equal placements share one object."""
        key = (i, pool, devices.digest)
        known = self._placed.get(key)
        if known is None:
            engine = self.engines[i]
            members = tuple(
                place_member(member, need, need.fit(devices), pool)
                for member, need in zip(engine.members, self.needs[i], strict=True)
            )
            known = remember(
                self._placed,
                key,
                EnginePlacement(engine.name, members, engine.copies),
                _KEPT,
            )
        return known


def place_member(
    member: MemberView, need: MemberNeed, fit: MemberFit, pool: str
) -> MemberPlacement:
    """Return the placement of one member with its resolved requests."""
    return MemberPlacement(
        role=member.role,
        pool=pool,
        requests=fit.resolved,
        worker_nodes=member.worker_nodes,
        need=need.digest,
        draw=fit.draw,
        pods_per_node=member.pods_per_node,
    )


def member_pods(member: MemberView) -> int:
    """Return the number of pods of one copy of a member."""
    return member.worker_nodes if member.role == "Worker" else 1


def engine_cost(engine: EngineView, claims: tuple[bool, ...]) -> int:
    """Return the nodes of an engine: one whole node per pod of each claiming member."""
    return engine.copies * sum(
        member_pods(member)
        for member, claiming in zip(engine.members, claims, strict=True)
        if claiming
    )


def placed_nodes(engine: EnginePlacement) -> tuple[tuple[str, int], ...]:
    """Return the nodes per pool of a placed engine; members without requests hold none."""
    nodes: dict[str, int] = {}
    for member in engine.members:
        if member.requests:
            nodes[member.pool] = nodes.get(member.pool, 0) + member.pods * engine.copies
    return tuple(nodes.items())


def charges(engines: tuple[EnginePlacement, ...]) -> Mapping[str, int]:
    """Return the nodes per pool of a placed replica; the result is shared, read-only."""
    known = _charges.get(id(engines))
    if known is not None:
        return known[1]
    if len(_charges) >= _CHARGES_MAX:
        _charges.clear()
    total = _add_up(engines)
    _charges[id(engines)] = (engines, total)
    return total


# Keyed by identity, because many replicas share placed engines, and hashing takes
# longer than computing the charges. The stored reference keeps the id unique.
_charges: dict[int, tuple[tuple[EnginePlacement, ...], Mapping[str, int]]] = {}
_CHARGES_MAX = 50_000


def forget_charges() -> None:
    """Clear the cache by identity, when a fleet is read with all new objects."""
    _charges.clear()


def _add_up(engines: tuple[EnginePlacement, ...]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for engine in engines:
        for pool, nodes in placed_nodes(engine):
            total[pool] = total.get(pool, 0) + nodes
    return total


def placing_units(engines: tuple[EngineView, ...]) -> tuple[EngineView, ...]:
    """Return the units of placement.

    A unit is an engine, or one member of an engine that may span the pools of one
    network.
    """
    units: list[EngineView] = []
    for engine in engines:
        if engine.span_pools and len(engine.members) > 1:
            units += [replace(engine, members=(member,)) for member in engine.members]
        else:
            units.append(replace(engine, span_pools=False))
    return tuple(units)


def joined_units(placed: Iterable[EnginePlacement]) -> tuple[EnginePlacement, ...]:
    """Join the placed members of each engine again."""
    engines: dict[str, EnginePlacement] = {}
    for unit in placed:
        known = engines.get(unit.engine)
        engines[unit.engine] = (
            unit
            if known is None
            else replace(known, members=(*known.members, *unit.members))
        )
    return tuple(engines.values())


def _length(engines: tuple[EngineView, ...], _rules: MatchRules) -> int:
    length = 0
    for engine in engines:
        length += sum(selectors_length(member.requests) for member in engine.members)
    return length


@bounded_cache(_length)
def compile_template(
    engines: tuple[EngineView, ...], rules: MatchRules
) -> CompiledTemplate:
    """Compile engines once per content.

    Raise SelectorError if a selector does not compile.
    """
    return CompiledTemplate(engines, rules)


def _engine_content(engine: EngineView) -> object:
    members = [
        [
            m.role,
            m.worker_nodes,
            m.pods_per_node,
            [[r.name, r.count, list(r.selectors)] for r in m.requests],
        ]
        for m in engine.members
    ]
    return [engine.name, engine.copies, engine.span_pools, members]
