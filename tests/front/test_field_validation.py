"""Unknown fields are rejected, or dropped with or without a warning, as the client
requests.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_types.validation.manifests import without_unknown_fields
from front.serving import bodies
from front.store.projection import ObjectKey, Tree
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.workflows.environment.harness import a_deployment

DEPLOYMENTS = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
WRITES = {
    "create": ("POST", bodies.JSON),
    "update": ("PUT", bodies.JSON),
    "patch": ("PATCH", bodies.MERGE),
}
PATHS = [
    "colour",
    "metadata.colour",
    "spec.colour",
    "spec.template.spec.engines[name=main].colour",
]


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


def with_unknown_fields(name: str) -> Tree:
    tree = a_deployment(name, "a", replicas=3)
    engine, *others = tree["spec"]["template"]["spec"]["engines"]
    template = {
        **tree["spec"]["template"],
        "spec": {
            **tree["spec"]["template"]["spec"],
            "engines": [{**engine, "colour": 1}, *others],
        },
    }
    metadata = {**tree["metadata"], "colour": {"of": "x"}}
    return {
        **tree,
        "colour": "red",
        "metadata": metadata,
        "spec": {**tree["spec"], "template": template, "colour": ["blue"]},
    }


async def write(
    fleet: Fleet, verb: str, query: str, document: Tree | None = None
) -> tuple[int, Tree, list[str]]:
    """Write an object; return the status, the answer and its warnings."""
    method, kind = WRITES[verb]
    name = "new" if verb == "create" else "mine"
    path = (
        f"{DEPLOYMENTS}?{query}"
        if verb == "create"
        else f"{DEPLOYMENTS}/{name}?{query}"
    )
    headers = {"Authorization": "Bearer token-of-ann", "Content-Type": kind}
    body = json.dumps(document or with_unknown_fields(name)).encode()
    async with fleet.client.request(method, path, data=body, headers=headers) as answer:
        return answer.status, await answer.json(), answer.headers.getall("Warning", [])


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("query", ["", "fieldValidation=", "fieldValidation=Strict"])
async def test_unknown_fields_are_rejected_by_default(
    fleet: Fleet, verb: str, query: str
) -> None:
    status, told, _ = await write(fleet, verb, query)
    assert (status, {cause["field"] for cause in told["details"]["causes"]}) == (
        422,
        set(PATHS),
    )
    assert ObjectKey("ModelDeployment", "a", "new") not in fleet.plane.trees


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("warns", [True, False])
async def test_unknown_fields_are_dropped_with_or_without_warning_on_request(
    fleet: Fleet, verb: str, *, warns: bool
) -> None:
    status, tree, warnings = await write(
        fleet, verb, f"fieldValidation={'Warn' if warns else 'Ignore'}"
    )
    assert status in (200, 201), tree
    stored = fleet.plane.trees[
        ObjectKey("ModelDeployment", "a", tree["metadata"]["name"])
    ]
    assert (
        "colour" in json.dumps(stored),
        stored["spec"]["replicas"],
        tree["spec"]["replicas"],
    ) == (False, 3, 3)
    expected = (
        [f'299 - "unknown field \\"{path}\\""' for path in PATHS] if warns else []
    )
    assert sorted(each for each in warnings if "unknown" in each) == sorted(expected)


@pytest.mark.parametrize("verb", WRITES)
async def test_other_errors_are_still_rejected(fleet: Fleet, verb: str) -> None:
    wrong = with_unknown_fields("new" if verb == "create" else "mine")
    wrong["spec"]["replicas"] = -1
    status, told, _ = await write(fleet, verb, "fieldValidation=Ignore", wrong)
    assert (status, [cause["field"] for cause in told["details"]["causes"]]) == (
        422,
        ["spec.replicas"],
    )


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("create", "CreateOptions"),
        ("update", "UpdateOptions"),
        ("patch", "PatchOptions"),
    ],
    ids=list(WRITES),
)
async def test_other_values_of_the_parameter_are_rejected(
    fleet: Fleet, verb: str, options: str
) -> None:
    status, told, _ = await write(fleet, verb, "fieldValidation=warn")
    assert (status, told["details"]["causes"][0]["reason"]) == (
        422,
        "FieldValueNotSupported",
    )
    assert told["message"] == (
        f'{options}.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: '
        '"warn": supported values: "Ignore", "Strict", "Warn"'
    )
    status, _ = await fleet.ask(
        "PUT",
        f"{DEPLOYMENTS}/mine/scale?fieldValidation=warn",
        body=b'{"metadata": {}, "spec": {"replicas": 1}}',
    )
    assert status == 422


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
async def test_an_apply_always_rejects_unknown_fields(
    fleet: Fleet, validation: str
) -> None:
    """Nobody could own them."""
    body = json.dumps(
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "mine"},
            "spec": {"colour": 1},
        }
    ).encode()
    path = f"{DEPLOYMENTS}/mine?fieldManager=m&fieldValidation={validation}"
    status, told = await fleet.ask(
        "PATCH", path, body=body, **{"Content-Type": bodies.APPLY}
    )
    assert (
        status,
        [cause["field"] for cause in json.loads(told)["details"]["causes"]],
    ) == (422, ["spec.colour"])


KIND = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelDeployment"}


@pytest.mark.parametrize(
    ("document", "expected", "paths"),
    [
        (
            {**KIND, "spec": {"replicas": 1, "colour": None}},
            {**KIND, "spec": {"replicas": 1}},
            (),
        ),
        (
            {**KIND, "metadata": {}, "spec": {"replica": 1}},
            {**KIND, "metadata": {}, "spec": {}},
            ("spec.replica",),
        ),
        ({**KIND, "spec": "text"}, {**KIND, "spec": "text"}, ()),
        ({"kind": "Another", "colour": 1}, {"kind": "Another", "colour": 1}, ()),
        ({"colour": 1}, {"colour": 1}, ()),
    ],
    ids=[
        "null",
        "a field that is nearly one",
        "no object",
        "an unknown kind",
        "no kind",
    ],
)
def test_unknown_fields_are_dropped_at_every_level(
    document: Any, expected: Any, paths: tuple[str, ...]
) -> None:
    left, found = without_unknown_fields(document)
    assert (left, found) == (expected, paths)
