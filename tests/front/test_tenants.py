"""The reach of a tenant's token: every route, verb and form of a request.

Each is sent for another namespace, with and without an object there. The tables below
are compared with the router, the kinds and discovery, so a new route must be listed
here.
"""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest

from api_types.clock import utc_now
from api_types.resources.kinds import SERVED, KindInfo
from api_types.sections.front import FrontSettings
from fleet_client.refs.seen import ListedObject
from front.access import signing
from front.access.signing import signed_text
from front.commands.routes import STACKS
from front.page.files import FOLDER, SETTINGS
from front.page_data.placement import CAPACITY_PATH
from front.page_data.routes import PATH as STATE_PATH
from front.page_data.traffic import TRAFFIC_PATH
from front.scaling import events
from front.scaling import scaler_messages as messages
from front.serving import access_reviews
from front.serving.reads.reading import _token
from front.serving.requests import subresources
from front.store.projection import ObjectKey
from testbed.cluster.pki import Authority
from tests.front.fleet_of_tenants import (
    AUDIENCE,
    KEYS,
    START,
    Fleet,
    a_fleet,
    an_object,
)
from tests.front.scaling.keda import a_scaler
from tests.workflows.environment.harness import eventually

SCALED = "/v1/namespaces/{namespace}/modeldeployments/{name}"
OF_SCALING = {f"{SCALED}/scale", f"{SCALED}/metrics", "/v1/events"}
OF_COMMANDS = {
    "/v1/namespaces/{namespace}/{plural}/{name}/retry",
    "/v1/namespaces/{namespace}/{plural}/{name}/revisions",
    "/v1/{plural}/{name}/retry",
    "/v1/servingstacks",
    "/v1/servingstacks/{name}",
}
EXPLANATION = "/v1/namespaces/{namespace}/{plural}/{name}/explanation"
OF_PAGE = {STATE_PATH, CAPACITY_PATH, TRAFFIC_PATH, EXPLANATION}
ROUTES = {("*", path) for path in (*OF_SCALING, *OF_COMMANDS, *OF_PAGE, "/{path}")}
"""All routes of the router; the paths of the last one are listed below."""
DOCUMENTS = (
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)
"""Paths that are the same for every user."""
SUBRESOURCES = {"", "scale", "status"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT")
JSON, TABLE, PARTIAL = (
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
)
MERGE = "application/merge-patch+json"
READS = (
    "",
    "labelSelector=tier%3Dgold",
    "fieldSelector=metadata.name%3Dother",
    "fieldSelector=metadata.namespace%3Db",
    "limit=1",
    f"continue={quote(_token(ObjectKey('ModelDeployment', 'b', 'a'), START))}",
    "watch=true",
    f"watch=true&resourceVersion={START - 1}",
    "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
    "watch=true&labelSelector=tier%3Dgold",
)
WRITES = (
    "",
    "dryRun=All",
    "propagationPolicy=Foreground",
    "labelSelector=tier%3Dgold&fieldSelector=metadata.name%3Dother",
)


def paths_of(info: KindInfo) -> Iterator[str]:
    """Return every path of a kind outside namespace a."""
    base = f"/apis/{info.api_version}"
    scope = f"{base}/namespaces/b" if info.namespaced else base
    if info.namespaced:
        yield f"{base}/{info.plural}"
    yield f"{scope}/{info.plural}"
    for name, subresource in product(("other", "none"), subresources(info)):
        yield "/".join(filter(None, (scope, info.plural, name, subresource)))


PATHS = [path for info in SERVED for path in paths_of(info)]


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """Two fronts, with and without the objects of b."""
    async with a_fleet(tmp_path) as there, a_fleet(tmp_path, with_b=False) as gone:
        yield there, gone


def body_of(info: KindInfo, path: str, method: str) -> bytes | None:
    """Return a body that a user with rights could send."""
    if method not in ("POST", "PUT", "PATCH"):
        return None
    if method == "PATCH":
        return b'{"metadata":{"labels":{"tier":"tin"}},"spec":{"replicas":1}}'
    if path.endswith("/scale"):
        return b'{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{},"spec":{"replicas":1}}'
    tree = an_object(info, "b", "fresh" if method == "POST" else "other", START)
    del tree["metadata"]["resourceVersion"], tree["metadata"]["uid"]
    return json.dumps(tree).encode()


async def test_every_route_and_document_is_listed_here(
    both: tuple[Fleet, Fleet],
) -> None:
    app = both[0].client.app
    assert app
    assert {
        (route.method, route.resource.canonical if route.resource else "")
        for route in app.router.routes()
    } == ROUTES
    assert {name for info in SERVED for name in subresources(info)} == SUBRESOURCES
    status, body = await both[0].ask("GET", "/")
    assert (status, tuple(json.loads(body)["paths"])) == (200, DOCUMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
async def test_another_tenants_objects_are_not_read_changed_or_revealed(
    both: tuple[Fleet, Fleet], path: str
) -> None:
    info = next(info for info in SERVED if f"/{info.plural}" in path)
    requests = [
        ("GET", query, accept)
        for query, accept in product(READS, (JSON, TABLE, PARTIAL))
    ]
    requests += [
        (method, query, JSON) for method, query in product(METHODS[1:], WRITES)
    ]
    before = dict(both[0].plane.trees)
    for method, query, accept in requests:
        headers = {"Accept": accept} | (
            {"Content-Type": MERGE} if method == "PATCH" else {}
        )
        told = [
            await fleet.ask(
                method, f"{path}?{query}", body=body_of(info, path, method), **headers
            )
            for fleet in both
        ]
        assert told[0] == told[1], (method, query, accept)
        assert told[0][0] in (403, 405), (method, query, told[0])
    assert both[0].plane.trees == before
    assert both[0].plane.touched == both[1].plane.touched == []


async def test_users_with_rights_get_answers_to_the_same_requests(
    both: tuple[Fleet, Fleet],
) -> None:
    """Otherwise the requests of the table might be rejected for another reason."""
    collection = "/apis/modelplane.ai/v1alpha1/namespaces/b/modeldeployments"
    info = next(info for info in SERVED if info.kind == "ModelDeployment")
    wanted = [
        ("GET", "/other", 200, 404),
        ("GET", "/other/scale", 200, 404),
        ("GET", "/other/status", 200, 404),
        ("GET", "", 200, 200),
    ]
    wanted += [
        ("POST", "", 201, 201),
        ("PUT", "/other", 200, 404),
        ("PATCH", "/other", 200, 404),
    ]
    wanted += [
        ("PUT", "/other/scale", 200, 404),
        ("PATCH", "/other/scale", 200, 404),
        ("DELETE", "/other", 200, 404),
        ("DELETE", "", 200, 200),
    ]
    for method, below, *codes in wanted:
        path = collection + below
        headers = {"Content-Type": MERGE} if method == "PATCH" else {}
        told = [
            await fleet.ask(
                method, path, "root", body_of(info, path, method), **headers
            )
            for fleet in both
        ]
        assert [status for status, _ in told] == codes, (method, path, told)


# Requests of autoscalers

NUMBERS, COUNT = b'{"queueDepth":1}', b'{"replicas":1}'


def an_event(namespace: str, name: str) -> bytes:
    """Return a CloudEvent of KEDA about a deployment."""
    subject = f"/c/{namespace}/scaledobject/{name}"
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "/keda",
        "type": "keda.scaledobject.failed.v1",
        "subject": subject,
    }
    return json.dumps(
        {**event, "data": {"reason": "KEDAScalerFailed", "message": "m"}}
    ).encode()


async def scaled(
    fleet: Fleet, method: str, path: str, body: bytes | None, user: str = "ann"
) -> tuple[int, bytes]:
    """Send an autoscaler's request: signed for the webhook, with a token otherwise."""
    headers = {"Content-Type": events.STRUCTURED if path == "/v1/events" else JSON}
    if path.endswith("/scale"):
        timestamp, request_id = str(int(utc_now().timestamp())), "r" * 16
        signed = signed_text(
            AUDIENCE,
            timestamp,
            request_id,
            method=method,
            target=path,
            body=body or b"",
        )
        proof = hmac.digest(bytes.fromhex(KEYS[user]), signed, hashlib.sha256).hex()
        headers |= dict(
            zip(signing.HEADERS, (user, timestamp, request_id, proof), strict=True)
        )
        user = ""
    return await fleet.ask(method, path, user, body, **headers)


# Requests of the page


@pytest.mark.parametrize("query", ["", "?namespace=b", "?namespace=*"])
@pytest.mark.parametrize("path", sorted(OF_PAGE - {EXPLANATION}))
async def test_data_of_the_page_reveals_nothing_about_another_tenant(
    both: tuple[Fleet, Fleet], path: str, query: str
) -> None:
    for method in METHODS:
        told = [await fleet.ask(method, path + query) for fleet in both]
        times = [re.sub(rb'"at": ?\d+', b"", body) for _, body in told]
        assert times[0] == times[1], method
        assert told[0][0] == told[1][0]
        assert told[0][0] in ((403, 405) if path == TRAFFIC_PATH else (200, 405))
        if method == "GET" and told[0][0] == 200:
            shown = json.loads(told[0][1])
            assert not shown.keys() & {"pools", "queues", "namespaces", "quotas"}
            assert shown.get("history", {}) == {}
            assert "services" not in shown
    assert both[0].plane.touched == both[1].plane.touched == []


@pytest.mark.parametrize("name", ["other", "none"])
async def test_an_explanation_for_another_tenant_reveals_nothing(
    both: tuple[Fleet, Fleet], name: str
) -> None:
    path = EXPLANATION.format(namespace="b", plural="modeldeployments", name=name)
    for method in METHODS:
        told = [await fleet.ask(method, path) for fleet in both]
        assert told[0] == told[1], method
        assert told[0][0] in (403, 405), (method, told[0])
    assert both[0].plane.touched == both[1].plane.touched == []


# Requests of the CLI


@pytest.mark.parametrize("name", ["other", "none"])
@pytest.mark.parametrize("route", sorted(OF_COMMANDS))
async def test_cli_requests_for_another_tenant_reveal_and_change_nothing(
    both: tuple[Fleet, Fleet], route: str, name: str
) -> None:
    before = dict(both[0].plane.trees)
    for plural in (
        ("inferenceclusters",)
        if "{namespace}" not in route
        else ("modeldeployments", "modelreplicas", "modelcaches")
    ):
        path = route.format(namespace="b", plural=plural, name=name)
        for method in METHODS:
            told = [
                await fleet.ask(
                    method,
                    path,
                    body=b"{}" if method in ("POST", "PUT", "PATCH") else None,
                )
                for fleet in both
            ]
            assert told[0] == told[1], method
            # Only one kind has templates.
            assert told[0][0] in (
                (404,)
                if route.endswith("revisions") and plural != "modeldeployments"
                else (403, 405)
            ), (method, told[0])
    assert both[0].plane.trees == before
    assert both[0].plane.touched == both[1].plane.touched == []


async def test_users_with_rights_get_answers_to_the_same_cli_requests(
    both: tuple[Fleet, Fleet],
) -> None:
    wanted = [
        ("POST", "/v1/namespaces/b/modeldeployments/other/retry", 200, 404),
        ("POST", "/v1/namespaces/b/modelreplicas/other/retry", 200, 404),
        ("POST", "/v1/inferenceclusters/other/retry", 200, 404),
        ("GET", "/v1/namespaces/b/modeldeployments/other/revisions", 200, 404),
        ("GET", "/v1/servingstacks", 200, 200),
        ("GET", "/v1/servingstacks/other", 200, 404),
    ]
    for method, path, *codes in wanted:
        told = [
            await fleet.ask(method, path, "root", b"{}" if method == "POST" else None)
            for fleet in both
        ]
        assert [status for status, _ in told] == codes, (path, told)
    assert [target.kind.short for target in both[0].plane.retried] == ["md", "mr", "ic"]
    lists = [
        json.loads((await fleet.ask("GET", "/v1/servingstacks", "root"))[1])
        for fleet in both
    ]
    assert [[each["metadata"]["name"] for each in one["items"]] for one in lists] == [
        ["other", "mine"],
        ["mine"],
    ]


async def test_stacks_are_listed_only_if_all_have_answered(
    both: tuple[Fleet, Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await both[0].plane.list(STACKS, None)

    async def listed(kind: KindInfo, namespace: str | None) -> list[ListedObject]:
        assert (kind, namespace) == (STACKS, None)
        return [replace(found[0], answered=False), *found[1:]]

    monkeypatch.setattr(both[0].plane, "list", listed)
    status, told = await both[0].ask("GET", "/v1/servingstacks", "root")
    assert (status, "some of these stacks" in json.loads(told)["message"]) == (
        503,
        True,
    )


async def test_cli_requests_have_no_dry_run_and_reach_no_other_path(
    both: tuple[Fleet, Fleet],
) -> None:
    fleet = both[0]
    status, answer = await fleet.ask(
        "POST", "/v1/namespaces/a/modeldeployments/mine/retry?dryRun=All", body=b"{}"
    )
    assert (status, "nothing was changed" in json.loads(answer)["message"]) == (
        400,
        True,
    )
    for path in (
        "/v1/namespaces/a/modeldeployments/..%2F..%2Fb%2Fother/retry",
        "/v1/namespaces/a%2F..%2Fb/modeldeployments/other/revisions",
        "/v1/modeldeployments/mine/retry",
        "/v1/namespaces/a/inferenceclusters/mine/retry",
        "/v1/servingstacks/..%2Fmine",
        "/v1/nothing/mine/retry",
    ):
        assert (await fleet.ask("POST", path, body=b"{}"))[0] == 404, path
    assert fleet.plane.retried == []


SCALING = [
    (f"{SCALED}/{below}", body)
    for below, body in (("scale", COUNT), ("metrics", NUMBERS))
] + [("/v1/events", b"")]


@pytest.mark.parametrize("name", ["other", "none"])
@pytest.mark.parametrize(
    ("route", "body"), SCALING, ids=[route for route, _ in SCALING]
)
async def test_autoscaler_requests_for_another_tenant_reveal_and_change_nothing(
    both: tuple[Fleet, Fleet], route: str, body: bytes, name: str
) -> None:
    assert {path for path, _ in SCALING} == OF_SCALING
    path = route.format(namespace="b", name=name)
    before = {key: tree for key, tree in both[0].plane.trees.items() if key[1] == "b"}
    for method in METHODS:
        sent = (
            (body or an_event("b", name))
            if method in ("POST", "PUT", "PATCH")
            else None
        )
        told = [await scaled(fleet, method, path, sent) for fleet in both]
        assert told[0] == told[1], method
        assert told[0][0] in (403, 405), (method, told[0])
        assert told[0][0] == 403 or method != "POST"
    assert {
        key: tree for key, tree in both[0].plane.trees.items() if key[1] == "b"
    } == before
    assert both[0].plane.touched == both[1].plane.touched == []
    assert both[0].told.read(
        ObjectKey("ModelDeployment", "b", "other"), "b-other"
    ).values == {"queueDepth": 3}


async def test_users_with_rights_get_answers_to_the_same_autoscaler_requests(
    both: tuple[Fleet, Fleet],
) -> None:
    path = SCALED.format(namespace="b", name="other")
    wanted = [
        ("POST", f"{path}/scale", COUNT, 200, 404),
        ("GET", f"{path}/metrics", None, 200, 404),
    ]
    wanted += [
        ("PUT", f"{path}/metrics", NUMBERS, 200, 404),
        ("POST", "/v1/events", an_event("b", "other"), 202, 202),
    ]
    for method, where, body, *codes in wanted:
        told = [await scaled(fleet, method, where, body, "root") for fleet in both]
        assert [status for status, _ in told] == codes, (where, told)
    assert [json.loads(answer)["recorded"] for _, answer in told] == [True, False]


@pytest.mark.parametrize(
    "below",
    [
        "a%2F..%2Fb/modeldeployments/other/metrics",
        "a/modeldeployments/..%2F..%2Fb%2Fother/metrics",
    ],
)
async def test_no_path_of_an_autoscaler_in_ones_own_namespace_reaches_another(
    both: tuple[Fleet, Fleet], below: str
) -> None:
    for method, body in (("GET", None), ("PUT", NUMBERS)):
        told = [
            await scaled(fleet, method, f"/v1/namespaces/{below}", body)
            for fleet in both
        ]
        assert told[0] == told[1]
        assert told[0][0] == 404


async def test_the_external_scaler_reveals_nothing_to_another_tenant(
    both: tuple[Fleet, Fleet], tmp_path: Path
) -> None:
    pki = Authority(
        tmp_path / "pki", {"ann": ("ann", "team-a"), "root": ("root", None)}
    )
    pki.ensure()
    pair = pki.pair("apiserver")
    settings = FrontSettings(
        access_file=tmp_path / "access.yaml",
        tls_cert=pair.certificate,
        tls_key=pair.key,
        scaler_listen="127.0.0.1:0",
        scaler_client_ca=pki.ca,
    )

    async def told(fleet: Fleet, user: str, name: str) -> list[tuple[object, str]]:
        reference = messages.ScaledObjectRef(
            name=name, namespace="b", scalerMetadata={"targetValue": "2"}
        )
        asked = [("IsActive", reference), ("GetMetricSpec", reference)]
        asked.append(
            ("GetMetrics", messages.GetMetricsRequest(scaledObjectRef=reference))
        )
        async with a_scaler(fleet, settings, user) as keda:
            refusals = [
                await keda.refusal(request, method) for method, request in asked
            ]
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await keda.stream(reference).read()
            return [*refusals, (ended.value.code(), ended.value.details() or "")]

    for name in ("other", "none"):
        there, gone = [await told(fleet, "ann", name) for fleet in both]
        assert there == gone
        assert {code for code, _ in there} == {grpc.StatusCode.PERMISSION_DENIED}
    async with a_scaler(both[0], settings, "root") as keda:
        assert await keda.is_active(
            messages.ScaledObjectRef(
                name="other", namespace="b", scalerMetadata={"targetValue": "2"}
            )
        )


# Texts that name another namespace

KIND = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelDeployment"}
REACHING = [
    ("POST", "", {"metadata": {"name": "fresh", "namespace": "b"}}, "", 400),
    ("PUT", "/mine", {"metadata": {"name": "mine", "namespace": "b"}}, "", 400),
    ("PUT", "/mine", {"metadata": {"name": "other"}}, "", 400),
    ("PUT", "/other", {"metadata": {"name": "other"}}, "", 404),
    ("PATCH", "/mine", {"metadata": {"namespace": "b"}}, MERGE, 400),
    (
        "PATCH",
        "/mine",
        [{"op": "replace", "path": "/metadata/namespace", "value": "b"}],
        "application/json-patch+json",
        400,
    ),
    ("PATCH", "/mine", {"metadata": {"uid": "b-other"}}, MERGE, 422),
    (
        "PUT",
        "/mine/scale",
        {"metadata": {"name": "other", "namespace": "b"}, "spec": {"replicas": 1}},
        "",
        400,
    ),
    ("DELETE", "/other", {"preconditions": {"uid": "b-other"}}, "", 404),
    ("DELETE", "?fieldSelector=metadata.namespace%3Db", None, "", 200),
    ("DELETE", "?fieldSelector=metadata.name%3Dother", None, "", 200),
    ("GET", "?fieldSelector=metadata.namespace%3Db", None, "", 200),
    (
        "GET",
        f"?continue={quote(_token(ObjectKey('ModelDeployment', 'b', 'a'), START + 1))}",
        None,
        "",
        200,
    ),
    ("GET", "?limit=1", None, "", 200),
    ("GET", "?labelSelector=tier", None, "", 200),
    ("GET", "/../../b/modeldeployments/other", None, "", 403),
    ("GET", "/%2e%2e/b", None, "", 404),
    ("GET", "/mine%2F..%2F..%2F..%2Fb%2Fmodeldeployments%2Fother", None, "", 404),
]


@pytest.mark.parametrize("row", REACHING, ids=lambda row: f"{row[0]}-{row[1]}-{row[4]}")
async def test_no_text_of_a_request_in_ones_own_namespace_reaches_another(
    both: tuple[Fleet, Fleet], row: tuple[str, str, object, str, int]
) -> None:
    method, below, document, kind, code = row
    path = f"/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments{below}"
    if isinstance(document, dict) and method in ("POST", "PUT") and "scale" not in path:
        document = {**document, **KIND}
    body = json.dumps(document).encode() if document is not None else None
    before = {key: tree for key, tree in both[0].plane.trees.items() if key[1] == "b"}
    told = [
        await fleet.ask(
            method, path, body=body, **({"Content-Type": kind} if kind else {})
        )
        for fleet in both
    ]
    assert told[0] == told[1]
    assert told[0][0] == code, told[0]
    assert b'"b"' not in told[0][1].replace(b'in the namespace \\"b\\"', b"")
    assert {target.namespace for fleet in both for target in fleet.plane.touched} <= {
        "a"
    }
    assert {
        key: tree for key, tree in both[0].plane.trees.items() if key[1] == "b"
    } == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", [query for query in READS if query.startswith("watch")]
)
async def test_a_watch_of_ones_own_namespace_reveals_no_other(
    both: tuple[Fleet, Fleet], query: str
) -> None:
    info = next(info for info in SERVED if info.kind == "ModelDeployment")

    async def told(fleet: Fleet, *, changes_b: bool) -> bytes:
        collection = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
        path = f"{collection}?{query}&timeoutSeconds=1"
        asked = asyncio.create_task(fleet.ask("GET", path))

        async def watchers() -> int:
            return len(fleet.projection._watchers)

        await eventually(watchers, bool, what="the watch")
        if changes_b:
            fleet.projection.put(
                ObjectKey(info.kind, "b", "other"),
                an_object(info, "b", "other", START + 2),
            )
            fleet.projection.remove(ObjectKey(info.kind, "b", "other"), START + 3)
        fleet.projection.put(
            ObjectKey(info.kind, "a", "late"), an_object(info, "a", "late", START + 4)
        )
        status, body = await asked
        assert status == 200
        return body

    there, gone = await asyncio.gather(
        told(both[0], changes_b=True), told(both[1], changes_b=False)
    )
    assert there == gone
    assert b'"late"' in there
    assert b'"other"' not in there


PAGE = [
    "/",
    *(
        f"/ui/{file.name}"
        for file in sorted(FOLDER.iterdir())
        if file.name != "index.html"
    ),
]


@pytest.mark.parametrize(
    "path", [*PAGE, SETTINGS, "/ui", "/ui/", "/ui/none.js", "/ui/index.html"]
)
async def test_the_page_and_its_settings_are_the_same_whatever_objects_there_are(
    both: tuple[Fleet, Fleet], path: str
) -> None:
    for method in METHODS:
        for user, who in (("ann", "a user"), ("root", "a user"), ("", "nobody")):
            told = [
                await fleet.ask(method, path, user, Accept="text/html")
                for fleet in both
            ]
            assert told[0] == told[1], (method, who)
            reads = method in ("GET", "HEAD")
            expected = (
                200
                if reads and path in PAGE
                else 401
                if not user
                else 200
                if reads and path == SETTINGS
                else 404
            )
            assert told[0][0] == expected, (method, who)
    assert both[0].plane.touched == both[1].plane.touched == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        *DOCUMENTS,
        "/apis/modelplane.ai",
        "/apis/modelplane.ai/v1alpha1",
        "/openapi/v3/apis/modelplane.ai/v1alpha1",
    ],
)
async def test_documents_are_the_same_for_everybody_and_for_nobody_without_a_token(
    both: tuple[Fleet, Fleet], path: str
) -> None:
    answers = {
        await fleet.ask("GET", path, user) for fleet in both for user in ("ann", "root")
    }
    assert [status for status, _ in answers] == [200]
    status, _ = await both[0].ask("GET", path, user="")
    assert status == (200 if path in ("/healthz", "/livez", "/readyz") else 401)


async def test_a_review_follows_the_rules_and_reveals_no_objects(
    both: tuple[Fleet, Fleet],
) -> None:
    for namespace, name, allowed in (
        ("a", "other", True),
        ("b", "other", False),
        ("b", "none", False),
        ("", "", False),
    ):
        wanted = {
            "verb": "get",
            "resource": "modeldeployments",
            "group": "modelplane.ai",
            "namespace": namespace,
            "name": name,
        }
        told = [
            await fleet.ask(
                "POST",
                access_reviews.PATH,
                body=json.dumps({"spec": {"resourceAttributes": wanted}}).encode(),
            )
            for fleet in both
        ]
        assert told[0] == told[1]
        assert (told[0][0], json.loads(told[0][1])["status"]["allowed"]) == (
            201,
            allowed,
        )


@pytest.mark.parametrize(
    ("group", "allowed"),
    [("modelplane.ai", True), ("*", True), ("apps", False), ("", False)],
)
async def test_rules_cover_only_kinds_of_this_group(
    both: tuple[Fleet, Fleet], group: str, allowed: bool
) -> None:
    wanted = {
        "verb": "get",
        "resource": "modeldeployments",
        "group": group,
        "namespace": "a",
    }
    _, told = await both[0].ask(
        "POST",
        access_reviews.PATH,
        body=json.dumps({"spec": {"resourceAttributes": wanted}}).encode(),
    )
    assert json.loads(told)["status"]["allowed"] is allowed
