"""Environment, cache and secrets of a replica."""

from typing import Any

import pytest

from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.findings import Findings
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.propagation import Propagation, Reference, Source, plan
from activities.render.replica import InvalidSpec
from api_types import names
from tests.activities.render.builders import (
    CLAIM,
    a_cluster,
    a_gang,
    a_member,
    a_replica,
    an_engine,
    container,
    env,
    keys,
    pod,
    render,
)

VOLUME = {"name": "model-cache", "persistentVolumeClaim": {"claimName": CLAIM}}
MOUNT = {"name": "model-cache", "mountPath": "/mnt/models"}


def secret(name: str, key: str = "token", **more: Any) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": key, **more}}


def test_the_users_rank_replaces_the_injected_one() -> None:
    rendered = render(
        a_gang(leader={"env": [{"name": "MODELPLANE_RANK", "value": "7"}]})
    )
    assert env(rendered) == {
        "MODELPLANE_LEADER_ADDRESS": "$(LWS_LEADER_ADDRESS)",
        "MODELPLANE_RANK": "7",
    }
    assert env(rendered, role="Worker")["MODELPLANE_RANK"] == "$(LWS_WORKER_INDEX)"


def test_a_name_twice_would_make_kubernetes_refuse_the_object() -> None:
    with pytest.raises(
        InvalidSpec,
        match="engine main, member Standalone: env A is set 2 times: keep one",
    ):
        render(
            an_engine(
                "main",
                a_member(
                    env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
                ),
            )
        )


def test_a_field_reference_passes_through_behind_the_injected_ones() -> None:
    source = {"fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}}
    rendered = render(a_gang(leader={"env": [{"name": "IP", "valueFrom": source}]}))
    assert list(env(rendered)) == ["MODELPLANE_LEADER_ADDRESS", "MODELPLANE_RANK", "IP"]
    assert env(rendered)["IP"] == source


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            {"resourceFieldRef": {}},
            "exactly one of secretKeyRef, configMapKeyRef, fieldRef; has resourceFieldRef",
        ),
        ({}, "has none"),
        ({"fieldRef": {}}, "env A, fieldRef: fieldPath is missing"),
        (secret("a") | {"fieldRef": {"fieldPath": "x"}}, "has secretKeyRef, fieldRef"),
    ],
)
def test_other_sources_are_refused(source: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        render(an_engine("main", a_member(env=[{"name": "A", "valueFrom": source}])))


@pytest.mark.parametrize(
    ("entry", "rendered"),
    [
        pytest.param({"name": "A", "value": None}, {"name": "A"}, id="a value"),
        pytest.param(
            {"name": "A", "value": "1", "valueFrom": None},
            {"name": "A", "value": "1"},
            id="a source",
        ),
        pytest.param(
            {
                "name": "A",
                "valueFrom": {"configMapKeyRef": None, **secret("s", optional=None)},
            },
            {"name": "A", "valueFrom": secret("s")},
            id="fields of a source",
        ),
    ],
)
def test_a_null_in_the_environment_is_a_field_that_is_not_set(
    entry: dict[str, Any], rendered: dict[str, Any]
) -> None:
    assert container(render(an_engine("main", a_member(env=[entry]))))["env"] == [
        rendered
    ]


def test_reserved_names_are_a_warning() -> None:
    member = {
        "env": [
            {"name": "LWS_GROUP_SIZE", "value": "1"},
            {"name": "MODELPLANE_NEW", "value": "1"},
        ]
    }
    assert render(a_gang(leader=member), cache="qwen", cache_claim=CLAIM).warnings == (
        (
            "engine main, member Leader, env LWS_GROUP_SIZE: is overwritten: the "
            "LeaderWorkerSet controller sets it in every pod"
        ),
        (
            "engine main, member Leader, env MODELPLANE_NEW: names starting with "
            "MODELPLANE_ are reserved and may get a meaning later"
        ),
    )
    assert (
        render(
            an_engine("main", a_member(env=[{"name": "LWS_GROUP_SIZE", "value": "1"}]))
        ).warnings
        == ()
    )


def test_an_engine_without_a_model_flag_gets_the_cache_as_its_model() -> None:
    rendered = render(
        a_gang(leader={"args": ["--tp=8"]}), cache="qwen", cache_claim=CLAIM
    )
    assert container(rendered)["args"] == ["--tp=8", "--model=/mnt/models"]
    assert "args" not in container(rendered, role="Worker")


@pytest.mark.parametrize(
    ("member", "warned"),
    [
        pytest.param({"args": ["--model=/x"]}, False, id="model in one word"),
        pytest.param({"args": ["--model", "/x"]}, False, id="model in two words"),
        pytest.param({"command": ["serve"]}, False, id="a command"),
        pytest.param({"args": ["-hf", "a/b"]}, True, id="llama.cpp"),
        pytest.param({"args": ["--model-path=/x"]}, True, id="sglang"),
        pytest.param({"args": ["--model_path=/x"]}, True, id="underscores"),
        pytest.param(
            {"args": ["/mnt/models", "--tp=8"]},
            False,
            id="the cache as the first word, for `vllm serve`",
        ),
        pytest.param(
            {"args": ["/mnt/models/q4"]},
            False,
            id="a folder of the cache as the first word",
        ),
        pytest.param(
            {"args": ["Qwen/Qwen3-8B", "--tp=8"]},
            True,
            id="another model as the first word",
        ),
        pytest.param(
            {"args": ["--port", "8000", "/mnt/models"]},
            False,
            id="the cache behind a flag and its value",
        ),
        pytest.param(
            {"args": ["--tp=8", "/mnt/models/q4"]},
            False,
            id="a folder of the cache behind a flag in one word",
        ),
        pytest.param(
            {"args": ["--enforce_eager", "/mnt/models"]},
            False,
            id="the cache behind a switch",
        ),
        pytest.param(
            {"args": ["--served-model-name=qwen", "/mnt/models"]},
            False,
            id="the cache behind a name in one word",
        ),
    ],
)
def test_an_engine_with_a_model_flag_is_unchanged(
    member: dict[str, Any], *, warned: bool
) -> None:
    rendered = render(
        an_engine("main", a_member(**member)), cache="qwen", cache_claim=CLAIM
    )
    assert container(rendered).get("args") == member.get("args")
    assert bool(rendered.warnings) is warned


@pytest.mark.parametrize(
    "args",
    [["--tokenizer", "/mnt/models"], ["--served_model_name", "qwen", "/mnt/models"]],
    ids=["one", "several"],
)
def test_the_value_of_another_flag_is_not_the_model(args: list[str]) -> None:
    rendered = render(
        an_engine("main", a_member(args=args)), cache="qwen", cache_claim=CLAIM
    )
    assert container(rendered)["args"] == [*args, "--model=/mnt/models"]


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_the_cache_is_mounted_in_every_engine_pod_for_writing(role: str) -> None:
    rendered = render(a_gang(), cache="qwen", cache_claim=CLAIM)
    assert VOLUME in pod(rendered, role=role)["spec"]["volumes"]
    assert MOUNT in container(rendered, role=role)["volumeMounts"]


def test_the_mount_may_be_read_only() -> None:
    rendered = render(
        cache="qwen", cache_claim=CLAIM, settings={"cache_mount_read_only": True}
    )
    assert {**MOUNT, "readOnly": True} in container(rendered)["volumeMounts"]


def test_a_facts_file_may_name_the_claim() -> None:
    rendered = render(
        cache="qwen", cluster=a_cluster(cache_claims={"ml-team/qwen": CLAIM})
    )
    assert VOLUME in pod(rendered)["spec"]["volumes"]


def test_engines_wait_for_their_cache_while_the_rest_is_rendered() -> None:
    rendered = render(cache="qwen")
    assert rendered.held == "WaitingForCache"
    assert "model-serving-main" not in keys(rendered)
    assert {"resource-claim-main-standalone", "epp", "inference-pool"} <= set(
        keys(rendered)
    )
    assert render(cache="qwen", cache_claim=CLAIM).held == ""


def test_a_replica_keeps_its_claim_when_the_cache_changes() -> None:
    running = render(
        cache="qwen", cache_claim=CLAIM, cluster=a_cluster(cache_claims={})
    )
    assert VOLUME in pod(running)["spec"]["volumes"]


@pytest.mark.parametrize(
    "name",
    ["mpx-hub-0a1b2c3d", "modelcache-ml-qwen-0a1b2c3d-auth"],
    ids=["a copy", "a cache token"],
)
@pytest.mark.parametrize("way", ["env", "configmap", "pull secret"])
def test_a_reference_to_a_copy_of_the_platform_is_refused(name: str, way: str) -> None:
    reference = {"name": name, "key": "k"}
    member = {
        "env": a_member(env=[{"name": "A", "valueFrom": {"secretKeyRef": reference}}]),
        "configmap": a_member(
            env=[{"name": "A", "valueFrom": {"configMapKeyRef": reference}}]
        ),
        "pull secret": a_member(pull_secrets=[name]),
    }[way]
    with pytest.raises(
        InvalidSpec, match=f"'{name}' starts with 'mpx-' or 'modelcache-'"
    ):
        render(an_engine("main", member))


# Copied Secrets and ConfigMaps, and the names in the pods

WANTED = a_member(
    env=[
        {"name": "A", "valueFrom": secret("hub", "token")},
        {"name": "B", "valueFrom": secret("hub", "user", optional=True)},
        {
            "name": "C",
            "valueFrom": {
                "configMapKeyRef": {"name": "tuning", "key": "x", "optional": True}
            },
        },
    ],
    pull_secrets=["registry", "registry"],
)
LABELLED = {"modelplane.ai/propagate": "true"}


def planned(
    mode: str, sources: dict[str, Source], member: dict[str, Any] = WANTED
) -> Propagation:
    findings = Findings()
    spec = read_spec(a_replica(an_engine("main", member)).spec, findings)
    assert findings.problems == []
    return plan(
        "ml-team", references(spec), sources, RenderSettings(secrets_propagation=mode)
    )


def test_references_are_gathered_once_each() -> None:
    spec = read_spec(
        a_replica(an_engine("main", WANTED), an_engine("other", WANTED)).spec,
        Findings(),
    )
    assert references(spec) == (
        Reference("ConfigMap", "tuning", ("x",), optional=True),
        Reference("Secret", "hub", ("token", "user"), optional=False),
        Reference("Secret", "registry", (), optional=False),
    )


def test_a_labelled_secret_is_copied_and_the_reference_rewritten() -> None:
    outcome = planned(
        "labelled",
        {
            "Secret/hub": Source("Opaque", LABELLED),
            "Secret/registry": Source("kubernetes.io/dockerconfigjson", LABELLED),
        },
    )
    hub, registry = outcome.copies
    assert (hub.inventory_key, hub.source_namespace, hub.source_name, hub.keys) == (
        "secret-hub",
        "ml-team",
        "hub",
        ("token", "user"),
    )
    assert hub.name.startswith("mpx-hub-")
    assert hub.manifest["type"] == "Opaque"
    assert hub.manifest["metadata"]["namespace"] == "ml-team"
    assert hub.manifest["metadata"]["labels"]["app.kubernetes.io/component"] == "secret"
    assert hub.manifest["metadata"]["annotations"]["modelplane.ai/owner-name"] == "hub"
    assert "data" not in hub.manifest
    assert (registry.keys, registry.manifest["type"]) == (
        (),
        "kubernetes.io/dockerconfigjson",
    )

    rendered = render(an_engine("main", WANTED), propagated=outcome.rewrites)
    assert env(rendered)["A"] == {"secretKeyRef": {"name": hub.name, "key": "token"}}
    assert env(rendered)["B"] == {
        "secretKeyRef": {"name": hub.name, "key": "user", "optional": True}
    }
    assert env(rendered)["C"] == {
        "configMapKeyRef": {"name": "tuning", "key": "x", "optional": True}
    }
    assert pod(rendered)["spec"]["imagePullSecrets"] == [{"name": registry.name}]


def test_an_unlabelled_secret_stays_as_written() -> None:
    outcome = planned(
        "labelled",
        {
            "Secret/hub": Source(),
            "Secret/registry": Source(labels={"modelplane.ai/propagate": "no"}),
        },
    )
    assert outcome == Propagation((), {}, ())
    assert env(render(an_engine("main", WANTED)))["A"] == secret("hub")


def test_nothing_is_copied_when_propagation_is_off() -> None:
    assert planned("off", {"Secret/hub": Source(labels=LABELLED)}) == Propagation(
        (), {}, ()
    )


def test_in_mode_all_a_missing_secret_is_named_unless_optional() -> None:
    outcome = planned(
        "all", {"Secret/registry": Source("kubernetes.io/dockerconfigjson")}
    )
    assert [copy.source_name for copy in outcome.copies] == ["registry"]
    assert outcome.missing == (
        "Secret ml-team/hub does not exist, but the replica needs it",
    )


def test_replicas_with_one_need_share_one_copy_and_others_never_overwrite_it() -> None:
    sources = {"Secret/hub": Source(labels=LABELLED)}
    first, again = (planned("labelled", sources).copies[0] for _ in range(2))
    other = planned(
        "labelled",
        sources,
        a_member(env=[{"name": "A", "valueFrom": secret("hub", "other")}]),
    ).copies[0]
    assert first == again
    assert first.name != other.name


def test_a_copy_of_another_tenant_has_another_name() -> None:
    wanted = [Reference("Secret", "hub", ("token",))]
    sources = {"Secret/hub": Source(labels=LABELLED)}
    copies = {
        plan(namespace, wanted, sources, RenderSettings(workload_namespace="shared"))
        .copies[0]
        .name
        for namespace in ("a", "b")
    }
    assert len(copies) == 2
    assert all(names.slug(name) == name for name in copies)
