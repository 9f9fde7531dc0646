"""How what is wanted at a cloud differs from what an InferenceCluster has there.

Parameters are compared with those of the spec that the cluster has now, both with the same words for what only the cloud knows; whether an
object is there, its CloudCluster says. As in the workflow, a pool that cannot be had as it is written keeps what it has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.clouds.owner import pool_name
from client.refs.tree import Tree

CREATE, CHANGE, REPLACE, KEEP = "create", "change", "replace", "keep"

_NOT_THERE = ("Absent", "Waiting", "Deleting")
# What no cloud changes of a pool: another machine needs another pool.
_FIXED = frozenset(
    {
        *("machine_type", "disk_size_gb", "accelerators"),
        *("instanceTypes", "diskSize", "amiType", "capacityType", "subnets", "InstanceType"),
    }
)
_FIXED_AS_A_WHOLE = "launchTemplate"
_POOLS = ("NodePool", "Nodegroup", "LaunchTemplate")


@dataclass(frozen=True)
class There:
    """What an InferenceCluster is now: its manifest, and the rows of its CloudCluster's query `inventory`."""

    manifest: Tree
    inventory: Sequence[Tree]


def mark_new(cloud: Tree) -> None:
    """Note on each object of a plan that it would be created."""
    cloud["removed"] = []
    for each in cloud["objects"]:
        each.update({"action": CREATE, "changes": []})


def mark_changes(cloud: Tree, manifest: Tree, before: Tree, inventory: Sequence[Tree]) -> None:
    """Note on each object of a plan what would be done with it, and add what would be deleted.

    `before` is the plan of the spec that the cluster has now. An object gets `action` and `changes`, the names of the parameters that
    differ; the plan gets `removed`.
    """
    rows = {row["key"]: row for row in inventory if row["phase"] not in _NOT_THERE}
    earlier = {each["key"]: each for each in before["objects"]}
    for each in cloud["objects"]:
        row = rows.get(each["key"])
        each.update({"action": CREATE, "changes": []} if row is None else _changed(each, earlier.get(each["key"]), row))
    wanted = {each["key"] for each in cloud["objects"]}
    cloud["removed"] = [
        {"key": key, "kind": row["kind"], "name": row["name"], "id": row["id"]} | _machines(earlier.get(key))
        for key, row in rows.items()
        if key not in wanted and not _is_kept(key, cloud, manifest)
    ]


def _changed(each: Tree, earlier: Tree | None, row: Tree) -> Tree:
    names = sorted(set(_different(_parameters(earlier), _parameters(each)))) if earlier else []
    if not names:
        return {"action": CHANGE if row["phase"] == "Differs" else KEEP, "changes": []}
    fixed = each["kind"] in _POOLS and any(_is_fixed(name) for name in names)
    return {"action": REPLACE if fixed else CHANGE, "changes": names}


def _is_fixed(name: str) -> bool:
    parts = name.split(".")
    return bool(_FIXED.intersection(parts)) or parts[-1] == _FIXED_AS_A_WHOLE


def _parameters(each: Tree) -> dict[str, Any]:
    """Give the parameters of an object's calls, those of a repeated call under a number of their own."""
    return {f"{index}": call["parameters"] for index, call in enumerate(each["calls"])}


def _different(one: object, other: object, name: str = "") -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            # The number of the call says nothing to a reader.
            path = f"{name}.{key}" if name else "" if str(key).isdigit() else str(key)
            yield from _different(one.get(key), other.get(key), path)
    elif one != other:
        yield name or "calls"


def _is_kept(key: str, cloud: Tree, manifest: Tree) -> bool:
    """Whether an object that is not wanted stays: of a pool that is written and cannot be had, or because not all is known."""
    pools = {pool_name(pool["name"]) for pool in manifest["spec"].get("nodePools") or ()}
    kind, _, name = key.partition("/")
    return name in pools if kind in ("pool", "lt") else bool(cloud["refused"])


def _machines(earlier: Tree | None) -> Tree:
    return {"machines": earlier["machines"]} if earlier and "machines" in earlier else {}
