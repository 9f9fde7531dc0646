"""Public engine manifests get the verdict that stands beside each of them.

Each entry of `tests/data/engines/*.yaml` has the facts of one public manifest, rewritten
as an engine of a deployment, and the place where it was published.
"""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from api_types.validation.manifests import InvalidManifest, admit
from fleet_client.checks import CHECKS

FOLDER = Path(__file__).parents[2] / "data" / "engines"
CORPUS: list[dict[str, Any]] = [
    entry
    for path in sorted(FOLDER.glob("*.yaml"))
    for entry in YAML(typ="safe").load(path.read_text())
]


def _container(entry: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "engine", "image": entry["image"]}
    container |= {part: entry[part] for part in ("command", "args") if part in entry}
    if "env" in entry:
        container["env"] = [
            {"name": name, "value": value} for name, value in entry["env"].items()
        ]
    return container


def _member(entry: dict[str, Any]) -> dict[str, Any]:
    request = {
        "name": "gpu",
        "count": entry["devices"],
        "selectors": [{"cel": "true"}],
    }
    return {
        "nodeSelector": {"devices": [request]},
        "template": {"spec": {"containers": [_container(entry)]}},
    }


def a_deployment(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the deployment of one entry."""
    member = _member(entry)
    members = [member]
    if "workers" in entry:
        worker = {**member, "role": "Worker", "worker": {"nodes": entry["workers"]}}
        members = [{**member, "role": "Leader"}, worker]
    engine: dict[str, Any] = {"name": "main", "members": members}
    if "profile" in entry:
        engine["profile"] = entry["profile"]
    if "adapters" in entry:
        engine["adapters"] = [
            {"name": name, "modelCacheRef": {"name": name}}
            for name in entry["adapters"]
        ]
    template: dict[str, Any] = {"engines": [engine]}
    if entry.get("cache"):
        template["modelCacheRef"] = {"name": "weights"}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": entry["name"], "namespace": "ml"},
        "spec": {"replicas": 1, "template": {"spec": template}},
    }


def verdict(document: dict[str, Any]) -> tuple[str, str]:
    """Return `ok`, `warning` or `refused`, and the text of all findings."""
    try:
        admitted = admit(document, CHECKS)
    except InvalidManifest as error:
        return "refused", str(error)
    found = [text for text in admitted.warnings if "containers[0]" in text]
    return ("warning" if found else "ok"), "\n".join(found)


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry["name"])
def test_a_public_manifest_gets_its_verdict(entry: dict[str, Any]) -> None:
    found, text = verdict(a_deployment(entry))
    assert found == entry["verdict"], text
    assert entry.get("says", "") in text


def test_the_corpus_has_sixty_manifests_with_sources_and_every_verdict() -> None:
    assert len(CORPUS) >= 60
    assert len({entry["name"] for entry in CORPUS}) == len(CORPUS)
    assert all(entry["source"] for entry in CORPUS)
    assert {entry["verdict"] for entry in CORPUS} == {"ok", "warning", "refused"}


@pytest.mark.parametrize(
    "entry",
    [entry for entry in CORPUS if entry["verdict"] == "refused"],
    ids=lambda entry: entry["name"],
)
def test_the_annotation_turns_a_refusal_into_a_warning(entry: dict[str, Any]) -> None:
    document = a_deployment(entry)
    document["metadata"]["annotations"] = {"modelplane.ai/engine-checks": "Warn"}
    found, text = verdict(document)
    assert found == "warning"
    assert entry["says"] in text
