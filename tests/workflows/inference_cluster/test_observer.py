"""The inputs of a cluster's observer, and the changes that restart it.

These tests need no server.
"""

import asyncio
from typing import Any

import pytest
from temporalio import workflow

from api_types import labels
from api_types.messages.cluster_work import WatchCluster
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import (
    DEVICES,
    a_cluster,
    a_pool,
    a_spec,
)
from workflows.entity.context import EntityContext
from workflows.inference_cluster.observer import Observer
from workflows.inference_cluster.state import ClusterState, KnownClass

TEAM = [{"key": "team", "effect": "NoExecute"}]


def a_class(**policy: Any) -> KnownClass:
    return KnownClass(
        generation=1,
        spec={"devices": DEVICES, **({"podPolicy": policy} if policy else {})},
    )


async def orders(
    monkeypatch: pytest.MonkeyPatch,
    adapter: str,
    *changes: dict[str, KnownClass],
) -> list[WatchCluster]:
    """Return the watches of a cluster whose classes change in this order."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu-1")

    async def watch(method: Any, order: WatchCluster, **_: Any) -> None:
        temporal.executed.append((method.__name__, order))
        await asyncio.Event().wait()

    monkeypatch.setattr(workflow, "execute_activity_method", watch)
    annotations = {labels.CAPACITY_ADAPTER: adapter}
    state = a_cluster(
        annotations=annotations,
        spec=a_spec(a_pool("a", "one"), a_pool("b", "two")),
        classes=dict(changes[0]),
    )
    observer = Observer(
        EntityContext[ClusterState](
            "InferenceCluster",
            state,
            lambda: None,
            "inferencecluster/eu-1",
            lambda: temporal.now,
        )
    )
    for classes in changes:
        state.classes = dict(classes)
        observer.ensure_running()
        await asyncio.sleep(0)
    observer.stop()
    return [order for _, order in temporal.executed]


async def test_the_observer_knows_the_tolerations_that_classes_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (order,) = await orders(
        monkeypatch,
        "kube",
        {"one": a_class(tolerations=TEAM), "two": a_class(shmSize="1Gi")},
    )
    assert order.tolerations == {"a": TEAM}


async def test_only_a_new_toleration_of_a_class_restarts_the_observer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, granting, more = (
        a_class(),
        a_class(tolerations=TEAM),
        a_class(tolerations=TEAM, shmSize="1Gi"),
    )
    changes = [
        {"one": plain},
        {"one": granting},
        {"one": more},
        {"one": more, "two": plain},
        {"one": plain},
    ]
    found = await orders(monkeypatch, "kube", *changes)
    assert [order.tolerations for order in found] == [{}, {"a": TEAM}, {}]


async def test_without_an_adapter_no_node_is_counted_and_tolerations_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = await orders(
        monkeypatch, "none", {"one": a_class()}, {"one": a_class(tolerations=TEAM)}
    )
    assert [order.tolerations for order in found] == [{}]
