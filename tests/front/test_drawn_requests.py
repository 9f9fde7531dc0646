"""No request that the front's own OpenAPI documents let a client make, and none that breaks them, is answered with a failure of ours."""

import pytest
import requests

from front.serving import app
from tests.front.drawn_requests import MODES, ask_all, operations, problem_of, wrong
from tests.random_cases import cases

KINDS = ("ModelDeployment", "ModelService", "InferenceCluster")
CASES = 6


@pytest.mark.random
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_answered_or_refused_in_words(kind: str, mode: str) -> None:
    assert ask_all("v3", (kind,), mode, cases(CASES)) >= len(operations("v3", (kind,)))


async def test_a_failure_of_ours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError

    request = requests.Request("GET", "http://front/apis/modelplane.ai/v1alpha1/inferenceclusters").prepare()
    assert await problem_of(request) == ""
    monkeypatch.setattr(app, "listed", fails)
    assert (await problem_of(request)).startswith("500")


def test_both_documents_have_the_same_operations() -> None:
    newer, older = ({(each.method, each.path) for each in operations(version, KINDS)} for version in ("v3", "v2"))
    assert newer == older
    assert ("patch", "/apis/modelplane.ai/v1alpha1/namespaces/{namespace}/modeldeployments/{name}/scale") in newer


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (
            500,
            "application/json",
            b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"x"}',
        ),
        (400, "text/plain", b"bad"),
        (400, "application/json", b"[]"),
        (404, "application/json", b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":400,"reason":"NotFound","message":"x"}'),
        (404, "text/plain", b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"x"}'),
    ],
)
def test_an_answer_that_clients_cannot_read_is_found(status: int, content_type: str, body: bytes) -> None:
    assert wrong(status, content_type, body)
