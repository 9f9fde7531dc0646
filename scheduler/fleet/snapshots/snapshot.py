"""Snapshots: a whole fleet in few bytes, in parts that are read one by one.

Rows become columns, repeated texts and placed engines become indices into tables, and
each part is compressed, so values that replicas of one deployment share are written
once. Names and uids are derived when they are read, so only exceptions are written.
Reading a large fleet at once would block its reader for seconds. Reading one part takes
a fraction of a second.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots.decision_state import (
    decision_history,
    restore_decision_history,
)
from scheduler.fleet.snapshots.ledger_rows import pack_rows, unpack_rows
from scheduler.hardware.template import forget_charges
from scheduler.model.inputs import ClusterTaint, ClusterView, DeviceSet, PoolView
from scheduler.model.policy import SchedulerOptions
from scheduler.model.wire import from_wire, to_wire

_FORMAT = 2
_EMPTY = DeviceSet("", ())
CLUSTERS_PER_PART = 2_500
REPLICAS_PER_PART = 5_000
# The other parts refer to the first part, so it is read first.
_HEAD, _CLUSTERS, _REPLICAS = "head", "clusters", "replicas"


def dump(fleet: Fleet) -> list[bytes]:
    """Write a fleet; equal fleets give equal parts."""
    names = sorted(fleet.clusters)
    pools: dict[tuple[Any, ...], tuple[int, PoolView]] = {}
    trees = [_cluster_tree(fleet.clusters[name].view, pools) for name in names]
    sets = {pool.device_set.digest: pool.device_set for _, pool in pools.values()}
    history = decision_history(fleet)
    head = {
        "part": _HEAD,
        "format": _FORMAT,
        "version": fleet.version,
        "options": to_wire(fleet.options),
        "holds": history.pop("reservations"),
        **history,
        "sets": [to_wire(sets[digest]) for digest in sorted(sets)],
        "pools": [_pool_tree(pool) for _, pool in pools.values()],
    }
    entries = sorted(
        fleet.entries(),
        key=lambda e: (e.namespace, e.deployment, e.cluster, e.index, e.uid),
    )
    parts = [head]
    parts += [
        {"part": _CLUSTERS, "clusters": list(chunk)}
        for chunk in _chunks(trees, CLUSTERS_PER_PART)
    ]
    parts += [
        {"part": _REPLICAS, **pack_rows(chunk)}
        for chunk in _chunks(entries, REPLICAS_PER_PART)
    ]
    return [
        lzma.compress(json.dumps(part, separators=(",", ":")).encode())
        for part in parts
    ]


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _cluster_tree(
    view: ClusterView, pools: dict[tuple[Any, ...], tuple[int, PoolView]]
) -> dict[str, Any]:
    # Many clusters publish equal pools. The keys of their device sets are compared,
    # because hashing whole device sets would be expensive.
    numbers = [
        pools.setdefault(_pool_key(pool), (len(pools), pool))[0] for pool in view.pools
    ]
    return {
        **to_wire(replace(view, pools=())),
        "pools": numbers,
        "since": [taint.since for taint in view.taints],
    }


def _pool_key(pool: PoolView) -> tuple[Any, ...]:
    plain = (
        pool.name,
        pool.nodes,
        pool.device_set.digest,
        pool.class_name,
        pool.class_missing,
        pool.unusable,
        pool.shortage,
    )
    return (*plain, pool.network_domain, pool.price_milli, pool.observed)


def _pool_tree(pool: PoolView) -> dict[str, Any]:
    return {
        **to_wire(replace(pool, device_set=_EMPTY)),
        "deviceSet": pool.device_set.digest,
    }


class SnapshotReader:
    """Reads a fleet part by part; it is complete when `left` is 0."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        # Clear it, because otherwise the fleets of earlier runs of the scheduler would
        # stay in memory.
        forget_charges()
        self.fleet = Fleet()
        self._parts = list(parts)
        self._head: Mapping[str, Any] = {}
        self._pools: list[PoolView] = []

    @property
    def left(self) -> int:
        """Return the number of unread parts."""
        return len(self._parts)

    def read_next(self) -> None:
        """Read one part; raise ValueError if `dump` did not write it."""
        tree = _tree(self._parts.pop(0))
        if tree["part"] == _HEAD:
            self._read_head(tree)
        elif not self._head:
            raise ValueError("invalid fleet snapshot: the first part is missing")
        elif tree["part"] == _CLUSTERS:
            for known in tree["clusters"]:
                self.fleet.put_cluster(_cluster(known, self._pools))
        else:
            for entry in unpack_rows(tree):
                self.fleet.ledger.put(entry)
        if not self._parts:
            self.fleet.ledger.freed.clear()
            self.fleet.version = self._head["version"]

    def _read_head(self, tree: Mapping[str, Any]) -> None:
        self._head = tree
        self.fleet.set_options(from_wire(SchedulerOptions, tree["options"]))
        sets = {known["digest"]: from_wire(DeviceSet, known) for known in tree["sets"]}
        self._pools = [_pool(known, sets) for known in tree["pools"]]
        restore_decision_history(self.fleet, {**tree, "reservations": tree["holds"]})


def load(parts: Sequence[bytes]) -> Fleet:
    """Read all parts that `dump` wrote; raise ValueError on anything else."""
    reading = SnapshotReader(parts)
    if not reading.left:
        raise ValueError("invalid fleet snapshot: it has no parts")
    while reading.left:
        reading.read_next()
    return reading.fleet


def _tree(part: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(lzma.decompress(part))
    except (lzma.LZMAError, ValueError) as error:
        raise ValueError(f"invalid fleet snapshot: {error}") from error
    if (
        not isinstance(tree, dict)
        or tree.get("format", _FORMAT) != _FORMAT
        or "part" not in tree
    ):
        raise ValueError("invalid fleet snapshot: this version cannot read its format")
    return tree


def _pool(tree: Mapping[str, Any], sets: Mapping[str, DeviceSet]) -> PoolView:
    view = from_wire(PoolView, {**tree, "deviceSet": {"digest": "", "entries": []}})
    return replace(view, device_set=sets[tree["deviceSet"]])


def _cluster(tree: Mapping[str, Any], pools: Sequence[PoolView]) -> ClusterView:
    view = from_wire(ClusterView, {**tree, "pools": []})
    taints = tuple(
        ClusterTaint(t.key, t.value, t.effect, since)
        for t, since in zip(view.taints, tree["since"], strict=True)
    )
    return replace(
        view, taints=taints, pools=tuple(pools[number] for number in tree["pools"])
    )
