"""Definitions of other projects, adapted to run outside their usual installation.

LeaderWorkerSet's webhooks point at a Service inside the cluster. In the testbed its
controller runs next to the API server, so the webhooks point at its loopback port and
trust the cluster's own authority.
"""

import base64
from pathlib import Path
from typing import Any

from testbed.documents import read_json

Document = dict[str, Any]


# Places of a JSON Schema that hold schemas: by name, alone and in a list.
_NAMED, _ALONE, _LISTED = (
    ("properties", "patternProperties", "definitions"),
    ("items", "additionalProperties", "not"),
    ("allOf", "anyOf", "oneOf"),
)


def custom_resources(folder: Path) -> list[Document]:
    """Return every CustomResourceDefinition below a folder, without descriptions.

    Descriptions are three quarters of a definition, and an API server parses each
    definition many times while it starts. What it accepts does not depend on them.
    """
    documents = (
        document
        for path in sorted(folder.rglob("*.json"))
        for document in read_json(path)
    )
    # A kustomize patch is a list. Everything else is a document with a kind.
    found = [
        document
        for document in documents
        if isinstance(document, dict) and document["kind"] == "CustomResourceDefinition"
    ]
    for definition in found:
        for version in definition["spec"]["versions"]:
            schema = version.get("schema") or {}
            for key, described in schema.items():
                schema[key] = _without_descriptions(described)
    return found


def _without_descriptions(schema: Document) -> Document:
    kept = {
        key: value
        for key, value in schema.items()
        if key != "description" or not isinstance(value, str)
    }
    for key in filter(kept.get, _NAMED):
        kept[key] = {
            name: _without_descriptions(each) for name, each in kept[key].items()
        }
    for key in _ALONE:
        if isinstance(kept.get(key), dict):
            kept[key] = _without_descriptions(kept[key])
    for key in filter(kept.get, _LISTED):
        kept[key] = [_without_descriptions(each) for each in kept[key]]
    return kept


def lws_webhooks(folder: Path, port: int, ca: Path) -> list[Document]:
    """Return LeaderWorkerSet's webhooks for a controller on a loopback port."""
    configurations: list[Document] = read_json(folder / "config/webhook/manifests.json")
    bundle = base64.b64encode(ca.read_bytes()).decode()
    for configuration in configurations:
        kind = (
            "mutating" if configuration["kind"].startswith("Mutating") else "validating"
        )
        # LeaderWorkerSet's own patches restrict the pod webhook to pods of
        # LeaderWorkerSets. Without the patches no pod could be created while the
        # controller is down.
        for step in read_json(folder / f"config/webhook/{kind}-patch.json")[0]:
            _replace(configuration, step)
        configuration["metadata"]["name"] = f"lws-{kind}"
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{port}{path}",
                "caBundle": bundle,
            }
    return configurations


def _replace(document: Document, step: Document) -> None:
    if step["op"] != "replace":
        raise ValueError(
            f"LeaderWorkerSet's webhook patch has the operation {step['op']}, "
            "only replace is known; see webhooks.py"
        )
    *path, last = step["path"].strip("/").split("/")
    place: Any = document
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = step["value"]
