"""An API server that sends too much, too slowly, or invalid objects.

Every request ends with an error that describes the problem, and uses little memory.
"""

import asyncio
import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from activities.clients.kubernetes import client as client_module
from activities.clients.kubernetes import session as session_module
from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from activities.clients.kubernetes.session import Session
from activities.cluster_objects.cluster_api import GroupVersionKind, ObjectId, Selection
from api_types.errors import (
    AnswerTooLarge,
    ClusterUnreachable,
    ModelplaneError,
    ServerError,
)
from tests.environment.impostor import (
    MIB,
    Certificate,
    Chunks,
    Request,
    a_certificate,
    dripping,
    endless,
    head,
    impostor,
    whole,
)

TOKEN = "the-token-of-the-cluster"  # noqa: S105
POD = GroupVersionKind("v1", "Pod")
PODS = Selection(POD, "ml")
TARGET = ObjectId(POD, "ml", "p")
DISCOVERY = json.dumps(
    {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": ""},
                "versions": [
                    {
                        "version": "v1",
                        "resources": [
                            {
                                "resource": "pods",
                                "responseKind": {"kind": "Pod"},
                                "scope": "Namespaced",
                            }
                        ],
                    }
                ],
            }
        ],
    }
).encode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return a_certificate(tmp_path_factory.mktemp("impostor"), "api.example")


Answers = Callable[[Request], Chunks]


def an_api_server(pods: Answers) -> Answers:
    """A server that serves pods in this way."""
    return lambda request: (
        pods(request) if "/pods" in request.path else whole(DISCOVERY)
    )


class Connected(NamedTuple):
    """A client and its server."""

    client: KubernetesCluster
    session: Session


async def connected(host: str, certificate: Certificate) -> Connected:
    session = Session(
        "eu-1",
        ApiServerAccess(
            server=f"https://{host}",
            authority=certificate.authority,
            token=TOKEN,
            allow_loopback=True,
        ),
    )
    return Connected(KubernetesCluster(session), session)


@pytest.fixture
async def failure(certificate: Certificate) -> Any:
    """Return the error of a client call, and how much the server sent."""

    async def fail(
        pods: Answers, use: Callable[[KubernetesCluster], Any]
    ) -> tuple[ModelplaneError, int]:
        async with impostor(an_api_server(pods), certificate) as server:
            client, session = await connected(server.host, certificate)
            try:
                with pytest.raises(ModelplaneError) as caught:
                    await use(client)
            finally:
                await session.close()
            return caught.value, server.sent

    return fail


async def watched(client: KubernetesCluster) -> None:
    async for _ in client.watch(PODS, "1"):
        pass


@cache
def bomb() -> bytes:
    """Return 300 KiB of gzip that decompress to 300 MiB.

    Creating it takes a second, so it does not happen during collection.
    """
    return gzip.compress(bytes(300 * MIB), 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pods", "says"),
    [
        pytest.param(lambda _: endless(bytes(MIB), 600 * MIB), "16 MiB", id="600 MiB"),
        pytest.param(
            lambda _: whole(bomb(), Content_Encoding="gzip"),
            "16 MiB",
            id="300 KiB of gzip with 300 MiB in them",
        ),
    ],
)
@pytest.mark.parametrize(
    "use",
    [lambda client: client.get(TARGET), lambda client: client.list(PODS)],
    ids=["get", "list"],
)
async def test_an_answer_that_is_too_large_is_not_read(
    failure: Any, pods: Answers, says: str, use: Any
) -> None:
    error, sent = await failure(pods, use)
    assert isinstance(error, AnswerTooLarge)
    assert error.message.startswith("cluster eu-1: GET /api/v1/namespaces/ml/pods")
    assert f"the response is larger than {says}" in error.message
    assert sent < 150 * MIB


async def test_a_line_of_a_watch_that_does_not_end_is_not_read(failure: Any) -> None:
    error, sent = await failure(lambda _: endless(b"x" * MIB, 600 * MIB), watched)
    assert isinstance(error, AnswerTooLarge)
    assert "larger than 8 MiB" in error.message
    assert sent < 64 * MIB


async def test_the_error_of_a_watch_is_read_within_the_bound_too(failure: Any) -> None:
    async def refused(_: Request) -> Chunks:
        yield head("500 Internal Server Error", Connection="close")
        for _block in range(600):
            yield bytes(MIB)

    error, sent = await failure(refused, watched)
    assert isinstance(error, AnswerTooLarge)
    assert sent < 64 * MIB


async def test_long_lines_and_many_in_one_packet_are_given_one_by_one(
    certificate: Certificate,
) -> None:
    texts = ["a", "b" * 3_000_000, "c"]
    lines = [
        json.dumps(
            {
                "type": "ADDED",
                "object": {
                    "metadata": {"name": "p", "resourceVersion": "7"},
                    "text": text,
                },
            }
        )
        for text in texts
    ]
    async with impostor(
        an_api_server(lambda _: whole("\n".join(lines).encode())), certificate
    ) as server:
        client, session = await connected(server.host, certificate)
        assert [
            event.object["text"] async for event in client.watch(PODS, "1")
        ] == texts
        await session.close()


@pytest.mark.slow
async def test_a_request_to_a_dripping_server_times_out(
    failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(session_module, "WATCH_SECONDS", 1.0)
    for use in (lambda client: client.get(TARGET), watched):
        error, _ = await failure(lambda _: dripping(0.1), use)
        assert isinstance(error, ClusterUnreachable)


async def test_headers_that_are_too_large_are_not_read(failure: Any) -> None:
    async def respond(_: Request) -> Chunks:
        yield b"HTTP/1.1 200 OK\r\nX-Long: "
        for _block in range(64):
            yield b"x" * MIB

    error, sent = await failure(respond, lambda client: client.get(TARGET))
    assert isinstance(error, ClusterUnreachable)
    assert sent < 16 * MIB


@pytest.mark.slow
async def test_a_list_whose_objects_are_large_is_read_in_smaller_pages(
    certificate: Certificate,
) -> None:
    content = "x" * MIB

    def page(request: Request) -> Chunks:
        query = dict(
            pair.split("=") for pair in request.path.partition("?")[2].split("&")
        )
        first = int(query.get("continue", "0"))
        last = min(first + int(query["limit"]), 30)
        items = [
            {"metadata": {"name": f"p{number}"}, "content": content}
            for number in range(first, last)
        ]
        metadata = {
            "resourceVersion": "9",
            **({"continue": str(last)} if last < 30 else {}),
        }
        return whole(json.dumps({"metadata": metadata, "items": items}).encode())

    async with impostor(an_api_server(page), certificate) as server:
        client, session = await connected(server.host, certificate)
        listing = await client.list(PODS)
        await session.close()
    assert [item["metadata"]["name"] for item in listing.items] == [
        f"p{number}" for number in range(30)
    ]
    assert listing.resource_version == "9"


@pytest.mark.slow
async def test_smaller_pages_of_which_one_expires_are_of_one_version(
    certificate: Certificate,
) -> None:
    content, kept, versions = "x" * MIB, list(range(30)), ["9", "12"]

    def page(request: Request) -> Chunks:
        query = dict(
            pair.split("=") for pair in request.path.partition("?")[2].split("&")
        )
        first, limit = int(query.get("continue", "0")), int(query["limit"])
        if first and versions[0] == "9":
            # Some objects are deleted between two pages, and the version of the first
            # page expires.
            del kept[:5], versions[0]
            return whole(b"{}", "410 Gone")
        items = [
            {"metadata": {"name": f"p{number}"}, "content": content}
            for number in kept[first : first + limit]
        ]
        more = {"continue": str(first + limit)} if first + limit < len(kept) else {}
        return whole(
            json.dumps(
                {"metadata": {"resourceVersion": versions[0], **more}, "items": items}
            ).encode()
        )

    async with impostor(an_api_server(page), certificate) as server:
        client, session = await connected(server.host, certificate)
        listing = await client.list(PODS)
        await session.close()
    assert [item["metadata"]["name"] for item in listing.items] == [
        f"p{number}" for number in range(5, 30)
    ]
    assert listing.resource_version == "12"


async def test_an_endless_list_is_an_error(
    failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_LIST_BYTES_MAX", 4 * MIB)
    page = json.dumps(
        {"metadata": {"continue": "more"}, "items": [], "filler": "x" * MIB}
    ).encode()
    error, _ = await failure(lambda _: whole(page), lambda client: client.list(PODS))
    assert isinstance(error, ServerError)
    assert "its pages are more than 4 MiB together" in error.message


async def test_a_list_fails_if_every_continue_token_expires(
    failure: Any,
) -> None:
    error, _ = await failure(
        lambda _: whole(b"{}", "410 Gone"), lambda client: client.list(PODS)
    )
    assert isinstance(error, ServerError)


EVENT = {"type": "ADDED", "object": {"metadata": {"name": "p", "resourceVersion": "7"}}}
NO_OBJECTS = [
    pytest.param(
        b"[" * 200_000, lambda client: client.get(TARGET), id="nested too deep"
    ),
    pytest.param(
        b"[]", lambda client: client.get(TARGET), id="a list instead of an object"
    ),
    pytest.param(
        b"9" * 5000, lambda client: client.get(TARGET), id="a number of 5,000 digits"
    ),
    pytest.param(
        b"{}", lambda client: client.get(TARGET), id="an object without metadata"
    ),
    pytest.param(
        b'{"metadata": {"name": ["x"]}}',
        lambda client: client.get(TARGET),
        id="an object whose name is no text",
    ),
    pytest.param(
        b'{"items": {"a": 1}}',
        lambda client: client.list(PODS),
        id="items that are no list",
    ),
    pytest.param(
        b'{"items": [1]}',
        lambda client: client.list(PODS),
        id="an item that is no object",
    ),
    pytest.param(
        b'{"items": [{"metadata": {}}]}',
        lambda client: client.list(PODS),
        id="an item without a name",
    ),
    pytest.param(
        b'{"items": [], "metadata": [1]}',
        lambda client: client.list(PODS),
        id="metadata that are none",
    ),
    pytest.param(b"[" * 200_000, watched, id="a line that is nested too deep"),
    pytest.param(b"[]", watched, id="a line that is no event"),
    pytest.param(
        json.dumps({**EVENT, "type": ["x"]}).encode(), watched, id="an event of no type"
    ),
    pytest.param(
        json.dumps({**EVENT, "object": 1}).encode(), watched, id="an event of no object"
    ),
    pytest.param(
        json.dumps({**EVENT, "type": "ERROR", "object": {"code": "x"}}).encode(),
        watched,
        id="an error of no code",
    ),
    pytest.param(
        json.dumps({**EVENT, "object": {"metadata": {"name": "p"}}}).encode(),
        watched,
        id="an object without a version",
    ),
]


@pytest.mark.parametrize(("body", "use"), NO_OBJECTS)
async def test_an_invalid_object_is_an_error_of_the_cluster(
    failure: Any, body: bytes, use: Any
) -> None:
    error, _ = await failure(lambda _: whole(body), use)
    assert isinstance(error, ServerError | ClusterUnreachable)
    assert error.message.startswith("cluster eu-1: ")
    assert len(error.message) < 2000


@pytest.mark.parametrize(
    "body", [b'{"kind": "APIGroupDiscoveryList", "items": [1]}', b'{"versions": 5}']
)
async def test_an_invalid_discovery_document_is_an_error_of_the_cluster(
    certificate: Certificate, body: bytes
) -> None:
    async with impostor(lambda _: whole(body), certificate) as server:
        client, session = await connected(server.host, certificate)
        with pytest.raises(ServerError, match="it is not a discovery document"):
            await client.resources()
        await session.close()


async def test_no_password_of_a_netrc_file_and_no_cookie_is_sent(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.example login operator password of-the-operator\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    async def lookup(*_: object, **__: object) -> list[dict[str, Any]]:
        return [
            {
                "hostname": "api.example",
                "host": "127.0.0.1",
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
        ]

    # Cookies of addresses would be ignored anyway.
    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", lookup)
    async with impostor(
        lambda _: whole(b"{}", Set_Cookie="a=b"), certificate
    ) as server:
        port = int(server.host.rpartition(":")[2])
        # Without a token, as with a client certificate.
        access = ApiServerAccess(
            server=f"https://api.example:{port}",
            authority=certificate.authority,
            allow_loopback=True,
        )
        session = Session("eu-1", access)
        await session.request("GET", "/version")
        await session.request("GET", "/version")
        await session.close()
    assert [
        ("authorization" in request.headers, "cookie" in request.headers)
        for request in server.requests
    ] == [(False, False)] * 2


async def test_a_cluster_is_reached_through_the_proxy_of_the_workers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with impostor(lambda _: whole(b"", "403 Forbidden")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.host}")
        monkeypatch.setenv("NO_PROXY", "direct.example")
        for host, asked in (("eu-1.example", 1), ("direct.example", 1)):
            session = Session(
                "eu-1", ApiServerAccess(server=f"https://{host}:6443", token=TOKEN)
            )
            with pytest.raises(ClusterUnreachable):
                await session.request("GET", "/version")
            await session.close()
            assert len(proxy.requests) == asked
        assert proxy.requests[0].path == "eu-1.example:6443"
        assert not any(TOKEN in value for value in proxy.requests[0].headers.values())


PROGRAM = """
import asyncio, resource, sys
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from activities.clients.kubernetes.session import Session
from api_types.errors import AnswerTooLarge

async def main(server, authority):
    access = ApiServerAccess(server=server, authority=authority, allow_loopback=True)
    session = Session("eu-1", access)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in ("/large", "/bomb"):
        try:
            await session.request("GET", path)
        except AnswerTooLarge:
            print("refused")
    await session.close()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main(sys.argv[1], open(sys.argv[2]).read()))
"""


@pytest.mark.slow
async def test_the_memory_of_a_worker_does_not_grow_with_a_servers_responses(
    certificate: Certificate,
) -> None:
    def respond(request: Request) -> Chunks:
        return (
            whole(bomb(), Content_Encoding="gzip")
            if request.path == "/bomb"
            else endless(bytes(MIB), 600 * MIB)
        )

    async with impostor(respond, certificate) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            f"https://{server.host}",
            str(certificate.certificate),
            stdout=subprocess.PIPE,
        )
        output, _ = await process.communicate()
    *refused, grown_kib = output.decode().split()
    assert refused == ["refused", "refused"]
    assert int(grown_kib) < 64 * 1024


@pytest.mark.slow
async def test_a_list_of_more_objects_than_a_cluster_has_is_refused_with_the_page_that_has_them(
    failure: Any,
) -> None:
    tiny = b",".join([b'{"metadata":{"name":"a"}}'] * 160_000)
    page = b'{"metadata":{"continue":"c"},"items":[' + tiny + b"]}"
    error, sent = await failure(lambda _: whole(page), lambda client: client.list(PODS))
    assert isinstance(error, ServerError)
    assert "it has more than 150000 objects" in error.message
    assert sent < 2 * len(page)


async def test_only_the_kept_part_of_a_page_outlives_it(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list contains the kept parts.

    A list of whole objects has a lower limit without contents.
    """
    pages = iter(
        [
            b'{"metadata":{"continue":"c"},"items":[{"metadata":{"name":"a"}}]}',
            b'{"items":[{"metadata":{"name":"b"}}]}',
        ]
    )
    async with impostor(
        an_api_server(lambda _: whole(next(pages))), certificate
    ) as server:
        client, session = await connected(server.host, certificate)
        listing = await client.list(PODS, lambda item: item["metadata"]["name"])
        await session.close()
    assert listing.items == ["a", "b"]
    monkeypatch.setattr(client_module, "_METADATA_LIST_BYTES_MAX", 10)
    async with impostor(
        an_api_server(lambda _: whole(b'{"items":[{"metadata":{"name":"b"}}]}')),
        certificate,
    ) as server:
        client, session = await connected(server.host, certificate)
        with pytest.raises(ServerError, match="its pages are more than"):
            await client.list(PODS._replace(metadata_only=True))
        assert (await client.list(PODS)).items[0]["metadata"]["name"] == "b"
        await session.close()


async def test_an_invalid_object_name_is_rejected(failure: Any) -> None:
    page = json.dumps({"items": [{"metadata": {"name": "n" * 1025}}]}).encode()
    error, _ = await failure(lambda _: whole(page), lambda client: client.list(PODS))
    assert "it is not a list of Kubernetes objects" in error.message


async def test_half_of_a_surrogate_pair_is_replaced_and_its_neighbours_stay(
    certificate: Certificate,
) -> None:
    # Such text could be neither stored nor sent. The complete pair next to it is a
    # character.
    body = (
        b'{"metadata": {"name": "p", "annotations": {"a": "x\\ud800y\\ud83d\\ude00"}}}'
    )
    async with impostor(an_api_server(lambda _: whole(body)), certificate) as server:
        client, session = await connected(server.host, certificate)
        found = await client.get(TARGET)
        await session.close()
    assert found
    assert found["metadata"]["annotations"] == {"a": "x?y\U0001f600"}
