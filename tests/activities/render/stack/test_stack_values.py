"""The releases of a stack, their values, and its objects."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from activities.cluster_objects.cluster_api import ObjectId
from activities.render.objects.edge import STEERING_HEADERS
from activities.render.objects.manifest import RenderOwner
from activities.render.stack import components, objects
from activities.render.stack.values import releases, values_of
from activities.stack.record import UntestedVersions, stack_record
from api_types.pins import charts
from api_types.resources.serving_stack import Listener, ServingStackSpec, StackGateway
from api_types.sections.stacks import StackSettings
from testbed.programs.install import Installer
from testbed.programs.versions import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    LEADER_WORKER_SET,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "stack"
OWNER = RenderOwner("InferenceCluster", "", "eu-1", "u-1", generation=0)
SECRET = ("eu-1", "kubeconfig")


def a_record(source: str = "Existing", **versions: str) -> ServingStackSpec:
    """Return the record of a stack with default settings."""
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


@pytest.mark.parametrize("group", objects.GROUPS)
def test_references_name_the_objects_of_a_group(group: str) -> None:
    rendered = [
        ObjectId.of(item.manifest) for item in objects.group(group, a_record(), OWNER)
    ]
    assert [
        ObjectId.of(each) for each in objects.references(group, a_record())
    ] == rendered


@pytest.mark.parametrize("source", ["Existing", "GKE"])
def test_the_releases_of_a_stack_match_their_golden_file(
    source: str,
) -> None:
    found = {key: release.wire() for key, release in releases(a_record(source)).items()}
    assert is_golden(f"releases-{source.lower()}.yaml", as_yaml(found)), (
        "see tests/golden/README.md"
    )


def test_the_objects_of_a_stack_match_their_golden_file() -> None:
    found = [
        item.manifest
        for name in objects.GROUPS
        if name != objects.CRDS
        for item in objects.group(name, a_record(), OWNER)
    ]
    assert is_golden("objects.yaml", as_yaml(*found)), "see tests/golden/README.md"


@pytest.mark.parametrize(
    ("source", "root"),
    [
        ("Existing", None),
        ("EKS", None),
        ("AKS", None),
        ("Nebius", None),
        ("Vultr", None),
        ("GKE", "/home/kubernetes/bin/nvidia"),
    ],
)
def test_the_driver_root_is_a_value_where_it_differs_and_the_quota_is_always_there(
    source: str, root: str | None
) -> None:
    record = a_record(source)
    assert values_of(components.DRA_DRIVER, record).get("nvidiaDriverRoot") == root
    (quota,) = objects.group(objects.QUOTA_GROUP, record, OWNER)
    assert (
        quota.manifest["metadata"]["namespace"] == components.DRA_DRIVER.pin.namespace
    )
    assert quota.manifest["spec"]["hard"] == {"pods": "1000"}


def test_feature_discovery_runs_on_gpu_nodes() -> None:
    tolerations = values_of(components.NODE_FEATURE_DISCOVERY, a_record())["worker"][
        "tolerations"
    ]
    assert tolerations == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


POD_SETTINGS: dict[str, Any] = {
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "priorityClassName": "infrastructure",
    "affinity": {"nodeAffinity": {}},
}


def test_the_pods_of_every_component_are_placed_by_the_settings() -> None:
    settings = StackSettings(**POD_SETTINGS)
    record = stack_record("Existing", SECRET, settings)
    for component in components.COMPONENTS:
        text = json.dumps(values_of(component, record))
        has_pods = component is not components.AI_GATEWAY_CRDS
        assert ("dedicated" in text) == has_pods, component.key
        assert ("nodeAffinity" in text) == has_pods, component.key
    without = {
        components.AI_GATEWAY,
        components.LEADER_WORKER_SET,
        components.DRA_DRIVER,
    }
    without.add(components.AI_GATEWAY_CRDS)
    for component in components.COMPONENTS:
        text = json.dumps(values_of(component, record))
        assert ("infrastructure" in text) == (component not in without), component.key
    proxy, *_ = (item.manifest for item in objects.group(objects.PROXY, record, OWNER))
    assert proxy["spec"]["provider"]["kubernetes"]["envoyDeployment"] == {
        "pod": POD_SETTINGS
    }


def test_pods_that_must_run_on_gpu_nodes_tolerate_their_taint_and_get_no_affinity() -> (
    None
):
    record = stack_record("Existing", SECRET, StackSettings(**POD_SETTINGS))
    tolerations = [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Exists"},
    ]
    for component, part in (
        (components.NODE_FEATURE_DISCOVERY, "worker"),
        (components.DRA_DRIVER, "kubeletPlugin"),
    ):
        assert values_of(component, record)[part] == {"tolerations": tolerations}


def test_values_of_a_user_replace_those_of_modelplane() -> None:
    def prometheus(**values: Any) -> Any:
        settings = StackSettings(**POD_SETTINGS, values={"prometheus": values})
        record = stack_record("Existing", SECRET, settings)
        return values_of(components.PROMETHEUS, record)

    plain = prometheus()
    resources = {"limits": {"memory": "4Gi"}}
    spec: dict[str, Any] = {
        "resources": resources,
        "tolerations": [],
        "additionalScrapeConfigs": None,
    }
    changed = prometheus(prometheus={"prometheusSpec": spec}, fullnameOverride="mine")
    assert changed == {
        **plain,
        "fullnameOverride": "mine",
        "prometheus": {
            "prometheusSpec": {**plain["prometheus"]["prometheusSpec"], **spec}
        },
    }
    # No other component changes.
    assert "fullnameOverride" not in str(values_of(components.CERT_MANAGER, a_record()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"values": {"certmanager": {}}}, "no such component; values of certManager"),
        ({"values": {"prometheus": {"a": "x" * 20_000}}}, "at most 16384 bytes"),
        (
            {"tolerations": [{"value": "a"}]},
            "needs a key, or operator: Exists",
        ),
        (
            {"tolerations": [{"operator": "Exists", "value": "a"}]},
            "with operator: Exists it has no value",
        ),
        ({"affinity": {"nodes": {}}}, "nodes: an affinity has nodeAffinity"),
        ({"priorityClassName": "A b"}, "priorityClassName"),
        ({"tolerations": [{"key": "a", "effect": "No"}]}, "effect: must be one of"),
        ({"tolerations": [{"key": "a", "operator": "In"}]}, "must be Exists or Equal"),
        ({"tolerations": [{"keys": "a"}]}, "keys: a toleration has key, operator"),
    ],
)
def test_a_setting_that_no_cluster_accepts_is_refused(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        StackSettings(**settings)


@pytest.mark.parametrize("enabled", [False, True])
def test_the_driver_serves_compute_domains_only_with_the_setting(enabled: bool) -> None:
    settings = StackSettings(compute_domains=enabled)
    values = values_of(
        components.DRA_DRIVER, stack_record("Existing", SECRET, settings)
    )
    assert values["resources"] == {"computeDomains": {"enabled": enabled}}


def test_a_client_cannot_name_the_pod_for_its_request() -> None:
    _, policy, _ = (
        item.manifest for item in objects.group(objects.PROXY, a_record(), OWNER)
    )
    removed = policy["spec"]["headers"]["earlyRequestHeaders"]["remove"]
    assert removed == [*STEERING_HEADERS, "x-session-token"]
    (gateway,) = (
        item.manifest for item in objects.group(objects.GATEWAY, a_record(), OWNER)
    )
    (target,) = policy["spec"]["targetRefs"]
    assert (target["kind"], target["name"]) == (
        gateway["kind"],
        gateway["metadata"]["name"],
    )
    assert policy["metadata"]["namespace"] == gateway["metadata"]["namespace"]


@pytest.mark.parametrize(
    ("setting", "timeout"), [({}, "3600s"), ({"longest_generation": 90}, "90s")]
)
def test_a_proxy_drains_as_long_as_the_longest_generation(
    setting: dict[str, int], timeout: str
) -> None:
    record = stack_record("Existing", SECRET, StackSettings(**setting))
    proxy, *_ = (item.manifest for item in objects.group(objects.PROXY, record, OWNER))
    assert proxy["spec"]["shutdown"] == {"drainTimeout": timeout}


def test_too_many_requests_get_503_before_the_picker_is_overloaded() -> None:
    *_, policy = (
        item.manifest for item in objects.group(objects.PROXY, a_record(), OWNER)
    )
    limits = policy["spec"]["circuitBreaker"]
    envoy_default = 1024
    assert limits["maxParallelRequests"] < envoy_default
    assert limits["maxParallelRequests"] < limits["maxConnections"]
    assert policy["kind"] == "BackendTrafficPolicy"
    assert policy["spec"]["targetRefs"][0]["name"] == "inference-gateway"


def test_both_gateways_take_messages_of_64_mib() -> None:
    record = a_record()
    envoy = values_of(components.ENVOY_GATEWAY, record)["config"]["envoyGateway"]
    assert envoy["extensionManager"]["maxMessageSize"] == "64Mi"
    extension = values_of(components.AI_GATEWAY, record)["controller"]
    assert extension == {"maxRecvMsgSize": str(64 * 1024 * 1024)}


def test_every_release_is_named_after_its_chart() -> None:
    found = releases(a_record())
    assert list(found) == [component.key for component in components.COMPONENTS]
    assert {release.name for release in found.values()} == {
        f"mp-{release.chart}" for release in found.values()
    }
    assert max(len(release.name) for release in found.values()) <= 63
    assert {pin.release for pin in charts.STACK} == {
        release.name for release in found.values()
    }


def test_a_record_without_a_kubeconfig_is_refused() -> None:
    with pytest.raises(ValidationError):
        ServingStackSpec.model_validate({"secrets": []})


def test_without_listeners_there_is_one_for_http() -> None:
    (gateway,) = objects.group(objects.GATEWAY, a_record(), OWNER)
    (listener,) = gateway.manifest["spec"]["listeners"]
    assert listener == {
        "name": "http",
        "port": 80,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }


def test_every_listener_takes_routes_of_all_namespaces() -> None:
    listeners = (
        Listener(name="web", port=8080, protocol="HTTP"),
        Listener(name="raw", port=9000, protocol="TCP"),
    )
    record = a_record().model_copy(
        update={"gateway": StackGateway(class_name="mp", listeners=listeners)}
    )
    (gateway,) = objects.group(objects.GATEWAY, record, OWNER)
    assert [
        (each["name"], each["port"], each["protocol"])
        for each in gateway.manifest["spec"]["listeners"]
    ] == [
        ("web", 8080, "HTTP"),
        ("raw", 9000, "TCP"),
    ]
    assert {
        each["allowedRoutes"]["namespaces"]["from"]
        for each in gateway.manifest["spec"]["listeners"]
    } == {"All"}
    assert gateway.manifest["spec"]["gatewayClassName"] == "mp"


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (
            "v1.7.0",
            "cannot route to an InferencePool: set stack.versions.envoyGateway to v1.8 or newer",
        ),
        ("v0.9.1", "cannot route to an InferencePool"),
        ("v1.9.0", "was not tested with AI gateway v0.7.0, but v1.8 was"),
    ],
)
def test_an_incompatible_version_of_envoy_gateway_is_refused(
    version: str, says: str
) -> None:
    with pytest.raises(
        UntestedVersions, match=f"ChartInvalid: Envoy Gateway {version} {says}"
    ):
        a_record(envoyGateway=version)


@pytest.mark.parametrize("version", ["v1.8.0", "v1.8.9", "1.8.2"])
def test_a_patch_release_of_envoy_gateway_is_accepted(version: str) -> None:
    assert releases(a_record(envoyGateway=version))["envoy-gateway"].version == version


def test_a_setting_changes_the_pins_of_the_record() -> None:
    versions = dict.fromkeys(charts.CHANGEABLE, "9.9.9")
    settings = StackSettings(versions=versions, allow_untested_pair=True)
    found = releases(stack_record("Existing", SECRET, settings))
    assert {release.version for release in found.values()} == {"9.9.9"}
    assert list(found) == [component.key for component in components.COMPONENTS]


def test_every_part_of_a_stack_has_a_version_and_values() -> None:
    keys = {component.settings_key for component in components.COMPONENTS}
    assert keys == set(charts.VALUES)
    fields = ServingStackSpec.model_validate(
        {"secrets": [{"type": "Kubeconfig", "name": "a", "key": "b"}], "versions": {}}
    )
    assert fields.versions
    assert fields.versions.model_dump(by_alias=True) == charts.VERSIONS
    assert keys - {"aiGatewayCrds"} == set(charts.CHANGEABLE)


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ({"envoy": "v1.8.1"}, "no such component"),
        ({"prometheus": "newest"}, "is not a version"),
        ({"prometheus": "1.2.3;x"}, "is not"),
        (
            {"inferenceExtension": "v1.0.1"},
            "this release contains the definitions of v1.5.0, not of v1.0.1",
        ),
    ],
)
def test_a_setting_that_pins_no_version_is_refused(
    versions: dict[str, str], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        StackSettings(versions=versions)


@pytest.mark.slow
def test_the_definitions_belong_to_the_release_in_their_annotations() -> None:
    folder = Installer().definitions("inference-extension") / "config" / "crd" / "bases"
    published = {}
    for path in folder.glob("*.json"):
        for document in YAML(typ="safe", pure=True).load_all(path.read_text()):
            for tree in document if isinstance(document, list) else [document]:
                published[tree["metadata"]["name"]] = tree["spec"]
    ours = {
        item.manifest["metadata"]["name"]: item.manifest["spec"]
        for item in objects.group(objects.CRDS, a_record(), OWNER)
    }
    assert ours == published


def test_the_testbed_has_the_versions_of_the_stack() -> None:
    installed = {
        charts.INFERENCE_EXTENSION_VERSION: INFERENCE_EXTENSION,
        charts.GATEWAY_API_VERSION: GATEWAY_API,
        charts.LEADER_WORKER_SET.version: LEADER_WORKER_SET,
    }
    for pinned, version in installed.items():
        assert pinned.removeprefix("v") == version


def test_every_object_has_the_marks_of_its_owner() -> None:
    for name in objects.GROUPS:
        for item in objects.group(name, a_record(), OWNER):
            metadata = item.manifest["metadata"]
            assert metadata["labels"]["app.kubernetes.io/managed-by"] == "modelplane"
            assert metadata["annotations"]["modelplane.ai/owner-uid"] == OWNER.uid
            assert "status" not in item.manifest


def test_the_definitions_keep_the_approval_without_which_an_api_server_refuses_them() -> (
    None
):
    found = {
        item.manifest["metadata"]["name"]: item.manifest["metadata"]["annotations"]
        for item in objects.group("inference-crds", a_record(), OWNER)
    }
    assert set(found) == set(objects.INFERENCE_CRDS)
    assert found[objects.INFERENCE_POOL_CRD]["api-approved.kubernetes.io"].startswith(
        "https://"
    )


def test_an_untested_pair_may_be_allowed_but_an_incompatible_pair_may_not() -> None:
    def record(version: str) -> ServingStackSpec:
        settings = StackSettings(
            versions={"envoyGateway": version}, allow_untested_pair=True
        )
        return stack_record("Existing", ("eu", "kubeconfig"), settings)

    assert releases(record("v1.9.0"))["envoy-gateway"].version == "v1.9.0"
    with pytest.raises(UntestedVersions, match="cannot route to an InferencePool"):
        record("v1.7.0")
