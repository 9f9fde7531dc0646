"""The definitions that Modelplane applies are those of the releases that it names.

The files are compared with the Go modules, which the testbed installs.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import activities.render
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
