"""Hostile bodies and patches: accepted, or rejected with a message."""

import json
from typing import Any

import pytest

from front.serving import bodies
from front.serving.errors import RejectedRequest
from tests.environment.effort import effort_below

OBJECT = {
    "metadata": {"name": "chat", "labels": {"a": "b"}},
    "spec": {"replicas": 1, "list": [1, 2]},
}
ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n"
    for n in range(9)
)
BAD = {
    "aliases that expand": ALIASES.encode(),
    "an alias of itself": b"a: &a [*a]",
    "deep YAML": b"[" * 500 + b"]" * 500,
    "deep JSON": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "large and deep": json.dumps(
        {"pad": "x" * 300_000, "deep": json.loads("[" * 100 + "]" * 100)}
    ).encode(),
    "no text": b"\xff\xfe",
    "several documents": b"a: 1\n---\nb: 2\n",
    "large and no JSON": b"a: " + b"x" * 300_000,
    "half of a surrogate pair": b'{"a": "\\ud800"}',
}


@pytest.mark.parametrize("what", BAD)
def test_malformed_and_expanding_bodies_are_rejected_quickly(what: str) -> None:
    with effort_below(2_000), pytest.raises(RejectedRequest) as refusal:
        bodies.parse(BAD[what])
    assert (refusal.value.code, refusal.value.status["reason"]) == (400, "BadRequest")
    assert len(refusal.value.status["message"]) < 1_000


def test_yaml_and_json_are_parsed() -> None:
    assert bodies.parse(b"a: 1") == bodies.parse(b'{"a": 1}') == {"a": 1}
    large = {"pad": "x" * 300_000}
    assert bodies.parse(json.dumps(large).encode()) == large
    for body in (b"", b"[]", b"1"):
        with pytest.raises(RejectedRequest):
            bodies.parse_object(body)


STRATEGIC = "application/strategic-merge-patch+json"


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/apply-patch+yaml",
        STRATEGIC,
    ],
)
def test_a_body_without_a_media_type_is_rejected(content_type: str) -> None:
    with pytest.raises(RejectedRequest) as refusal:
        bodies.media_type(content_type, bodies.PATCHES)
    assert refusal.value.code == 415


def test_a_body_without_a_media_type_gets_the_given_default() -> None:
    assert bodies.media_type("", bodies.OBJECTS, silent=bodies.JSON) == bodies.JSON
    assert (
        bodies.media_type("application/yaml", bodies.OBJECTS, silent=bodies.JSON)
        == "application/yaml"
    )
    with pytest.raises(RejectedRequest):
        bodies.media_type("text/plain", bodies.OBJECTS, silent=bodies.JSON)


def patched(kind: str, patch: Any) -> Any:
    return bodies.patched(OBJECT, kind, patch)


def test_a_merge_patch_removes_merges_and_replaces_in_a_copy() -> None:
    before = json.dumps(OBJECT)
    merged = patched(
        bodies.MERGE,
        {
            "metadata": {"labels": {"a": None, "c": "d"}},
            "spec": {"list": [3]},
            "new": {"x": {"y": None}},
        },
    )
    assert merged == {
        "metadata": {"name": "chat", "labels": {"c": "d"}},
        "spec": {"replicas": 1, "list": [3]},
        "new": {"x": {}},
    }
    assert json.dumps(OBJECT) == before


def test_a_json_patch_is_applied_in_order() -> None:
    operations = [
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
        {"op": "copy", "from": "/spec/replicas", "path": "/spec/list/-"},
        {"op": "remove", "path": "/metadata/labels"},
    ]
    assert patched(bodies.JSON_PATCH, operations) == {
        "metadata": {"name": "chat"},
        "spec": {"replicas": 5, "list": [1, 2, 5]},
    }


DOUBLING = [{"op": "add", "path": "/x", "value": {"p": "y" * 100}}] + [
    {"op": "copy", "from": "/x", "path": f"/x/{'ab'[n % 2]}{n}"} for n in range(60)
]


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/spec/replicas", "value": 2}],
        [{"op": "remove", "path": "/none"}],
        [{"op": "replace"}],
        [{"op": "copy", "path": "/a"}],
        [{"op": "copy", "from": 1, "path": "/a"}],
        [1],
        "x",
        [{"op": "replace", "path": "", "value": 1}],
        DOUBLING,
        [{"op": "copy", "from": "/metadata", "path": "/metadata/a"}] * 1_000,
        [{"op": "test", "path": "/spec", "value": {}}] * 5_000,
    ],
    ids=lambda patch: str(patch)[:40],
)
def test_a_json_patch_that_cannot_be_applied_is_rejected(patch: Any) -> None:
    with pytest.raises(RejectedRequest) as refusal:
        patched(bodies.JSON_PATCH, patch)
    assert refusal.value.code in (400, 413, 422)
    assert len(refusal.value.status["message"]) < 1_000
