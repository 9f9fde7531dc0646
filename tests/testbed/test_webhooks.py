"""Definitions of other projects, as the testbed applies them."""

from pathlib import Path
from typing import Any

from testbed.cluster.webhooks import custom_resources
from testbed.documents import write_json


def test_definitions_lose_their_descriptions_and_keep_fields_of_that_name(
    tmp_path: Path,
) -> None:
    described = {"type": "string", "description": "d"}
    schema = {
        "description": "d",
        "type": "object",
        "properties": {
            "description": described,
            "list": {"items": {"anyOf": [described], "not": described}},
            "map": {"additionalProperties": described, "default": {"description": "d"}},
        },
    }
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    definition = {"kind": "CustomResourceDefinition", "spec": {"versions": [version]}}
    write_json(tmp_path / "one.json", [definition, {"kind": "Other"}])

    (found,) = custom_resources(tmp_path)

    plain: dict[str, Any] = {"type": "string"}
    assert found["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "properties": {
            "description": plain,
            "list": {"items": {"anyOf": [plain], "not": plain}},
            "map": {"additionalProperties": plain, "default": {"description": "d"}},
        },
    }
