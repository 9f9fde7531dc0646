"""The parameters of a cloud object that a change of the spec changes."""

from typing import Any

import pytest

from client.planning.cloud_changes import mark_changes
from fleet_client.refs.tree import Tree


def an_object(kind: str, parameters: dict[str, Any]) -> Tree:
    return {"key": "a", "kind": kind, "calls": [{"parameters": parameters}]}


@pytest.mark.parametrize(
    ("kind", "before", "after", "action", "changes"),
    [
        ("Cluster", {"size": 1}, {"size": 1}, "keep", []),
        ("Cluster", {"size": 1}, {"size": 2}, "change", ["size"]),
        ("Cluster", {}, {"logs": {"audit": True}}, "change", ["logs"]),
        ("Cluster", {"logs": {"audit": True}}, {}, "change", ["logs"]),
        ("Cluster", {"logs": "all"}, {"logs": {"audit": True}}, "change", ["logs"]),
        (
            "Cluster",
            {"logs": {"a": 1, "b": 1}},
            {"logs": {"a": 1}},
            "change",
            ["logs.b"],
        ),
        (
            "NodePool",
            {"disk_size_gb": 1},
            {"disk_size_gb": 2},
            "replace",
            ["disk_size_gb"],
        ),
        (
            "NodePool",
            {"labels": {"a": 1}},
            {"labels": {"a": 2}},
            "change",
            ["labels.a"],
        ),
    ],
    ids=[
        "equal",
        "a number",
        "a block that is new",
        "a block that is removed",
        "a text that becomes a block",
        "a key that a block loses",
        "a fixed parameter of a pool",
        "another parameter of a pool",
    ],
)
def test_a_change_names_the_parameters_that_differ(
    kind: str,
    before: dict[str, Any],
    after: dict[str, Any],
    action: str,
    changes: list[str],
) -> None:
    cloud: Tree = {"objects": [an_object(kind, after)], "refused": []}
    inventory = [{"key": "a", "kind": kind, "name": "a", "id": "1", "phase": "Ready"}]
    earlier: Tree = {"objects": [an_object(kind, before)]}
    mark_changes(cloud, {"spec": {}}, earlier, inventory)
    (marked,) = cloud["objects"]
    assert (marked["action"], marked["changes"]) == (action, changes)
    assert cloud["removed"] == []
