"""Engines become workloads, and members become pods."""

from typing import Any

import pytest

from activities.render.replica import InvalidSpec
from api_types import labels
from tests.activities.render.builders import (
    GPU,
    a_cluster,
    a_gang,
    a_member,
    a_replica,
    an_engine,
    container,
    env,
    keys,
    nothings,
    pod,
    render,
    render_pair,
    the,
)

SERVING = {"modelplane.ai/serving": "qwen3-8b-1a2b3-3726121d"}


def test_one_standalone_engine_is_one_deployment_with_strategy_recreate() -> None:
    deployment = the(render(), "model-serving-main")
    name = "qwen3-8b-1a2b3-main-f7c3a42c"
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    assert deployment["metadata"]["name"] == name
    assert deployment["metadata"]["namespace"] == "ml-team"
    spec = {
        field: value
        for field, value in deployment["spec"].items()
        if field != "template"
    }
    assert spec == {
        "replicas": 1,
        "selector": {"matchLabels": {"modelplane.ai/workload": name}},
        "strategy": {"type": "Recreate"},
        "progressDeadlineSeconds": 7200,
        "revisionHistoryLimit": 2,
    }


def test_several_copies_roll_without_surge() -> None:
    spec = the(render(an_engine(copies=4)), "model-serving-main")["spec"]
    assert spec["replicas"] == 4
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }


def test_leader_and_workers_are_a_leader_worker_set_with_every_choice_written_out() -> (
    None
):
    rendered = render(a_gang(copies=2))
    gang = the(rendered, "model-serving-main")
    assert (gang["apiVersion"], gang["kind"]) == (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
    )
    spec = gang["spec"]
    templates = spec["leaderWorkerTemplate"]
    assert spec["replicas"] == 2
    assert templates["size"] == 4
    assert templates["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert spec["startupPolicy"] == "LeaderCreated"
    assert spec["rolloutStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdateConfiguration": {
            "partition": 0,
            "maxUnavailable": 1,
            "maxSurge": 0,
        },
    }
    assert spec["networkConfig"] == {"subdomainPolicy": "Shared"}
    assert {"leaderTemplate", "workerTemplate"} <= templates.keys()
    engine = rendered.engines[0]
    assert (engine.kind, engine.copies, engine.size) == ("LeaderWorkerSet", 2, 4)


def test_a_worker_without_a_worker_block_is_one_node() -> None:
    gang = an_engine("main", a_member("Leader"), a_member("Worker"))
    assert (
        the(render(gang), "model-serving-main")["spec"]["leaderWorkerTemplate"]["size"]
        == 2
    )


@pytest.mark.parametrize(
    ("members", "shown"),
    [
        pytest.param([a_member("Leader")], "has Leader", id="leader only"),
        pytest.param(
            [a_member(), a_member("Worker", nodes=1)],
            "has Standalone, Worker",
            id="standalone and worker",
        ),
        pytest.param([a_member("Worker", nodes=1)], "has Worker", id="worker only"),
        pytest.param(
            [a_member(), a_member()],
            "has Standalone, Standalone",
            id="two standalone",
        ),
    ],
)
def test_other_shapes_are_refused_whole(
    members: list[dict[str, Any]], shown: str
) -> None:
    with pytest.raises(
        InvalidSpec,
        match=f"engine main: members must be one Standalone, or one Leader and one Worker; {shown}",
    ):
        render(an_engine("main", *members))


def test_two_engines_have_their_own_selectors_and_share_the_serving_label() -> None:
    rendered = render(an_engine("one"), an_engine("two"))
    selectors = [
        the(rendered, f"model-serving-{name}")["spec"]["selector"]["matchLabels"]
        for name in ("one", "two")
    ]
    assert selectors[0] != selectors[1]
    for name, selector in zip(("one", "two"), selectors, strict=True):
        pod_labels = pod(rendered, name)["metadata"]["labels"]
        assert pod_labels.items() >= {**SERVING, **selector}.items()


def test_a_float_from_the_wire_becomes_a_whole_number() -> None:
    replicas = the(render(an_engine(copies=2.0)), "model-serving-main")["spec"][
        "replicas"
    ]
    assert (replicas, type(replicas)) == (2, int)


def test_fields_that_the_user_left_out_stay_out() -> None:
    assert (
        container(render())
        .keys()
        .isdisjoint({"args", "command", "env", "imagePullPolicy"})
    )


def test_arguments_arrive_byte_for_byte() -> None:
    args = [
        '--kv-transfer-config={"kv_role": "kv_both"}',
        'it\'s "quoted"',
        "é\u2028\n\t",
        "$(NOT_OURS)",
        "",
    ]
    assert container(render(an_engine("main", a_member(args=args))))["args"] == args


def test_a_command_and_its_arguments_gain_nothing() -> None:
    engine = container(
        render(
            an_engine("main", a_member(command=["serve"], args=["x"])),
            cache="qwen",
            cache_claim="claim",
        )
    )
    assert (engine["command"], engine["args"]) == (["serve"], ["x"])


def test_the_leader_serves_and_gets_the_variables_of_its_group() -> None:
    rendered = render(
        a_gang(leader={"env": [{"name": "MINE", "value": "$(MODELPLANE_RANK)"}]})
    )
    assert env(rendered) == {
        "MODELPLANE_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
        "MODELPLANE_RANK": "$(LWS_WORKER_INDEX)",
        "MINE": "$(MODELPLANE_RANK)",
    }
    assert list(env(rendered)) == [
        "MODELPLANE_LEADER_ADDRESS",
        "MODELPLANE_RANK",
        "MINE",
    ]
    leader = container(rendered)
    assert leader["ports"] == [{"name": "http", "containerPort": 8000}]
    assert leader["readinessProbe"] == {
        "httpGet": {"path": "/health", "port": 8000},
        "initialDelaySeconds": 30,
        "periodSeconds": 10,
        "timeoutSeconds": 5,
    }
    own = {
        "modelplane.ai/lws-role": "leader",
        "llm-d.ai/engine-type": "vllm",
        "llm-d.ai/model": "qwen3-8b",
    }
    assert pod(rendered)["metadata"]["labels"] == {**SERVING, **own}


def test_a_follower_has_the_environment_and_no_serving_label_port_or_probe() -> None:
    rendered = render(a_gang())
    follower = container(rendered, role="Worker")
    assert follower.keys().isdisjoint(
        {"ports", "readinessProbe", "livenessProbe", "startupProbe"}
    )
    assert list(env(rendered, role="Worker")) == [
        "MODELPLANE_LEADER_ADDRESS",
        "MODELPLANE_RANK",
    ]
    metadata = pod(rendered, role="Worker")["metadata"]
    assert metadata.keys() == {"annotations"}
    assert metadata["annotations"].keys() == {"modelplane.ai/template-hash"}


def test_a_follower_keeps_its_own_label_and_never_the_serving_one() -> None:
    metadata = pod(render(a_gang(worker={"labels": {"team": "a"}})), role="Worker")[
        "metadata"
    ]
    assert metadata["labels"] == {"team": "a"}


def test_a_reserved_label_is_refused() -> None:
    with pytest.raises(
        InvalidSpec,
        match=r"engine main, member Standalone.*'modelplane.ai/serving'.*reserved",
    ):
        render(an_engine("main", a_member(labels={"modelplane.ai/serving": "x"})))


def test_a_role_label_is_the_users_in_unified() -> None:
    rendered = render(
        an_engine("main", a_member(labels={"llm-d.ai/role": "mine", "app": "mine"}))
    )
    assert (
        pod(rendered)["metadata"]["labels"].items()
        >= {"llm-d.ai/role": "mine", "app": "mine"}.items()
    )
    assert rendered.warnings == ()


def test_a_role_label_is_overwritten_with_a_warning_when_disaggregated() -> None:
    rendered = render_pair(
        decode={"labels": {"llm-d.ai/role": "mine"}, "args": ["--port=8001"]}
    )
    assert pod(rendered, "alpha")["metadata"]["labels"]["llm-d.ai/role"] == "decode"
    assert rendered.warnings == (
        (
            "engine alpha, member Standalone: llm-d.ai/role='mine' is overwritten "
            "with 'decode': the platform sets this key"
        ),
    )


def test_each_member_is_pinned_to_its_own_pool() -> None:
    rendered = render(a_gang(leader={"pool": "head"}, worker={"pool": "frontier"}))
    assert pod(rendered)["spec"]["nodeSelector"] == {"modelplane.ai/pool": "head"}
    assert pod(rendered, role="Worker")["spec"]["nodeSelector"] == {
        "modelplane.ai/pool": "frontier"
    }


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_every_engine_pod_tolerates_gpus_and_is_restricted_as_far_as_engines_allow(
    role: str,
) -> None:
    rendered = render(a_gang())
    spec = pod(rendered, role=role)["spec"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert spec["volumes"] == [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
    assert container(rendered, role=role)["volumeMounts"] == [
        {"name": "dshm", "mountPath": "/dev/shm"}  # noqa: S108
    ]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["terminationGracePeriodSeconds"] == 30
    resources = container(rendered, role=role)["resources"]
    assert resources["requests"] == {"cpu": "100m", "memory": "256Mi"}
    assert "limits" not in resources  # Burstable: requests without equal limits


@pytest.mark.parametrize(
    ("device_class", "drivers", "settings", "tolerated"),
    [
        ("gpu.amd.com", {}, {}, ["nvidia.com/gpu", "amd.com/gpu"]),
        ("mi300x", {"mi300x": "gpu.amd.com"}, {}, ["nvidia.com/gpu", "amd.com/gpu"]),
        ("efa.networking.k8s.aws", {}, {}, ["nvidia.com/gpu"]),
        (
            "gpu.nvidia.com",
            {},
            {"toleration_keys": ("acme/gpu",)},
            ["acme/gpu", "nvidia.com/gpu"],
        ),
    ],
    ids=[
        "by class name",
        "by the driver of the class",
        "an unknown driver",
        "a configured key",
    ],
)
def test_pods_tolerate_the_taints_of_the_devices_that_they_claim(
    device_class: str,
    drivers: dict[str, str],
    settings: dict[str, Any],
    tolerated: list[str],
) -> None:
    member = a_member(requests=[{**GPU, "deviceClassName": device_class}])
    spec = pod(
        render(
            an_engine("main", member),
            cluster=a_cluster(drivers=drivers),
            settings=settings,
        )
    )["spec"]
    assert [toleration["key"] for toleration in spec["tolerations"]] == tolerated


def test_a_template_without_a_spec_is_named_and_crashes_nothing() -> None:
    member = {**a_member(), "template": {}}
    with pytest.raises(
        InvalidSpec, match=r"engine main, member Standalone: template.spec is missing"
    ):
        render(an_engine("main", member))


def test_an_engine_name_must_fit_into_names() -> None:
    with pytest.raises(
        InvalidSpec, match="engine Main_1: the name must be a DNS label"
    ):
        render(an_engine("Main_1"))


def test_equal_input_gives_equal_bytes() -> None:
    first, second = (
        render(a_gang(), cache="qwen", cache_claim="c"),
        render(a_gang(), cache="qwen", cache_claim="c"),
    )
    assert repr(first) == repr(second)
    assert first.hash == second.hash
    assert first.hash != render(a_gang(copies=2), cache="qwen", cache_claim="c").hash


@pytest.mark.parametrize(
    "rendered",
    [render(), render(a_gang()), render_pair()],
    ids=["standalone", "gang", "pair"],
)
def test_nothing_unset_is_ever_written(rendered: Any) -> None:
    for item in rendered.objects:
        assert list(nothings(item.manifest, item.key)) == []


def test_every_object_names_its_owner_and_no_selector_depends_on_it() -> None:
    rendered = render()
    managed = {
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/part-of",
        "app.kubernetes.io/component",
        "modelplane.ai/replica",
    }
    for item in rendered.objects:
        metadata = item.manifest["metadata"]
        assert metadata["labels"].keys() >= managed
        assert metadata["labels"]["modelplane.ai/replica"] == rendered.workload_name
        about_pods = {labels.PODS_SOURCE, labels.RENDERER}
        assert about_pods.isdisjoint(metadata["annotations"]) == (
            item.manifest["kind"] != "Deployment"
        )
        assert {
            key: value
            for key, value in metadata["annotations"].items()
            if key not in about_pods
        } == {
            "modelplane.ai/owner-kind": "ModelReplica",
            "modelplane.ai/owner-namespace": "ml-team",
            "modelplane.ai/owner-name": "qwen3-8b-1a2b3",
            "modelplane.ai/owner-uid": "uid-1",
            "modelplane.ai/generation": "1",
            "modelplane.ai/render-hash": item.hash,
        }
        for selector in _selectors(item.manifest.get("spec", {})):
            assert selector.keys().isdisjoint(managed | {labels.ENGINE})


def _selectors(value: Any) -> list[dict[str, str]]:
    if isinstance(value, list):
        return [selector for inner in value for selector in _selectors(inner)]
    if not isinstance(value, dict):
        return []
    found = [
        value[name]
        for name in ("matchLabels", "selector")
        if isinstance(value.get(name), dict) and "matchLabels" not in value[name]
    ]
    return found + [
        selector for inner in value.values() for selector in _selectors(inner)
    ]


def test_objects_are_in_the_order_of_apply() -> None:
    assert keys(render()) == [
        "resource-claim-main-standalone",
        "epp-serviceaccount",
        "epp-role",
        "epp-rolebinding",
        "model-serving-main",
        "epp-config",
        "epp-service",
        "epp",
        "inference-pool",
        "model-route-by-host",
        "model-route",
        "monitor-engines",
        "monitor-epp",
    ]


def test_the_template_hash_distinguishes_old_pods_from_new_ones() -> None:
    before, after, other = (
        render(),
        render(an_engine("main", a_member(image="acme/vllm:2"))),
        render(an_engine(copies=2)),
    )
    assert (
        pod(before)["metadata"]["annotations"]["modelplane.ai/template-hash"]
        == before.engines[0].template_hash
    )
    assert after.engines[0].template_hash != before.engines[0].template_hash
    assert other.engines[0].template_hash == before.engines[0].template_hash
    assert len(render(a_gang()).engines[0].template_hashes) == 2


def test_a_shared_namespace_changes_everything_but_the_path() -> None:
    rendered = render(settings={"workload_namespace": "inference"})
    assert rendered.namespace == "inference"
    assert {item.manifest["metadata"]["namespace"] for item in rendered.objects} == {
        "inference"
    }
    match = the(rendered, "model-route")["spec"]["rules"][0]["matches"][0]
    assert match["path"]["value"] == "/ml-team/qwen3-8b-1a2b3/"


def test_settings_reach_the_pods() -> None:
    settings = {
        "engine_requests": {"cpu": "2"},
        "shm_size_limit": "16Gi",
        "termination_grace_seconds": 90,
        "startup_seconds_max": 1795,
        "restart_on_rotation": True,
    }
    rendered = render(settings=settings, propagated_hash="d1")
    spec, engine = pod(rendered)["spec"], container(rendered)
    assert engine["resources"]["requests"] == {"cpu": "2"}
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert spec["terminationGracePeriodSeconds"] == 90
    assert (
        engine["startupProbe"]["failureThreshold"]
        * engine["startupProbe"]["periodSeconds"]
        == 1800
    )
    assert (
        pod(rendered)["metadata"]["annotations"]["modelplane.ai/propagated-hash"]
        == "d1"
    )


def test_a_gang_without_a_cache_is_rendered_with_a_warning() -> None:
    assert render(a_gang()).warnings == (
        "engine main: several nodes without modelCacheRef: each of them downloads the model itself",
    )


@pytest.mark.parametrize("flag", ["--served-model-name", "--model"])
def test_engines_that_serve_different_models_under_one_address_are_a_warning(
    flag: str,
) -> None:
    engines = [
        an_engine(name, a_member(args=[f"{flag}={name}"])) for name in ("one", "two")
    ]
    assert (
        "engines serve different models (one: one, two: two), yet share one address"
        in render(*engines).warnings[0]
    )


def test_a_member_that_is_not_an_object_is_rejected() -> None:
    with pytest.raises(InvalidSpec) as caught:
        render({"name": "main", "members": ["Leader"]})
    assert "engine main, member Standalone: must be an object, is 'Leader'" in str(
        caught.value
    )


def test_all_problems_are_reported_at_once() -> None:
    bad = a_member(
        labels={"a b": "c", "ok": "not ok!"},
        annotations={"/x": "y"},
        env=[
            {"name": ""},
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}},
            {"name": "B", "value": "b", "valueFrom": {}},
        ],
        image="",
        pool="bad pool",
        requests=[
            {"name": "Up", "count": 65},
            {"name": "x", "deviceClassName": "C_", "resourceName": "r"},
        ],
        args=["\ud800", 7],
    )
    with pytest.raises(InvalidSpec) as caught:
        render(
            an_engine("main", bad, copies=0),
            an_engine("main", copies="two"),
            {"members": "none"},
            cache="",
        )
    where = "engine main, member Standalone"
    for expected in (
        "engine main: the name is used 2 times",
        "engine main: copies must be between 1 and 64, is 0",
        "engine main: copies must be a whole number, is 'two'",
        "engines[2]: name is missing",
        "engines[2]: members must be a list, is 'none'",
        f"{where}: image is missing",
        f"{where}: nodePoolName 'bad pool' is not a valid label value",
        "label 'a b': \"a b\" is not a valid Kubernetes label key",
        "label 'ok': 'not ok!' is not a valid label value",
        "annotation '/x': the prefix of key \"/x\" must be a DNS subdomain",
        f"{where}, env: name is missing",
        f"{where}, env A, secretKeyRef: key is missing",
        f"{where}, env B: give value or valueFrom, not both",
        f"{where}, device request Up: the name must be a DNS label",
        f"{where}, device request Up: count must be between 1 and 64, is 65",
        f"{where}, device request x: give at most one of deviceClassName (DRA) and resourceName",
        f"{where}, device request x: deviceClassName must be a DNS subdomain, is 'C_'",
        f"{where}, device request x: resourceName must look like 'vendor.example/device', is 'r'",
        f"{where}: args must contain only strings, contains 7",
        (
            "spec.engines[0].members[0].template.spec.containers[0].args[0]: "
            "'\\ud800' is not valid Unicode"
        ),
    ):
        assert any(expected in problem for problem in caught.value.problems), (
            expected,
            caught.value.problems,
        )
    assert str(caught.value).startswith("ModelReplica ml-team/qwen3-8b-1a2b3: ")


def test_an_empty_replica_is_refused_without_a_crash() -> None:
    with pytest.raises(InvalidSpec, match="engines is empty"):
        render(spec={})
    assert a_replica().spec["engines"]


def test_an_engine_without_device_requests_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="engine main: no member has deviceRequests"):
        render(an_engine("main", a_member(requests=())))
