"""A late registration changes nothing in a class, a cache or a cluster.

These tests need no server.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from api_types.messages.caches import CacheOnCluster, CacheUse
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import ClassUse
from api_types.messages.routing import GatewayChanged
from api_types.messages.versions import MessageVersion
from tests.workflows.environment.serverless import Serverless, id_of
from workflows.entity.registering.registrations import ENDED_KEPT, drop_ended, is_newest
from workflows.inference_class import ClassState, InferenceClassWorkflow
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_endpoint import EndpointState, ModelEndpointWorkflow

REPLICA = "modelreplica/ml/qwen-1"


def at_a_class() -> tuple[Callable[..., None], Callable[[], bool]]:
    entity = InferenceClassWorkflow(ClassState())

    def send(uid: str, sequence: int, *, used: bool) -> None:
        entity.class_used(
            ClassUse(cluster="eu", uid=uid, sequence=sequence, used=used).wire()
        )

    return send, lambda: "eu" in entity.state.clusters


def at_a_cluster() -> tuple[Callable[..., None], Callable[[], bool]]:
    entity = InferenceClusterWorkflow(ClusterState())

    def send(uid: str, sequence: int, *, used: bool) -> None:
        entity.cache_staged(
            CacheOnCluster(
                cache="ml/qwen", uid=uid, sequence=sequence, staged=used
            ).wire()
        )

    return send, lambda: "ml/qwen" in entity.state.caches


def at_a_cache() -> tuple[Callable[..., None], Callable[[], bool]]:
    entity = ModelCacheWorkflow(CacheState())

    def send(uid: str, sequence: int, *, used: bool) -> None:
        entity.cache_used(
            CacheUse(workflow_id=REPLICA, uid=uid, sequence=sequence, used=used).wire()
        )

    return send, lambda: bool(entity.state.users)


RECEIVERS = [
    ("InferenceClass", at_a_class),
    ("InferenceCluster", at_a_cluster),
    ("ModelCache", at_a_cache),
]


@pytest.mark.parametrize(
    ("kind", "receiver"), RECEIVERS, ids=[kind for kind, _ in RECEIVERS]
)
def test_a_registration_older_than_the_last_one_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: str, receiver: Callable[[], Any]
) -> None:
    Serverless(monkeypatch, id_of(kind))
    send, is_registered = receiver()
    send("u1", 5, used=True)
    send("u1", 4, used=False)
    assert is_registered()
    send("u1", 7, used=False)
    send("u1", 7, used=False)
    send("u1", 6, used=True)
    assert not is_registered()
    send("u1", 8, used=True)
    assert is_registered()


def test_a_successor_with_the_same_name_counts_its_own_registrations() -> None:
    known: dict[str, MessageVersion] = {}
    assert is_newest(known, "eu", "u1", 100)
    assert is_newest(known, "eu", "u2", 1)
    assert not is_newest(known, "eu", "u1", 101)
    assert is_newest(known, "eu", "u2", 1)


def test_all_registered_users_and_the_newest_unregistered_ones_are_remembered() -> None:
    known: dict[str, MessageVersion] = {}
    for number in range(ENDED_KEPT + 2):
        is_newest(known, f"c{number}", "u", 1)
    # The first registration, sent again.
    is_newest(known, "c0", "u", 2)
    drop_ended(known, ["c1"])
    assert [name in known for name in ("c0", "c1", "c2", "c3")] == [
        True,
        True,
        False,
        True,
    ]


def test_a_user_registers_again_with_the_gateway_after_the_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A registration in between reached the earlier gateway in its last task."""
    temporal = Serverless(monkeypatch, id_of("ModelEndpoint"))
    temporal.results = {"signal_many": SignalBatchResult()}
    endpoint = ModelEndpointWorkflow(EndpointState())
    user, known = endpoint.gateway, endpoint.state.gateway

    def reports(uid: str, sequence: int, *, present: bool = True) -> bool:
        user.record(GatewayChanged(uid=uid, sequence=sequence, present=present))
        asks = not known.registered
        asyncio.run(user.follow())
        return asks

    asyncio.run(user.follow())
    assert [
        reports("a", 1),
        reports("a", 2),
        reports("a", 3, present=False),
        reports("b", 4),
        reports("b", 5),
    ] == [False, False, True, True, False]
