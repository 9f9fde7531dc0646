"""The client of an API server: failures, discovery, rate limits, credential plugins."""

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from activities.clients.kubernetes.api_failures import failure
from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.discovery import Discovery, DiscoveryResponse, path
from activities.clients.kubernetes.kubeconfig import ApiServerAccess, ExecPlugin
from activities.clients.kubernetes.redact import redact
from activities.clients.kubernetes.session import Response, Session
from activities.clients.kubernetes.throttle import TokenBucket
from activities.cluster_objects.cluster_api import (
    ApiResource,
    GroupVersionKind,
    ObjectId,
)
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    PermissionDenied,
    ServerError,
    Throttled,
)
from tests.environment.waiting import pauses

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJzdWIiOiJzeXN0ZW0.c2lnbmF0dXJl"  # noqa: S105
APPLY = "apply apps/v1/Deployment/ml-team/main"


class Refusal(NamedTuple):
    """A response of an API server, the error that it becomes, and its text."""

    story: str
    status: int
    body: dict[str, Any]
    error: type[ModelplaneError]
    says: str
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


ENDING = {
    "reason": "Forbidden",
    "details": {"causes": [{"reason": "NamespaceTerminating"}]},
}
REFUSALS = [
    Refusal(
        "401",
        401,
        {"message": "Unauthorized"},
        CredentialsInvalid,
        "put a valid kubeconfig into the secret store",
    ),
    Refusal(
        "403",
        403,
        {"message": 'User "x" cannot patch'},
        PermissionDenied,
        'User "x" cannot patch (403); grant the permission',
    ),
    Refusal(
        "a namespace that is going",
        403,
        {"message": "forbidden", **ENDING},
        ServerError,
        "the namespace is being deleted",
    ),
    Refusal(
        "422",
        422,
        {"message": "spec.replicas: Invalid value"},
        InvalidInput,
        "spec.replicas: Invalid value (422)",
    ),
    Refusal(
        "400",
        400,
        {"message": "strict decoding error: unknown field"},
        InvalidInput,
        "unknown field",
    ),
    Refusal(
        "409 that stays",
        409,
        {"message": "the object has been modified"},
        ServerError,
        "has been modified",
    ),
    Refusal("429", 429, {}, Throttled, "status 429"),
    Refusal("503 with a time", 503, {}, Throttled, "status 503", {"Retry-After": "1"}),
    Refusal("503", 503, {"message": "etcd is down"}, ServerError, "etcd is down"),
    Refusal(
        "500",
        500,
        {"message": "webhook did not answer"},
        ServerError,
        "webhook did not answer",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.story)
def test_a_refused_request_becomes_the_error_that_says_whether_a_retry_can_help(
    case: Refusal,
) -> None:
    error = failure(
        case.status, json.dumps(case.body).encode(), case.headers, "eu-1", APPLY
    )
    assert type(error) is case.error
    assert case.says in error.message
    assert error.message.startswith(f"cluster eu-1: {APPLY}: ")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_a_cloud_cluster_names_the_identity_and_no_kubeconfig(
    status: int,
) -> None:
    error = failure(
        status,
        b"{}",
        {},
        "eu-1",
        APPLY,
        identity="the identity in Secret modelplane-system/eks-default",
    )
    assert "the identity in Secret modelplane-system/eks-default" in error.message
    assert "kubeconfig" not in error.message


def test_the_error_about_a_secret_quotes_nothing_of_it() -> None:
    body = {
        "message": 'Secret "x" is invalid: data[token]: Invalid value: "hunter2"',
        "reason": "Invalid",
    }
    error = failure(
        422, json.dumps(body).encode(), {}, "eu-1", "apply v1/Secret/ml-team/x"
    )
    assert "hunter2" not in str(error)
    assert "Invalid (422)" in str(error)


PAUSES = [
    ("1", 1),
    ("60", 60),
    ("", None),
    ("0", None),
    ("3600", None),
    ("-5", None),
    ("\u00b2", None),
    ("Wed, 21 Oct 2026 07:28:00 GMT", None),
]


@pytest.mark.parametrize(("asked", "seconds"), PAUSES)
def test_a_throttled_request_is_retried_after_retry_after(
    asked: str, seconds: int | None
) -> None:
    error = failure(429, b"", {"Retry-After": asked} if asked else {}, "eu-1", APPLY)
    assert error.next_retry_delay == (
        None if seconds is None else timedelta(seconds=seconds)
    )


def test_a_response_that_is_not_json_is_quoted_in_part() -> None:
    error = failure(502, b"<html>" + b"x" * 10_000, {}, "eu-1", APPLY)
    assert isinstance(error, ServerError)
    assert len(error.message) < 2_500


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----"
HIDDEN = [
    TOKEN,
    PEM,
    "k8s-aws-v1.aHR0cHM6Ly9zdHM",
    "hf_abcdefghijklmnopqrstuv",
    "LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ==",
    "Bearer abcdef0123456789",
]


@pytest.mark.parametrize("secret", HIDDEN, ids=[text[:12] for text in HIDDEN])
def test_text_that_resembles_a_credential_is_redacted(secret: str) -> None:
    assert redact(f"refused: {secret} is bad") == "refused: [redacted] is bad"


def test_ordinary_text_is_unchanged() -> None:
    text = (
        'deployments.apps "qwen3-8b-main-f7c3a42c" is forbidden: User '
        '"system:serviceaccount:a:b" cannot patch'
    )
    assert redact(text) == text


POD_LIST = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get", "list"]}
LEGACY: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {"resources": [POD_LIST, {**POD_LIST, "name": "pods/status"}]},
    "/apis": {
        "kind": "APIGroupList",
        "groups": [{"versions": [{"groupVersion": "apps/v1"}]}],
    },
    "/apis/apps/v1": {
        "resources": [
            {
                "name": "deployments",
                "kind": "Deployment",
                "namespaced": True,
                "verbs": ["list"],
            }
        ]
    },
}


async def test_a_server_without_aggregated_discovery_is_discovered_group_by_group() -> (
    None
):
    async def fetch(where: str, _accept: str, _etag: str) -> DiscoveryResponse:
        return DiscoveryResponse(LEGACY[where], "")

    discovery = Discovery(fetch)
    assert not discovery.known
    await discovery.refresh()
    assert discovery.known
    assert {
        kind: resource.plural for kind, resource in discovery.resources().items()
    } == {
        GroupVersionKind("v1", "Pod"): "pods",
        GroupVersionKind("apps/v1", "Deployment"): "deployments",
    }


async def test_an_unchanged_discovery_is_not_sent_again() -> None:
    etags: list[str] = []

    async def fetch(where: str, _accept: str, etag: str) -> DiscoveryResponse:
        etags.append(etag)
        if etag:
            return DiscoveryResponse(None, etag)
        group = {
            "metadata": {"name": ""},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {"resource": "pods", "responseKind": {"kind": "Pod"}}
                    ],
                }
            ],
        }
        return DiscoveryResponse(
            {
                "kind": "APIGroupDiscoveryList",
                "items": [group] if where == "/api" else [],
            },
            f"etag-{where}",
        )

    discovery = Discovery(fetch)
    await discovery.refresh()
    await discovery.refresh()
    assert etags == ["", "", "etag-/api", "etag-/apis"]
    assert list(discovery.resources()) == [GroupVersionKind("v1", "Pod")]


PATHS = [
    ("v1", "pods", True, "ml-team", "p", "/api/v1/namespaces/ml-team/pods/p"),
    ("apps/v1", "deployments", True, "", "", "/apis/apps/v1/deployments"),
    (
        "rbac.authorization.k8s.io/v1",
        "clusterroles",
        False,
        "",
        "a:b",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/a:b",
    ),
    ("v1", "nodes", False, "ignored", "n", "/api/v1/nodes/n"),
    (
        "v1",
        "configmaps",
        True,
        "a/../b",
        "../x",
        "/api/v1/namespaces/a%2F..%2Fb/configmaps/..%2Fx",
    ),
]


@pytest.mark.parametrize("case", PATHS, ids=[case[-1] for case in PATHS])
def test_every_kind_has_its_path(case: tuple[str, str, bool, str, str, str]) -> None:
    version, plural, namespaced, namespace, name, want = case
    assert (
        path(
            ApiResource(
                GroupVersionKind(version, "X"), plural, namespaced, frozenset()
            ),
            namespace,
            name,
        )
        == want
    )


@pytest.mark.parametrize(
    "text",
    [
        "v1/Service/ml-team/w",
        "apps/v1/Deployment/ml-team/w",
        "rbac.authorization.k8s.io/v1/ClusterRole//w",
    ],
)
def test_an_object_id_is_parsed_as_it_was_written(text: str) -> None:
    assert str(ObjectId.parse(text)) == text


class Clock:
    """Time that passes only during sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def get_running_loop(self) -> "Clock":
        return self

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_a_burst_passes_and_then_the_rate_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("activities.clients.kubernetes.throttle.asyncio", clock)
    throttle = TokenBucket(rate=100, burst=10)
    for _ in range(10):
        await throttle.acquire()
    assert clock.now == 0
    for _ in range(20):
        await throttle.acquire()
    assert clock.now == pytest.approx(0.2)
    clock.now += 60
    for _ in range(10):
        await throttle.acquire()
    assert clock.now == pytest.approx(60.2)


def a_plugin(folder: Path, body: str) -> ExecPlugin:
    """A credential plugin that runs this code and counts its runs."""
    script = folder / "plugin.py"
    count = (
        "runs = "
        f"pathlib.Path({str(folder / 'runs')!r})\nruns.write_text((runs.read_text() "
        "if runs.exists() else '') + '.')"
    )
    script.write_text(f"import json, pathlib\n{count}\n{body}")
    return ExecPlugin(command=sys.executable, args=(str(script),))


ANSWER = (
    "print(json.dumps({{'apiVersion': 'client.authentication.k8s.io/v1', "
    "'kind': 'ExecCredential', 'status': {status}}}))"
)


async def test_a_plugin_runs_once_while_its_token_is_good(tmp_path: Path) -> None:
    plugin = a_plugin(
        tmp_path,
        ANSWER.format(
            status={"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"}
        ),
    )
    session = Session(
        "eu-1", ApiServerAccess(server="https://eu-1.example.com", plugin=plugin)
    )
    assert await asyncio.gather(*(session._credential.token() for _ in range(3))) == [
        "t",
        "t",
        "t",
    ]
    assert (tmp_path / "runs").read_text() == "."


async def test_an_expired_token_is_renewed(tmp_path: Path) -> None:
    plugin = a_plugin(
        tmp_path,
        ANSWER.format(
            status={"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"}
        ),
    )
    session = Session(
        "eu-1", ApiServerAccess(server="https://eu-1.example.com", plugin=plugin)
    )
    assert [await session._credential.token() for _ in range(2)] == ["t", "t"]
    assert (tmp_path / "runs").read_text() == ".."


@pytest.mark.parametrize(
    "body",
    [f"print({TOKEN!r})", f"raise SystemExit({TOKEN!r})", ANSWER.format(status={})],
    ids=["no JSON", "fails", "no token"],
)
async def test_the_error_of_a_plugin_without_a_token_does_not_quote_its_output(
    body: str, tmp_path: Path
) -> None:
    session = Session(
        "eu-1",
        ApiServerAccess(
            server="https://eu-1.example.com", plugin=a_plugin(tmp_path, body)
        ),
    )
    with pytest.raises(CredentialsInvalid, match="credential plugin") as caught:
        await session._credential.token()
    assert TOKEN not in str(caught.value)


BEGUN_SECONDS = 4.0
"""The time limit of a plugin, also on a busy machine."""


async def test_a_plugin_that_writes_without_end_is_stopped(tmp_path: Path) -> None:
    body = (
        "import "
        f"os\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\nwhile "
        "True: print('x' * 65536)"
    )
    session = Session(
        "eu-1",
        ApiServerAccess(
            server="https://eu-1.example.com", plugin=a_plugin(tmp_path, body)
        ),
    )
    with pytest.raises(CredentialsInvalid, match="it wrote more than 1 MiB"):
        await session._credential.token()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


@pytest.mark.slow
async def test_a_plugin_that_does_not_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "activities.clients.kubernetes.credential._PLUGIN_SECONDS", BEGUN_SECONDS
    )
    body = (
        "import os, time\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    session = Session(
        "eu-1",
        ApiServerAccess(
            server="https://eu-1.example.com", plugin=a_plugin(tmp_path, body)
        ),
    )
    with pytest.raises(
        ClusterUnreachable, match=f"did not finish within {BEGUN_SECONDS:.0f} s"
    ):
        await session._credential.token()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "apart", [False, True], ids=["in its group", "in a session of its own"]
)
async def test_a_plugins_children_do_not_delay_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(
        "activities.clients.kubernetes.credential._PLUGIN_SECONDS", BEGUN_SECONDS
    )
    started = f"subprocess.Popen(['sleep', '20'], start_new_session={apart})"
    body = (
        f"import subprocess\nchild = {started}\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "child.wait()"
    )
    session = Session(
        "eu-1",
        ApiServerAccess(
            server="https://eu-1.example.com", plugin=a_plugin(tmp_path, body)
        ),
    )
    async with asyncio.timeout(BEGUN_SECONDS + 10):
        with pytest.raises(
            ClusterUnreachable, match=f"did not finish within {BEGUN_SECONDS:.0f} s"
        ):
            await session._credential.token()
    child = int((tmp_path / "pid").read_text())
    if apart:
        os.kill(child, signal.SIGKILL)
    # A killed process ends when the kernel handles it, and may still wait for its new
    # parent.
    for pause in pauses(10, shortest=0.01):
        if not is_running(child):
            break
        await asyncio.sleep(pause)
    assert not is_running(child)


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def test_a_name_that_resolves_to_a_refused_address_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lookup(*_: object, **__: object) -> list[dict[str, Any]]:
        return [
            {
                "hostname": "x",
                "host": "169.254.169.254",
                "port": 443,
                "family": 2,
                "proto": 0,
                "flags": 0,
            }
        ]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", lookup)
    session = Session(
        "eu-1", ApiServerAccess(server="https://metadata.example.com", token=TOKEN)
    )
    try:
        with pytest.raises(ClusterUnreachable, match="link-local"):
            await session.request("GET", "/version")
    finally:
        await session.close()


PODS = ApiResource(
    GroupVersionKind("v1", "Pod"), "pods", namespaced=True, verbs=frozenset({"delete"})
)
POD = ObjectId(PODS.kind, "ml", "main")


class Deletions:
    """A session whose server responds to deletions with a status."""

    cluster = "eu-1"

    def __init__(self, status: int) -> None:
        self.status = status
        self.sent: list[tuple[str, str, Any]] = []

    async def request(self, method: str, where: str, *, body: Any) -> Response:
        self.sent.append((method, where, body))
        return Response(self.status, {}, b"{}")


@pytest.mark.parametrize(
    ("status", "requested"), [(200, True), (404, False), (409, False)]
)
async def test_a_deletion_is_requested_of_the_object_that_was_seen(
    monkeypatch: pytest.MonkeyPatch, status: int, *, requested: bool
) -> None:
    session = Deletions(status)
    cluster = KubernetesCluster(cast("Session", session))

    async def served(**_: Any) -> dict[GroupVersionKind, ApiResource]:
        return {PODS.kind: PODS}

    monkeypatch.setattr(cluster, "resources", served)
    assert await cluster.delete(POD, uid="u-1", grace_seconds=0) is requested
    options = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u-1"},
        "gracePeriodSeconds": 0,
    }
    assert session.sent == [("DELETE", "/api/v1/namespaces/ml/pods/main", options)]


class AnsweringSession:
    """Gives one response to every request."""

    cluster = "eu-1"

    def __init__(self, status: int, body: bytes) -> None:
        self._answer = Response(status, {}, body)
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, where: str) -> Response:
        self.asked.append((method, where))
        return self._answer


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        pytest.param(404, b"", 404, id="of the Service"),
        pytest.param(200, b'{"object": "list"}', 200, id="JSON of the Service"),
        pytest.param(403, b'{"kind": "Status"}', None, id="not permitted"),
        pytest.param(503, b'{"kind": "Status"}', None, id="no pod responds"),
    ],
)
async def test_the_status_of_a_service_is_distinguished_from_that_of_the_api_server(
    status: int, body: bytes, found: int | None
) -> None:
    session = AnsweringSession(status, body)
    cluster = KubernetesCluster(cast(Session, session))
    service = ObjectId(
        GroupVersionKind("v1", "Service"), "envoy-gateway-system", "envoy"
    )
    assert await cluster.proxied_status(service, 80, "/ml/a b/metrics") == found
    services = "/api/v1/namespaces/envoy-gateway-system/services"
    assert session.asked == [("GET", f"{services}/envoy:80/proxy/ml/a%20b/metrics")]
