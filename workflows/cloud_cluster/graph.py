"""Decide which objects of a cluster may be created or deleted now.

Creation follows the graph, deletion follows it in reverse. An object that waits for a
retry or a user blocks only its dependents. All functions are pure.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from api_types.messages.clouds import (
    CLUSTER_KEY,
    CONNECTION,
    HELM_RELEASE,
    IN_CLUSTER,
    STORAGE_CLASS,
    SYSTEM_NODES,
    CloudObject,
)
from workflows.cloud_cluster.state import CloudState, InventoryEntry

POOLS_AT_ONCE = {"GKE": 5}
"""GKE runs so many operations on the pools of a cluster at once."""
_ACCESS_ENTRY = "AccessEntry"
# Kinds that are always deleted with the control plane, and kinds that a provider
# deletes with it.
_OF_CLUSTER = (CONNECTION, STORAGE_CLASS, SYSTEM_NODES, _ACCESS_ENTRY)
_WITH_CLUSTER = {"GKE": ("NodePool",)}
_ADD_ON = "Addon"
_DELETED_BY_CLOUD = (_ADD_ON, _ACCESS_ENTRY, "PodIdentity", "NodePool")


def is_made(entry: InventoryEntry | None, wanted: CloudObject) -> bool:
    """Return whether an object matches the plan."""
    return (
        entry is not None
        and entry.phase == "Ready"
        and entry.made == wanted.digest
        and not entry.failure.type
    )


def to_ensure(
    state: CloudState, running: Collection[str], now: datetime
) -> list[CloudObject]:
    """Return the objects whose ensure may start now, in the order of the plan."""
    if state.plan is None:
        return []
    found: list[CloudObject] = []
    wanted = {each.key: each for each in state.plan.objects}
    room = _Room(state, running)
    for each in state.plan.objects:
        entry = state.inventory.get(each.key)
        if each.key in running or is_made(entry, each) or waits(entry, now):
            continue
        if all(
            _serves(state.inventory.get(key), wanted[key], running)
            for key in each.needs
            if key in wanted
        ) and room.take(each):
            found.append(each)
    return found


def waits(entry: InventoryEntry | None, now: datetime) -> bool:
    """Return whether an object waits for a retry or a user."""
    return entry is not None and (
        entry.held
        or (bool(entry.retry_at) and datetime.fromisoformat(entry.retry_at) > now)
    )


def _serves(
    need: InventoryEntry | None, wanted: CloudObject, running: Collection[str]
) -> bool:
    """Return whether a needed object can be used.

    It has to match the plan. If updating it failed, its previous form is enough.
    """
    if need is None or need.phase != "Ready" or wanted.key in running:
        return False
    return is_made(need, wanted) or bool(need.failure.type)


def dependents(entries: Mapping[str, InventoryEntry], key: str) -> list[str]:
    """Return the keys of all direct and indirect dependents of an object."""
    found: list[str] = []
    reached = [key]
    while reached:
        last = reached.pop()
        for other, entry in entries.items():
            if last in entry.object.needs and other not in found:
                found.append(other)
                reached.append(other)
    return found


def to_remove(
    state: CloudState, running: Collection[str], now: datetime
) -> list[InventoryEntry]:
    """Return the unwanted objects that may be deleted now, and set `removed_since`.

    - Objects of a pool stay while replicas may use the pool.
    - Helm releases serve the pools, so they stay while objects of unwanted pools exist.
    - Other objects stay while the plan is incomplete because something was refused.
    - Access entries stay until another access entry grants access.
    - An object whose deletion failed waits for its retry.
    """
    if state.plan is None or state.order is None:
        return []
    wanted = {each.key for each in state.plan.objects}
    pools = {
        pool.get("name")
        for pool in state.order.manifest.get("spec", {}).get("nodePools") or ()
    }
    served = any(
        entry.object.pool and key not in wanted
        for key, entry in state.inventory.items()
    )
    let_in = all(
        is_made(state.inventory.get(each.key), each)
        for each in state.plan.objects
        if each.kind == _ACCESS_ENTRY
    )
    found: list[InventoryEntry] = []
    for key, entry in state.inventory.items():
        kind, pool = entry.object.kind, entry.object.pool
        kept = pool in pools if pool else bool(state.plan.refused)
        if key in wanted or kept:
            entry.removed_since = ""
            continue
        entry.removed_since = entry.removed_since or now.isoformat()
        used = (
            any(key in other.object.needs for other in state.inventory.values())
            or (served and kind == HELM_RELEASE)
            or (kind == _ACCESS_ENTRY and not let_in)
        )
        if (
            key not in running
            and not used
            and not waits(entry, now)
            and not _drains(state, entry, now)
        ):
            found.append(entry)
    return found


def drain_ends(state: CloudState) -> list[datetime]:
    """Return the latest time at which each removed pool may be deleted."""
    limit = timedelta(seconds=state.plan.drain_seconds if state.plan else 0)
    since = [
        entry.removed_since
        for entry in state.inventory.values()
        if entry.removed_since and entry.object.pool
    ]
    return [datetime.fromisoformat(each) + limit for each in since]


def _drains(state: CloudState, entry: InventoryEntry, now: datetime) -> bool:
    pool = entry.object.pool
    if (
        not pool
        or state.order is None
        or state.plan is None
        or pool in state.order.removable_pools
    ):
        return False
    return now < datetime.fromisoformat(entry.removed_since) + timedelta(
        seconds=state.plan.drain_seconds
    )


# Deletion of the cluster


def to_delete(
    state: CloudState, running: Collection[str], now: datetime
) -> list[InventoryEntry]:
    """Return the objects whose deletion may start now.

    Helm releases are deleted first, so that none of their pods works against the
    deletion. The objects below the control plane stay until it is gone: draining nodes
    need the network, pods need the file system, and controllers need their roles to
    delete what they created.
    """
    left = {key: entry for key, entry in state.inventory.items() if not entry.gone}
    first = {
        key: entry for key, entry in left.items() if entry.object.kind == HELM_RELEASE
    }
    if not first and CLUSTER_KEY in left:
        first = {
            key: left[key]
            for key in (CLUSTER_KEY, *dependents(state.inventory, CLUSTER_KEY))
            if key in left
        }
    blocking = [entry for entry in left.values() if not ends_with_cluster(state, entry)]
    room = _Room(state, running)
    found: list[InventoryEntry] = []
    for key, entry in (first or left).items():
        if key in running or waits(entry, now) or ends_with_cluster(state, entry):
            continue
        is_needed = any(key in other.object.needs for other in blocking)
        if not is_needed and room.take(entry.object):
            found.append(entry)
    return found


def ends_with_cluster(state: CloudState, entry: InventoryEntry) -> bool:
    """Return whether an object is deleted together with the control plane."""
    if entry.object.kind in _OF_CLUSTER:
        return True
    if state.deleted_pools or state.account is None:
        return False
    kind, needs = entry.object.kind, entry.object.needs
    only_of_cluster = kind == _ADD_ON and needs == [CLUSTER_KEY]
    return only_of_cluster or kind in _WITH_CLUSTER.get(state.account.provider, ())


def goes_with_cluster(entry: InventoryEntry) -> bool:
    """Return whether the cloud deletes an object at the latest with the control plane."""
    return entry.object.kind in _DELETED_BY_CLOUD or is_in_cluster(entry)


def is_cluster_gone(state: CloudState) -> bool:
    """Return whether the cloud said that the control plane no longer exists.

    A control plane that was left because it belongs to somebody else may still exist.
    """
    cluster = state.inventory.get(CLUSTER_KEY)
    return cluster is not None and cluster.gone and not cluster.left


def note_cluster_gone(state: CloudState) -> None:
    """Mark objects that are deleted with the control plane as absent once it is gone."""
    cluster = state.inventory.get(CLUSTER_KEY)
    if cluster is None or cluster.gone:
        for entry in state.inventory.values():
            if ends_with_cluster(state, entry) or entry.object.kind in IN_CLUSTER:
                entry.phase = "Absent"


# Views of the graph


def failing(state: CloudState) -> list[InventoryEntry]:
    """Return the objects with a failure, in the order of the inventory."""
    return [entry for entry in state.inventory.values() if entry.failure.type]


def is_in_cluster(entry: InventoryEntry) -> bool:
    """Return whether an object is inside the cluster and not at the cloud."""
    return entry.object.kind in IN_CLUSTER


class _Room:
    """Counts how many more activities may start.

    Activities on pools do not count for the limit of the others: a pool may wait for
    machines for hours, and holds up nothing else.
    """

    def __init__(self, state: CloudState, running: Collection[str]) -> None:
        provider = state.account.provider if state.account else ""
        works = [
            state.inventory[key].object.work
            for key in running
            if key in state.inventory
        ]
        pools = works.count("NodePool")
        self._others = (state.plan.parallel if state.plan else 1) - len(works) + pools
        pools_max = POOLS_AT_ONCE.get(provider)
        self._pools = None if pools_max is None else pools_max - pools

    def take(self, each: CloudObject) -> bool:
        """Reserve room for an activity. Return False if there is none."""
        if each.work == "NodePool":
            if self._pools is None:
                return True
            self._pools -= 1
            return self._pools >= 0
        self._others -= 1
        return self._others >= 0
