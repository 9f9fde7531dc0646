"""The difference between the desired and the existing objects at a cloud.

Parameters are compared with those of the cluster's present spec. Both sides use the
same placeholders for values that only the cloud knows. The CloudCluster reports which
objects exist. As in the workflow, a pool whose spec is refused keeps its objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from activities.clouds.desired.owner import pool_name
from fleet_client.refs.tree import Tree

CREATE, CHANGE, REPLACE, KEEP = "create", "change", "replace", "keep"

_NOT_THERE = ("Absent", "Waiting", "Deleting")
# Parameters of a pool that no cloud can change. Another value needs another pool.
_FIXED_AT_GKE = ("machine_type", "disk_size_gb", "accelerators")
_FIXED_AT_EKS = (
    "instanceTypes",
    "diskSize",
    "amiType",
    "capacityType",
    "subnets",
    "InstanceType",
)
_FIXED = frozenset((*_FIXED_AT_GKE, *_FIXED_AT_EKS))
_FIXED_AS_A_WHOLE = "launchTemplate"
_POOLS = ("NodePool", "Nodegroup", "LaunchTemplate")


@dataclass(frozen=True)
class There:
    """A cluster's present manifest, and its CloudCluster's inventory."""

    manifest: Tree
    inventory: Sequence[Tree]


def mark_new(cloud: Tree) -> None:
    """Mark every object of a plan as one to create."""
    cloud["removed"] = []
    for each in cloud["objects"]:
        each.update({"action": CREATE, "changes": []})


def mark_changes(
    cloud: Tree, manifest: Tree, before: Tree, inventory: Sequence[Tree]
) -> None:
    """Add the action to each object of a plan, and the objects that would be deleted.

    `before` is the plan of the present spec. An object gets `action`, and `changes`
    with the names of the parameters that differ. The plan gets `removed`.
    """
    rows = {row["key"]: row for row in inventory if row["phase"] not in _NOT_THERE}
    earlier = {each["key"]: each for each in before["objects"]}
    for each in cloud["objects"]:
        row = rows.get(each["key"])
        if row is None:
            each.update({"action": CREATE, "changes": []})
        else:
            each.update(_changed(each, earlier.get(each["key"]), row))
    wanted = {each["key"] for each in cloud["objects"]}
    cloud["removed"] = [
        {"key": key, "kind": row["kind"], "name": row["name"], "id": row["id"]}
        | _machines(earlier.get(key))
        for key, row in rows.items()
        if key not in wanted and not _is_kept(key, cloud, manifest)
    ]


def _changed(each: Tree, earlier: Tree | None, row: Tree) -> Tree:
    names: list[str] = []
    if earlier:
        names = sorted(set(_different(_parameters(earlier), _parameters(each))))
    if not names:
        return {"action": CHANGE if row["phase"] == "Differs" else KEEP, "changes": []}
    fixed = each["kind"] in _POOLS and any(_is_fixed(name) for name in names)
    return {"action": REPLACE if fixed else CHANGE, "changes": names}


def _is_fixed(name: str) -> bool:
    parts = name.split(".")
    return bool(_FIXED.intersection(parts)) or parts[-1] == _FIXED_AS_A_WHOLE


def _parameters(each: Tree) -> dict[str, Any]:
    """Return the parameters of an object's calls, by the number of the call."""
    return {f"{index}": call["parameters"] for index, call in enumerate(each["calls"])}


def _different(one: object, other: object, name: str = "") -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            # The number of the call does not help a reader.
            path = "" if str(key).isdigit() else str(key)
            if name:
                path = f"{name}.{key}"
            yield from _different(one.get(key), other.get(key), path)
    elif one != other:
        yield name or "calls"


def _is_kept(key: str, cloud: Tree, manifest: Tree) -> bool:
    """Whether an object that is not desired stays.

    It stays if its pool was refused or the plan is incomplete.
    """
    pools = {
        pool_name(pool["name"]) for pool in manifest["spec"].get("nodePools") or ()
    }
    kind, _, name = key.partition("/")
    return name in pools if kind in ("pool", "lt") else bool(cloud["refused"])


def _machines(earlier: Tree | None) -> Tree:
    return (
        {"machines": earlier["machines"]} if earlier and "machines" in earlier else {}
    )
