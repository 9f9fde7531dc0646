"""Clusters with a queueing scheduler of their own."""

import pytest

from activities.render.inputs.facts import ClusterInput, InvalidFacts
from activities.render.replica import InvalidSpec
from tests.activities.render.builders import (
    a_cluster,
    a_gang,
    a_member,
    an_engine,
    keys,
    nothings,
    pod,
    render,
    render_pair,
    the,
)

KAI = a_cluster(scheduler_type="kai")
KUEUE = a_cluster(scheduler_type="kueue")
QUEUE = "modelplane-ml-team"


def test_kai_schedules_engine_pods_and_never_the_picker() -> None:
    rendered = render(a_gang(), cluster=KAI)
    for role in ("Leader", "Worker"):
        template = pod(rendered, role=role)
        assert template["spec"]["schedulerName"] == "kai-scheduler"
        assert template["metadata"]["labels"]["kai.scheduler/queue"] == QUEUE
        assert "pod-group-name" not in template["metadata"]["annotations"]
    picker = the(rendered, "epp")["spec"]["template"]
    assert "schedulerName" not in picker["spec"]
    assert picker["metadata"]["labels"].keys() == {"app"}
    assert "gang-main" not in keys(rendered)


def test_explicit_groups_hold_one_copy_each() -> None:
    rendered = render(
        a_gang(),
        cluster=KAI,
        settings={"kai_mode": "explicit", "scheduler_priority_class": "inference"},
    )
    group, workload = the(rendered, "gang-main"), the(rendered, "model-serving-main")
    name = workload["metadata"]["name"]
    assert (group["apiVersion"], group["kind"], group["metadata"]["name"]) == (
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        name,
    )
    assert group["spec"] == {
        "minMember": 4,
        "queue": QUEUE,
        "priorityClassName": "inference",
    }
    assert (
        workload["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] == "true"
    )
    for role in ("Leader", "Worker"):
        assert (
            pod(rendered, role=role)["metadata"]["annotations"]["pod-group-name"]
            == name
        )
        assert pod(rendered, role=role)["spec"]["priorityClassName"] == "inference"
    assert keys(rendered).index("gang-main") < keys(rendered).index(
        "model-serving-main"
    )


def test_the_phases_are_two_groups() -> None:
    rendered = render_pair(cluster=KAI, settings={"kai_mode": "explicit"})
    assert [key for key in keys(rendered) if key.startswith("gang-")] == [
        "gang-alpha",
        "gang-beta",
    ]
    assert [path for item in rendered.objects for path in nothings(item.manifest)] == []


def test_explicit_groups_refuse_copies() -> None:
    with pytest.raises(
        InvalidSpec,
        match="engine main: copies is 2: explicit KAI pod groups allow one copy",
    ):
        render(an_engine(copies=2), cluster=KAI, settings={"kai_mode": "explicit"})


def test_workloads_get_the_label_of_kueue_and_no_field_that_kueue_writes() -> None:
    rendered = render(a_gang(), an_engine("solo"), cluster=KUEUE)
    for name in ("main", "solo"):
        assert (
            the(rendered, f"model-serving-{name}")["metadata"]["labels"][
                "kueue.x-k8s.io/queue-name"
            ]
            == QUEUE
        )
    assert "suspend" not in repr(rendered.objects)
    assert "kueue.x-k8s.io/queue-name" not in the(rendered, "epp")["metadata"]["labels"]
    assert {engine.name: engine.recreate_on_change for engine in rendered.engines} == {
        "main": True,
        "solo": False,
    }
    assert len(the(rendered, "model-serving-main")["metadata"]["name"]) <= 39


def test_an_unknown_scheduler_is_refused() -> None:
    with pytest.raises(
        InvalidFacts,
        match="schedulerType is 'foo', must be one of 'none', 'kai', 'kueue'",
    ):
        ClusterInput.assumed("eu-1", scheduler_type="foo")


def test_facts_name_everything_that_is_wrong() -> None:
    with pytest.raises(InvalidFacts) as caught:
        ClusterInput.assumed(
            "eu-1",
            dra_version="v2",
            routing="mesh",
            mesh_provider="linkerd",
            kubernetes_version="new",
        )
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("version", "native"),
    [("1.29", True), ("v1.35.4-gke.100", True), ("1.28", False), ("2.0", True)],
)
def test_versions_compare_as_numbers(version: str, *, native: bool) -> None:
    assert (
        ClusterInput.assumed("eu-1", kubernetes_version=version).at_least(1, 29)
        is native
    )


@pytest.mark.parametrize("cluster", [KAI, KUEUE], ids=["kai", "kueue"])
def test_a_missing_queue_is_a_warning_and_an_unknown_one_is_not(
    cluster: ClusterInput,
) -> None:
    def warnings(queues: frozenset[str] | None) -> tuple[str, ...]:
        return render(
            cluster=a_cluster(
                scheduler_type=cluster.facts.scheduler_type, queues=queues
            )
        ).warnings

    assert warnings(None) == warnings(frozenset({QUEUE})) == ()
    assert warnings(frozenset()) == (
        f"cluster eu-1: QueueMissing: queue '{QUEUE}' does not exist, pods wait until it exists",
    )


def test_a_users_queue_label_is_overwritten_with_a_warning() -> None:
    rendered = render(
        an_engine("main", a_member(labels={"kai.scheduler/queue": "vip"})), cluster=KAI
    )
    assert pod(rendered)["metadata"]["labels"]["kai.scheduler/queue"] == QUEUE
    assert "kai.scheduler/queue='vip' is overwritten" in rendered.warnings[0]


def test_without_a_queueing_scheduler_pods_are_unchanged() -> None:
    assert "schedulerName" not in repr(render(a_gang()).objects)
