"""The kinds as CustomResourceDefinitions, generated from the same models as the front."""

from typing import Any

from api_types.resources.kinds import SERVED, KindInfo, columns_of
from api_types.validation.schema import json_schema
from front.serving.reads.tables import WIDE

Json = dict[str, Any]
CATEGORY = "modelplane"
# A structural schema has no other keyword of the models' schemas. Patterns stay with the
# front, because Python and Go read patterns differently.
_KEPT = (
    "type",
    "description",
    "default",
    "enum",
    "required",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-int-or-string",
)


def definitions() -> list[Json]:
    """Return the definition of each kind that the front serves."""
    return [a_definition(info) for info in SERVED]


def a_definition(info: KindInfo) -> Json:
    """Return the definition of a kind, with its columns, names and subresources."""
    spec = json_schema(info.kind)["properties"]["spec"]
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": _structural(spec),
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    subresources: Json = {"status": {}}
    if info.scale:
        subresources["scale"] = {
            "specReplicasPath": info.scale.spec,
            "statusReplicasPath": info.scale.status,
            "labelSelectorPath": info.scale.selector,
        }
    version = {
        "name": info.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": _columns(info),
    }
    names = {
        "kind": info.kind,
        "listKind": f"{info.kind}List",
        "plural": info.plural,
        "singular": info.singular,
        "shortNames": [info.short],
        "categories": [CATEGORY],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{info.plural}.{info.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": info.group,
            "names": names,
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _columns(info: KindInfo) -> list[Json]:
    """Return the printer columns; a definition allows one path for each."""
    shown = [
        {
            "name": column.title.title(),
            "type": "string",
            "jsonPath": column.paths[0],
            "priority": int(column in WIDE),
        }
        for column in (*columns_of(info), *WIDE)
    ]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return [*shown, age]


def _structural(node: Json) -> Json:
    result = {key: node[key] for key in _KEPT if key in node}
    if "properties" in node:
        result["properties"] = {
            name: _structural(held) for name, held in node["properties"].items()
        }
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(node["additionalProperties"])
    if "items" in node:
        keys = node.get("x-kubernetes-list-map-keys", [])
        items = _structural(node["items"])
        missing = [key for key in keys if "default" not in items["properties"][key]]
        required = dict.fromkeys([*items.get("required", []), *missing])
        # Keys of a list that is a map must be required or have a default.
        result["items"] = items | ({"required": list(required)} if required else {})
    return result
