"""The rendered objects of each topology, as files to read in review.

tests/golden/README.md says how to update them.
"""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from activities.render.objects.manifest import Json, RenderedObject
from activities.render.objects.rendered import Rendered
from activities.render.version import RENDERER_VERSION
from api_types import labels
from api_types.digests import short_hash
from tests.activities.render.topologies import TOPOLOGIES

GOLDEN = Path(__file__).parents[2] / "golden"


def written(rendered: Rendered) -> str:
    """Return all objects as one YAML text, with copies of Secrets (without their data)."""
    yaml = YAML()
    yaml.width = 1000
    yaml.representer.ignore_aliases = lambda _: True
    text = io.StringIO()
    manifests = [copy.manifest for copy in rendered.copies] + [
        item.manifest for item in rendered.objects
    ]
    yaml.dump_all([_readable(manifest) for manifest in manifests], text)
    return text.getvalue()


def _readable(value: object) -> object:
    if isinstance(value, str) and "\n" in value:
        return LiteralScalarString(value)
    if isinstance(value, dict):
        return {name: _readable(inner) for name, inner in value.items()}
    return [_readable(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_renders_its_golden_file(name: str) -> None:
    path, text = GOLDEN / f"{name}.yaml", written(TOPOLOGIES[name]())
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "see tests/golden/README.md"


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_rendered_objects_have_no_field_of_the_api_server_and_no_null(
    name: str,
) -> None:
    rendered = TOPOLOGIES[name]()
    for manifest in [
        *(copy.manifest for copy in rendered.copies),
        *(item.manifest for item in rendered.objects),
    ]:
        assert {"apiVersion", "kind", "metadata"} <= manifest.keys()
        assert "status" not in manifest
        assert {
            "managedFields",
            "resourceVersion",
            "uid",
            "generation",
            "creationTimestamp",
        }.isdisjoint(manifest["metadata"])
        assert list(_nulls(manifest, "")) == []


def _nulls(value: object, at: str) -> Iterator[str]:
    if value is None:
        yield at
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _nulls(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _nulls(inner, f"{at}[]")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_golden_file_reads_back_as_the_rendered_objects(name: str) -> None:
    rendered = TOPOLOGIES[name]()
    documents = list(
        YAML(typ="safe", pure=True).load_all((GOLDEN / f"{name}.yaml").read_text())
    )
    manifests: list[Json] = [copy.manifest for copy in rendered.copies] + [
        item.manifest for item in rendered.objects
    ]
    assert documents == manifests


def pod_templates() -> dict[str, str]:
    """Return a hash of all pod templates of each topology."""
    rendered = {
        name: [
            item.manifest["spec"]
            for item in make().objects
            if labels.PODS_SOURCE in annotations(item)
        ]
        for name, make in TOPOLOGIES.items()
    }
    return {
        name: short_hash(
            [spec.get("template", spec.get("leaderWorkerTemplate")) for spec in specs]
        )
        for name, specs in rendered.items()
        if specs
    }


def annotations(item: RenderedObject) -> Json:
    found: Json = item.manifest["metadata"]["annotations"]
    return found


def test_changed_pods_need_another_version_of_the_renderer() -> None:
    """Users see this version where a change waits for their consent.

    A change of pods without a new version would have the wrong name.
    """
    path, rendered = GOLDEN / "renderer.json", pod_templates()
    stored = json.loads(path.read_text())
    known = {
        name: template for name, template in rendered.items() if name in stored["pods"]
    }
    same = stored["renderer"] == RENDERER_VERSION
    if os.environ.get("UPDATE_GOLDEN") and (not same or stored["pods"] == known):
        path.write_text(
            json.dumps({"renderer": RENDERER_VERSION, "pods": rendered}, indent=2)
            + "\n"
        )
        return
    assert not same or stored["pods"] == known, (
        "raise RENDERER_VERSION of activities/render/version.py; then see tests/golden/README.md"
    )
    assert stored == {"renderer": RENDERER_VERSION, "pods": rendered}, (
        "see tests/golden/README.md"
    )


def test_every_golden_file_has_its_topology() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(TOPOLOGIES)
