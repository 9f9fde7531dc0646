"""The use of pools, namespaces, quotas and admission queues, as rows of JSON.

`modelplane top` prints these rows, and the web page shows them.
"""

from collections.abc import Sequence

from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.refs.tree import Tree
from scheduler import (
    NamespaceCapacityUse,
    PoolCapacityUse,
    QuotaUse,
    namespace_use,
    pool_use,
    quota_use,
)


def pool_rows(live: LiveFleet, now: int) -> list[Tree]:
    """Return the use of every pool at a time in ms."""
    return [row(each) for each in pool_use(live.fleet, now)]


def namespace_rows(live: LiveFleet, now: int) -> list[Tree]:
    """Return the use by every namespace with replicas, one row per unit."""
    return [row(each) for each in namespace_use(live.fleet, now)]


def quota_rows(live: LiveFleet, now: int) -> list[Tree]:
    """Return the use of every quota of the policy. A negative limit means none."""
    return [row(each) for each in quota_use(live.fleet, now)]


def queue_rows(live: LiveFleet) -> list[Tree]:
    """Return the admission queues that capacity adapters observed, in devices.

    `guaranteed` is the queue's own share, `borrowed` the part of `used` above it, and
    `limit` is -1 for none. `waiting` counts workloads.
    """
    found = []
    for name in sorted(live.clusters):
        queues = (live.clusters[name].get("status") or {}).get("capacity") or {}
        for queue in queues.get("queues") or ():
            active = queue.get("active", True)
            found.append(
                {
                    "cluster": name,
                    "queue": queue["name"],
                    "guaranteed": queue.get("nominal", -1),
                    "used": queue.get("used", 0),
                    "borrowed": queue.get("borrowed", 0),
                    "limit": queue.get("limit", -1),
                    "free": queue.get("free", -1),
                    "waiting": queue.get("pending", 0),
                    "tenants": ", ".join(queue.get("tenants") or ()),
                    "why": "" if active else "the queue is stopped",
                }
            )
    return found


def row(use: PoolCapacityUse | NamespaceCapacityUse | QuotaUse) -> Tree:
    """Return a row by its titles in camel case, as other reports have them.

    Sums of a cluster have no pool.
    """
    fields = {key: value for key, value in use._asdict().items() if key != "pool"}
    if isinstance(use, PoolCapacityUse) and use.pool:
        fields = {"cluster": use.cluster, "pool": use.pool, **fields}
    return {_camel(key): value for key, value in fields.items()}


def with_words(rows: Sequence[Tree]) -> list[Tree]:
    """Return the rows with `unlimited` instead of negative limits, for tables."""
    limits = ("maxNodes", "maxDevices", "guaranteed", "limit", "free")
    return [
        {
            key: "unlimited" if key in limits and value < 0 else value
            for key, value in each.items()
        }
        for each in rows
    ]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
