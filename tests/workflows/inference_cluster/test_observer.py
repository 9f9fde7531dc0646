"""What the observer of a cluster is given, and which changes of that start it anew. No server is needed."""

import asyncio
from typing import Any

import pytest
from temporalio import workflow

from api_types import labels
from api_types.messages.cluster_work import WatchCluster
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import DEVICES, a_cluster, a_pool, a_spec
from workflows.entity.context import EntityContext
from workflows.inference_cluster.observer import Observer
from workflows.inference_cluster.state import ClusterState, KnownClass

TEAM = [{"key": "team", "effect": "NoExecute"}]


def a_class(**policy: Any) -> KnownClass:
    return KnownClass(generation=1, spec={"devices": DEVICES, **({"podPolicy": policy} if policy else {})})


async def orders(
    monkeypatch: pytest.MonkeyPatch, adapter: str, *changes: dict[str, KnownClass], patched: bool = True
) -> list[WatchCluster]:
    """Give the watches of a cluster whose classes change so."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu-1")
    monkeypatch.setattr(workflow, "patched", lambda _: patched)

    async def watch(method: Any, order: WatchCluster, **_: Any) -> None:
        temporal.executed.append((method.__name__, order))
        await asyncio.Event().wait()

    monkeypatch.setattr(workflow, "execute_activity_method", watch)
    annotations = {labels.CAPACITY_ADAPTER: adapter}
    state = a_cluster(annotations=annotations, spec=a_spec(a_pool("a", "one"), a_pool("b", "two")), classes=dict(changes[0]))
    observer = Observer(EntityContext[ClusterState]("InferenceCluster", state, lambda: None, "inferencecluster/eu-1", lambda: temporal.now))
    for classes in changes:
        state.classes = dict(classes)
        observer.ensure_running()
        await asyncio.sleep(0)
    observer.stop()
    return [order for _, order in temporal.executed]


async def test_it_is_told_what_the_classes_let_engine_pods_tolerate(monkeypatch: pytest.MonkeyPatch) -> None:
    (order,) = await orders(monkeypatch, "kube", {"one": a_class(tolerations=TEAM), "two": a_class(shmSize="1Gi")})
    assert order.tolerations == {"a": TEAM}


async def test_a_class_that_grants_another_toleration_starts_it_anew_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, granting, more = a_class(), a_class(tolerations=TEAM), a_class(tolerations=TEAM, shmSize="1Gi")
    changes = [{"one": plain}, {"one": granting}, {"one": more}, {"one": more, "two": plain}, {"one": plain}]
    found = await orders(monkeypatch, "kube", *changes)
    assert [order.tolerations for order in found] == [{}, {"a": TEAM}, {}]


async def test_without_an_adapter_no_node_is_counted_and_tolerations_are_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await orders(monkeypatch, "none", {"one": a_class()}, {"one": a_class(tolerations=TEAM)})
    assert [order.tolerations for order in found] == [{}]


async def test_a_history_of_before_that_is_replayed_has_one_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await orders(monkeypatch, "kube", {"one": a_class()}, {"one": a_class(tolerations=TEAM)}, patched=False)
    assert [order.tolerations for order in found] == [{}]
