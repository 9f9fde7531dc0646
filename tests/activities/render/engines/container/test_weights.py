"""How pods get weights: volumes of one node, and images as volumes (spec/workloads.md 3.2; ruling H10)."""

from typing import Any

import pytest

from activities.render.engines.admission import read_spec
from activities.render.engines.references import references
from activities.render.inputs.findings import Findings, ImageVolumesUnsupported, InvalidSpec
from activities.render.objects.rendered import Rendered
from api_types.messages.cluster_work import CacheMount
from tests.activities.render.builders import CLAIM, a_cluster, a_gang, a_member, a_replica, an_engine, container, pod, render, the

IMAGE = "registry.acme.example/models/qwen@sha256:" + "ab" * 32
PULLED_WITH = "registry"
PULLED = CacheMount(image=IMAGE, pull_secret=PULLED_WITH)
ONE_NODE = CacheMount(access_mode="ReadWriteOnce")


def mounting(mount: CacheMount, *engines: dict[str, Any], **fields: Any) -> Rendered:
    return render(*engines, cache="qwen", cache_claim=CLAIM, mounts={"qwen": mount}, **fields)


@pytest.mark.parametrize("role", ["Leader", "Worker"])
def test_wkl_60_an_image_is_mounted_read_only_in_place_of_a_claim_in_every_pod(role: str) -> None:
    rendered = mounting(PULLED, a_gang(leader={"pull_secrets": ["own", "registry"]}), propagated={"Secret/registry": "copied"})
    template = pod(rendered, role=role)["spec"]
    assert template["volumes"][1:] == [{"name": "model-cache", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}]
    assert container(rendered, role=role)["volumeMounts"][1:] == [{"name": "model-cache", "mountPath": "/mnt/models", "readOnly": True}]
    own = [{"name": "own"}] if role == "Leader" else []
    assert template["imagePullSecrets"] == [*own, {"name": "copied"}]


def test_an_image_with_an_adapter_is_pulled_by_the_engines_that_load_it() -> None:
    adapters = [{"name": "support", "modelCacheRef": {"name": "lora"}}]
    rendered = render(an_engine("main", adapters=adapters), an_engine("plain"), adapter_claims={"lora": "claim"}, mounts={"lora": PULLED})
    assert pod(rendered)["spec"]["volumes"][1]["image"]["reference"] == IMAGE
    assert pod(rendered)["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in pod(rendered, "plain")["spec"]


def test_wkl_63_the_secret_of_the_image_is_copied_as_those_of_pods_are() -> None:
    spec = read_spec(a_replica().spec, Findings())
    assert [str(each) for each in references(spec, [PULLED, ONE_NODE])] == ["Secret/registry"]


def test_a_cluster_that_is_too_old_for_an_image_is_refused_with_its_version() -> None:
    with pytest.raises(
        ImageVolumesUnsupported, match=r"ModelCache qwen: cluster eu-1 runs Kubernetes 1\.32, .* need 1\.33: upgrade"
    ) as old:
        mounting(PULLED, cluster=a_cluster(kubernetes_version="1.32"))
    assert old.value.reason == "ImageVolumesUnsupported"


@pytest.mark.parametrize(("version", "warned"), [("1.33", True), ("1.34", True), ("1.35", False)])
def test_a_cluster_that_has_images_only_behind_a_gate_is_warned_about(version: str, *, warned: bool) -> None:
    warnings = mounting(PULLED, cluster=a_cluster(kubernetes_version=version)).warnings
    assert any("need the feature gate ImageVolume" in each for each in warnings) == warned


def test_a_volume_of_one_node_is_refused_for_engines_in_two_pools() -> None:
    with pytest.raises(InvalidSpec, match=r"ModelCache qwen: .* accessMode ReadWriteOnce, .* pools a100, h100: use a cache with"):
        mounting(ONE_NODE, an_engine("main"), an_engine("other", a_member(pool="a100")))


@pytest.mark.parametrize(
    ("engines", "pods"),
    [([an_engine(copies=2)], 2), ([a_gang()], 4), ([an_engine("a"), an_engine("b")], 2)],
    ids=["copies", "a gang", "engines"],
)
def test_several_pods_on_a_volume_of_one_node_are_warned_about(engines: list[dict[str, Any]], pods: int) -> None:
    (warning,) = mounting(ONE_NODE, *engines).warnings
    assert f"this replica has {pods} pods: those on a second node wait for ever" in warning


def test_one_pod_on_a_volume_of_one_node_is_as_any_other() -> None:
    rendered = mounting(ONE_NODE)
    assert rendered.warnings == ()
    assert the(rendered, "model-serving-main") == the(render(cache="qwen", cache_claim=CLAIM), "model-serving-main")


def test_adapters_on_a_volume_of_one_node_count_the_engines_that_load_them() -> None:
    adapted = an_engine("main", adapters=[{"name": "support", "modelCacheRef": {"name": "lora"}}])
    fields: dict[str, Any] = {"adapter_claims": {"lora": "claim"}, "mounts": {"lora": ONE_NODE}}
    assert render(adapted, an_engine("plain"), **fields).warnings == ()
    assert len(render({**adapted, "copies": 3}, **fields).warnings) == 1
