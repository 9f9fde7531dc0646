"""What a capacity adapter reports of one cluster: one form, whatever scheduler or admission controller runs there.

Counts are whole nodes or devices. Free is rounded down and used is rounded up, so that nothing is promised twice over a fraction.
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
    """The nodes of one pool: all, those that our pods can be scheduled on now, those among the rest that other workloads use.

    `device_free`: device entry (driver) to a histogram, free devices on a node -> number of such nodes.
    """

    name: Id
    nodes_total: int = 0
    nodes_schedulable: int = 0
    foreign_nodes: int = 0
    device_free: dict[str, dict[int, int]] = Field(default_factory=dict)


class CapacityQueue(Message):
    """An admission queue, in devices; -1 means without limit. `pools` is empty when it serves all of them.

    `tenants` are the names under which workloads reach it. `free` is what it would still admit.
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
    """The admission state of a replica's pods: Admitted, Pending or Evicted, the worst of them.

    `workload` is the base name of its objects, `since` (ms) when the earliest of those pods began to wait or was evicted.
    """

    workload: Id
    state: Id
    reason: Text = ""
    since: int = 0


class CapacitySnapshot(Message):
    """The capacity of a cluster at one time; `observed_at` in ms, `generation` counts the changes since the adapter started."""

    cluster: Id
    source: Id
    adapter_version: Id
    observed_at: int = 0
    generation: int = 0
    pools: list[CapacityPool] = Field(default_factory=list)
    queues: list[CapacityQueue] = Field(default_factory=list)
    admission: Compact[list[Admission]] = Field(default_factory=list)


def with_plain_admission(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the manifest of a reported cluster with the admission of its workloads unpacked; the scheduler reads nothing packed.

    Raises:
        ValueError: what is packed cannot be read.

    """
    status = manifest.get("status")
    capacity = status.get("capacity") if isinstance(status, Mapping) else None
    if not isinstance(status, Mapping) or not isinstance(capacity, Mapping):
        return manifest
    try:
        plain = {**capacity, "admission": expand(capacity.get("admission"))}
    except Exception as error:  # whatever base85, zlib or JSON refuse of a text that was received
        raise ValueError(f"status.capacity.admission: cannot be unpacked: {error}") from error
    return {**manifest, "status": {**status, "capacity": plain}}
