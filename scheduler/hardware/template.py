"""The compiled template of a deployment: its engines, matched once against each arrangement of pools.

Clusters whose pools carry the same device sets in the same order share a `Layout`, so the work per deployment grows with the number of
different hardware arrangements, not with clusters. Node counts do not matter here; `node_fitting` adds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace

from scheduler.cel.bounded_cache import bounded_cache, remember
from scheduler.cel.limits import REQUEST_WORK_MAX
from scheduler.hardware.device_matching import MemberFit, MemberNeed, member_need, selectors_length
from scheduler.model.decision import EnginePlacement, MemberPlacement
from scheduler.model.digests import digest_of
from scheduler.model.inputs import DeviceSet, EngineView, MemberView
from scheduler.model.rules import MatchRules

# Device sets and pools whose match a template keeps, and layouts: each cluster may have its own.
_KEPT = 4_096
_LAYOUTS_KEPT = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The device sets of a cluster's pools in published order; a pool that takes no new replica has none.

    The fleet keeps one object per key, so layouts are compared by identity.
    """

    key: tuple[str, ...]
    sets: tuple[DeviceSet | None, ...]


@dataclass(frozen=True, slots=True)
class EngineFit:
    """Where one engine fits on a layout.

    Attributes:
        positions: pools that fit, regardless of capacity, in published order.
        cost: nodes it takes, the same on each of them.
        claims: for each member, whether it claims devices there.

    """

    positions: tuple[int, ...]
    cost: int
    claims: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class LayoutFit:
    """One `EngineFit` per engine; `blocked` names the first engine that fits no pool, -1 when all fit some."""

    engines: tuple[EngineFit, ...]
    blocked: int = -1


class CompiledTemplate:
    """The compiled engines of a deployment."""

    def __init__(self, engines: tuple[EngineView, ...], rules: MatchRules) -> None:
        self.engines = engines
        self.rules = rules
        self.needs: tuple[tuple[MemberNeed, ...], ...] = tuple(
            tuple(member_need(member.requests, rules) for member in engine.members) for engine in engines
        )
        self.digest = digest_of([[_engine_content(engine) for engine in engines], astuple(rules)])
        # Members that are placed on their own because their engine may span pools.
        self.spanning = frozenset(i for i, engine in enumerate(engines) if engine.span_pools and len(engine.members) == 1)
        # Engines of one member each, none of which can be stranded: what fits a device set is all there is to know.
        self._alone = not self.spanning and all(len(needs) == 1 for needs in self.needs)
        # Of each engine the outcome on device sets, and the fit by the outcomes on the sets of a layout.
        self._codes: list[dict[str, int]] = [{} for _ in engines]
        self._engine_fits: list[dict[tuple[int, ...], EngineFit]] = [{} for _ in engines]
        self._fits: dict[tuple[str, ...], LayoutFit] = {}
        self._placed: dict[tuple[int, str, str], EnginePlacement] = {}

    def on(self, layout: Layout) -> LayoutFit:
        """Match all engines against a layout."""
        known = self._fits.get(layout.key)
        if known is None:
            known = remember(self._fits, layout.key, self._match(layout), _LAYOUTS_KEPT)
        return known

    def _match(self, layout: Layout) -> LayoutFit:
        fits = tuple(self.engine_on(i, layout) for i in range(len(self.engines)))
        claiming = {engine.name for engine, fit in zip(self.engines, fits, strict=True) if any(fit.claims)}
        blocked = next((i for i, fit in enumerate(fits) if not fit.positions or self.engines[i].name not in claiming), -1)
        return LayoutFit(fits, blocked)

    def work(self, sets: Iterable[DeviceSet]) -> int:
        """Match every member with device sets, and say how much work that took; what is matched once is known afterwards.

        It is the same whatever was known before, so a decision does not depend on the process that makes it. Stops where it is too much.
        """
        needs = {id(need): need for engine in self.needs for need in engine if need.requests}.values()
        total = 0
        for devices in sets:
            for need in needs:
                total += need.fit(devices).work
                if total > REQUEST_WORK_MAX:
                    return REQUEST_WORK_MAX + 1
        return total

    def claimable_sets(self, sets: Iterable[DeviceSet]) -> list[set[str]] | None:
        """Give for each engine the digests of device sets it fits, if that alone decides.

        That is so when every engine has one member, for none can be stranded then. Otherwise None, and each layout has to be matched.
        """
        if not self._alone:
            return None
        known = list(sets)
        return [{s.digest for s in known if (fit := needs[0].fit(s)).fits and fit.resolved} for needs in self.needs]

    def engine_on(self, i: int, layout: Layout) -> EngineFit:
        """Match one engine: all members fit one pool, none is stranded there, and one of them claims."""
        codes, fits = self._codes[i], self._engine_fits[i]
        try:
            key = tuple(map(codes.__getitem__, layout.key))
        except KeyError:
            key = tuple(self._code(i, devices) for devices in layout.sets)
            for digest, code in zip(layout.key, key, strict=True):
                remember(codes, digest, code, _KEPT)
        known = fits.get(key)
        return remember(fits, key, self._match_engine(i, layout), _KEPT) if known is None else known

    def _code(self, i: int, devices: DeviceSet | None) -> int:
        """Return the outcome of an engine's members on a device set as a number."""
        if devices is None:
            return 0
        code = 0
        for need in self.needs[i]:
            fit = need.fit(devices)
            code = 3 * code + (1 + bool(fit.resolved) if fit.fits else 0)
        return code

    def _match_engine(self, i: int, layout: Layout) -> EngineFit:
        table = self.member_fits(i, layout)
        capable = tuple(any(fit is not None and fit.fits and fit.resolved for fit in row) for row in table)
        positions = tuple(p for p in range(len(layout.sets)) if self._takes(table, capable, p, claims=i in self.spanning))
        return EngineFit(positions, engine_cost(self.engines[i], capable), capable)

    def member_fits(self, i: int, layout: Layout) -> list[list[MemberFit | None]]:
        """For each member of an engine its fit on each pool; None where a pool takes no new replica."""
        return [[None if devices is None else need.fit(devices) for devices in layout.sets] for need in self.needs[i]]

    @staticmethod
    def _takes(table: list[list[MemberFit | None]], capable: tuple[bool, ...], p: int, *, claims: bool) -> bool:
        for row, can_claim in zip(table, capable, strict=True):
            fit = row[p]
            if fit is None or not fit.fits or (can_claim and not fit.resolved):
                return False
            claims = claims or bool(fit.resolved)
        return claims

    def place(self, i: int, pool: str, devices: DeviceSet) -> EnginePlacement:
        """Place an engine on a pool; equal placements are one object."""
        key = (i, pool, devices.digest)
        known = self._placed.get(key)
        if known is None:
            engine = self.engines[i]
            members = tuple(
                place_member(member, need, need.fit(devices), pool) for member, need in zip(engine.members, self.needs[i], strict=True)
            )
            known = remember(self._placed, key, EnginePlacement(engine.name, members, engine.copies), _KEPT)
        return known


def place_member(member: MemberView, need: MemberNeed, fit: MemberFit, pool: str) -> MemberPlacement:
    """Put one member on a pool with what its requests resolved to there."""
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
    """Pods of one copy of a member."""
    return member.worker_nodes if member.role == "Worker" else 1


def engine_cost(engine: EngineView, claims: tuple[bool, ...]) -> int:
    """Nodes of an engine: whole nodes, one per pod of each member that claims."""
    return engine.copies * sum(member_pods(member) for member, claiming in zip(engine.members, claims, strict=True) if claiming)


def placed_nodes(engine: EnginePlacement) -> tuple[tuple[str, int], ...]:
    """Nodes per pool that a placed engine holds; members without requests hold none."""
    nodes: dict[str, int] = {}
    for member in engine.members:
        if member.requests:
            nodes[member.pool] = nodes.get(member.pool, 0) + member.pods * engine.copies
    return tuple(nodes.items())


def charges(engines: tuple[EnginePlacement, ...]) -> Mapping[str, int]:
    """Nodes per pool that a placed replica holds; the answer is shared and must not be changed."""
    known = _charges.get(id(engines))
    if known is not None:
        return known[1]
    if len(_charges) >= _CHARGES_MAX:
        _charges.clear()
    total = _add_up(engines)
    _charges[id(engines)] = (engines, total)
    return total


# By identity: placed engines are shared by many replicas, and hashing one costs more than adding it up. The reference keeps the id unique.
_charges: dict[int, tuple[tuple[EnginePlacement, ...], Mapping[str, int]]] = {}
_CHARGES_MAX = 50_000


def forget_charges() -> None:
    """Drop what is known by identity, when a fleet is read whose objects are all new."""
    _charges.clear()


def _add_up(engines: tuple[EnginePlacement, ...]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for engine in engines:
        for pool, nodes in placed_nodes(engine):
            total[pool] = total.get(pool, 0) + nodes
    return total


def placing_units(engines: tuple[EngineView, ...]) -> tuple[EngineView, ...]:
    """Give what is placed as a whole: an engine, or each member of an engine that may span the pools of one network."""
    units: list[EngineView] = []
    for engine in engines:
        if engine.span_pools and len(engine.members) > 1:
            units += [replace(engine, members=(member,)) for member in engine.members]
        else:
            units.append(replace(engine, span_pools=False))
    return tuple(units)


def joined_units(placed: Iterable[EnginePlacement]) -> tuple[EnginePlacement, ...]:
    """Put the members of one engine together again."""
    engines: dict[str, EnginePlacement] = {}
    for unit in placed:
        known = engines.get(unit.engine)
        engines[unit.engine] = unit if known is None else replace(known, members=(*known.members, *unit.members))
    return tuple(engines.values())


@bounded_cache(lambda engines, _rules: sum(selectors_length(member.requests) for engine in engines for member in engine.members))
def compile_template(engines: tuple[EngineView, ...], rules: MatchRules) -> CompiledTemplate:
    """Compile engines once per content; raises SelectorError when a selector does not compile."""
    return CompiledTemplate(engines, rules)


def _engine_content(engine: EngineView) -> object:
    members = [
        [m.role, m.worker_nodes, m.pods_per_node, [[r.name, r.count, list(r.selectors)] for r in m.requests]] for m in engine.members
    ]
    return [engine.name, engine.copies, engine.span_pools, members]
