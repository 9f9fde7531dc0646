"""The termination of an engine's pods, and the copies that evictions must leave."""

from typing import Any

import pytest

from activities.render.inputs.findings import InvalidSpec
from activities.render.objects.rendered import Rendered
from tests.activities.render.builders import (
    a_cluster,
    a_gang,
    a_member,
    a_pair,
    an_engine,
    keys,
    pod,
    render,
    the,
)

DRAIN = {"preStopSeconds": 20, "graceSeconds": 300}
OLD = a_cluster(kubernetes_version="1.29", dra_version="")
PLUGIN = a_member(
    requests=[{"name": "gpu", "resourceName": "nvidia.com/gpu", "count": 8}]
)


def stops(
    rendered: Rendered, engine: str = "main", role: str = "Leader"
) -> tuple[int, dict[str, Any]]:
    """Return a pod's grace period and the stop hooks of its main containers."""
    spec = pod(rendered, engine, role)["spec"]
    return spec["terminationGracePeriodSeconds"], {
        each["name"]: each.get("lifecycle") for each in spec["containers"]
    }


def sleep(seconds: int) -> dict[str, Any]:
    return {"preStop": {"sleep": {"seconds": seconds}}}


@pytest.mark.parametrize(
    ("drain", "settings", "want"),
    [
        pytest.param(None, {}, (30, None), id="nothing asked"),
        pytest.param({}, {}, (30, None), id="an empty block"),
        pytest.param(DRAIN, {}, (300, sleep(20)), id="both"),
        pytest.param(
            {"preStopSeconds": 20},
            {},
            (50, sleep(20)),
            id="the platform's grace period comes after the sleep",
        ),
        pytest.param(
            {"preStopSeconds": 20},
            {"termination_grace_seconds": 5},
            (25, sleep(20)),
            id="and that is a setting",
        ),
        pytest.param({"graceSeconds": 120}, {}, (120, None), id="no sleep"),
        pytest.param(
            {"preStopSeconds": 0, "graceSeconds": 120},
            {},
            (120, None),
            id="a sleep of no time",
        ),
        pytest.param(
            {"preStopSeconds": 20.0}, {}, (50, sleep(20)), id="seconds from the wire"
        ),
    ],
)
def test_an_engine_stops_according_to_its_drain(
    drain: dict[str, Any] | None, settings: dict[str, Any], want: tuple[int, Any]
) -> None:
    engine = an_engine() | ({"drain": drain} if drain is not None else {})
    grace, hooks = stops(render(engine, settings=settings))
    assert (grace, hooks["engine"]) == want


@pytest.mark.parametrize(
    "block", [{}, {"drain": {}}, {"drain": {"preStopSeconds": 0}}], ids=str
)
def test_an_empty_drain_changes_no_byte(
    block: dict[str, Any],
) -> None:
    asked, plain = (
        {item.key: {**item.manifest, "metadata": {}} for item in rendered.objects}
        for rendered in (render(an_engine() | block), render())
    )
    assert asked == plain


def test_followers_outlast_their_leader() -> None:
    rendered = render(a_gang(drain=DRAIN))
    assert stops(rendered, role="Leader") == (300, {"engine": sleep(20)})
    assert stops(rendered, role="Worker") == (300, {"engine": sleep(300)})


def test_the_sidecar_has_no_sleep_of_its_own_and_is_stopped_after_the_engine() -> None:
    decode, prefill = a_pair()
    rendered = render({**decode, "drain": DRAIN}, prefill, mode="PrefillDecode")
    assert stops(rendered, "alpha") == (300, {"engine": sleep(20)})
    (sidecar,) = pod(rendered, "alpha")["spec"]["initContainers"]
    assert (sidecar["restartPolicy"], sidecar.get("lifecycle")) == ("Always", None)
    assert stops(rendered, "beta") == (30, {"engine": None})


def test_a_cluster_whose_pods_cannot_sleep_gets_the_grace_period_and_a_warning() -> (
    None
):
    rendered = render(an_engine("main", PLUGIN, drain=DRAIN), cluster=OLD)
    assert stops(rendered) == (300, {"engine": None})
    (warning,) = rendered.warnings
    assert warning == (
        "engine main: drain.preStopSeconds has no effect: cluster eu-1 runs Kubernetes "
        "1.29, and pods can sleep before they stop from 1.30 on; "
        "the grace period of 300 s applies"
    )
    assert stops(
        render(an_engine(drain=DRAIN), cluster=a_cluster(kubernetes_version="1.30"))
    )[1] == {"engine": sleep(20)}


def test_the_drain_is_part_of_the_pod_template() -> None:
    hashes = {
        render(an_engine() | block).engines[0].template_hash
        for block in ({}, {"drain": DRAIN})
    }
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("drain", "problem"),
    [
        (
            {"preStopSeconds": 30, "graceSeconds": 30},
            "engine main, drain: graceSeconds must be more than preStopSeconds (30), is 30",
        ),
        (
            {"preStopSeconds": 3601},
            "engine main, drain: preStopSeconds must be between 0 and 3600, is 3601",
        ),
        (
            {"graceSeconds": 7201},
            "engine main, drain: graceSeconds must be between 1 and 7200, is 7201",
        ),
        (
            {"preStopSeconds": "1m"},
            "engine main, drain: preStopSeconds must be a whole number, is '1m'",
        ),
        ([], "engine main, drain: must be an object, is []"),
    ],
    ids=str,
)
def test_a_drain_that_was_stored_unchecked_is_refused(drain: Any, problem: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        render(an_engine(drain=drain))
    assert problem in refused.value.problems


# Budgets


def budget(*engines: dict[str, Any], least: Any, **fields: Any) -> Rendered:
    """Render a replica with a budget."""
    found = render(*engines, **fields)
    spec = {
        "engines": list(engines or [an_engine()]),
        "clusterName": "eu-1",
        "disruption": {"minAvailable": least},
    }
    mode = {"serving": {"mode": fields["mode"]}} if "mode" in fields else {}
    assert not [key for key in keys(found) if key.startswith("disruption-budget-")]
    return render(*engines, **{**fields, "spec": {**spec, **mode}})


@pytest.mark.parametrize(
    ("least", "copies", "kept"),
    [
        (1, 2, 1),
        (2, 2, 2),
        ("50%", 3, 2),
        ("34%", 3, 2),
        ("33%", 3, 1),
        ("1%", 64, 1),
        ("100%", 3, 3),
        (0, 3, None),
        ("0%", 3, None),
    ],
)
def test_evictions_leave_the_minimum_of_copies(
    least: Any, copies: int, kept: int | None
) -> None:
    rendered = budget(an_engine(copies=copies), least=least)
    if kept is None:
        assert "disruption-budget-main" not in keys(rendered)
        return
    manifest = the(rendered, "disruption-budget-main")
    name = rendered.engines[0].workload_name
    assert (manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"]) == (
        "policy/v1",
        "PodDisruptionBudget",
        name,
    )
    assert manifest["spec"] == {
        "minAvailable": kept,
        "selector": {"matchLabels": {"modelplane.ai/workload": name}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert (
        manifest["spec"]["selector"]
        == the(rendered, "model-serving-main")["spec"]["selector"]
    )


@pytest.mark.parametrize(
    ("copies", "least", "pods"), [(1, 1, 4), (2, 1, 7), (4, 2, 14), (4, 1, 13)]
)
def test_a_group_is_lost_with_any_of_its_pods(
    copies: int, least: int, pods: int
) -> None:
    """Evictions may remove as many pods as groups of 4 pods may be lost."""
    rendered = budget(a_gang(copies=copies), least=least)
    spec = the(rendered, "disruption-budget-main")["spec"]
    assert spec["minAvailable"] == pods == copies * 4 - (copies - least)
    assert spec["selector"] == {
        "matchLabels": {
            "leaderworkerset.sigs.k8s.io/name": rendered.engines[0].workload_name
        }
    }


def test_each_engine_of_a_pair_has_a_budget_of_its_own() -> None:
    decode, prefill = a_pair()
    rendered = budget(
        {**decode, "copies": 2},
        {**prefill, "copies": 4},
        least="50%",
        mode="PrefillDecode",
    )
    found = {
        key: the(rendered, key)["spec"]["minAvailable"]
        for key in keys(rendered)
        if key.startswith("disruption-budget-")
    }
    assert found == {"disruption-budget-alpha": 1, "disruption-budget-beta": 2}


def test_a_budget_waits_with_its_engines_for_the_cache() -> None:
    rendered = budget(an_engine(copies=2), least=1)
    assert keys(rendered).index("disruption-budget-main") < keys(rendered).index(
        "model-serving-main"
    )
    spec = {
        "engines": [an_engine(copies=2)],
        "clusterName": "eu-1",
        "disruption": {"minAvailable": 1},
        "modelCacheRef": {"name": "qwen"},
    }
    assert "disruption-budget-main" not in keys(render(spec=spec))


def test_a_budget_that_copies_cannot_meet_is_refused() -> None:
    with pytest.raises(
        InvalidSpec,
        match=(
            r"engine main: disruption\.minAvailable is 3, but there are 2 copies: "
            r"lower it or raise copies"
        ),
    ):
        budget(an_engine(copies=2), least=3)


def test_an_old_cluster_gets_no_field_that_it_does_not_know() -> None:
    cluster = a_cluster(kubernetes_version="1.26", dra_version="")
    spec = the(
        budget(an_engine("main", PLUGIN, copies=2), least=1, cluster=cluster),
        "disruption-budget-main",
    )["spec"]
    assert sorted(spec) == ["minAvailable", "selector"]
