"""What is installed with which values: spec/stack-and-routing.md 2.1 to 2.4 and 2.9."""

import io
import os
from pathlib import Path

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from activities.render.objects.manifest import Owner
from activities.render.stack import components, objects
from activities.render.stack.values import releases, values_of
from activities.stack.record import UntestedVersions, stack_record
from api_types.pins import charts
from api_types.resources.serving_stack import Listener, ServingStackSpec, StackGateway
from api_types.settings import StackSettings
from testbed.programs.install import Installer
from testbed.programs.versions import INFERENCE_EXTENSION

GOLDEN = Path(__file__).parents[3] / "golden" / "stack"
OWNER = Owner("InferenceCluster", "", "eu-1", "u-1", generation=0)
SECRET = ("eu-1", "kubeconfig")


def a_record(source: str = "Existing", **versions: str) -> ServingStackSpec:
    """The record of a stack with default settings."""
    return stack_record(source, SECRET, StackSettings(versions=versions))


def as_yaml(*documents: object) -> str:
    yaml, text = YAML(), io.StringIO()
    yaml.width = 1000
    yaml.dump_all(documents, text)
    return text.getvalue()


def is_golden(name: str, text: str) -> bool:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    return text == path.read_text()


@pytest.mark.parametrize("source", ["Existing", "GKE"])
def test_stk_16_the_releases_of_a_stack_are_those_of_their_golden_file(source: str) -> None:
    found = {key: release.wire() for key, release in releases(a_record(source)).items()}
    assert is_golden(f"releases-{source.lower()}.yaml", as_yaml(found)), "see tests/golden/README.md"


def test_stk_16_the_objects_of_a_stack_are_those_of_their_golden_file() -> None:
    found = [item.manifest for name in objects.GROUPS if name != objects.CRDS for item in objects.group(name, a_record(), OWNER)]
    assert is_golden("objects.yaml", as_yaml(*found)), "see tests/golden/README.md"


@pytest.mark.parametrize(
    ("source", "root"),
    [("Existing", None), ("EKS", None), ("AKS", None), ("Nebius", None), ("Vultr", None), ("GKE", "/home/kubernetes/bin/nvidia")],
)
def test_stk_19_20_the_driver_root_is_a_value_where_it_differs_and_the_quota_is_always_there(source: str, root: str | None) -> None:
    record = a_record(source)
    assert values_of(components.DRA_DRIVER, record).get("nvidiaDriverRoot") == root
    (quota,) = objects.group(objects.QUOTA_GROUP, record, OWNER)
    assert quota.manifest["metadata"]["namespace"] == components.DRA_DRIVER.pin.namespace
    assert quota.manifest["spec"]["hard"] == {"pods": "1000"}


def test_stk_21_feature_discovery_runs_on_gpu_nodes() -> None:
    tolerations = values_of(components.NODE_FEATURE_DISCOVERY, a_record())["worker"]["tolerations"]
    assert tolerations == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_a_client_cannot_name_the_pod_for_its_request() -> None:
    _, policy = (item.manifest for item in objects.group(objects.PROXY, a_record(), OWNER))
    assert set(policy["spec"]["headers"]["earlyRequestHeaders"]["remove"]) == {
        "x-prefiller-host-port",
        "x-encoder-hosts-ports",
        "x-data-parallel-host-port",
        "x-gateway-destination-endpoint",
    }
    (gateway,) = (item.manifest for item in objects.group(objects.GATEWAY, a_record(), OWNER))
    (target,) = policy["spec"]["targetRefs"]
    assert (target["kind"], target["name"]) == (gateway["kind"], gateway["metadata"]["name"])
    assert policy["metadata"]["namespace"] == gateway["metadata"]["namespace"]


@pytest.mark.parametrize(("setting", "timeout"), [({}, "3600s"), ({"longest_generation": 90}, "90s")])
def test_a_proxy_drains_as_long_as_the_longest_generation(setting: dict[str, int], timeout: str) -> None:
    record = stack_record("Existing", SECRET, StackSettings(**setting))
    proxy, _ = (item.manifest for item in objects.group(objects.PROXY, record, OWNER))
    assert proxy["spec"]["shutdown"] == {"drainTimeout": timeout}


def test_both_gateways_take_messages_of_64_mib() -> None:
    record = a_record()
    envoy = values_of(components.ENVOY_GATEWAY, record)["config"]["envoyGateway"]
    assert envoy["extensionManager"]["maxMessageSize"] == "64Mi"
    extension = values_of(components.AI_GATEWAY, record)["controller"]
    assert extension == {"maxRecvMsgSize": str(64 * 1024 * 1024)}


def test_stk_22_every_release_is_named_after_its_chart() -> None:
    found = releases(a_record())
    assert list(found) == [component.key for component in components.COMPONENTS]
    assert {release.name for release in found.values()} == {f"mp-{release.chart}" for release in found.values()}
    assert max(len(release.name) for release in found.values()) <= 63
    assert {pin.release for pin in charts.STACK} == {release.name for release in found.values()}


def test_stk_28_a_record_without_a_kubeconfig_is_refused() -> None:
    with pytest.raises(ValidationError):
        ServingStackSpec.model_validate({"secrets": []})


def test_stk_30_without_listeners_there_is_one_for_http() -> None:
    (gateway,) = objects.group(objects.GATEWAY, a_record(), OWNER)
    (listener,) = gateway.manifest["spec"]["listeners"]
    assert listener == {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}


def test_stk_30_every_listener_takes_routes_of_all_namespaces() -> None:
    listeners = (Listener(name="web", port=8080, protocol="HTTP"), Listener(name="raw", port=9000, protocol="TCP"))
    record = a_record().model_copy(update={"gateway": StackGateway(class_name="mp", listeners=listeners)})
    (gateway,) = objects.group(objects.GATEWAY, record, OWNER)
    assert [(each["name"], each["port"], each["protocol"]) for each in gateway.manifest["spec"]["listeners"]] == [
        ("web", 8080, "HTTP"),
        ("raw", 9000, "TCP"),
    ]
    assert {each["allowedRoutes"]["namespaces"]["from"] for each in gateway.manifest["spec"]["listeners"]} == {"All"}
    assert gateway.manifest["spec"]["gatewayClassName"] == "mp"


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("v1.7.0", "routes to no InferencePool; v1.8 is the oldest that does"),
        ("v0.9.1", "routes to no InferencePool"),
        ("v1.9.0", "was not tested with AI gateway v0.7.0, v1.8 was"),
    ],
)
def test_stk_33_a_version_of_envoy_gateway_that_cannot_work_is_refused(version: str, says: str) -> None:
    with pytest.raises(UntestedVersions, match=f"ChartInvalid: Envoy Gateway {version} {says}"):
        a_record(envoyGateway=version)


@pytest.mark.parametrize("version", ["v1.8.0", "v1.8.9", "1.8.2"])
def test_stk_33_a_patch_release_of_envoy_gateway_is_taken(version: str) -> None:
    assert releases(a_record(envoyGateway=version))["envoy-gateway"].version == version


def test_the_pins_that_a_setting_changes_are_those_of_the_record() -> None:
    versions = {name: "9.9.9" for name in charts.CHANGEABLE if name != "envoyGateway"}
    found = releases(a_record(**versions))
    changed = {key for key, release in found.items() if release.version == "9.9.9"}
    assert changed == {component.key for component in components.COMPONENTS if component.version_field} - {"envoy-gateway"}


@pytest.mark.parametrize(
    ("versions", "says"),
    [({"envoy": "v1.8.1"}, "no such component"), ({"prometheus": "newest"}, "is not a version"), ({"prometheus": "1.2.3;x"}, "is not")],
)
def test_a_setting_that_pins_no_version_is_refused(versions: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        StackSettings(versions=versions)


@pytest.mark.slow
def test_the_definitions_are_those_of_the_release_that_they_say() -> None:
    folder = Installer().definitions("inference-extension") / "config" / "crd" / "bases"
    published = {}
    for path in folder.glob("*.json"):
        for document in YAML(typ="safe", pure=True).load_all(path.read_text()):
            for tree in document if isinstance(document, list) else [document]:
                published[tree["metadata"]["name"]] = tree["spec"]
    ours = {item.manifest["metadata"]["name"]: item.manifest["spec"] for item in objects.group(objects.CRDS, a_record(), OWNER)}
    assert ours == published
    assert f"v{INFERENCE_EXTENSION}" == charts.INFERENCE_EXTENSION_VERSION


def test_every_object_has_the_marks_of_its_owner() -> None:
    for name in objects.GROUPS:
        for item in objects.group(name, a_record(), OWNER):
            metadata = item.manifest["metadata"]
            assert metadata["labels"]["app.kubernetes.io/managed-by"] == "modelplane"
            assert metadata["annotations"]["modelplane.ai/owner-uid"] == OWNER.uid
            assert "status" not in item.manifest


def test_the_definitions_keep_the_approval_without_which_an_api_server_refuses_them() -> None:
    found = {
        item.manifest["metadata"]["name"]: item.manifest["metadata"]["annotations"]
        for item in objects.group("inference-crds", a_record(), OWNER)
    }
    assert set(found) == set(objects.INFERENCE_CRDS)
    assert found[objects.INFERENCE_POOL_CRD]["api-approved.kubernetes.io"].startswith("https://")


def test_a_pair_that_was_not_tested_may_be_allowed_and_one_that_cannot_work_not() -> None:
    def record(version: str) -> ServingStackSpec:
        settings = StackSettings(versions={"envoyGateway": version}, allow_untested_pair=True)
        return stack_record("Existing", ("eu", "kubeconfig"), settings)

    assert releases(record("v1.9.0"))["envoy-gateway"].version == "v1.9.0"
    with pytest.raises(UntestedVersions, match="routes to no InferencePool"):
        record("v1.7.0")
