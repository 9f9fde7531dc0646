"""A hostile registry: redirects, large responses, and the errors that a tenant sees."""

import asyncio
import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from activities.clients.hubs import oci
from activities.clients.hubs.huggingface import HuggingFaceHub
from activities.clients.hubs.oci import OciRegistry
from activities.clients.outward import requests
from activities.render.cache.artifact import SOURCE_HUGGINGFACE, SOURCE_OCI, Artifact
from api_types.errors import (
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    ServerError,
    Unsupported,
)
from tests.environment.effort import effort_below
from tests.environment.impostor import (
    HERE,
    INSIDE,
    MIB,
    Certificate,
    Chunks,
    Request,
    Respond,
    a_certificate,
    dripping,
    endless,
    impostor,
    whole,
)

DIGEST = "sha256:" + "ab" * 32
LOOPBACK = (ip_network(f"{HERE}/32"),)
LOGIN = json.dumps(
    {"auths": {"registry.example": {"username": "robot", "password": "hunter2"}}}
)
MANIFEST = b'{"schemaVersion": 2, "layers": []}'
NAMES = {
    "registry.example": HERE,
    "auth.example": HERE,
    "elsewhere.example": HERE,
    "inside.example": INSIDE,
}
DENIED = json.dumps({"errors": [{"code": "DENIED"}]}).encode()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return a_certificate(tmp_path_factory.mktemp("registry"), *NAMES)


@pytest.fixture(autouse=True)
def trusting(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The system trusts the impostors' authority, and their names lead to loopback."""

    async def lookup(
        _self: object, host: str, port: int = 0, family: int = 0
    ) -> list[dict[str, Any]]:
        del family
        if host not in NAMES:
            raise OSError(socket.EAI_NONAME, "unknown name")
        return [
            {
                "hostname": host,
                "host": NAMES[host],
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
        ]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", lookup)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    requests._tls.cache_clear()
    yield
    requests._tls.cache_clear()


def an_image(host: str, *, plain: bool = False) -> Artifact:
    return Artifact(
        source=SOURCE_OCI,
        origin=f"{host}/models/qwen:1.0",
        revision="",
        size_gib=1,
        plain_http=plain,
    )


def port(host: str) -> str:
    return host.rpartition(":")[2]


def named(server: Any, name: str = "registry.example") -> str:
    return f"{name}:{port(server.host)}"


def login_for(host: str) -> str:
    return LOGIN.replace("registry.example", host)


async def failed(
    image: Artifact, registry: OciRegistry | None = None, login: str = ""
) -> ModelplaneError:
    with pytest.raises(ModelplaneError) as caught:
        await (registry or OciRegistry(LOOPBACK)).resolve(image, login)
    assert "hunter2" not in str(caught.value)
    return caught.value


def at(url: str, inside: Any, server: Any) -> str:
    """Fill in the address of the forbidden server, and the redirecting port."""
    return url.format(
        inside=inside.host, port=port(inside.host), here=port(server.host)
    )


def a_challenge(realm: str) -> Chunks:
    challenge = (
        f'Bearer realm="{realm}",service="registry",scope="repository:models/qwen:pull"'
    )
    return whole(b'{"errors": []}', "401 Unauthorized", WWW_Authenticate=challenge)


def whole_redirect(where: str) -> Respond:
    return lambda _: whole(b"", "302 Found", Location=where)


async def test_the_login_goes_to_the_token_server_of_another_host_over_tls(
    certificate: Certificate,
) -> None:
    def auth(request: Request) -> Chunks:
        assert request.headers["authorization"].startswith("Basic ")
        return whole(b'{"access_token": "abc.DEF-123=="}')

    def registry(request: Request) -> Chunks:
        if request.headers.get("authorization") == "Bearer abc.DEF-123==":
            return whole(MANIFEST)
        return a_challenge(
            f"https://auth.example:{port(auth_server.host)}/token?account=robot"
        )

    async with (
        impostor(auth, certificate) as auth_server,
        impostor(registry, certificate) as server,
    ):
        digest = await OciRegistry(LOOPBACK).resolve(
            an_image(named(server)), login_for(named(server))
        )
        assert digest.startswith("sha256:")
        assert [request.path for request in auth_server.requests] == [
            "/token?account=robot&service=registry&scope=repository:models/qwen:pull"
        ]


REALMS = [
    "https://{inside}/token",
    "https://inside.example:{port}/token",
    "http://inside.example:{port}/token",
    "https://user:pass@inside.example:{port}/token",
    "https://registry.example:{here}/to-inside",
]


@pytest.mark.parametrize("realm", REALMS)
async def test_an_internal_token_server_is_not_called(
    certificate: Certificate, realm: str
) -> None:
    def registry(request: Request) -> Chunks:
        if request.path.startswith("/to-inside"):
            return whole(
                b"",
                "302 Found",
                Location=f"https://inside.example:{port(inside.host)}/token",
            )
        return a_challenge(at(realm, inside, server))

    def secret(_: Request) -> Chunks:
        return whole(b'{"token": "secret-of-the-metadata-service"}')

    async with (
        impostor(secret, certificate, INSIDE) as inside,
        impostor(registry, certificate) as server,
    ):
        error = await failed(an_image(named(server)), login=login_for(named(server)))
        assert isinstance(error, ServerError | CredentialsInvalid)
        assert "inside" not in error.message
        assert inside.connections == 0
        assert not any(
            "bearer" in request.headers.get("authorization", "").lower()
            for request in server.requests
        )


@pytest.mark.parametrize(
    "body",
    [
        b'{"token": "a\\r\\nX-Injected: b"}',
        b'{"token": "a b"}',
        b'{"token": ["a"]}',
        b'{"token": ""}',
        b'["token"]',
        b"AccessKeyId: x",
        b"[" * 60_000,
        b'{"token": "abc"' + b" " * 100_000 + b"}",
    ],
    ids=[
        "a header in it",
        "a space",
        "a list",
        "empty",
        "no object",
        "no JSON",
        "nested",
        "too large",
    ],
)
async def test_an_invalid_token_is_not_sent_to_the_registry(
    certificate: Certificate, body: bytes
) -> None:
    def registry(request: Request) -> Chunks:
        return (
            whole(body)
            if request.path.startswith("/token")
            else a_challenge(f"https://{named(server)}/token")
        )

    async with impostor(registry, certificate) as server:
        error = await failed(an_image(named(server)))
        assert isinstance(error, ServerError)
        assert [request.path.partition("?")[0] for request in server.requests] == [
            "/v2/models/qwen/manifests/1.0",
            "/token",
        ]


async def test_a_realm_without_tls_is_refused_for_a_registry_with_tls(
    certificate: Certificate,
) -> None:
    async with impostor(lambda _: whole(b'{"token": "t"}')) as plain:
        async with impostor(
            lambda _: a_challenge(f"http://{plain.host}/token"), certificate
        ) as server:
            assert isinstance(
                await failed(an_image(named(server)), login=login_for(named(server))),
                CredentialsInvalid,
            )
        assert plain.requests == []


async def test_a_realm_without_tls_is_only_the_registrys_own_host() -> None:
    registry = OciRegistry(LOOPBACK, allow_plain_http=True)
    async with impostor(lambda _: a_challenge("http://auth.example/token")) as server:
        assert isinstance(
            await failed(an_image(server.host, plain=True), registry),
            CredentialsInvalid,
        )


async def test_plain_http_is_refused_unless_the_operator_allows_it() -> None:
    async with impostor(lambda _: whole(MANIFEST)) as server:
        error = await failed(an_image(server.host, plain=True))
        assert isinstance(error, Unsupported)
        assert "oci.allowPlainHttp" in error.message
        assert server.connections == 0
        pinned = Artifact(
            source=SOURCE_OCI,
            origin="registry.example/x",
            revision=DIGEST,
            size_gib=1,
            plain_http=True,
        )
        assert isinstance(await failed(pinned), Unsupported)


async def test_redirects_are_followed_three_times_and_no_further(
    certificate: Certificate,
) -> None:
    def registry(request: Request) -> Chunks:
        hop = int(request.path.rpartition("?")[2]) if "?" in request.path else 0
        return (
            whole(MANIFEST)
            if hop == hops
            else whole(b"", "302 Found", Location=f"/elsewhere?{hop + 1}")
        )

    async with impostor(registry, certificate) as server:
        hops = 3
        assert (
            await OciRegistry(LOOPBACK).resolve(an_image(named(server)), "")
        ).startswith("sha256:")
        hops = 4
        assert isinstance(await failed(an_image(named(server))), ServerError)
        assert len(server.requests) == 4 + 4


async def test_a_redirect_to_another_origin_does_not_get_the_credential(
    certificate: Certificate,
) -> None:
    async with impostor(lambda _: whole(MANIFEST), certificate) as other:
        target = f"https://elsewhere.example:{port(other.host)}/manifest"
        async with impostor(
            lambda _: whole(b"", "307 Temporary Redirect", Location=target), certificate
        ) as server:
            auth = login_for(named(server))
            challenged = OciRegistry(LOOPBACK)
            # Basic credentials are sent after a challenge of that kind. Here the first
            # response is the redirect.
            assert (
                await challenged._client.get(
                    f"https://{named(server)}/x",
                    {"Authorization": "Basic abc"},
                    size_max=MIB,
                )
            ).status == 200
            assert server.requests[-1].headers["authorization"] == "Basic abc"
            assert "authorization" not in other.requests[-1].headers
            assert (await challenged.resolve(an_image(named(server)), auth)).startswith(
                "sha256:"
            )
            assert "authorization" not in other.requests[-1].headers


LOCATIONS = [
    "https://{inside}/x",
    "https://inside.example:{port}/x",
    "https://169.254.169.254/x",
    "https://u:p@registry.example:{here}/x",
    "//[::1]/x",
    "https://x:99999/",
    "file:///etc/passwd",
    "",
]


@pytest.mark.parametrize("location", LOCATIONS)
async def test_a_redirect_that_must_not_be_followed_is_not(
    certificate: Certificate, location: str
) -> None:
    def registry(request: Request) -> Chunks:
        if request.path == "/x":
            return whole(MANIFEST)
        return whole(b"", "302 Found", Location=at(location, inside, server))

    async with (
        impostor(lambda _: whole(MANIFEST), certificate, INSIDE) as inside,
        impostor(registry, certificate) as server,
    ):
        assert isinstance(await failed(an_image(named(server))), ServerError)
        assert inside.connections == 0
        assert not any(request.path == "/x" for request in server.requests)


async def test_a_redirect_does_not_lead_from_tls_to_plain_http(
    certificate: Certificate,
) -> None:
    async with impostor(lambda _: whole(MANIFEST)) as plain:
        where = f"http://registry.example:{port(plain.host)}/x"
        async with impostor(
            lambda _: whole(b"", "302 Found", Location=where), certificate
        ) as server:
            assert isinstance(await failed(an_image(named(server))), ServerError)
            # Nor if the request started without TLS and continued with it.
            to_tls = whole_redirect(f"https://{named(server)}/x")
            async with impostor(to_tls) as first:
                assert isinstance(
                    await failed(
                        an_image(named(first), plain=True),
                        OciRegistry(LOOPBACK, allow_plain_http=True),
                    ),
                    ServerError,
                )
            assert len(server.requests) == 2
        assert plain.connections == 0


async def test_a_name_that_resolves_to_an_internal_address_is_not_connected_to(
    certificate: Certificate,
) -> None:
    async with impostor(lambda _: whole(MANIFEST), certificate, INSIDE) as server:
        error = await failed(an_image(named(server, "inside.example")))
        assert isinstance(error, ServerError)
        assert "outbound.privateAddresses" in error.message
        assert server.connections == 0


async def test_a_name_that_resolves_to_another_address_each_time_is_checked_each_time(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first response of the resolver would pass any check before the connection."""
    answers = iter(["203.0.113.7", "127.0.0.1", "127.0.0.1", "127.0.0.1"])

    async def lookup(
        _self: object, host: str, port: int = 0, family: int = 0
    ) -> list[dict[str, Any]]:
        del family
        return [
            {
                "hostname": host,
                "host": next(answers),
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
        ]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", lookup)
    monkeypatch.setattr(requests, "REQUEST_SECONDS", 0.5)
    async with impostor(lambda _: whole(MANIFEST), certificate) as server:
        for _attempt in range(3):
            assert isinstance(
                await failed(an_image(named(server)), OciRegistry()), ServerError
            )
        assert server.connections == 0


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:5000",
        "10.1.2.3",
        "169.254.169.254",
        "localhost:5000",
        "2130706433.:80",
        "127.1:80",
    ],
)
async def test_an_internal_host_in_a_reference_is_refused_in_words(host: str) -> None:
    error = await failed(an_image(host), OciRegistry())
    assert isinstance(error, Unsupported | InvalidInput)
    assert host.partition(":")[0].rstrip(".") in error.message


async def test_a_private_network_that_the_operator_lists_is_connected_to(
    certificate: Certificate,
) -> None:
    error = await failed(an_image("10.1.2.3"), OciRegistry())
    assert "outbound.privateAddresses" in error.message
    async with impostor(lambda _: whole(MANIFEST), certificate) as server:
        assert (
            await OciRegistry(LOOPBACK).resolve(an_image(server.host), "")
        ).startswith("sha256:")


@pytest.mark.slow
async def test_a_tenant_cannot_tell_an_open_port_from_a_closed_one(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for a busy machine to respond, because each reason must be
    # distinguishable.
    monkeypatch.setattr(requests, "REQUEST_SECONDS", 3.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = str(probe.getsockname()[1])
    texts = {
        (await failed(an_image(f"registry.example:{closed}"))).message.replace(
            closed, "PORT"
        )
    }
    odd: list[tuple[Any, Certificate | None]] = [
        (lambda _: whole(b"<html>", Content_Type="text/html"), certificate),
        (lambda _: whole(b"", "404 Not Found"), certificate),
        (lambda _: whole(b"<html>", "403 Forbidden"), certificate),
        (lambda _: whole(b"{}", "500 Internal Server Error"), certificate),
        (lambda _: whole(DENIED, "418 I'm a teapot"), certificate),
        (lambda _: dripping(0.1), certificate),
        (lambda _: endless(bytes(MIB), 8 * MIB), certificate),
        (lambda _: whole(b"{}"), None),
    ]
    with capture_logs() as logged:
        for respond, tls in odd:
            async with impostor(respond, tls) as server:
                error = await failed(an_image(named(server)))
                assert isinstance(error, ServerError)
                texts.add(error.message.replace(port(server.host), "PORT"))
    assert len(texts) == 1
    # The log distinguishes them, except a dripping server and a plain one that waits
    # for more data: neither responds in time.
    assert len({entry["reason"] for entry in logged}) == len(odd) - 1


async def test_an_error_of_the_registry_is_reported(certificate: Certificate) -> None:
    for status, kind in [
        ("404 Not Found", InvalidInput),
        ("403 Forbidden", CredentialsInvalid),
    ]:
        async with impostor(
            lambda _, status=status: whole(DENIED, status),  # type: ignore[misc]
            certificate,
        ) as server:
            assert isinstance(await failed(an_image(named(server))), kind)


@pytest.mark.slow
async def test_a_request_to_a_dripping_registry_times_out(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "REQUEST_SECONDS", 0.5)
    # It drips without end, so only its limit ends the request.
    async with (
        asyncio.timeout(60),
        impostor(lambda _: dripping(0.1), certificate) as server,
    ):
        assert isinstance(await failed(an_image(named(server))), ServerError)


async def test_no_password_of_a_netrc_file_is_sent(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(
        "machine registry.example login operator password of-the-operator\n"
    )
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with impostor(lambda _: whole(MANIFEST), certificate) as server:
        await OciRegistry(LOOPBACK).resolve(an_image(named(server)), "")
        assert "authorization" not in server.requests[-1].headers


async def test_through_a_proxy_hosts_are_checked_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with impostor(lambda _: whole(MANIFEST)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://operator:secret@{proxy.host}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://operator:secret@{proxy.host}")
        registry = OciRegistry(allow_plain_http=True)
        assert (
            await registry.resolve(an_image("registry.example", plain=True), "")
        ).startswith("sha256:")
        assert [request.path for request in proxy.requests] == [
            "http://registry.example/v2/models/qwen/manifests/1.0"
        ]
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
        for host in (
            "169.254.169.254",
            "127.0.0.1",
            "10.0.0.1",
            "metadata.google.internal",
        ):
            assert isinstance(
                await failed(an_image(host, plain=True), registry), Unsupported
            )
        assert len(proxy.requests) == 1


async def test_through_a_proxy_redirects_are_checked_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with impostor(whole_redirect("http://169.254.169.254/token")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.host}")
        error = await failed(
            an_image("registry.example", plain=True), OciRegistry(allow_plain_http=True)
        )
        assert isinstance(error, ServerError)
        assert [request.path for request in proxy.requests] == [
            "http://registry.example/v2/models/qwen/manifests/1.0"
        ]


def a_model(repo: str = "acme/tiny") -> Artifact:
    return Artifact(source=SOURCE_HUGGINGFACE, origin=repo, revision="v/1", size_gib=1)


async def test_the_hub_of_the_operator_may_be_internal_and_leads_nowhere_else_inside() -> (
    None
):
    async with impostor(lambda _: whole(MANIFEST), address=INSIDE) as inside:
        answers = {
            "/api/models/acme/tiny/revision/v%2F1": lambda: whole(
                b"", "307 Temporary Redirect", Location="/api/moved"
            )
        }

        def hub(request: Request) -> Chunks:
            return answers.get(
                request.path, lambda: whole(json.dumps({"sha": "a" * 40}).encode())
            )()

        async with impostor(hub) as server:
            mirror = HuggingFaceHub(f"http://{server.host}")
            assert await mirror.resolve(a_model(), "hf_token") == "a" * 40
            assert [
                request.headers["authorization"] for request in server.requests
            ] == ["Bearer hf_token"] * 2
            answers["/api/moved"] = lambda: whole(
                b"", "302 Found", Location=f"http://{inside.host}/x"
            )
            with pytest.raises(ServerError):
                await mirror.resolve(a_model(), "hf_token")
            assert inside.connections == 0


LONG = json.dumps({"sha": "a" * 40, "siblings": "x" * (5 * MIB)}).encode()


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"sha": ["x"]}', b'{"sha": "' + b"a" * 41 + b'"}', LONG]
)
async def test_an_answer_of_the_hub_without_a_commit_is_an_error(body: bytes) -> None:
    async with impostor(lambda _: whole(body)) as server:
        with pytest.raises(ServerError):
            await HuggingFaceHub(f"http://{server.host}").resolve(a_model(), "")


async def test_a_token_with_a_line_break_is_refused_without_its_text() -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        await HuggingFaceHub("http://127.0.0.1:9").resolve(
            a_model(), "hf_secret\nX-Injected: y"
        )
    assert "hf_secret" not in str(caught.value)


PROGRAM = """
import asyncio, resource, sys
from ipaddress import ip_network
from activities.clients.hubs.oci import OciRegistry
from activities.render.cache.artifact import SOURCE_OCI, Artifact
from api_types.errors import ServerError

async def main(host):
    registry = OciRegistry((ip_network("127.0.0.0/8"),))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for tag in ("large", "bomb"):
        try:
            image = f"{host}/x:{tag}"
            artifact = Artifact(source=SOURCE_OCI, origin=image, revision="", size_gib=1)
            await registry.resolve(artifact, "")
        except ServerError:
            print("refused")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
async def test_the_memory_of_a_worker_does_not_grow_with_a_registrys_responses(
    certificate: Certificate,
) -> None:
    bomb = gzip.compress(bytes(300 * MIB), 9)

    def respond(request: Request) -> Chunks:
        return (
            whole(bomb, Content_Encoding="gzip")
            if request.path.endswith("bomb")
            else endless(bytes(MIB), 600 * MIB)
        )

    async with impostor(respond, certificate) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, server.host, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
    *lines, grown_kib = output.decode().splitlines()
    assert lines.count("refused") == 2
    assert int(grown_kib) < 48 * 1024


def test_a_challenge_of_one_long_word_is_read_at_once() -> None:
    """A search from each of its letters would take half a minute."""
    with effort_below(200):
        assert oci._CHALLENGE.findall("a" * 100_000) == []
    assert (
        dict(
            oci._CHALLENGE.findall(
                'realm="https://t.example/token",service="r",scope="s"'
            )
        )["service"]
        == "r"
    )
