"""Which objects of a cluster may be made or deleted now. Pure.

Creation goes along the graph, deletion against it. What waits for its next attempt, or for a person, blocks only what needs it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from api_types.messages.clouds import CLUSTER_KEY, CONNECTION, HELM_RELEASE, IN_CLUSTER, STORAGE_CLASS, SYSTEM_NODES, CloudObject
from workflows.cloud_cluster.state import CloudState, Entry

POOLS_AT_ONCE = {"GKE": 1}
"""GKE takes one change of pools at a time."""
_POOLS_AT_ONCE_ELSEWHERE = 4
_ACCESS_ENTRY = "AccessEntry"
# What always goes with the control plane, and what does so where the cloud takes that.
_OF_CLUSTER = (CONNECTION, STORAGE_CLASS, SYSTEM_NODES, _ACCESS_ENTRY)
_WITH_CLUSTER = {"GKE": ("NodePool",)}
_ADD_ON = "Addon"


def is_made(entry: Entry | None, wanted: CloudObject) -> bool:
    """Tell whether an object is as it is wanted."""
    return entry is not None and entry.phase == "Ready" and entry.made == wanted.digest and not entry.failure.type


def to_ensure(state: CloudState, running: Collection[str], now: datetime) -> list[CloudObject]:
    """Give the objects whose work may begin now, in the order of the plan."""
    if state.plan is None:
        return []
    found: list[CloudObject] = []
    wanted = {each.key: each for each in state.plan.objects}
    room = _Room(state, running)
    for each in state.plan.objects:
        entry = state.inventory.get(each.key)
        if each.key in running or is_made(entry, each) or waits(entry, now):
            continue
        if all(_serves(state.inventory.get(key), wanted[key], running) for key in each.needs if key in wanted) and room.take(each):
            found.append(each)
    return found


def waits(entry: Entry | None, now: datetime) -> bool:
    """Tell whether an object waits for its next attempt, or for a person."""
    return entry is not None and (entry.held or (bool(entry.retry_at) and datetime.fromisoformat(entry.retry_at) > now))


def _serves(need: Entry | None, wanted: CloudObject, running: Collection[str]) -> bool:
    """Tell whether what an object needs is there: as it is wanted, or as it was, where it cannot be had as it is wanted."""
    if need is None or need.phase != "Ready" or wanted.key in running:
        return False
    return is_made(need, wanted) or bool(need.failure.type)


def dependents(entries: Mapping[str, Entry], key: str) -> list[str]:
    """Name what needs an object, directly or through others."""
    found: list[str] = []
    reached = [key]
    while reached:
        last = reached.pop()
        for other, entry in entries.items():
            if last in entry.object.needs and other not in found:
                found.append(other)
                reached.append(other)
    return found


def to_remove(state: CloudState, running: Collection[str], now: datetime) -> list[Entry]:
    """Give the objects that are not wanted any more and may be deleted now; notes since when each one is not.

    Those of a pool stay while replicas may use it, and releases, which serve pools, while there is anything of a pool that is not wanted.
    Objects of the cluster stay while not everything that is wanted is known, and entries of access until another one lets us in. The next
    attempt at one that failed waits.
    """
    if state.plan is None or state.order is None:
        return []
    wanted = {each.key for each in state.plan.objects}
    pools = {pool.get("name") for pool in state.order.manifest.get("spec", {}).get("nodePools") or ()}
    served = any(entry.object.pool and key not in wanted for key, entry in state.inventory.items())
    let_in = all(is_made(state.inventory.get(each.key), each) for each in state.plan.objects if each.kind == _ACCESS_ENTRY)
    found: list[Entry] = []
    for key, entry in state.inventory.items():
        kept = key in wanted or (entry.object.pool in pools if entry.object.pool else bool(state.plan.refused))
        if kept:
            entry.removed_since = ""
            continue
        entry.removed_since = entry.removed_since or now.isoformat()
        used = any(key in other.object.needs for other in state.inventory.values()) or (served and entry.object.kind == HELM_RELEASE)
        used = used or (entry.object.kind == _ACCESS_ENTRY and not let_in)
        if key not in running and not used and not waits(entry, now) and not _drains(state, entry, now):
            found.append(entry)
    return found


def drain_ends(state: CloudState) -> list[datetime]:
    """Give when pools that were removed may be deleted at the latest."""
    limit = timedelta(seconds=state.plan.drain_seconds if state.plan else 0)
    since = [entry.removed_since for entry in state.inventory.values() if entry.removed_since and entry.object.pool]
    return [datetime.fromisoformat(each) + limit for each in since]


def _drains(state: CloudState, entry: Entry, now: datetime) -> bool:
    pool = entry.object.pool
    if not pool or state.order is None or state.plan is None or pool in state.order.removable_pools:
        return False
    return now < datetime.fromisoformat(entry.removed_since) + timedelta(seconds=state.plan.drain_seconds)


# --- deletion of the whole ----------------------------------------------------------------------------------------------------------------


def to_delete(state: CloudState, running: Collection[str], now: datetime) -> list[Entry]:
    """Give the objects whose deletion may begin now.

    Releases come first, so that none of their pods works against it. What the cluster stands on stays until the control plane is gone:
    nodes that are drained need their network, pods their file system, and controllers their roles to take back what they made.
    """
    left = {key: entry for key, entry in state.inventory.items() if not entry.gone}
    first = {key: entry for key, entry in left.items() if entry.object.kind == HELM_RELEASE}
    if not first and CLUSTER_KEY in left:
        first = {key: left[key] for key in (CLUSTER_KEY, *dependents(state.inventory, CLUSTER_KEY)) if key in left}
    room = _Room(state, running)
    return [
        entry
        for key, entry in (first or left).items()
        if key not in running
        and not waits(entry, now)
        and not ends_with_cluster(state, entry)
        and not any(key in other.object.needs and not ends_with_cluster(state, other) for other in left.values())
        and room.take(entry.object)
    ]


def ends_with_cluster(state: CloudState, entry: Entry) -> bool:
    """Tell whether an object is not deleted by itself, because it goes with the control plane."""
    if entry.object.kind in _OF_CLUSTER:
        return True
    if state.deleted_pools or state.account is None:
        return False
    only_of_cluster = entry.object.kind == _ADD_ON and entry.object.needs == [CLUSTER_KEY]
    return only_of_cluster or entry.object.kind in _WITH_CLUSTER.get(state.account.provider, ())


def is_cluster_gone(state: CloudState) -> bool:
    """Tell whether the cloud said that there is no control plane any more. One that was left because it is of others may be there."""
    cluster = state.inventory.get(CLUSTER_KEY)
    return cluster is not None and cluster.gone and not cluster.left


def note_cluster_gone(state: CloudState) -> None:
    """Note the end of what goes with the control plane, once that is gone."""
    cluster = state.inventory.get(CLUSTER_KEY)
    if cluster is None or cluster.gone:
        for entry in state.inventory.values():
            if ends_with_cluster(state, entry) or entry.object.kind in IN_CLUSTER:
                entry.phase = "Absent"


# --- what the graph shows -----------------------------------------------------------------------------------------------------------------


def failing(state: CloudState) -> list[Entry]:
    """Give the objects with a failure, in the order of the inventory."""
    return [entry for entry in state.inventory.values() if entry.failure.type]


def is_in_cluster(entry: Entry) -> bool:
    """Tell whether an object is in the cluster, and not at the cloud."""
    return entry.object.kind in IN_CLUSTER


class _Room:
    """How many more objects may be worked on."""

    def __init__(self, state: CloudState, running: Collection[str]) -> None:
        provider = state.account.provider if state.account else ""
        works = [state.inventory[key].object.work for key in running if key in state.inventory]
        self._all = (state.plan.parallel if state.plan else 1) - len(works)
        self._pools = POOLS_AT_ONCE.get(provider, _POOLS_AT_ONCE_ELSEWHERE) - works.count("NodePool")

    def take(self, each: CloudObject) -> bool:
        """Take room for one, if there is some."""
        is_pool = each.work == "NodePool"
        if self._all <= 0 or (is_pool and self._pools <= 0):
            return False
        self._all -= 1
        self._pools -= is_pool
        return True
