"""Device requests become claims."""

from typing import Any

import pytest

from activities.render.engines.claims import plugin_resources
from activities.render.engines.spec import DeviceRequestSpec, MemberSpec
from activities.render.inputs.findings import DRAUnavailable
from activities.render.replica import InvalidSpec
from api_types.resources.replica_spec import replica_spec
from scheduler import deployment_view, to_wire
from tests.activities.render.builders import (
    GPU,
    a_cluster,
    a_gang,
    a_member,
    an_engine,
    container,
    keys,
    pod,
    render,
    the,
)
from tests.scheduler.builders import (
    IS_GPU,
    IS_NIC,
    cluster,
    fleet,
    gpu,
    nic,
    pool,
    settled,
)

CEL = (
    'device.driver == "gpu.nvidia.com" &&\n  '
    'device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("40Gi"))\n'
)
EFA = {"name": "efa", "deviceClassName": "efa.networking.k8s.aws", "count": 16}
KEY = "resource-claim-main-standalone"


def requests_of(rendered: Any, key: str = KEY) -> Any:
    return the(rendered, key)["spec"]["spec"]["devices"]["requests"]


def test_a_request_is_copied_verbatim() -> None:
    template = the(
        render(
            an_engine("main", a_member(requests=[{**GPU, "selectors": [{"cel": CEL}]}]))
        ),
        KEY,
    )
    assert (template["apiVersion"], template["kind"]) == (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
    )
    assert template["spec"] == {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": "gpu.nvidia.com",
                            "count": 8,
                            "selectors": [{"cel": {"expression": CEL}}],
                        },
                    }
                ]
            }
        }
    }


def test_two_requests_are_one_claim_with_all_devices_for_the_container() -> None:
    rendered = render(an_engine("main", a_member(requests=[GPU, EFA])))
    assert [
        (request["name"], request["exactly"]["count"])
        for request in requests_of(rendered)
    ] == [("gpu", 8), ("efa", 16)]
    template_name = the(rendered, KEY)["metadata"]["name"]
    assert pod(rendered)["spec"]["resourceClaims"] == [
        {"name": "devices", "resourceClaimTemplateName": template_name}
    ]
    assert container(rendered)["resources"]["claims"] == [{"name": "devices"}]
    assert "limits" not in container(rendered)["resources"]


def test_a_request_that_a_synthetic_device_matches_is_not_claimed() -> None:
    requests = [
        {"name": "nic", "selectors": [{"cel": IS_NIC}]},
        {"name": "gpu", "count": 2, "selectors": [{"cel": IS_GPU}]},
    ]
    member = {
        "nodeSelector": {"devices": requests},
        "template": {
            "spec": {"containers": [{"name": "engine", "image": "acme/vllm:1"}]}
        },
    }
    template = {"spec": {"engines": [{"name": "main", "members": [member]}]}}
    manifest = {
        "metadata": {"name": "qwen", "namespace": "ml"},
        "spec": {"replicas": 1, "template": template},
    }
    world = fleet(cluster("eu-1", pool("h100", 1, nic(claim="Synthetic"), gpu())))
    settled(world, deployment_view(manifest))
    (entry,) = world.entries()
    spec = replica_spec(template["spec"], "eu-1", to_wire(entry)["engines"])
    rendered = render(*spec["engines"])
    assert [
        (request["name"], request["exactly"]["count"])
        for request in requests_of(rendered)
    ] == [("gpu", 2)]


def test_a_coordinating_leader_claims_nothing_but_is_placed_like_the_others() -> None:
    rendered = render(a_gang(leader={"requests": ()}))
    assert "resource-claim-main-leader" not in keys(rendered)
    assert "resource-claim-main-worker" in keys(rendered)
    spec = pod(rendered)["spec"]
    assert "resourceClaims" not in spec
    assert "claims" not in container(rendered)["resources"]
    assert spec["nodeSelector"] == {"modelplane.ai/pool": "h100"}
    assert spec["tolerations"]


def test_count_defaults_to_one_and_selectors_to_none() -> None:
    request = requests_of(
        render(
            an_engine(
                "main",
                a_member(
                    requests=[{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]
                ),
            )
        )
    )[0]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com", "count": 1}


@pytest.mark.parametrize(
    "selector",
    [{}, {"cel": ""}, {"cel": None}],
    ids=["nothing", "empty", "null"],
)
def test_a_selector_without_text_would_widen_the_claim_and_is_refused(
    selector: dict[str, Any],
) -> None:
    with pytest.raises(
        InvalidSpec, match=r"device request gpu, selectors\[0\]: cel is missing"
    ):
        render(an_engine("main", a_member(requests=[{**GPU, "selectors": [selector]}])))


@pytest.mark.parametrize(
    ("version", "request_shape"),
    [
        (
            "v1",
            {
                "name": "gpu",
                "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8},
            },
        ),
        (
            "v1beta2",
            {
                "name": "gpu",
                "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8},
            },
        ),
        ("v1beta1", {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 8}),
    ],
    ids=["v1", "v1beta2", "v1beta1 is flat"],
)
def test_older_api_versions_have_the_same_request_in_their_own_shape(
    version: str, request_shape: dict[str, Any]
) -> None:
    rendered = render(cluster=a_cluster(dra_version=version))
    assert the(rendered, KEY)["apiVersion"] == f"resource.k8s.io/{version}"
    assert requests_of(rendered) == [request_shape]
    assert (
        the(rendered, KEY)["metadata"]["name"] == the(render(), KEY)["metadata"]["name"]
    )


def test_without_dra_a_claim_is_refused_by_its_own_reason() -> None:
    with pytest.raises(
        DRAUnavailable,
        match=(
            r"cluster eu-1 serves no version of resource.k8s.io, which engine main "
            r"member Standalone"
        ),
    ) as caught:
        render(cluster=a_cluster(dra_version=""))
    assert caught.value.reason == "DRAUnavailable"


def test_a_changed_claim_is_a_new_template_and_rolls_the_pods() -> None:
    before = render(an_engine("main", a_member(requests=[{**GPU, "count": 4}])))
    after = render()
    assert the(before, KEY)["metadata"]["name"] != the(after, KEY)["metadata"]["name"]
    assert before.engines[0].template_hash != after.engines[0].template_hash
    assert before.engines[0].workload_name == after.engines[0].workload_name


def test_a_changed_image_keeps_the_claim_template() -> None:
    other = render(an_engine("main", a_member(image="acme/vllm:2")))
    assert the(other, KEY) == the(render(), KEY)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_alternatives_never_appear(version: str) -> None:
    rendered = render(a_gang(), cluster=a_cluster(dra_version=version))
    for forbidden in ("firstAvailable", "allocationMode", "adminAccess", "constraints"):
        assert forbidden not in repr(rendered.objects)


def test_a_device_plugin_request_is_a_limit_and_an_equal_request() -> None:
    plugin = {"name": "gaudi", "resourceName": "habana.ai/gaudi", "count": 8}
    rendered = render(
        an_engine("main", a_member(requests=[plugin])),
        cluster=a_cluster(dra_version=""),
    )
    resources = container(rendered)["resources"]
    assert resources["limits"] == {"habana.ai/gaudi": "8"}
    assert resources["requests"] == {
        "cpu": "100m",
        "memory": "256Mi",
        "habana.ai/gaudi": "8",
    }
    assert "claims" not in resources
    assert KEY not in keys(rendered)
    assert {
        "key": "habana.ai/gaudi",
        "operator": "Exists",
        "effect": "NoSchedule",
    } in pod(rendered)["spec"]["tolerations"]


def test_one_member_may_have_plugin_and_dra_devices() -> None:
    rendered = render(
        an_engine(
            "main",
            a_member(
                requests=[GPU, {"name": "nic", "resourceName": "acme/nic", "count": 2}]
            ),
        )
    )
    assert container(rendered)["resources"]["limits"] == {"acme/nic": "2"}
    assert container(rendered)["resources"]["claims"] == [{"name": "devices"}]
    assert [request["name"] for request in requests_of(rendered)] == ["gpu"]


def test_requests_for_one_plugin_resource_add_up() -> None:
    requests = tuple(
        DeviceRequestSpec(name, 2, resource_name="acme/nic") for name in ("a", "b")
    )
    member = MemberSpec("Standalone", "p", 1, "i", (), (), (), (), {}, {}, requests)
    assert plugin_resources(member) == {"acme/nic": "4"}


def test_device_requests_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="device request 'gpu' is used 2 times"):
        render(an_engine("main", a_member(requests=[GPU, GPU])))
