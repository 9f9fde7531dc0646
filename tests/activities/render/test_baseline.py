"""An upgrade keeps running objects: each object of the baseline keeps all its fields.

tests/golden/README.md describes the baseline.
"""

import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from activities.render.inputs.facts_file import read_facts
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import Json
from api_types.validation.manifests import admit_all, dump, parse
from client.planning.rendering import render_all
from fleet_client.checks import CHECKS
from tests.activities.render.differences import INTENDED, differences
from tests.activities.render.topologies import TOPOLOGIES

EXAMPLES = Path(__file__).parents[3] / "examples"
BASELINE = Path(__file__).parents[2] / "golden" / "baseline"
# The sets of the baseline. set-spec.json contains a deployment in the message that
# applies it.
RENDERED = (
    "models/chat-behind-a-service.yaml",
    "models/flat-shape.yaml",
    "models/gang-from-cache.yaml",
    "models/gated-cache.yaml",
    "models/prefill-decode.yaml",
    "testbed/demo.yaml",
    "testbed/gang.yaml",
    "testbed/too-big.yaml",
)
MESSAGE = "signals/set-spec.json"


@cache
def _baseline() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(
        lzma.decompress((BASELINE / "objects.json.xz").read_bytes())
    )
    return stored


def _by_identity(title: str, manifests: list[Json]) -> dict[str, Json]:
    named = {
        f"{title}/{one['kind']}/{one['metadata']['name']}": one for one in manifests
    }
    assert len(named) == len(manifests)
    return named


def _topology(name: str) -> list[Json]:
    rendered = TOPOLOGIES[name]()
    return [copy.manifest for copy in rendered.copies] + [
        item.manifest for item in rendered.objects
    ]


def _examples() -> list[Json]:
    texts = [
        file.read_text()
        for file in [*(EXAMPLES / path for path in RENDERED), BASELINE / "fleet.yaml"]
    ]
    texts.append(json.dumps(json.loads((EXAMPLES / MESSAGE).read_text())["manifest"]))
    admitted = [
        one for text in texts for one in admit_all(parse(text, "examples"), CHECKS)
    ]
    facts = read_facts(
        YAML(typ="safe", pure=True).load((BASELINE / "facts.yaml").read_text()), "facts"
    )
    outputs, _ = render_all(
        [dump(one.manifest) for one in admitted], facts, RenderSettings()
    )
    return [dict(tree) for output in outputs for tree in output.objects]


@cache
def _found() -> dict[str, list[str]]:
    """Return all differences from the baseline by object.

    An object that is not rendered differs as a whole.
    """
    pairs = [
        (name, stored, _topology(name) if name in TOPOLOGIES else [])
        for name, stored in _baseline()["golden"].items()
    ]
    pairs.append(("examples", _baseline()["examples"], _examples()))
    found: dict[str, list[str]] = {}
    for title, stored, rendered in pairs:
        after = _by_identity(title, rendered)
        for identity, before in _by_identity(title, stored).items():
            found[identity] = (
                differences(before, after[identity])
                if identity in after
                else ["(not rendered)"]
            )
        found |= {identity: ["(added)"] for identity in after.keys() - found.keys()}
    return found


def _all_found() -> Iterator[tuple[str, str]]:
    return ((manifest, path) for manifest, paths in _found().items() for path in paths)


def test_every_object_of_the_baseline_keeps_its_fields() -> None:
    unnamed = [
        f"{manifest} at {path}"
        for manifest, path in _all_found()
        if not any(each.covers(manifest, path) for each in INTENDED)
    ]
    assert unnamed == [], (
        "give each intended difference with its reason in tests/activities/render/differences.py"
    )


@pytest.mark.parametrize(
    "intended", INTENDED, ids=lambda each: f"{each.manifest} {each.path}"
)
def test_each_intended_difference_exists(intended: Any) -> None:
    assert any(intended.covers(manifest, path) for manifest, path in _all_found())


def test_the_baseline_holds_the_deployments_of_the_examples() -> None:
    kinds = [one["kind"] for one in _baseline()["examples"]]
    # Eight deployments in twelve replicas. The engines of one deployment are a gang,
    # and those of another are two Deployments each.
    assert {
        kind: kinds.count(kind)
        for kind in ("InferencePool", "LeaderWorkerSet", "ResourceClaimTemplate")
    } == {
        "InferencePool": 12,
        "LeaderWorkerSet": 2,
        "ResourceClaimTemplate": 16,
    }


CHANGES = [
    ("a field is gone", {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, ["a.c"]),
    ("a field is added", {"a": {}}, {"a": {"b": 1}}, ["a.b"]),
    (
        "an entry of a list, by its name",
        {"env": [{"name": "A", "value": "1"}]},
        {"env": [{"name": "A", "value": "2"}]},
        ["env.A.value"],
    ),
    (
        "the order of a list",
        {"env": [{"name": "A"}, {"name": "B"}]},
        {"env": [{"name": "B"}, {"name": "A"}]},
        ["env"],
    ),
    ("texts in a list", {"args": ["a", "b"]}, {"args": ["a"]}, ["args"]),
    ("a list that is empty", {"env": [{"name": "A"}]}, {"env": []}, ["env"]),
    (
        "a hash beside what it covers",
        {"x/template-hash": 1, "a": 1},
        {"x/template-hash": 2, "a": 2},
        ["a", "x/template-hash"],
    ),
    (
        "a hash alone",
        {"modelplane.ai/template-hash": 1},
        {"modelplane.ai/template-hash": 2},
        ["modelplane.ai/template-hash"],
    ),
    (
        "our hash beside what it covers",
        {"modelplane.ai/render-hash": 1, "a": 1},
        {"modelplane.ai/render-hash": 2, "a": 2},
        ["a"],
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [change[1:] for change in CHANGES],
    ids=[change[0] for change in CHANGES],
)
def test_a_difference_is_found(old: Any, new: Any, paths: list[str]) -> None:
    assert sorted(differences(old, new)) == paths
