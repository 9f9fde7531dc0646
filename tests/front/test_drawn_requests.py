"""No generated request, valid or not, causes an internal error.

This covers the front's OpenAPI documents and the paths below `/v1`.
"""

import json
from pathlib import Path

import pytest
import requests

from api_types.resources.kinds import SERVED
from front.serving import resources
from tests.front import requests_below_v1
from tests.front.drawn_requests import (
    BELOW_V1,
    MODES,
    ask_all,
    operations,
    prepared,
    problem_of,
    wrong,
)
from tests.front.fleet_of_tenants import a_fleet
from tests.random_cases import cases

KINDS = ("ModelDeployment", "ModelService", "InferenceCluster")
OTHERS = tuple(info.kind for info in SERVED if info.kind not in KINDS)
"""The same code serves the other kinds; only the schemas of their bodies differ."""
CASES, CASES_OF_OTHERS = 3, 2
CASES_BELOW_V1 = 4


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_gets_a_valid_answer(kind: str, mode: str) -> None:
    assert ask_all("v3", (kind,), mode, cases(CASES)) >= len(operations("v3", (kind,)))


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("mode", MODES)
def test_every_operation_of_the_other_kinds_gets_a_valid_answer(
    mode: str,
) -> None:
    assert ask_all("v3", OTHERS, mode, cases(CASES_OF_OTHERS)) >= len(
        operations("v3", OTHERS)
    )


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("mode", MODES)
def test_every_request_below_v1_gets_a_valid_answer(mode: str) -> None:
    assert ask_all(BELOW_V1, (), mode, cases(CASES_BELOW_V1)) >= len(
        operations(BELOW_V1)
    )


@pytest.mark.slow
async def test_every_path_below_v1_is_generated(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as fleet:
        served = fleet.client.app
        assert served
        routes = {
            route.resource.canonical
            for route in served.router.routes()
            if route.resource
        }
    # The fleet of these tests has no scheduler that the page's paths could read. They
    # have tests of their own, `test_page_*.py` and `test_tenants.py`.
    of_the_page = {
        path for path in routes if path.startswith("/ui/") or "explanation" in path
    }
    assert {each.path for each in operations(BELOW_V1)} == routes - of_the_page - {
        "/{path}"
    }


async def test_generated_scale_requests_have_a_valid_signature(
    tmp_path: Path,
) -> None:
    (operation,) = [
        each for each in operations(BELOW_V1) if each.path.endswith("/scale")
    ]
    where = {"namespace": "a", "name": "mine"}
    request = prepared(
        operation.Case(
            path_parameters=where,
            query={"x": "%"},
            body={"replicas": 3},
            media_type="application/json",
        )
    )
    requests_below_v1.sign(request)
    async with a_fleet(tmp_path) as fleet:
        assert isinstance(request.body, bytes)
        headers = {
            name: str(value)
            for name, value in request.headers.items()
            if name.startswith(("Modelplane-", "Content-Type"))
        }
        status, told = await fleet.ask(
            "POST", request.path_url, "", request.body, **headers
        )
        assert (status, b'"replicas":3' in told.replace(b" ", b"")) == (200, True), told


@pytest.mark.slow
async def test_an_internal_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError

    request = requests.Request(
        "GET", "http://front/apis/modelplane.ai/v1alpha1/inferenceclusters"
    ).prepare()
    assert await problem_of(request) == ""
    monkeypatch.setattr(resources, "listed", fails)
    assert (await problem_of(request)).startswith("500")


def test_both_documents_have_the_same_operations() -> None:
    newer, older = (
        {(each.method, each.path) for each in operations(version)}
        for version in ("v3", "v2")
    )
    assert newer == older
    assert (
        "patch",
        "/apis/modelplane.ai/v1alpha1/namespaces/{namespace}/modeldeployments/{name}/scale",
    ) in newer


def a_status(code: int, reason: str) -> bytes:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "x",
    }
    return json.dumps(status).encode()


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (
            500,
            "application/json",
            a_status(500, "InternalError"),
        ),
        (400, "text/plain", b"bad"),
        (400, "application/json", b"[]"),
        (
            404,
            "application/json",
            a_status(400, "NotFound"),
        ),
        (
            404,
            "text/plain",
            a_status(404, "NotFound"),
        ),
    ],
)
def test_an_invalid_answer_is_found(
    status: int, content_type: str, body: bytes
) -> None:
    assert wrong(status, content_type, body)
