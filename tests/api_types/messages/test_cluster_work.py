"""Ids of objects on a cluster, and the names on the wire that differ from those of the fields."""

from typing import Any

import pytest
from pydantic import ValidationError

from api_types.messages.caches import ApplyCache, CacheSite
from api_types.messages.cluster_work import AppliedObject, ClusterFacts, Connection, ObjectIdParts, RemainingObject, RunTeardownStep

CONNECTION = Connection(cluster="eu", namespace="default", name="kc")


@pytest.mark.parametrize(
    ("text", "kind", "namespace", "name"),
    [
        ("apps/v1/Deployment/ml/qwen-main", "Deployment", "ml", "qwen-main"),
        ("v1/Pod/ml/qwen-main-0", "Pod", "ml", "qwen-main-0"),
        ("rbac.authorization.k8s.io/v1/ClusterRole//qwen-epp", "ClusterRole", "", "qwen-epp"),
    ],
    ids=["group", "core", "cluster-scoped"],
)
def test_an_id_names_kind_namespace_and_name(text: str, kind: str, namespace: str, name: str) -> None:
    for item in (AppliedObject(key="x", id=text), RemainingObject(id=text)):
        assert (item.kind, item.namespace, item.name) == (kind, namespace, name)


@pytest.mark.parametrize("text", ["", "Pod", "v1/Pod/ml"])
def test_what_is_not_an_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not the id of an object"):
        ObjectIdParts.parse(text)


def test_the_skipped_objects_of_a_step_keep_their_name_on_the_wire() -> None:
    step = RunTeardownStep(
        connection=CONNECTION, facts=ClusterFacts(), uid="u", workload_name="w", workload_namespace="ml", number=1, skipped=["v1/Pod/ml/x"]
    )
    assert step.wire()["givenUp"] == ["v1/Pod/ml/x"]
    assert RunTeardownStep.model_validate(step.wire()) == step


def test_the_failed_job_of_a_cache_keeps_its_name_on_the_wire() -> None:
    cache: dict[str, Any] = {"namespace": "ml", "name": "c", "uid": "u", "generation": 1, "spec": {}}
    order = ApplyCache(connection=CONNECTION, cluster="eu", **cache, storage_class_name="s", failed_job_uid="j")
    assert order.wire()["spentJob"] == "j"
    assert ApplyCache.model_validate(order.wire()) == order


@pytest.mark.parametrize(("sent", "kept"), [(10**30, 366 * 24 * 3600), (-1, 0), (15, 15)])
def test_a_time_to_wait_stays_within_the_calendar(sent: int, kept: int) -> None:
    facts = ClusterFacts(drain_seconds=sent, withdraw_after_seconds=sent, cache_evict_grace_seconds=sent)
    site = CacheSite(name="eu", uid="u", sequence=1, evict_grace_seconds=sent)
    seconds = (facts.drain_seconds, facts.withdraw_after_seconds, facts.cache_evict_grace_seconds, site.evict_grace_seconds)
    assert seconds == (kept,) * 4


def test_a_connection_names_a_task_queue_that_temporal_takes() -> None:
    with pytest.raises(ValidationError, match=r"task_?[qQ]ueue\n.*at most 250 bytes"):
        Connection(cluster="eu", namespace="n", name="eu", task_queue="q" * 2000)
    assert Connection(cluster="eu", namespace="n", name="eu").task_queue == ""
