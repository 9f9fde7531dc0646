"""The order in which the objects of a replica are deleted."""

import pytest

from activities.cluster_objects.cluster_api import ObjectId
from activities.render.objects.rendered import Rendered
from activities.render.objects.teardown import (
    ENGINES,
    STEPS,
    SWEEP,
    SWEPT_KINDS,
    deletions,
    step_of,
    step_of_number,
)
from api_types.messages.cluster_work import AppliedObject
from tests.activities.render.builders import a_cluster, a_gang, render, render_pair
from tests.activities.render.topologies import TOPOLOGIES

EVERYTHING = {"epp_metrics_auth": True, "kai_mode": "explicit"}


def inventory(rendered: Rendered) -> list[AppliedObject]:
    return [
        AppliedObject(key=item.key, id=str(ObjectId.of(item.manifest)))
        for item in rendered.objects
    ]


@pytest.mark.parametrize(
    "rendered",
    [
        render(),
        render(
            a_gang(),
            cluster=a_cluster(scheduler_type="kai", mesh_provider="istio"),
            settings=EVERYTHING,
        ),
        render(cluster=a_cluster(routing="service")),
        render_pair(cluster=a_cluster(dra_version="v1beta1")),
        TOPOLOGIES["drained"](),
    ],
    ids=["standalone", "everything", "service", "pair", "drained"],
)
def test_every_object_is_deleted_by_one_step_and_found_by_the_sweep(
    rendered: Rendered,
) -> None:
    found = inventory(rendered)
    deleted = [entry.id for step in STEPS for entry in deletions(step, found)]
    assert sorted(deleted) == sorted(entry.id for entry in found)
    kinds = {kind for _, kind in SWEPT_KINDS}
    for entry in found:
        kind = ObjectId.parse(entry.id).kind.kind
        assert step_of(entry.key).number != SWEEP
        assert kind in kinds
        assert kind in {kind for _, kind in step_of(entry.key).kinds}


def test_routes_are_deleted_first_and_claims_last() -> None:
    rendered = render(
        a_gang(),
        cluster=a_cluster(scheduler_type="kai", mesh_provider="istio"),
        settings=EVERYTHING,
    )
    assert [
        (step.number, [entry.key for entry in deletions(step, inventory(rendered))])
        for step in STEPS
    ] == [
        (1, []),
        (2, []),
        (3, ["model-route", "model-route-by-host"]),
        (4, ["inference-pool"]),
        (
            5,
            [
                "epp",
                "epp-service",
                "epp-destinationrule",
                "epp-config",
                "epp-rolebinding",
                "epp-role",
                "epp-clusterrolebinding",
                "epp-clusterrole",
                "epp-metrics-token",
                "epp-serviceaccount",
            ],
        ),
        (6, ["monitor-epp", "monitor-engines"]),
        (7, ["model-serving-main"]),
        (8, ["gang-main"]),
        (9, ["resource-claim-main-worker", "resource-claim-main-leader"]),
        (10, []),
        (11, []),
        (12, []),
    ]


def test_decode_is_deleted_before_prefill() -> None:
    engines = step_of_number(ENGINES)
    assert [entry.key for entry in deletions(engines, inventory(render_pair()))] == [
        "model-serving-alpha",
        "model-serving-beta",
    ]


def test_budgets_are_deleted_with_their_engines() -> None:
    engines = step_of_number(ENGINES)
    assert [
        entry.key for entry in deletions(engines, inventory(TOPOLOGIES["drained"]()))
    ] == [
        "model-serving-main",
        "model-serving-big",
        "disruption-budget-big",
        "disruption-budget-main",
    ]


def test_nodes_are_free_only_when_pods_and_claims_are_gone() -> None:
    engines = step_of_number(ENGINES)
    assert {kind for _, kind in engines.wait_kinds} == {
        "ReplicaSet",
        "StatefulSet",
        "Pod",
        "ResourceClaim",
    }


def test_copies_are_deleted_in_their_own_step_and_unknown_keys_by_the_sweep() -> None:
    assert step_of("secret-hub").number == step_of("configmap-tuning").number == 10
    assert step_of("something-new").number == SWEEP


def test_steps_are_numbered_from_one() -> None:
    assert [step.number for step in STEPS] == list(range(1, 13))
    assert [step.number for step in STEPS if not step.on_cluster] == [1, 2, 12]
