"""Ids of objects on a cluster, and wire names that differ from their fields."""

import pytest
from pydantic import ValidationError

from api_types.messages.caches import CacheSite
from api_types.messages.cluster_work import (
    AppliedObject,
    ClusterFacts,
    Connection,
    ObjectIdParts,
    RemainingObject,
)

CONNECTION = Connection(cluster="eu", namespace="default", name="kc")


@pytest.mark.parametrize(
    ("text", "kind", "namespace", "name"),
    [
        ("apps/v1/Deployment/ml/qwen-main", "Deployment", "ml", "qwen-main"),
        ("v1/Pod/ml/qwen-main-0", "Pod", "ml", "qwen-main-0"),
        (
            "rbac.authorization.k8s.io/v1/ClusterRole//qwen-epp",
            "ClusterRole",
            "",
            "qwen-epp",
        ),
    ],
    ids=["group", "core", "cluster-scoped"],
)
def test_an_id_names_kind_namespace_and_name(
    text: str, kind: str, namespace: str, name: str
) -> None:
    for item in (AppliedObject(key="x", id=text), RemainingObject(id=text)):
        assert (item.kind, item.namespace, item.name) == (kind, namespace, name)


@pytest.mark.parametrize("text", ["", "Pod", "v1/Pod/ml"])
def test_text_that_is_not_an_id_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not the id of an object"):
        ObjectIdParts.parse(text)


@pytest.mark.parametrize(
    ("sent", "kept"), [(10**30, 366 * 24 * 3600), (-1, 0), (15, 15)]
)
def test_a_duration_stays_within_the_calendar(sent: int, kept: int) -> None:
    facts = ClusterFacts(
        drain_seconds=sent, withdraw_after_seconds=sent, cache_evict_grace_seconds=sent
    )
    site = CacheSite(name="eu", uid="u", sequence=1, evict_grace_seconds=sent)
    seconds = (
        facts.drain_seconds,
        facts.withdraw_after_seconds,
        facts.cache_evict_grace_seconds,
        site.evict_grace_seconds,
    )
    assert seconds == (kept,) * 4


def test_a_connection_has_a_task_queue_that_temporal_accepts() -> None:
    with pytest.raises(ValidationError, match=r"task_?[qQ]ueue\n.*at most 250 bytes"):
        Connection(cluster="eu", namespace="n", name="eu", task_queue="q" * 2000)
    assert Connection(cluster="eu", namespace="n", name="eu").task_queue == ""
