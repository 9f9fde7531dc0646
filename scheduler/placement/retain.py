"""Which of a deployment's own replicas are retained, and why the others are not.

A retained replica keeps cluster, index and pools. Readiness, gateway, NoSchedule taints, labels, free nodes and better pools do not
matter: nothing moves for those. What changed under a replica without an edit of its deployment (a class edit) is only reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from scheduler.fleet.capacity import observed_limit
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.device_matching import member_need
from scheduler.hardware.template import CompiledTemplate, charges, place_member
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.decision import EnginePlacement, MemberPlacement, RetainedNote
from scheduler.model.inputs import DeploymentView, DeviceSet, EngineView, KeptReplica, LedgerEntry, MemberView
from scheduler.model.rules import MatchRules
from scheduler.placement.limits.queue_limits import eviction_text, not_admitted


@dataclass(slots=True)
class RetainedReplica:
    """A replica that is retained for now.

    Attributes:
        target: its engines as the deployment wants them on the pools it is pinned to, None when it has to stay as placed.
        replace_reason: why it is replaced as soon as a successor can be placed, "" if it is not.
        detail: what `replace_reason` found.
        drain_reason: the taint for which it is evicted under the drain budget, "" if none.
        drain_since: when that taint was first seen, in ms.

    """

    entry: LedgerEntry
    target: tuple[EnginePlacement, ...] | None = None
    replace_reason: str = ""
    detail: str = ""
    drain_reason: str = ""
    drain_since: int = 0


@dataclass(slots=True)
class EvictedReplica:
    """A replica that is evicted now."""

    entry: LedgerEntry
    reason: str
    detail: str


@dataclass(slots=True)
class RetainResult:
    """The outcome; `terminating` are replicas that were releasing before, `duplicates` share the identity of a retained one."""

    kept: list[RetainedReplica] = field(default_factory=list)
    evicted: list[EvictedReplica] = field(default_factory=list)
    terminating: list[LedgerEntry] = field(default_factory=list)
    notes: list[RetainedNote] = field(default_factory=list)
    duplicates: list[LedgerEntry] = field(default_factory=list)


def own_entries(overlay: FleetOverlay, deployment: DeploymentView, reported: Mapping[str, KeptReplica]) -> list[LedgerEntry]:
    """Give the deployment's replicas in name order, with the health that the deployment reports by uid."""
    entries = []
    for entry in overlay.ledger.owned(deployment.namespace, deployment.name).values():
        known = reported.get(entry.uid)
        if known is not None:
            state = reasons.RELEASING if known.terminating else entry.state
            if (known.ready, known.serving, state) != (entry.ready, entry.serving, entry.state):
                entry = replace(entry, ready=known.ready, serving=known.serving, state=state)  # noqa: PLW2901  # the same replica
        entries.append(entry)
    entries.sort(key=lambda e: (e.name, e.uid))
    return entries


def retain(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate | None, entries: list[LedgerEntry], *, held: bool
) -> RetainResult:
    """Sort the deployment's replicas into those that are retained and those that are evicted.

    Args:
        overlay: the fleet as this batch sees it.
        deployment: what is wanted.
        compiled: its compiled engines; None when a selector does not compile, then every replica stays as placed.
        entries: its replicas in name order.
        held: no new replica may be placed; then replicas are evicted only because of a lost or drained cluster.

    """
    rules = overlay.rules
    found = RetainResult()
    taken: set[tuple[str, int]] = set()
    for entry in entries:
        if entry.state == reasons.RELEASING and rules.know_releasing:
            found.terminating.append(entry)
            continue
        info = overlay.clusters.get(entry.cluster)
        if info is None and not overlay.fleet.rebuilding:
            found.evicted.append(EvictedReplica(entry, reasons.CLUSTER_GONE, f"cluster {entry.cluster} no longer exists"))
            continue
        if rules.replace_unselected and info is not None and not _selected(deployment, info):
            found.evicted.append(EvictedReplica(entry, reasons.CLUSTER_GONE, f"cluster {entry.cluster} is no longer selected"))
            continue
        if (entry.cluster, entry.index) in taken:
            detail = f"another replica already is {entry.cluster}/{entry.index}"
            if held or compiled is None:
                found.duplicates.append(entry)
            else:
                found.evicted.append(EvictedReplica(entry, reasons.DUPLICATE_IDENTITY, detail))
            continue
        taken.add((entry.cluster, entry.index))
        kept = RetainedReplica(entry)
        found.kept.append(kept)
        if info is None:
            continue
        taint = untolerated(info.taints, deployment.tolerations, "NoExecute")
        if taint is not None:
            kept.drain_reason = f"untolerated taint {taint_text(taint.key, taint.value, taint.effect)} on cluster {entry.cluster}"
            kept.drain_since = taint.since
        elif compiled is not None:
            note = _check_placement(overlay, deployment, compiled, info, kept)
            if note is not None:
                found.notes.append(note)
            waiting = not_admitted(overlay, info, entry) if rules.follow_admission and not kept.replace_reason else ""
            if waiting:
                kept.replace_reason, kept.detail = reasons.NOT_ADMITTED, waiting
        lost = eviction_text(overlay, info, entry) if rules.follow_admission else ""
        if lost:
            found.notes.append(RetainedNote(reasons.EVICTED, entry.name, lost))
    return found


def _selected(deployment: DeploymentView, info: ClusterInfo) -> bool:
    wanted = [*deployment.match_labels.items(), *deployment.cache.match_labels.items()]
    return all(info.view.labels.get(key) == value for key, value in wanted)


def taint_text(key: str, value: str, effect: str) -> str:
    """Write a taint as kubectl does."""
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _check_placement(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate, info: ClusterInfo, kept: RetainedReplica
) -> RetainedNote | None:
    """Compare a placement with the template: set in `kept` what follows, and give the note of a drift.

    One engine that was edited and does not fit its pins any more replaces the replica, whatever drifted under the others. One that was
    edited and still fits does not, for a replica on drifted pools keeps its whole template.
    """
    entry = kept.entry
    current = {engine.engine: engine for engine in entry.engines}
    kept.detail = _template_difference(deployment.engines, current, len(entry.engines))
    if kept.detail:
        kept.replace_reason = reasons.TEMPLATE_CHANGED
        return None
    target = []
    drifted = ""
    for i, engine in enumerate(deployment.engines):
        placed, problem = _on_pins(compiled, info, i, engine, current[engine.name])
        if placed is not None:
            target.append(placed)
        elif not overlay.rules.tolerate_drift or _edited(compiled, i, engine, current[engine.name], info):
            kept.replace_reason, kept.detail = reasons.PIN_MISMATCH, problem
            return None
        else:
            drifted = drifted or problem
    if drifted:
        return RetainedNote(reasons.DRIFTED, entry.name, drifted)
    kept.target = tuple(target)
    return None


def _template_difference(engines: tuple[EngineView, ...], current: dict[str, EnginePlacement], count: int) -> str:
    if count != len(engines) or len(current) != count:
        return f"{count} engines placed, {len(engines)} wanted"
    for engine in engines:
        known = current.get(engine.name)
        if known is None:
            return f"engine {engine.name} is not among the placed ones"
        if [m.role for m in known.members] != [m.role for m in engine.members]:
            return f"engine {engine.name} has other members than placed"
    return ""


def _on_pins(
    compiled: CompiledTemplate, info: ClusterInfo, i: int, engine: EngineView, current: EnginePlacement
) -> tuple[EnginePlacement | None, str]:
    """Place an engine again on the pools it is pinned to; None and the problem when they no longer satisfy it."""
    pool = current.pool
    members = current.members
    devices = info.device_set(pool)
    if devices is not None and pool and all(member.pool == pool for member in members):
        fits = [need.fit(devices) for need in compiled.needs[i]]
        if all(fit.fits for fit in fits) and any(fit.resolved for fit in fits):
            return compiled.place(i, pool, devices), ""
    placed = []
    claims = False
    for member, known, need in zip(engine.members, members, compiled.needs[i], strict=True):
        if not known.pool:
            return None, f"engine {engine.name}: member {member.role} has no pool"
        own = info.device_set(known.pool)
        if own is None:
            return None, f"engine {engine.name}: pool {known.pool} is not published"
        fit = need.fit(own)
        if not fit.fits:
            return None, f"engine {engine.name}: pool {known.pool} no longer fits ({fit.detail})"
        claims = claims or bool(fit.resolved)
        placed.append(place_member(member, need, fit, known.pool))
    if not claims:
        return None, f"engine {engine.name}: no member claims a device on pool {pool}"
    return EnginePlacement(engine.name, tuple(placed), engine.copies), ""


def _edited(compiled: CompiledTemplate, i: int, engine: EngineView, current: EnginePlacement, info: ClusterInfo) -> bool:
    """Whether the deployment was edited since the engine was placed.

    A pool that is no longer published cannot have drifted: its pods match no node, so the replica has to be replaced.
    """
    # Members without requests have no digest, and an engine has one member with requests at least.
    has_digests = any(member.need for member in current.members)
    for member, known, need in zip(engine.members, current.members, compiled.needs[i], strict=True):
        devices = info.device_set(known.pool)
        if devices is None or (known.need != need.digest if has_digests else _claims_edited(member, known, devices, compiled.rules)):
            return True
    return False


def _claims_edited(member: MemberView, current: MemberPlacement, devices: DeviceSet, rules: MatchRules) -> bool:
    """Compare a member with what its requests resolved to: the manifest of a replica has no digests.

    Requests that resolved to nothing are not among these. One that the pool has no device for is taken as new, not as one whose synthetic
    device is gone: requests are edited more often than classes lose devices that nothing claims.
    """
    wanted = {request.name: (request.count, request.selectors) for request in member.requests}
    claimed = {known.name for known in current.requests}
    if any(wanted.get(known.name) != (known.count, known.selectors) for known in current.requests):
        return True
    return any(request.name not in claimed and not member_need((request,), rules).fit(devices).fits for request in member.requests)


def lost_capacity(overlay: FleetOverlay, entry: LedgerEntry) -> Iterator[RetainedNote]:
    """Report pools under a replica where fewer nodes exist than are charged; nothing is moved for that."""
    info = overlay.clusters.get(entry.cluster)
    if info is None or not info.observed:
        return
    used = overlay.ledger.used(info.name)
    for name in charges(entry.engines):
        p = info.positions.get(name)
        if p is None:
            continue
        charged = used.get(name, 0)
        limit = observed_limit(info.pools[p], charged, overlay.now, overlay.options)
        if limit is not None and limit < 0:
            detail = f"{charged + limit} nodes of {info.name}/{name} are there, {charged} are charged"
            yield RetainedNote(reasons.CAPACITY_LOST, entry.name, detail)


def same_placement(a: EnginePlacement, b: EnginePlacement) -> bool:
    """Whether two placements give the same pods; fields that pods do not depend on are left aside."""
    if a.engine != b.engine or a.copies != b.copies or len(a.members) != len(b.members):
        return False
    return all(
        (m.role, m.pool, m.pods, m.requests) == (n.role, n.pool, n.pods, n.requests) for m, n in zip(a.members, b.members, strict=True)
    )
