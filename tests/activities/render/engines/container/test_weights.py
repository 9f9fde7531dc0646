"""The source of weights for pods: volumes of one node, and images as volumes."""

from typing import Any

import pytest

from activities.render.cache.access import PlainHttpRefused
from activities.render.cache.own_volume import sources
from activities.render.cache.volumes import render_cache
from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import (
    Findings,
    ImageVolumesUnsupported,
    InvalidSpec,
)
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from api_types import names
from api_types.messages.cluster_work import CacheMount
from tests.activities.render.builders import (
    CLAIM,
    a_cluster,
    a_gang,
    a_member,
    a_replica,
    an_engine,
    container,
    pod,
    render,
    render_pair,
    the,
)
from tests.activities.render.topologies import node_local

IMAGE = "registry.acme.example/models/qwen@sha256:" + "ab" * 32
PULLED_WITH = "registry"
PULLED = CacheMount(image=IMAGE, pull_secret=PULLED_WITH)
ONE_NODE = CacheMount(access_mode="ReadWriteOnce")


def mounting(mount: CacheMount, *engines: dict[str, Any], **fields: Any) -> Rendered:
    return render(
        *engines, cache="qwen", cache_claim=CLAIM, mounts={"qwen": mount}, **fields
    )


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_an_image_is_mounted_read_only_in_place_of_a_claim_in_every_pod(
    role: str,
) -> None:
    rendered = mounting(
        PULLED,
        a_gang(leader={"pull_secrets": ["own", "registry"]}),
        propagated={"Secret/registry": "copied"},
    )
    template = pod(rendered, role=role)["spec"]
    assert template["volumes"][1:] == [
        {
            "name": "model-cache",
            "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"},
        }
    ]
    assert container(rendered, role=role)["volumeMounts"][1:] == [
        {"name": "model-cache", "mountPath": "/mnt/models", "readOnly": True}
    ]
    own = [{"name": "own"}] if role == "Leader" else []
    assert template["imagePullSecrets"] == [*own, {"name": "copied"}]


def test_an_image_with_an_adapter_is_pulled_by_the_engines_that_load_it() -> None:
    adapters = [{"name": "support", "modelCacheRef": {"name": "lora"}}]
    rendered = render(
        an_engine("main", adapters=adapters),
        an_engine("plain"),
        adapter_claims={"lora": "claim"},
        mounts={"lora": PULLED},
    )
    assert pod(rendered)["spec"]["volumes"][1]["image"]["reference"] == IMAGE
    assert pod(rendered)["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in pod(rendered, "plain")["spec"]


def test_the_secret_of_the_image_is_copied_like_secrets_of_pods() -> None:
    spec = read_spec(a_replica().spec, Findings())
    assert [str(each) for each in references(spec, [PULLED, ONE_NODE])] == [
        "Secret/registry"
    ]


def test_a_cluster_that_is_too_old_for_an_image_is_refused_with_its_version() -> None:
    with pytest.raises(
        ImageVolumesUnsupported,
        match=r"ModelCache qwen: cluster eu-1 runs Kubernetes 1\.32, .* need 1\.33: upgrade",
    ) as old:
        mounting(PULLED, cluster=a_cluster(kubernetes_version="1.32"))
    assert old.value.reason == "ImageVolumesUnsupported"


@pytest.mark.parametrize(
    ("version", "warned"), [("1.33", True), ("1.34", True), ("1.35", False)]
)
def test_a_cluster_that_has_images_only_behind_a_gate_is_warned_about(
    version: str, *, warned: bool
) -> None:
    warnings = mounting(PULLED, cluster=a_cluster(kubernetes_version=version)).warnings
    assert (
        any("need the feature gate ImageVolume" in each for each in warnings) == warned
    )


def test_a_volume_of_one_node_is_refused_for_engines_in_two_pools() -> None:
    with pytest.raises(
        InvalidSpec,
        match=(
            r"ModelCache qwen: .* accessMode ReadWriteOnce, .* pools a100, h100: use "
            r"a cache with"
        ),
    ):
        mounting(ONE_NODE, an_engine("main"), an_engine("other", a_member(pool="a100")))


@pytest.mark.parametrize(
    ("engines", "pods"),
    [
        ([an_engine(copies=2)], 2),
        ([a_gang()], 4),
        ([an_engine("a"), an_engine("b")], 2),
    ],
    ids=["copies", "a gang", "engines"],
)
def test_several_pods_on_a_volume_of_one_node_are_warned_about(
    engines: list[dict[str, Any]], pods: int
) -> None:
    (warning,) = mounting(ONE_NODE, *engines).warnings
    assert (
        f"this replica has {pods} pods: those on a second node wait without end"
        in warning
    )


def test_one_pod_on_a_volume_of_one_node_is_as_any_other() -> None:
    rendered = mounting(ONE_NODE)
    assert rendered.warnings == ()
    assert the(rendered, "model-serving-main") == the(
        render(cache="qwen", cache_claim=CLAIM), "model-serving-main"
    )


def test_adapters_on_a_volume_of_one_node_count_the_engines_that_load_them() -> None:
    adapted = an_engine(
        "main", adapters=[{"name": "support", "modelCacheRef": {"name": "lora"}}]
    )
    fields: dict[str, Any] = {
        "adapter_claims": {"lora": "claim"},
        "mounts": {"lora": ONE_NODE},
    }
    assert [
        text
        for text in render(adapted, an_engine("plain"), **fields).warnings
        if "has no adapter" not in text
    ] == []
    assert len(render({**adapted, "copies": 3}, **fields).warnings) == 1


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_every_pod_fills_a_volume_of_its_own_before_its_engine_starts(
    role: str,
) -> None:
    copies = {"Secret/hub": "token-copy", "ConfigMap/company-ca": "ca-copy"}
    rendered = mounting(
        node_local(),
        a_gang(),
        propagated=copies,
        settings={"pull_secrets": ("company",)},
    )
    spec = pod(rendered, role=role)["spec"]
    own, ca = spec["volumes"][1:]
    assert own["name"] == "model-cache"
    assert own["ephemeral"]["volumeClaimTemplate"]["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local-nvme",
        "resources": {"requests": {"storage": "20Gi"}},
    }
    assert ca == {
        "name": "hydrate-ca",
        "configMap": {
            "name": "ca-copy",
            "items": [{"key": "bundle.pem", "path": "ca.crt"}],
        },
    }
    filling, *others = spec["initContainers"]
    waits = ["wait-for-leader"] if role == "Worker" else []
    assert [each["name"] for each in others] == waits
    variables = {
        each["name"]: each.get("value", each.get("valueFrom"))
        for each in filling["env"]
    }
    assert (
        variables["MODELPLANE_REVISION"] == "0123456789abcdef0123456789abcdef01234567"
    )
    assert variables["HF_TOKEN"] == {
        "secretKeyRef": {"name": "token-copy", "key": "HF_TOKEN"}
    }
    assert variables["HTTPS_PROXY"] == {"secretKeyRef": {"name": "proxy", "key": "url"}}
    assert filling["volumeMounts"] == [
        {"name": "model-cache", "mountPath": "/mnt/artifact"},
        {"name": "hydrate-ca", "mountPath": "/etc/modelplane/ca", "readOnly": True},
    ]
    assert spec["imagePullSecrets"][0] == {"name": "mirror"}
    assert len(spec["imagePullSecrets"]) == 2
    assert container(rendered, role=role)["volumeMounts"][1] == {
        "name": "model-cache",
        "mountPath": "/mnt/models",
    }
    assert "hostPath" not in str(spec)


def test_the_program_of_the_job_fills_the_volume_before_a_sidecar_runs() -> None:
    rendered = render_pair(
        cache="qwen", cache_claim=CLAIM, mounts={"qwen": node_local()}
    )
    filling, sidecar = pod(rendered, "alpha")["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    own = node_local().node_local
    assert own
    job = next(
        item.manifest
        for item in render_cache(
            CacheInput(
                "ml-team",
                "qwen",
                "u",
                1,
                "eu-1",
                {**own.spec, "volume": {}},
                own.revision,
            ),
            a_cluster(storage_class_name="rwx"),
            RenderSettings(),
        ).objects
        if item.manifest["kind"] == "Job"
    )
    (staging,) = job["spec"]["template"]["spec"]["containers"]
    assert filling["command"] == staging["command"]
    same = {"HF_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "MODELPLANE_ARTEFACT_KEY"}
    assert [each for each in filling["env"] if each["name"] not in same] == [
        each for each in staging["env"] if each["name"] not in same
    ]


def test_secrets_for_staging_jobs_are_copied_like_secrets_of_pods() -> None:
    assert [
        str(each) for each in sources("ml", {"qwen": node_local(), "other": PULLED})
    ] == [
        "Secret/hub",
        "Secret/proxy",
        "ConfigMap/company-ca",
        "Secret/mirror",
    ]


@pytest.mark.parametrize(
    ("known", "warned"),
    [(None, False), ({"local-nvme": False}, False), ({"rwx": True}, True)],
)
def test_a_volume_of_a_class_that_is_not_there_is_a_warning(
    known: dict[str, bool] | None, *, warned: bool
) -> None:
    rendered = mounting(node_local(), cluster=a_cluster(storage_classes=known))
    assert (
        any("has no StorageClass local-nvme" in text for text in rendered.warnings)
        is warned
    )
    assert any(item.key == "model-serving-main" for item in rendered.objects)


def test_an_adapter_has_no_volume_of_each_pod() -> None:
    adapted = an_engine(
        "main", adapters=[{"name": "support", "modelCacheRef": {"name": "lora"}}]
    )
    with pytest.raises(
        InvalidSpec,
        match="ModelCache lora: only the model of a replica may be nodeLocal",
    ):
        render(adapted, adapter_claims={"lora": "claim"}, mounts={"lora": node_local()})


def test_a_source_without_tls_needs_a_setting_of_the_operator_in_a_pod_too() -> None:
    plain = node_local(
        source="OCI",
        oci={"image": "registry.example/m:1", "sizeGiB": 1, "plainHTTP": True},
    )
    own = plain.node_local
    assert own
    mount = CacheMount(node_local=own.model_copy(update={"revision": ""}))
    with pytest.raises(PlainHttpRefused, match=r"oci\.allowPlainHttp"):
        mounting(mount)
    assert mounting(mount, settings={"allow_plain_http": True}).objects


@pytest.mark.parametrize("field", ["authSecret", "urlSecret"])
def test_the_filling_container_reads_no_secret_of_the_platform(field: str) -> None:
    made = names.copy_name("other", "Secret", "hub", ())
    own = (
        node_local(
            huggingFace={"repo": "a/b", "sizeGiB": 1, "authSecret": {"name": made}}
        )
        if field == "authSecret"
        else node_local(
            hydration={"proxy": {"urlSecret": {"name": made, "key": "url"}}}
        )
    )
    with pytest.raises(
        InvalidSpec,
        match=f"ModelCache qwen: Secret/{made} .*reserved for objects of the platform",
    ):
        mounting(own)
