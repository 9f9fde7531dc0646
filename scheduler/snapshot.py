"""A whole fleet in few bytes, for continue-as-new.

Rows become columns, repeated texts and stamps become numbers into tables, and all of it is compressed: what replicas of one deployment
share is written once. Names are made again from the identity, so only those that differ are kept.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from api_types.names import replica_name
from scheduler.fleet import Fleet
from scheduler.holds import Hold
from scheduler.policy import SchedulerOptions
from scheduler.results import EnginePlacement
from scheduler.types import ClusterView, DeploymentView, DeviceSet, PoolView, ReplicaView, Taint
from scheduler.wire import codec, from_wire, to_wire

_FORMAT = 1
_EMPTY = DeviceSet("", ())


class _Table:
    """Values by number, each written once; the same object is recognised without being hashed."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self._seen: dict[int, tuple[Any, int]] = {}

    def number(self, value: Any) -> int:
        known = self._seen.get(id(value))
        if known is None:
            known = self._seen[id(value)] = (value, self.numbers.setdefault(value, len(self.numbers)))
        return known[1]


def pack(fleet: Fleet) -> bytes:
    """Write a fleet; equal fleets give equal bytes."""
    sets: dict[str, DeviceSet] = {}
    lists: dict[tuple[Any, ...], tuple[int, tuple[PoolView, ...]]] = {}
    clusters = []
    for name in sorted(fleet.clusters):
        view = fleet.clusters[name].view
        for pool in view.pools:
            sets[pool.device_set.digest] = pool.device_set
        # Many clusters publish the same pools; hashing whole device sets to find out would be dear.
        known = lists.setdefault(tuple(_pool_key(pool) for pool in view.pools), (len(lists), view.pools))
        tree = to_wire(replace(view, pools=()))
        tree["pools"] = known[0]
        tree["since"] = [taint.since for taint in view.taints]
        clusters.append(tree)
    texts, stamps = _Table(), _Table()
    rows = [_row(entry, texts, stamps) for entry in sorted(fleet.entries(), key=lambda entry: entry.uid)]
    write = codec(tuple[EnginePlacement, ...])[0]
    tree = {
        "format": _FORMAT,
        "version": fleet.version,
        "rebuilding": fleet.rebuilding,
        "options": to_wire(fleet.options),
        "holds": [[to_wire(hold.deployment), hold.priority, hold.since] for _, hold in sorted(fleet.holds.items())],
        "preempted": [[*owner, at] for owner, at in sorted(fleet.preempted_at.items())],
        "sets": [to_wire(sets[digest]) for digest in sorted(sets)],
        "pools": [
            [{**to_wire(replace(pool, device_set=_EMPTY)), "deviceSet": pool.device_set.digest} for pool in p] for _, p in lists.values()
        ],
        "clusters": clusters,
        "texts": list(texts.numbers),
        "stamps": [write(stamp) for stamp in stamps.numbers],
        "columns": [list(column) for column in zip(*rows, strict=True)],
    }
    return zlib.compress(json.dumps(tree, separators=(",", ":")).encode(), 6)


def _row(entry: ReplicaView, texts: _Table, stamps: _Table) -> list[Any]:
    made = replica_name(entry.namespace, entry.deployment, entry.cluster, entry.index, entry.name_counter)
    return [
        entry.uid,
        texts.number(entry.namespace),
        texts.number(entry.deployment),
        texts.number(entry.cluster),
        entry.index,
        "" if entry.name == made else entry.name,
        stamps.number(entry.engines),
        texts.number(entry.state),
        entry.priority,
        entry.since,
        int(entry.ready) + 2 * int(entry.serving),
        texts.number(entry.template),
        entry.name_counter,
        [list(pair) for pair in entry.reuse],
        [list(pair) for pair in entry.labels],
        entry.min_available,
        [[key, list(namespaces), [list(pair) for pair in wanted]] for key, namespaces, wanted in entry.avoids],
        list(entry.heir or ()),
    ]


def unpack(data: bytes) -> Fleet:
    """Read what `pack` wrote; raises ValueError on anything else."""
    try:
        tree = json.loads(zlib.decompress(data))
    except (zlib.error, ValueError) as error:
        raise ValueError(f"this is not a packed fleet: {error}") from error
    if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
        raise ValueError("this is not a packed fleet of a format that this version reads")
    fleet = Fleet(from_wire(SchedulerOptions, tree["options"]))
    sets = {known["digest"]: from_wire(DeviceSet, known) for known in tree["sets"]}
    pools = [tuple(_pool(known, sets) for known in listed) for listed in tree["pools"]]
    for known in tree["clusters"]:
        fleet.put_cluster(_cluster(known, pools))
    read = codec(tuple[EnginePlacement, ...])[1]
    stamps = [read(stamp) for stamp in tree["stamps"]]
    for row in zip(*tree["columns"], strict=True):
        fleet.ledger.put(_entry(row, tree["texts"], stamps))
    fleet.ledger.freed.clear()
    fleet.preempted_at = {(namespace, name): at for namespace, name, at in tree["preempted"]}
    for view, priority, since in tree.get("holds", ()):
        hold = Hold(from_wire(DeploymentView, view), priority, since)
        fleet.holds[hold.owner] = hold
    fleet.rebuilding = tree["rebuilding"]
    fleet.version = tree["version"]
    return fleet


def _pool_key(pool: PoolView) -> tuple[Any, ...]:
    plain = (pool.name, pool.nodes, pool.device_set.digest, pool.class_name, pool.class_missing)
    return (*plain, pool.network_domain, pool.price_milli, pool.observed)


def _pool(tree: Mapping[str, Any], sets: Mapping[str, DeviceSet]) -> PoolView:
    view = from_wire(PoolView, {**tree, "deviceSet": {"digest": "", "entries": []}})
    return replace(view, device_set=sets[tree["deviceSet"]])


def _cluster(tree: Mapping[str, Any], pools: Sequence[tuple[PoolView, ...]]) -> ClusterView:
    view = from_wire(ClusterView, {**tree, "pools": []})
    taints = tuple(Taint(t.key, t.value, t.effect, since) for t, since in zip(view.taints, tree["since"], strict=True))
    return replace(view, taints=taints, pools=pools[tree["pools"]])


def _entry(row: tuple[Any, ...], texts: list[str], stamps: list[tuple[EnginePlacement, ...]]) -> ReplicaView:
    (
        uid,
        namespace,
        deployment,
        cluster,
        index,
        name,
        stamp,
        state,
        priority,
        since,
        health,
        template,
        counter,
        reuse,
        labels,
        least,
        avoids,
        heir,
    ) = row
    identity = (texts[namespace], texts[deployment], texts[cluster], index)
    return ReplicaView(
        uid,
        *identity,
        name=name or replica_name(*identity, counter),
        engines=stamps[stamp],
        state=texts[state],
        priority=priority,
        since=since,
        ready=bool(health & 1),
        serving=bool(health & 2),
        template=texts[template],
        name_counter=counter,
        reuse=tuple((pool, nodes) for pool, nodes in reuse),
        labels=tuple((key, value) for key, value in labels),
        min_available=least,
        avoids=tuple((key, tuple(namespaces), tuple((a, b) for a, b in wanted)) for key, namespaces, wanted in avoids),
        heir=(heir[0], heir[1]) if heir else None,
    )
