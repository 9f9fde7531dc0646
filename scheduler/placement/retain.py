"""Decide which of a deployment's own replicas are retained, and why others are not.

A retained replica keeps its cluster, index and pools. Readiness, gateway, NoSchedule
taints, labels, free nodes and better pools are no reason to move a replica. If a class
was edited but not the deployment, the difference is only reported.
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
from scheduler.model.inputs import (
    DeploymentView,
    DeviceSet,
    EngineView,
    KeptReplica,
    LedgerEntry,
    MemberView,
)
from scheduler.model.rules import MatchRules
from scheduler.placement.limits.queue_limits import eviction_text, not_admitted


@dataclass(slots=True)
class RetainedReplica:
    """A replica that is retained for now.

    Attributes:
        target: the engines of the current template on the pools the replica is pinned
            to; None if it must stay as placed.
        replace_reason: why it is replaced once a successor can be placed, or "".
        detail: details of `replace_reason`.
        drain_reason: the taint for which it is evicted within the drain budget, or "".
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
    """The result of `retain`.

    `terminating` are replicas that were already releasing. `duplicates` share the
    identity of a retained replica.
    """

    kept: list[RetainedReplica] = field(default_factory=list)
    evicted: list[EvictedReplica] = field(default_factory=list)
    terminating: list[LedgerEntry] = field(default_factory=list)
    notes: list[RetainedNote] = field(default_factory=list)
    duplicates: list[LedgerEntry] = field(default_factory=list)


def own_entries(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    reported: Mapping[str, KeptReplica],
) -> list[LedgerEntry]:
    """Return the deployment's replicas by name, with the health that it reports by uid."""
    entries = []
    for entry in overlay.ledger.owned(deployment.namespace, deployment.name).values():
        known = reported.get(entry.uid)
        if known is not None:
            state = reasons.RELEASING if known.terminating else entry.state
            if (known.ready, known.serving, state) != (
                entry.ready,
                entry.serving,
                entry.state,
            ):
                entry = replace(  # noqa: PLW2901  # the same replica
                    entry, ready=known.ready, serving=known.serving, state=state
                )
        entries.append(entry)
    entries.sort(key=lambda e: (e.name, e.uid))
    return entries


def retain(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    compiled: CompiledTemplate | None,
    entries: list[LedgerEntry],
    *,
    held: bool,
) -> RetainResult:
    """Decide which of the deployment's replicas are retained and which are evicted.

    Args:
        overlay: the fleet as this batch sees it.
        deployment: the deployment.
        compiled: its compiled engines. None if a selector does not compile, and then every
            replica stays as placed.
        entries: its replicas in name order.
        held: whether no new replica may be placed. Then replicas are evicted only from a
            lost or drained cluster.

    """
    rules = overlay.rules
    found = RetainResult()
    taken: set[tuple[str, int]] = set()
    for entry in entries:
        if entry.state == reasons.RELEASING and rules.know_releasing:
            found.terminating.append(entry)
            continue
        info = overlay.clusters.get(entry.cluster)
        lost = _lost_cluster(overlay, deployment, entry, info)
        if lost:
            found.evicted.append(EvictedReplica(entry, reasons.CLUSTER_GONE, lost))
            continue
        if (entry.cluster, entry.index) in taken:
            detail = f"another replica has the identity {entry.cluster}/{entry.index}"
            if held or compiled is None:
                found.duplicates.append(entry)
            else:
                found.evicted.append(
                    EvictedReplica(entry, reasons.DUPLICATE_IDENTITY, detail)
                )
            continue
        taken.add((entry.cluster, entry.index))
        kept = RetainedReplica(entry)
        found.kept.append(kept)
        if info is not None:
            found.notes += _check_kept(overlay, deployment, compiled, info, kept)
    return found


def _lost_cluster(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    entry: LedgerEntry,
    info: ClusterInfo | None,
) -> str:
    """Return why a replica has lost its cluster, or ""."""
    if info is None:
        if entry.cluster in overlay.fleet.awaited:
            return ""
        return f"cluster {entry.cluster} no longer exists"
    if overlay.rules.replace_unselected and not _selected(deployment, info):
        return f"cluster {entry.cluster} is no longer selected"
    return ""


def _check_kept(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    compiled: CompiledTemplate | None,
    info: ClusterInfo,
    kept: RetainedReplica,
) -> list[RetainedNote]:
    """Check the cluster and the placement of a retained replica.

    The function sets the consequences in `kept` and returns the notes.
    """
    entry, rules = kept.entry, overlay.rules
    notes = []
    taint = untolerated(info.taints, deployment.tolerations, "NoExecute")
    if taint is not None:
        text = taint_text(taint.key, taint.value, taint.effect)
        kept.drain_reason = f"untolerated taint {text} on cluster {entry.cluster}"
        kept.drain_since = taint.since
    elif compiled is not None:
        note = _check_placement(overlay, deployment, compiled, info, kept)
        if note is not None:
            notes.append(note)
        waiting = ""
        if rules.follow_admission and not kept.replace_reason:
            waiting = not_admitted(overlay, info, entry)
        if waiting:
            kept.replace_reason, kept.detail = reasons.NOT_ADMITTED, waiting
    evicted = eviction_text(overlay, info, entry) if rules.follow_admission else ""
    if evicted:
        notes.append(RetainedNote(reasons.EVICTED, entry.name, evicted))
    return notes


def _selected(deployment: DeploymentView, info: ClusterInfo) -> bool:
    wanted = [*deployment.match_labels.items(), *deployment.cache.match_labels.items()]
    return all(info.view.labels.get(key) == value for key, value in wanted)


def taint_text(key: str, value: str, effect: str) -> str:
    """Write a taint as kubectl does."""
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _check_placement(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    compiled: CompiledTemplate,
    info: ClusterInfo,
    kept: RetainedReplica,
) -> RetainedNote | None:
    """Compare a placement with the template.

    The function sets the consequences in `kept` and returns the note of a drift. If an
    edited engine no longer fits its pools, the replica is replaced, even if other
    engines drifted. If it still fits, the replica is not replaced, because a replica on
    drifted pools keeps its whole template.
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
        elif not overlay.rules.tolerate_drift or _edited(
            compiled, i, engine, current[engine.name], info
        ):
            kept.replace_reason, kept.detail = reasons.PIN_MISMATCH, problem
            return None
        else:
            drifted = drifted or problem
    if drifted:
        return RetainedNote(reasons.DRIFTED, entry.name, drifted)
    kept.target = tuple(target)
    return None


def _template_difference(
    engines: tuple[EngineView, ...], current: dict[str, EnginePlacement], count: int
) -> str:
    if count != len(engines) or len(current) != count:
        return f"{count} engines placed, {len(engines)} wanted"
    for engine in engines:
        known = current.get(engine.name)
        if known is None:
            return f"engine {engine.name} was not placed"
        if [m.role for m in known.members] != [m.role for m in engine.members]:
            return f"engine {engine.name} was placed with other members"
    return ""


def _on_pins(
    compiled: CompiledTemplate,
    info: ClusterInfo,
    i: int,
    engine: EngineView,
    current: EnginePlacement,
) -> tuple[EnginePlacement | None, str]:
    """Place an engine again on the pools it is pinned to.

    Return None and the problem if the pools no longer satisfy it.
    """
    pool = current.pool
    members = current.members
    devices = info.device_set(pool)
    if devices is not None and pool and all(member.pool == pool for member in members):
        fits = [need.fit(devices) for need in compiled.needs[i]]
        if all(fit.fits for fit in fits) and any(fit.resolved for fit in fits):
            return compiled.place(i, pool, devices), ""
    placed = []
    claims = False
    for member, known, need in zip(
        engine.members, members, compiled.needs[i], strict=True
    ):
        if not known.pool:
            return None, f"engine {engine.name}: member {member.role} has no pool"
        own = info.device_set(known.pool)
        if own is None:
            return None, f"engine {engine.name}: pool {known.pool} is not published"
        fit = need.fit(own)
        if not fit.fits:
            return (
                None,
                f"engine {engine.name}: pool {known.pool} no longer fits ({fit.detail})",
            )
        claims = claims or bool(fit.resolved)
        placed.append(place_member(member, need, fit, known.pool))
    if not claims:
        return None, f"engine {engine.name}: no member claims a device on pool {pool}"
    return EnginePlacement(engine.name, tuple(placed), engine.copies), ""


def _edited(
    compiled: CompiledTemplate,
    i: int,
    engine: EngineView,
    current: EnginePlacement,
    info: ClusterInfo,
) -> bool:
    """Return whether the deployment was edited after the engine was placed.

    An unpublished pool has not drifted: its pods match no node, so the replica must be
    replaced.
    """
    # Members without requests have no digest, and each engine has at least one member
    # with requests.
    has_digests = any(member.need for member in current.members)
    for member, known, need in zip(
        engine.members, current.members, compiled.needs[i], strict=True
    ):
        devices = info.device_set(known.pool)
        if devices is None:
            return True
        if has_digests:
            is_edited = known.need != need.digest
        else:
            is_edited = _claims_edited(member, known, devices, compiled.rules)
        if is_edited:
            return True
    return False


def _claims_edited(
    member: MemberView, current: MemberPlacement, devices: DeviceSet, rules: MatchRules
) -> bool:
    """Return whether a member differs from its resolved requests.

    A replica's manifest has no digests, and does not contain requests that resolved to
    no device. If no device of the pool satisfies such a missing request, the request
    counts as new, not as a request whose synthetic device is gone: requests are edited
    more often than classes lose devices that nothing claims.
    """
    wanted = {
        request.name: (request.count, request.selectors) for request in member.requests
    }
    claimed = {known.name for known in current.requests}
    if any(
        wanted.get(known.name) != (known.count, known.selectors)
        for known in current.requests
    ):
        return True
    return any(
        request.name not in claimed
        and not member_need((request,), rules).fit(devices).fits
        for request in member.requests
    )


def lost_capacity(overlay: FleetOverlay, entry: LedgerEntry) -> Iterator[RetainedNote]:
    """Yield a note for each pool with fewer nodes than charges.

    Such a pool is no reason to move a replica.
    """
    info = overlay.clusters.get(entry.cluster)
    if info is None or not info.observed:
        return
    used = overlay.ledger.used(info.name)
    for name in charges(entry.charged):
        p = info.positions.get(name)
        if p is None:
            continue
        charged = used.get(name, 0)
        limit = observed_limit(info.pools[p], charged, overlay.now, overlay.options)
        if limit is not None and limit < 0:
            detail = (
                f"{charged} nodes of {info.name}/{name} are charged, "
                f"but only {charged + limit} exist"
            )
            yield RetainedNote(reasons.CAPACITY_LOST, entry.name, detail)


def same_placement(a: EnginePlacement, b: EnginePlacement) -> bool:
    """Return whether two placements result in the same pods.

    Fields that do not affect pods are ignored.
    """
    if a.engine != b.engine or a.copies != b.copies or len(a.members) != len(b.members):
        return False
    return all(
        (m.role, m.pool, m.pods, m.requests) == (n.role, n.pool, n.pods, n.requests)
        for m, n in zip(a.members, b.members, strict=True)
    )
