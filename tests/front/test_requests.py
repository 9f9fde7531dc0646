"""Requests that need no workflow: reads, rights and representations, without Temporal."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.access.reviews import Unanswered
from front.serving import access_reviews, errors
from front.serving.app import Front
from front.serving.reads import watching
from front.store.projection import LATE_MICROSECONDS, ObjectKey, Projection, Tree
from tests.workflows.environment.harness import eventually

Client = TestClient[Request, Application]
BASE = "/apis/modelplane.ai/v1alpha1"
PATH = f"{BASE}/namespaces/a/modeldeployments"
START = 1_000 * LATE_MICROSECONDS
ACCESS = f"""
users: [{{name: ann, tokenSha256: [{hashlib.sha256(b"t").hexdigest()}]}}]
rules: [{{users: [ann], namespaces: [a], resources: ["*"], verbs: ["*"]}}]
"""


def an_object(
    name: str, version: int = START, namespace: str = "a", uid: str = "", **labels: str
) -> Tree:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid or name,
        "resourceVersion": str(version),
        "labels": labels,
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": metadata,
        "spec": {"replicas": 2},
        "status": {},
    }


def put(projection: Projection, tree: Tree) -> None:
    projection.put(
        ObjectKey(
            "ModelDeployment", tree["metadata"]["namespace"], tree["metadata"]["name"]
        ),
        tree,
    )


@pytest.fixture
def projection() -> Projection:
    made = Projection()
    made.complete = True
    for name in ("one", "two"):
        put(made, an_object(name, tier=name))
    put(made, an_object("hidden", namespace="b"))
    return made


@asynccontextmanager
async def served(
    projection: Projection, rules: AccessRules | None = None
) -> AsyncIterator[Client]:
    front = Front(cast("ControlPlane", None), projection, AccessControl(rules))
    async with TestClient(TestServer(front.app())) as client:
        yield client


@pytest.fixture
async def client(projection: Projection) -> AsyncIterator[Client]:
    async with served(projection) as client:
        yield client


async def status_of(
    client: Client, method: str, path: str, **more: Any
) -> tuple[int, str]:
    async with client.request(method, path, **more) as answer:
        text = await answer.text()
        return answer.status, json.loads(text)["reason"] if text.startswith(
            "{"
        ) and '"Status"' in text else ""


async def test_without_an_access_file_only_local_programs_are_served(
    client: Client,
) -> None:
    assert await status_of(client, "GET", PATH) == (200, "")
    assert await status_of(
        client, "GET", PATH, headers={"Origin": "http://evil.example"}
    ) == (403, "Forbidden")
    for host in ("evil.example", "[", "a:b", "127.0.0.1:99999999"):
        assert await status_of(client, "GET", PATH, headers={"Host": host}) == (
            403,
            "Forbidden",
        )
    assert await status_of(
        client, "POST", PATH, data=b"{}", skip_auto_headers=["Content-Type"]
    ) == (415, "UnsupportedMediaType")
    assert await status_of(
        client, "GET", PATH, headers={"Impersonate-User": "bob"}
    ) == (403, "Forbidden")


async def test_requests_without_a_valid_token_are_rejected_even_with_odd_headers(
    projection: Projection, tmp_path: Path
) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS)
    async with served(projection, AccessRules(file)) as client:
        assert await status_of(client, "GET", PATH) == (401, "Unauthorized")
        for value in ("Bearer x", "Basic t", "Bearer", "Bearer \udcff", "t"):
            assert await status_of(
                client, "GET", PATH, headers={"Authorization": value}
            ) == (401, "Unauthorized")
        mine = {"Authorization": "Bearer t"}
        assert await status_of(client, "GET", PATH, headers=mine) == (200, "")
        # The error for existing objects is the same as for missing ones.
        texts = set()
        for name in ("hidden", "none"):
            async with client.get(
                f"{BASE}/namespaces/b/modeldeployments/{name}", headers=mine
            ) as answer:
                texts.add((answer.status, (await answer.text()).replace(name, "x")))
        assert len(texts) == 1
        assert next(iter(texts))[0] == 403
        for path in ("/healthz", "/readyz"):
            async with client.get(path) as answer:
                assert (answer.status, await answer.text()) == (200, "ok")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{PATH}/none", 404),
        # kubectl requests the namespace when an object is not found, and reports a
        # missing namespace instead.
        ("/api/v1/namespaces/a", 403),
        ("/api/v1/namespaces/a%00", 404),
        (f"/api/v1/namespaces/{'x' * 300}", 404),
        ("/api/v1/namespaces", 404),
        (f"{PATH}/one/exec", 404),
        ("/apis/modelplane.ai/v2/modeldeployments", 404),
        ("/api/v1/pods", 404),
        ("/apis/modelplane.ai/v1alpha1/namespaces/a/%00", 404),
        (f"{PATH}/{'x' * 300}", 404),
        (f"{PATH}?limit=x", 400),
        (f"{PATH}?limit=-x", 400),
        (f"{PATH}?continue=x", 400),
        (f"{PATH}?continue=W1tbW1tb", 400),
        # The kind is a number.
        (f"{PATH}?continue=WzEsICJhIiwgIm9uZSIsIDVd", 400),
        (f"{PATH}?labelSelector=%3D%3D", 400),
        (f"{PATH}?fieldSelector=spec.replicas%3D1", 400),
        (f"{PATH}?watch=1&resourceVersion=x", 400),
    ],
)
async def test_errors_are_a_kubernetes_status(
    client: Client, path: str, code: int
) -> None:
    async with client.get(path) as answer:
        told = await answer.json()
        assert (answer.status, told["kind"], told["code"]) == (code, "Status", code)


async def test_objects_are_returned_whole_in_tables_and_as_metadata(
    client: Client,
) -> None:
    async with client.get(PATH) as answer:
        found = await answer.json()
    assert (found["kind"], [item["metadata"]["name"] for item in found["items"]]) == (
        "ModelDeploymentList",
        ["one", "two"],
    )
    async with client.get(
        f"{BASE}/modeldeployments?fieldSelector=metadata.namespace!%3Da"
    ) as answer:
        assert [
            item["metadata"]["name"] for item in (await answer.json())["items"]
        ] == ["hidden"]
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with client.get(
        f"{PATH}?labelSelector=tier%3Done", headers={"Accept": table}
    ) as answer:
        found = await answer.json()
    assert found["kind"] == "Table"
    assert [(row["cells"][0], row["object"]["kind"]) for row in found["rows"]] == [
        ("one", "PartialObjectMetadata")
    ]
    wanted = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    partial = f"application/vnd.kubernetes.protobuf;{wanted},application/json;{wanted}"
    async with client.get(PATH, headers={"Accept": partial}) as answer:
        found = await answer.json()
    assert found["kind"] == "PartialObjectMetadataList"
    assert {key for item in found["items"] for key in item} == {
        "kind",
        "apiVersion",
        "metadata",
    }
    async with client.get(f"{PATH}/one/scale") as answer:
        scale = await answer.json()
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == (
        "Scale",
        "autoscaling/v1",
        {"replicas": 2},
    )


async def asks_again(client: Client, method: str, path: str, **more: Any) -> bool:
    """Return whether clients retry by themselves: the answer has a delay in its header
    and Status.
    """
    async with client.request(method, path, **more) as answer:
        told = await answer.json()
        return answer.headers.get("Retry-After") == "1" and told["details"] == {
            "retryAfterSeconds": 1
        }


async def test_incomplete_lists_are_never_served(
    client: Client, projection: Projection
) -> None:
    projection.unread = {ObjectKey("ModelDeployment", "a", "three")}
    for path in (
        PATH,
        f"{BASE}/modeldeployments",
        f"{PATH}?watch=true",
        f"{PATH}/three",
    ):
        assert await status_of(client, "GET", path) == (503, "ServiceUnavailable")
        assert await asks_again(client, "GET", path)
    for path in (
        f"{PATH}/one",
        f"{BASE}/namespaces/b/modeldeployments",
        f"{BASE}/namespaces/a/modelservices",
    ):
        assert await status_of(client, "GET", path) == (200, "")
    projection.complete = False
    for method in ("GET", "DELETE"):
        assert await status_of(client, method, f"{PATH}/one") == (
            503,
            "ServiceUnavailable",
        )
        assert await asks_again(client, method, f"{PATH}/one")
    assert (await status_of(client, "GET", "/readyz"))[0] == 503


async def test_clients_retry_while_no_authorizer_answers(
    projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(*_: Any) -> bool:
        raise Unanswered

    monkeypatch.setattr(AccessControl, "allows", unanswered)
    review = {
        "spec": {
            "resourceAttributes": {
                "verb": "get",
                "resource": "modeldeployments",
                "group": "modelplane.ai",
            }
        }
    }
    async with served(projection) as client:
        assert await asks_again(client, "GET", PATH)
        assert await asks_again(client, "POST", access_reviews.PATH, json=review)


def test_the_message_of_an_error_is_bounded() -> None:
    assert len(errors.bad_request("x" * 100_000).status["message"]) == 4096


@asynccontextmanager
async def watched(
    client: Client, query: str = "", **headers: str
) -> AsyncIterator[aiohttp.StreamReader]:
    async with client.get(f"{PATH}?watch=true{query}", headers=headers) as answer:
        assert answer.status == 200
        yield answer.content


async def next_of(content: aiohttp.StreamReader) -> tuple[str, str, str]:
    async with asyncio.timeout(30):
        event = json.loads(await content.readline())
    return (
        event["type"],
        event["object"].get("metadata", {}).get("name", ""),
        event["object"].get("metadata", {}).get("uid", ""),
    )


async def test_a_recreated_object_is_reported_as_deleted_first(
    client: Client, projection: Projection
) -> None:
    async with watched(
        client, f"&resourceVersion={START}&fieldSelector=metadata.name%3Done"
    ) as content:
        put(projection, an_object("one", START + 1, uid="another"))
        assert [await next_of(content), await next_of(content)] == [
            ("DELETED", "one", "one"),
            ("ADDED", "one", "another"),
        ]


async def test_a_watch_from_an_expired_version_ends_with_an_error(
    client: Client, projection: Projection
) -> None:
    projection.low = START
    async with watched(client, "&resourceVersion=1") as content, asyncio.timeout(30):
        (line,) = (await content.read()).splitlines()
    assert json.loads(line)["object"]["code"] == 410


async def test_a_head_request_is_not_a_watch(client: Client) -> None:
    async with client.head(f"{PATH}?watch=true") as answer:
        assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.slow
async def test_a_watch_ends_when_its_client_leaves_or_its_user_loses_the_right(
    projection: Projection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.1)
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS)
    async with served(projection, AccessRules(file)) as client:
        mine = {"Authorization": "Bearer t"}
        async with watched(client, "&labelSelector=tier%3Dnone", **mine):
            assert len(projection._watchers) == 1

        async def watchers() -> int:
            return len(projection._watchers)

        await eventually(
            watchers, lambda count: count == 0, what="the end of the watch"
        )
        async with watched(client, "", **mine) as content:
            assert {(await next_of(content))[1], (await next_of(content))[1]} == {
                "one",
                "two",
            }
            beside = file.with_suffix(".new")
            beside.write_text(ACCESS.replace("namespaces: [a]", "namespaces: [other]"))
            beside.replace(file)
            async with asyncio.timeout(30):
                assert await content.read() == b""


async def test_a_bookmark_has_the_version_of_a_watch_in_the_clients_form(
    client: Client, projection: Projection
) -> None:
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    query = "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    for accept, kind in (
        ("application/json", "ModelDeployment"),
        (partial, "PartialObjectMetadata"),
    ):
        async with (
            watched(client, query, Accept=accept) as content,
            asyncio.timeout(30),
        ):
            lines = [json.loads(await content.readline()) for _ in range(3)]
        assert [line["type"] for line in lines] == ["ADDED", "ADDED", "BOOKMARK"]
        last = lines[-1]["object"]
        assert (last["kind"], last["metadata"]["annotations"]) == (
            kind,
            {"k8s.io/initial-events-end": "true"},
        )
        assert last["metadata"]["resourceVersion"] == str(projection.high)


async def test_a_bookmark_of_a_table_has_its_metadata_in_a_row(
    client: Client,
    projection: Projection,
) -> None:
    query = "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with watched(client, query, Accept=table) as content, asyncio.timeout(30):
        lines = [json.loads(await content.readline()) for _ in range(3)]
    assert [line["type"] for line in lines] == ["ADDED", "ADDED", "BOOKMARK"]
    (row,) = lines[-1]["object"]["rows"]
    assert row["object"]["metadata"] == {
        "resourceVersion": str(projection.high),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


async def test_a_bookmark_after_a_pause_has_the_last_version_and_never_an_earlier_one(
    client: Client, projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BOOKMARK_SECONDS", 0.0)
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.05)
    # Another front has seen later versions.
    begun = START + 10

    async def told(kind: str) -> str:
        async with asyncio.timeout(30):
            while (event := json.loads(await content.readline()))["type"] != kind:
                pass
        return str(event["object"]["metadata"]["resourceVersion"])

    async with watched(
        client, f"&resourceVersion={begun}&allowWatchBookmarks=true"
    ) as content:
        assert await told("BOOKMARK") == str(begun)
        put(projection, an_object("one", begun + 5))
        assert await told("MODIFIED") == await told("BOOKMARK") == str(begun + 5)


async def test_bookmarks_arrive_while_objects_change_and_at_the_end(
    client: Client, projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BOOKMARK_SECONDS", 0.1)
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.05)
    query = f"&resourceVersion={START + 10}&allowWatchBookmarks=true"
    events: list[str] = []
    async with watched(client, query) as content, asyncio.timeout(30):
        # No pause between changes is as long as that between bookmarks.
        for version in range(START + 11, START + 10_000):
            put(projection, an_object("one", version))
            events.append(json.loads(await content.readline())["type"])
            if "BOOKMARK" in events:
                break
            await asyncio.sleep(0.01)
    assert "MODIFIED" in events
    assert events[-1] == "BOOKMARK"
    monkeypatch.setattr(watching, "BOOKMARK_SECONDS", 60.0)
    async with watched(client, f"{query}&timeoutSeconds=1") as content:
        lines = (await content.read()).splitlines()
    assert json.loads(lines[-1])["type"] == "BOOKMARK"


async def test_kinds_of_the_control_plane_and_subresources_reject_writes(
    client: Client,
) -> None:
    for method, path in (
        ("POST", f"{BASE}/namespaces/a/modelreplicas"),
        ("PUT", f"{PATH}/one/status"),
        ("DELETE", f"{PATH}/one/scale"),
    ):
        assert await status_of(client, method, path) == (405, "MethodNotAllowed")
    assert await status_of(
        client, "DELETE", f"{PATH}/one?propagationPolicy=Orphan"
    ) == (400, "BadRequest")
    assert await status_of(client, "DELETE", f"{PATH}/one?dryRun=Some") == (
        422,
        "Invalid",
    )
