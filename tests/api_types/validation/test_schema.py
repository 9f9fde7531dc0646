"""The exported JSON Schema agrees with the models."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from api_types.resources.kinds import KINDS
from api_types.validation import schema as exported
from api_types.validation.manifests import parse
from tests.api_types.builders import a_replica, a_stack
from tests.api_types.validation.extensions import EXTENSIONS, Extension

PATH = Path(__file__).parents[1] / "data" / "examples.yaml"
# The last example has the flat shape, which is accepted but is not in the schema.
DOCUMENTS = [
    *map(dict, parse(PATH.read_text(), PATH.name)[:-1]),
    a_replica(),
    a_stack(),
]

# No test changes a schema, and creating one takes tens of milliseconds.
json_schema = cache(exported.json_schema)
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}


def violations(schema: dict[str, Any], value: Any, at: str = "$") -> list[str]:
    """Check a value against the parts of JSON Schema that the export uses."""
    if "anyOf" in schema:
        return (
            []
            if any(not violations(one, value, at) for one in schema["anyOf"])
            else [f"{at}: none of anyOf"]
        )
    found = []
    if "type" in schema and (
        not isinstance(value, TYPES[schema["type"]])
        or (schema["type"] == "integer" and isinstance(value, bool))
    ):
        return [f"{at}: not {schema['type']}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: not in enum")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [
            f"{at}.{name}: missing"
            for name in schema.get("required", ())
            if name not in value
        ]
        rest = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in properties:
                found += violations(properties[name], item, f"{at}.{name}")
            elif rest is False:
                found.append(f"{at}.{name}: unknown")
            elif isinstance(rest, dict):
                found += violations(rest, item, f"{at}.{name}")
    if isinstance(value, list):
        found += [
            one
            for index, item in enumerate(value)
            for one in violations(schema["items"], item, f"{at}[{index}]")
        ]
        found += (
            [f"{at}: length"]
            if not schema.get("minItems", 0)
            <= len(value)
            <= schema.get("maxItems", len(value))
            else []
        )
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(
        value
    ) <= schema.get("maxLength", len(value)):
        found.append(f"{at}: length")
    if isinstance(value, int) and not schema.get(
        "minimum", value
    ) <= value <= schema.get("maximum", value):
        found.append(f"{at}: range")
    return found


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_an_example_fits_the_schema_of_its_kind(document: dict[str, Any]) -> None:
    assert violations(json_schema(document["kind"]), document) == []


def nodes(tree: Any, at: str = "$") -> list[tuple[str, dict[str, Any]]]:
    """Return every field of a schema with its path."""
    if not isinstance(tree, dict):
        return []
    below = [
        (f"{at}.{name}", field) for name, field in tree.get("properties", {}).items()
    ]
    below += [
        (f"{at}[]", tree[key])
        for key in ("items", "additionalProperties")
        if isinstance(tree.get(key), dict)
    ]
    return [
        (at, tree),
        *(found for path, field in below for found in nodes(field, path)),
    ]


@pytest.mark.parametrize("kind", [info.kind for info in KINDS])
def test_every_field_is_described_and_nothing_points_elsewhere(kind: str) -> None:
    found = nodes(json_schema(kind))
    assert [
        path
        for path, node in found
        if "description" not in node and not path.endswith("[]") and path != "$"
    ] == []
    assert [path for path, node in found if "\n" in node.get("description", "")] == []
    assert [
        path
        for path, node in found
        if "$ref" in node
        or "$defs" in node
        or {"type": "null"} in node.get("anyOf", ())
    ] == []


BOUNDS: list[tuple[str, str, dict[str, Any]]] = [
    ("md", "$.spec.replicas", {"type": "integer", "minimum": 0, "maximum": 1000}),
    (
        "md",
        "$.spec.template.spec.engines",
        {"minItems": 1, "maxItems": 8, "x-kubernetes-list-map-keys": ["name"]},
    ),
    ("md", "$.spec.template.spec.engines[].members", {"minItems": 1, "maxItems": 2}),
    (
        "md",
        "$.spec.template.spec.engines[].members[].worker.nodes",
        {"minimum": 1, "maximum": 63},
    ),
    (
        "md",
        "$.spec.template.spec.serving.mode",
        {"enum": ["Unified", "PrefillDecode"], "default": "Unified"},
    ),
    (
        "md",
        "$.spec.template.spec.engines[].members[].template.spec.containers[].name",
        {"enum": ["engine"]},
    ),
    ("md", "$.spec.rollout.maxUnavailable", {"x-kubernetes-int-or-string": True}),
    (
        "ic",
        "$.spec.taints",
        {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key", "effect"],
        },
    ),
    (
        "ic",
        "$.spec.nodePools[].capacityBlock.capacityReservationId",
        {"pattern": "^cr-[0-9a-f]+$", "minLength": 4, "maxLength": 64},
    ),
    ("icl", "$.spec.devices[].attributes", {"maxProperties": 32, "type": "object"}),
    ("icl", "$.spec.devices[].attributes[].bool", {"type": "boolean"}),
    ("mc", "$.spec.huggingFace.sizeGiB", {"minimum": 1, "maximum": 100000}),
    ("ss", "$.spec.versions.envoyGateway", {"default": "v1.8.1", "maxLength": 32}),
    ("ss", "$.apiVersion", {"enum": ["infrastructure.modelplane.ai/v1alpha1"]}),
    (
        "ms",
        "$.spec.endpoints[].weight",
        {"default": 1, "minimum": 1, "maximum": 1000000},
    ),
]


@pytest.mark.parametrize(
    ("kind", "path", "want"), BOUNDS, ids=[f"{kind} {path}" for kind, path, _ in BOUNDS]
)
def test_the_schema_carries_bounds_choices_and_list_keys(
    kind: str, path: str, want: dict[str, Any]
) -> None:
    node = dict(nodes(json_schema(kind)))[path]
    assert {key: node.get(key) for key in want} == want


@pytest.mark.parametrize(
    "extension", EXTENSIONS, ids=lambda one: f"{one.kind} {one.path}"
)
def test_every_extension_is_in_the_schema(extension: Extension) -> None:
    found = dict(nodes(json_schema(extension.kind)))
    path, _, field = f"$.{extension.path}".rpartition(".")
    assert field in found[path]["properties"]
    if extension.change == "choice":
        assert extension.what in found[f"{path}.{field}"]["enum"]
    else:
        assert extension.change == "bound" or field not in found[path].get(
            "required", ()
        )


def test_fields_outside_status_and_metadata_are_closed() -> None:
    schema = json_schema("md")
    assert violations(schema, {"apiVersion": "x"}) != []
    open_objects = [
        path
        for path, node in nodes(schema)
        if "properties" in node
        and node.get("additionalProperties") is not False
        and not path.startswith(("$.status", "$.metadata"))
    ]
    assert open_objects == []
