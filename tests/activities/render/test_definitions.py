"""The definitions that Modelplane applies are those of the releases that it names.

The files are compared with the Go modules, which the testbed installs.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import activities.render
from activities.render.gateway import objects
from testbed.documents import load_all
from testbed.programs.install import Installer

pytestmark = [pytest.mark.slow, pytest.mark.testbed("shared")]

RENDER = Path(activities.render.__file__).parent


def without_descriptions(tree: Any) -> Any:
    """Return a schema without the texts; a field may be named `description`."""
    if isinstance(tree, list):
        return [without_descriptions(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: without_descriptions(value)
        for key, value in tree.items()
        if not (key == "description" and isinstance(value, str))
    }


def released(name: str) -> dict[str, Any]:
    """Return the definitions of a module by name, without their descriptions."""
    found = {}
    for path in sorted(Installer().definitions(name).rglob("*.json")):
        for document in json.loads(path.read_text()):
            if document and document.get("kind") == "CustomResourceDefinition":
                found[document["metadata"]["name"]] = without_descriptions(document)
    return found


@pytest.mark.parametrize(
    ("folder", "module"),
    [("gateway", "gateway-api"), ("stack", "inference-extension")],
)
def test_definitions_equal_those_of_their_release(folder: str, module: str) -> None:
    modules = released(module)
    files = sorted((RENDER / folder / "crds").glob("*.json"))
    assert files
    for path in files:
        applied = without_descriptions(json.loads(path.read_text()))
        wanted = modules[applied["metadata"]["name"]]
        assert applied["spec"] == wanted["spec"], path.name
        annotations = wanted["metadata"]["annotations"]
        assert applied["metadata"]["annotations"] == annotations, path.name


def test_the_control_cluster_keeps_the_standard_channel_with_envoy_gateway() -> None:
    chart = Installer().envoy_gateway_chart() / "charts" / "crds" / "crds"
    of_chart = [
        each
        for path in sorted(chart.rglob("*.yaml"))
        for each in load_all(path.read_text())
        if each
    ]
    channel = "gateway.networking.k8s.io/channel"
    definitions = objects.envoy_definitions(of_chart)
    assert {
        each["metadata"]["annotations"].get(channel, each["spec"]["group"])
        for each in definitions
    } == {"standard", "gateway.envoyproxy.io"}
    names = {each["metadata"]["name"].partition(".")[0] for each in definitions}
    # Envoy Gateway does not start without these kinds of the Gateway API.
    assert names >= {
        *("gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes"),
        *("tlsroutes", "referencegrants", "backendtlspolicies"),
        *("backends", "backendtrafficpolicies", "envoyproxies", "httproutefilters"),
    }
