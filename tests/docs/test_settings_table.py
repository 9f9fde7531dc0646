"""README's table of settings: a row for each setting, with the default of the code."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from api_types.settings import Settings

README = Path(__file__).parents[2] / "README.md"
ROW = re.compile(r"\| `([a-z][A-Za-z0-9]*\.[A-Za-z]+)` \|([^|]*)\|")
# Defaults that README tells in words.
IN_WORDS = {
    "front.requestHeaderNames": "`front-proxy-client`",
    "front.oidcSigningAlgs": "`RS256`",
    "queues.serve": "all",
    "secrets.directory": "`~/.local/share/modelplane/secrets`",
    "workloads.refusedAnnotations": "those by which webhooks and runtimes add containers, volumes, devices or rights",
    "workloads.engineRequests": "`cpu: 100m, memory: 256Mi`",
    "workloads.tolerationKeys": "that of NVIDIA",
    "cache.hubEndpoint": "the public hub",
    "cache.pipIndexUrl": "the public index",
    "eks.subnetCidrs": "`10.0.0.0/20`, `10.0.16.0/20`, `10.0.32.0/20`",
    "teardown.forceAfter": "never",
    "worker.buildId": "digest of the sources",
    "worker.identity": "host and process",
}


def rows() -> dict[str, str]:
    """The table: key to default, as written."""
    return {found[1]: found[2].strip() for line in README.read_text().splitlines() if (found := ROW.match(line))}


def defaults() -> dict[str, Any]:
    """Every setting of the code with its default."""
    found = {}
    for section in Settings.model_fields.values():
        kind = section.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, BaseModel)
        prefix = section.alias or next(name for name, field in Settings.model_fields.items() if field is section)
        for name, field in kind.model_fields.items():
            default = field.get_default(call_default_factory=True, validated_data={})
            assert default is not PydanticUndefined
            found[f"{prefix}.{field.alias or name}"] = default
    return found


def written(default: Any) -> str:
    """A default as the table writes it."""
    if default in (None, "", (), {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_the_table_has_every_setting_in_the_order_of_the_code_and_no_other() -> None:
    table = README.read_text().partition("## Settings")[2].partition("## Working")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE) == list(defaults())


@pytest.mark.parametrize("key", sorted(defaults()))
def test_the_default_in_the_table_is_that_of_the_code(key: str) -> None:
    assert rows()[key] == IN_WORDS.get(key, written(defaults()[key]))
