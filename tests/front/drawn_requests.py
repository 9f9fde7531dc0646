"""Requests that Schemathesis generates from the front's OpenAPI documents.

One document covers the paths below `/v1`, which the published documents leave out. The
requests go to a real front with objects of two tenants. These tests do not check that
answers are correct. They check that every request is answered, and that every error is
a Kubernetes Status.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import requests
from aiohttp import ClientError
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from api_types.resources.kinds import BY_KIND
from front.audit.log import AuditLog
from front.serving.bodies import JSON
from front.serving.documents import openapi, openapi_v2
from front.store.projection import Tree
from tests.front import requests_below_v1
from tests.front.fleet_of_tenants import TOKENS, a_fleet
from tests.random_cases import random_cases

BELOW_V1 = "below /v1"
DOCUMENTS: Mapping[str, Callable[[], Tree]] = {
    "v3": lambda: openapi.document("modelplane.ai", "v1alpha1"),
    "v2": openapi_v2.document,
    BELOW_V1: requests_below_v1.document,
}
MODES = ("positive", "negative")
# For a busy machine.
_SECONDS = 300.0
_FAILURE, _SERVER_ERROR = 400, 500
_HELD = {"namespace": "a", "name": "mine"}
_HELD_OF_NONE = {"name": "mine", "plural": "inferenceclusters"}
# A generated text is rarely a valid version.
_STATES = ("uid", "resourceVersion")


def operations(version: str, kinds: Collection[str] = ()) -> list[Any]:
    """Return the operations of some kinds in a document; all operations without kinds."""
    # Importing it takes a second, which other tests need not pay.
    import schemathesis  # noqa: PLC0415

    plurals = {BY_KIND[kind].plural for kind in kinds}
    found: list[Any] = list(
        schemathesis.openapi.from_dict(DOCUMENTS[version]()).get_all_operations()
    )
    return [
        each
        for each in (result.ok() for result in found)
        if not plurals or not plurals.isdisjoint(each.path.split("/"))
    ]


def ask_all(version: str, kinds: Collection[str], mode: str, count: int) -> int:
    """Send this many requests of each operation; return their number.

    Raises `AssertionError` for an invalid answer.
    """
    from schemathesis import GenerationMode  # noqa: PLC0415
    from schemathesis.generation.feedback import NO_FEEDBACK  # noqa: PLC0415

    sent = 0
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        for operation in operations(version, kinds):
            if mode == "negative" and not can_be_wrong(operation):
                continue

            @random_cases(count)
            @given(
                operation.as_strategy(GenerationMode(mode), feedback=NO_FEEDBACK),
                st.booleans(),
            )
            def one(case: Any, aimed: bool) -> None:
                nonlocal sent
                sent += 1
                request = prepared(aimed_at_held(case) if aimed else case)
                if aimed and version == BELOW_V1:
                    requests_below_v1.sign(request)
                problem = runner.run(problem_of(request))
                assert not problem, (
                    f"{request.method} {request.url}\n{request.headers}\n"
                    f"{request.body!r}\n{problem}"
                )

            one()
    return sent


def can_be_wrong(operation: Any) -> bool:
    """Return whether a request can violate the document.

    A path accepts any text. Hypothesis would try hundreds of times to find that out.
    """
    return bool(len(operation.body) or len(operation.query) or len(operation.headers))


def aimed_at_held(case: Any) -> Any:
    """Change the path of a request to an existing object.

    Only its parameters and body stay as generated, so the front reads more than the
    path.
    """
    if case.path_parameters:
        held = (
            {**_HELD, "plural": "modeldeployments"}
            if "namespace" in case.path_parameters
            else _HELD_OF_NONE
        )
        case.path_parameters = {name: held[name] for name in case.path_parameters}
    case.query = {
        name: value
        for name, value in (case.query or {}).items()
        if name not in ("dryRun", "fieldValidation")
    }
    if isinstance(case.body, dict) and isinstance(case.body.get("metadata"), dict):
        metadata = {
            name: value
            for name, value in case.body["metadata"].items()
            if name not in (*_STATES, *_HELD)
        }
        # A created object has another name.
        case.body = {
            **case.body,
            "metadata": metadata
            | ({"name": "new"} if case.method.lower() == "post" else {}),
        }
    return case


def prepared(case: Any) -> requests.PreparedRequest:
    return requests.Request(
        **case.as_transport_kwargs(base_url="http://front")
    ).prepare()


async def problem_of(request: requests.PreparedRequest) -> str:
    """Send a request to a new front; return the problem of the answer, or ""."""
    parts = urlsplit(str(request.url))
    path = URL(
        f"{parts.path}?{parts.query}" if parts.query else parts.path, encoded=True
    )
    headers = {
        name: str(value)
        for name, value in request.headers.items()
        if name.lower() not in ("content-length", "accept-encoding")
    }
    body = request.body.encode() if isinstance(request.body, str) else request.body
    with tempfile.TemporaryDirectory() as folder:
        audit_log = AuditLog(str(Path(folder) / "audit.jsonl"))
        async with (
            a_fleet(Path(folder), audit_log=audit_log) as fleet,
            asyncio.timeout(_SECONDS),
        ):
            sent = {**headers, "Authorization": f"Bearer {TOKENS['root']}"}
            try:
                async with fleet.client.request(
                    cast("str", request.method), path, data=body, headers=sent
                ) as answer:
                    # A watch lasts until its client disconnects.
                    is_watch = (
                        answer.status < _FAILURE and answer.content_length is None
                    )
                    return wrong(
                        answer.status,
                        answer.content_type,
                        b"" if is_watch else await answer.read(),
                    )
            except ClientError as error:
                return f"no answer: {error!r}"


def wrong(status: int, content_type: str, body: bytes) -> str:
    """Return the problem of an answer; empty if it is valid."""
    if status < _FAILURE:
        return ""
    told = body[:2000].decode(errors="replace")
    if status >= _SERVER_ERROR:
        return f"{status}: {told}"
    try:
        tree = json.loads(body)
    except ValueError:
        return f"{status}, and no JSON: {told}"
    is_status = isinstance(tree, dict) and (
        tree.get("kind"),
        tree.get("apiVersion"),
        tree.get("status"),
    ) == ("Status", "v1", "Failure")
    if (
        content_type != JSON
        or not is_status
        or tree.get("code") != status
        or not tree.get("reason")
        or not tree.get("message")
    ):
        return f"{status} as {content_type}, and no Status: {told}"
    return ""
