"""The capacity report of a cluster, in one form for all schedulers.

Counts are whole nodes or devices. Free counts are rounded down and used counts are
rounded up, so that a fraction is never promised twice.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from api_types.base import Id, Message, Text
from api_types.payloads.packing import Compact, expand

ADMITTED = "Admitted"
PENDING = "Pending"
EVICTED = "Evicted"


class CapacityPool(Message):
    """The nodes of one pool.

    `nodes_schedulable` are the nodes on which pods can be scheduled now,
    `foreign_nodes` the other nodes that foreign workloads use. `device_free` maps a
    device entry (driver) to a histogram: the number of free devices on a node to the
    number of such nodes.
    """

    name: Id
    nodes_total: int = 0
    nodes_schedulable: int = 0
    foreign_nodes: int = 0
    device_free: dict[str, dict[int, int]] = Field(default_factory=dict)


class CapacityQueue(Message):
    """An admission queue, in devices; -1 means unlimited.

    `tenants` are the names by which workloads refer to the queue. `pools` is empty if
    the queue serves all pools. `free` is the number of devices that it would still
    admit.
    """

    name: Id
    tenants: list[Id] = Field(default_factory=list)
    pools: list[Id] = Field(default_factory=list)
    nominal: int = -1
    used: int = 0
    borrowed: int = 0
    borrowable: int = 0
    limit: int = -1
    free: int = -1
    pending: int = 0
    active: bool = True


class Admission(Message):
    """The worst admission state of a replica's pods: Admitted, Pending or Evicted.

    `workload` is the base name of its objects. `since` (ms) is the time at which the
    first of the pods started to wait or was evicted.
    """

    workload: Id
    state: Id
    reason: Text = ""
    since: int = 0


class CapacitySnapshot(Message):
    """The capacity of a cluster at one time.

    `observed_at` is in ms. `generation` counts the changes since the adapter started.
    """

    cluster: Id
    source: Id
    adapter_version: Id
    observed_at: int = 0
    generation: int = 0
    pools: list[CapacityPool] = Field(default_factory=list)
    queues: list[CapacityQueue] = Field(default_factory=list)
    admission: Compact[list[Admission]] = Field(default_factory=list)


def with_plain_admission(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reported cluster's manifest with its admission list unpacked.

    The scheduler cannot read packed fields.

    Raises:
        ValueError: the packed field cannot be read.

    """
    status = manifest.get("status")
    capacity = status.get("capacity") if isinstance(status, Mapping) else None
    if not isinstance(status, Mapping) or not isinstance(capacity, Mapping):
        return manifest
    try:
        plain = {**capacity, "admission": expand(capacity.get("admission"))}
    except Exception as error:  # base85, zlib and JSON raise many types
        raise ValueError(
            f"status.capacity.admission: cannot be unpacked: {error}"
        ) from error
    return {**manifest, "status": {**status, "capacity": plain}}
