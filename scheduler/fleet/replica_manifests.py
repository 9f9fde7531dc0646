"""Read ModelReplica manifests as ledger entries, for plans without a control plane.

The live scheduler never reads them: its ledger has the entries that it placed itself or
that deployments report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from api_types import labels
from scheduler.cel import SelectorError
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.manifests import Tree, template_digest
from scheduler.hardware.device_matching import member_need
from scheduler.model.decision import (
    EnginePlacement,
    MemberPlacement,
    ResolvedDeviceRequest,
)
from scheduler.model.inputs import DeviceSet, LedgerEntry, RequestView
from scheduler.model.reasons import BOUND, RELEASING
from scheduler.model.rules import MatchRules


def ledger_entry(manifest: Tree) -> LedgerEntry:
    """Read a ModelReplica; its labels contain its owner and its index.

    An index that is not a number counts as 0.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    own_labels = metadata.get("labels") or {}
    namespace = metadata.get("namespace") or "default"
    index = str(own_labels.get(labels.REPLICA_INDEX) or "")
    status = manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    engines = spec.get("engines") or ()
    return LedgerEntry(
        uid=metadata.get("uid") or f"{namespace}/{metadata['name']}",
        namespace=namespace,
        deployment=own_labels.get(labels.DEPLOYMENT) or "",
        cluster=spec["clusterName"],
        index=int(index) if index.isascii() and index.isdigit() else 0,
        name=metadata["name"],
        engines=_placed_engines(engines),
        state=RELEASING if metadata.get("deletionTimestamp") else BOUND,
        ready=any(
            c.get("type") == "Ready" and c.get("status") == "True" for c in conditions
        ),
        template=template_digest(spec, status.get("adoption") or 0) if engines else "",
    )


def with_draws(
    entry: LedgerEntry, info: ClusterInfo | None, rules: MatchRules
) -> LedgerEntry:
    """Derive the device entries that each pod of a replica uses.

    A manifest only contains the resolved requests. If the requests resolve differently
    on the pool now, the pod has no recorded devices and counts as using a whole node.
    """
    engines = []
    for engine in entry.engines:
        sets = (
            info.device_set(member.pool) if info else None for member in engine.members
        )
        members = tuple(
            replace(member, draw=_draw(member, devices, rules))
            for member, devices in zip(engine.members, sets, strict=True)
        )
        engines.append(replace(engine, members=members))
    return replace(entry, engines=tuple(engines))


def _draw(
    member: MemberPlacement, devices: DeviceSet | None, rules: MatchRules
) -> tuple[tuple[str, int], ...]:
    if devices is None or not member.requests:
        return ()
    try:
        fit = member_need(
            tuple(RequestView(r.name, r.count, r.selectors) for r in member.requests),
            rules,
        ).fit(devices)
    except SelectorError:
        return ()
    return fit.draw if fit.resolved == member.requests else ()


def _placed_engines(engines: Iterable[Tree]) -> tuple[EnginePlacement, ...]:
    """Read the engines of a ModelReplica with their pools and resolved requests."""
    return tuple(
        EnginePlacement(
            engine["name"],
            tuple(_placed_member(member) for member in engine["members"]),
            engine.get("copies") or 1,
        )
        for engine in engines
    )


def _placed_member(member: Tree) -> MemberPlacement:
    requests = tuple(
        ResolvedDeviceRequest(
            r["name"],
            r.get("deviceClassName") or "",
            1 if r.get("count") is None else r["count"],
            tuple(s["cel"] for s in r.get("selectors") or ()),
            r.get("resourceName") or "",
        )
        for r in member.get("deviceRequests") or ()
    )
    return MemberPlacement(
        role=member.get("role") or "Standalone",
        pool=member.get("nodePoolName") or "",
        requests=requests,
        worker_nodes=(member.get("worker") or {}).get("nodes") or 1,
        pods_per_node=member.get("podsPerNode") or 1,
    )
