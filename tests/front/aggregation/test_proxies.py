"""Users in headers are trusted only from an API server, and its reviews are cached."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from kubernetes.client import AuthorizationV1Api
from kubernetes.client.exceptions import ApiException
from multidict import CIMultiDict
from urllib3.util import connection

from api_types.clock import utc_now
from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access import request_header, reviews
from front.access.access import AccessControl
from front.access.access_file import ANY, AccessRules, Attempt, User
from front.access.certificates import of_connection
from front.access.request_header import InvalidUserHeader, Proxies, issued_by
from front.access.reviews import Reviews, Unanswered, spec_of
from front.configuration.listening import server_tls
from front.configuration.scaling import scaler_credentials
from front.configuration.users import access_of
from front.serving.access_reviews import reviewed
from testbed.cluster.pki import LIFETIME, Authority
from tests.workflows.environment.harness import eventually

CLIENTS = {
    "proxy": ("front-proxy-client", None),
    "other": ("other-proxy", None),
    "ann": ("ann", "team-a"),
}
ALICE = User(
    "alice",
    ("developers", "system:authenticated"),
    (("scopes", "read"),),
    is_of_api_server=True,
)
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
"""
GET = Attempt("get", "modeldeployments/scale", "team-a", "chat")


def naming(**more: str) -> CIMultiDict[str]:
    headers = CIMultiDict(
        {
            "X-Remote-User": "alice",
            "X-Remote-Group": "developers",
            "X-Remote-Extra-Scopes": "read",
            **more,
        }
    )
    headers.add("X-Remote-Group", "system:authenticated")
    return headers


class Connection:
    """A TLS connection with a verified client certificate of either authority."""

    def __init__(self, folder: Path, authority: str, client: str) -> None:
        self._file = Authority(folder / authority).pair(client).certificate

    def get_extra_info(self, name: str) -> "Connection":
        assert name == "ssl_object"
        return self

    def getpeercert(self, binary_form: bool = False) -> Any:
        if binary_form:
            return x509.load_pem_x509_certificate(self._file.read_bytes()).public_bytes(
                Encoding.DER
            )
        # The same format as `getpeercert` of a socket.
        return ssl._ssl._test_decode_cert(str(self._file))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities, for API servers and for users, with certificates of the same
    names.
    """
    made = tmp_path_factory.mktemp("pki")
    for name in ("proxies", "users"):
        Authority(made / name, clients=CLIENTS).ensure()
    return made


@pytest.fixture(scope="module")
def access(folder: Path) -> AccessControl:
    """Access that trusts an API server, and users with certificates."""
    signers = {
        name: x509.load_pem_x509_certificates(Authority(folder / name).ca.read_bytes())
        for name in ("proxies", "users")
    }
    return AccessControl(
        proxies=Proxies(signers["proxies"], frozenset({"front-proxy-client"})),
        authorities=signers["users"],
    )


@pytest.mark.parametrize(
    ("connection", "headers", "want"),
    [
        pytest.param(("proxies", "proxy"), naming(), ALICE, id="the API server"),
        pytest.param(("proxies", "other"), naming(), None, id="another name"),
        pytest.param(("proxies", "proxy"), CIMultiDict(), None, id="it names nobody"),
        pytest.param(
            ("proxies", "ann"),
            CIMultiDict(),
            None,
            id="its authority signs for no users",
        ),
        pytest.param(
            ("users", "proxy"),
            naming(),
            User("front-proxy-client", ("system:authenticated",)),
            id="the authority of users",
        ),
        pytest.param(
            ("users", "ann"),
            naming(),
            User("ann", ("team-a", "system:authenticated")),
            id="a user who names another",
        ),
    ],
)
def test_headers_are_trusted_only_from_an_api_server(
    folder: Path,
    access: AccessControl,
    connection: tuple[str, str],
    headers: CIMultiDict[str],
    want: User | None,
) -> None:
    assert access.user_of(None, headers, Connection(folder, *connection)) == want


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Remote-User": ""},
        {"X-Remote-User": "x" * 1025},
        {"X-Remote-User": "al\nice"},
        {"X-Remote-User": "al\udcffice"},
        {"X-Remote-Uid": "\udcff"},
        {"X-Remote-Extra-%ff": "read"},
        {f"X-Remote-Extra-{number}": "x" for number in range(300)},
    ],
    ids=[
        "empty",
        "long",
        "unprintable",
        "no UTF-8",
        "a uid that is no UTF-8",
        "a key that is no UTF-8",
        "many texts",
    ],
)
def test_an_invalid_user_from_an_api_server_is_an_error(
    folder: Path, access: AccessControl, headers: dict[str, str]
) -> None:
    with pytest.raises(InvalidUserHeader):
        access.user_of("t", naming(**headers), Connection(folder, "proxies", "proxy"))
    # From other clients these headers have no effect.
    assert access.user_of(
        None, naming(**headers), Connection(folder, "users", "ann")
    ) == User("ann", ("team-a", "system:authenticated"))


def test_extra_fields_of_a_user_are_parsed_as_kubernetes_writes_them(
    folder: Path, access: AccessControl
) -> None:
    headers = naming(
        **{
            "X-Remote-Uid": "42",
            "X-Remote-Extra-Example.org%2fPod%25": "chat",
            "X-Remote-Extra-Half%zz": "1",
        }
    )
    found = access.user_of(None, headers, Connection(folder, "proxies", "proxy"))
    assert found
    spec = spec_of(found, GET)
    assert spec["uid"] == "42"
    assert spec["extra"] == {
        "scopes": ["read"],
        "example.org/pod%": ["chat"],
        "half%zz": ["1"],
    }


def test_an_api_server_is_trusted_while_its_certificate_is_valid(
    folder: Path, access: AccessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for away in (LIFETIME + timedelta(hours=1), -timedelta(days=1)):
        at = utc_now() + away
        monkeypatch.setattr(request_header, "utc_now", lambda at=at: at)
        assert (
            access.user_of(None, naming(), Connection(folder, "proxies", "proxy"))
            is None
        )
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("names", "is_one"),
    [((), False), (("proxy",), True), (("proxy", "ann"), False)],
    ids=["no name", "one name", "two names"],
)
def test_an_api_server_has_exactly_one_name(
    names: tuple[str, ...], *, is_one: bool
) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), utc_now()

    def signed(*names: str) -> x509.Certificate:
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
        )
        times = (now - timedelta(hours=1), now + timedelta(hours=1))
        return x509.CertificateBuilder(
            x509.Name([]), subject, key.public_key(), 1, *times
        ).sign(key, hashes.SHA256())

    assert (
        Proxies([signed()], frozenset({"proxy"})).user(signed(*names), naming())
        is not None
    ) is is_one


def test_a_malformed_certificate_has_no_user(
    folder: Path, access: AccessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(folder, "proxies", "proxy")
    monkeypatch.setattr(connection, "getpeercert", lambda **_: b"\x30\x03no")
    assert access.user_of(None, naming(), connection) is None
    for raises in (UnsupportedAlgorithm("of a later time"), ValueError("malformed")):

        def verify(_: object, raises: Exception = raises) -> None:
            raise raises

        certificate = SimpleNamespace(verify_directly_issued_by=verify)
        assert not issued_by(cast("x509.Certificate", certificate), access._authorities)
    assert of_connection({"subject": (), "notAfter": "some day"}) is None


def test_headers_are_not_trusted_without_a_certificate(access: AccessControl) -> None:
    assert access.user_of(None, naming(), None) is None
    assert access.user_of("t", naming(), None) is None
    assert not access.is_open


def test_reviews_describe_user_and_object_as_kubernetes_does() -> None:
    assert spec_of(ALICE, GET) == {
        "user": "alice",
        "groups": ["developers", "system:authenticated"],
        "extra": {"scopes": ["read"]},
        "resourceAttributes": {
            "verb": "get",
            "group": "modelplane.ai",
            "resource": "modeldeployments",
            "subresource": "scale",
            "name": "chat",
            "namespace": "team-a",
        },
    }
    everywhere = spec_of(ALICE, Attempt("list", "modeldeployments", ANY))[
        "resourceAttributes"
    ]
    assert everywhere == {
        "verb": "list",
        "group": "modelplane.ai",
        "resource": "modeldeployments",
    }


async def test_reviews_of_cluster_scoped_kinds_have_no_namespace() -> None:
    asked: list[dict[str, Any]] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec["resourceAttributes"])
        return True

    access = AccessControl(reviews=Reviews(review))
    for namespace in ("team-a", ""):
        wanted = {
            "verb": "get",
            "group": "modelplane.ai",
            "resource": "inferenceclusters",
            "namespace": namespace,
        }
        assert (
            await reviewed({"spec": {"resourceAttributes": wanted}}, ALICE, access)
        )["status"]["allowed"]
    assert asked == [
        {"verb": "get", "group": "modelplane.ai", "resource": "inferenceclusters"}
    ]


async def test_a_review_is_cached_briefly_for_its_user_and_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviews, "HOLDS_SECONDS", 600.0)
    asked: list[dict[str, Any]] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec)
        return bool(spec["extra"] == {"scopes": ["read"]})

    found = Reviews(review)
    assert [await found.allows(ALICE, GET) for _ in range(3)] == [True] * 3
    assert len(asked) == 1
    assert not await found.allows(replace(ALICE, extra=()), GET)
    assert await found.allows(
        ALICE, Attempt("update", GET.resource, GET.namespace, GET.name)
    )
    assert len(asked) == 3
    monkeypatch.setattr(reviews, "HOLDS_SECONDS", 0.0)
    assert await found.allows(ALICE, GET)
    assert len(asked) == 4


@pytest.mark.parametrize(
    "error", [ApiException(500), ConnectionError("no route"), ConnectionRefusedError()]
)
async def test_an_unresponsive_api_server_allows_nothing_and_is_asked_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "SILENT_SECONDS", 0.0)
    answers: list[Exception | bool] = [error, True]

    def review(_spec: dict[str, Any]) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = AccessControl(reviews=Reviews(review))
    with pytest.raises(Unanswered):
        await found.allows(ALICE, GET)
    assert await found.allows(ALICE, GET)


async def test_the_cache_of_reviews_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reviews, "KEPT_MAX", 2)
    asked: list[str] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec["user"])
        return True

    found = Reviews(review)
    for name in ("a", "b", "c", "c", "a"):
        assert await found.allows(User(name), GET)
    assert asked == ["a", "b", "c", "a"]


MASTER = User("alice", ("system:masters", "system:authenticated"))


async def test_reviews_are_only_for_users_that_the_api_server_named(
    tmp_path: Path,
) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(
        'rules: [{groups: ["system:masters"], clusterScoped: true, resources: ["*"], verbs: [get]}]'
    )
    asked: list[dict[str, Any]] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec)
        return True

    access = AccessControl(AccessRules(file), reviews=Reviews(review))
    # Rules of the access file apply to users from every source.
    assert await access.allows(
        MASTER, Attempt("get", "inferenceclusters", "", namespaced=False)
    )
    assert not await access.allows(MASTER, GET)
    assert not asked
    assert await access.allows(replace(MASTER, is_of_api_server=True), GET)
    assert len(asked) == 1
    # An answer for one user is not used for the other.
    assert not await access.allows(MASTER, GET)


class Held:
    """An API server whose answers wait until the test releases them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let_go = threading.Event()

    def review(self, spec: dict[str, Any]) -> bool:
        self.asked.append(spec["user"])
        assert self.let_go.wait(30)
        return True

    async def until_asked(self, *users: str) -> None:
        async def asked() -> list[str]:
            return sorted(self.asked)

        await eventually(
            asked, lambda found: found == sorted(users), what=f"questions about {users}"
        )


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.let_go.set()


def attempts(count: int) -> list[Attempt]:
    return [
        Attempt("get", GET.resource, GET.namespace, f"chat-{number}")
        for number in range(count)
    ]


@pytest.mark.slow
async def test_concurrent_equal_requests_share_a_review_that_survives_a_cancelled_caller(
    held: Held,
) -> None:
    found = Reviews(held.review)
    first, *others = [asyncio.create_task(found.allows(ALICE, GET)) for _ in range(20)]
    await held.until_asked("alice")
    first.cancel()
    await asyncio.wait([first])
    held.let_go.set()
    assert await asyncio.gather(*others) == [True] * 19
    assert held.asked == ["alice"]


@pytest.mark.slow
async def test_a_user_with_slow_reviews_does_not_delay_others(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "ANSWER_SECONDS", 0.3)

    def review(spec: dict[str, Any]) -> bool:
        return held.review(spec) if spec["user"] == "alice" else True

    found = Reviews(review)
    waiting = [asyncio.create_task(found.allows(ALICE, each)) for each in attempts(20)]
    await held.until_asked("alice", "alice")
    assert await found.allows(User("bob"), GET)
    # No review waits longer than its limit. Threads that still run keep their places,
    # so no further one starts.
    assert [
        type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)
    ] == [Unanswered] * 20
    monkeypatch.setattr(reviews, "SILENT_SECONDS", 0.0)
    found._silent.clear()
    with pytest.raises(Unanswered):
        await found.allows(ALICE, GET)
    assert await found.allows(User("carl"), GET)
    assert held.asked == ["alice", "alice"]


async def test_many_reviews_of_one_user_take_turns() -> None:
    found = Reviews(lambda _: True)
    assert (
        await asyncio.gather(*(found.allows(ALICE, each) for each in attempts(20)))
        == [True] * 20
    )


@pytest.mark.parametrize(
    ("status", "allowed"),
    [((True, False), True), ((True, True), False), ((False, None), False)],
)
async def test_a_denied_review_is_not_allowed_even_if_another_authorizer_allows_it(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: tuple[bool, bool | None],
    *,
    allowed: bool,
) -> None:
    answer = SimpleNamespace(
        status=SimpleNamespace(allowed=status[0], denied=status[1])
    )
    monkeypatch.setattr(
        AuthorizationV1Api, "create_subject_access_review", lambda *_, **__: answer
    )
    kubeconfig = folder / "any.kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    assert await reviews.reviews_by(str(kubeconfig)).allows(ALICE, GET) is allowed


@pytest.mark.slow
async def test_after_a_failure_reviews_pause_and_cached_answers_stay_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than a busy machine needs for the reviews below.
    monkeypatch.setattr(reviews, "SILENT_SECONDS", 3.0)
    asked: list[str] = []
    fails: list[Exception] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec["user"])
        if fails:
            raise fails[0]
        return True

    found = Reviews(review)
    assert await found.allows(ALICE, GET)
    fails.append(ConnectionError("no route"))
    with structlog.testing.capture_logs() as logged:
        for each in attempts(20):
            with pytest.raises(Unanswered):
                await found.allows(User("bob"), each)
    assert (asked, len(logged)) == (["alice", "bob"], 1)
    assert await found.allows(ALICE, GET)
    fails.clear()

    async def answered() -> bool:
        try:
            return await found.allows(User("bob"), GET)
        except Unanswered:
            return False

    await eventually(answered, bool, what="an answer")


async def test_queued_reviews_are_not_sent_after_a_failure() -> None:
    asked: list[str] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec["user"])
        raise ConnectionError("no route")

    found = Reviews(review)
    answers = await asyncio.gather(
        *(found.allows(ALICE, each) for each in attempts(20)), return_exceptions=True
    )
    assert [type(each) for each in answers] == [Unanswered] * 20
    assert asked == ["alice", "alice"]


@pytest.mark.parametrize(
    ("status", "is_silent"), [(413, False), (422, False), (401, True), (503, True)]
)
async def test_a_review_that_the_api_server_rejects_pauses_no_other_user(
    status: int, is_silent: bool
) -> None:
    def review(spec: dict[str, Any]) -> bool:
        if spec["user"] == "alice":
            raise ApiException(status)
        return True

    found = Reviews(review)
    with pytest.raises(Unanswered):
        await found.allows(ALICE, GET)
    with pytest.raises(Unanswered) if is_silent else nullcontext():
        assert await found.allows(User("bob"), GET)


async def test_an_unreachable_api_server_is_tried_only_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def refused(address: object, *_: object, **__: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(connection, "create_connection", refused)
    kubeconfig = folder / "closed.kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    with pytest.raises(Unanswered):
        await reviews.reviews_by(str(kubeconfig)).allows(ALICE, GET)
    assert tried == [("127.0.0.1", 1)]


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\xfa",
        b"a: [secret-key",
        b"secret-key",
        b"[secret-key]",
        b"{clusters: secret-key, contexts: 1, current-context: c}",
        KUBECONFIG.replace("user: {token: t}", "user: secret-key").encode(),
        KUBECONFIG.replace(
            "{token: t}",
            "{client-certificate-data: secret-key, client-key-data: secret-key}",
        )
        .replace("http:", "https:")
        .encode(),
    ],
)
def test_an_invalid_kubeconfig_is_rejected_without_its_content(
    folder: Path, text: bytes
) -> None:
    file = folder / "bad.kubeconfig"
    file.write_bytes(text)
    with pytest.raises(reviews.BadKubeconfig) as refused:
        reviews.reviews_by(str(file))
    assert "secret-key" not in str(refused.value)
    with pytest.raises(reviews.BadKubeconfig):
        reviews.reviews_by(str(folder))


def settings(folder: Path, **more: Any) -> FrontSettings:
    pair = Authority(folder / "users").pair("apiserver")
    return FrontSettings.model_validate(
        {"listen": "0.0.0.0:1", "tlsCert": pair.certificate, "tlsKey": pair.key, **more}
    )


def test_contradictory_settings_are_rejected_with_the_next_step(
    folder: Path,
) -> None:
    authority, kubeconfig = Authority(folder / "proxies").ca, folder / "kubeconfig"
    with pytest.raises(
        Refused,
        match=r"front\.requestHeaderCa needs TLS, because API servers authenticate with",
    ):
        access_of(
            settings(folder, requestHeaderCa=authority),
            "0.0.0.0",  # noqa: S104 - an address that other machines can reach
        )
    with pytest.raises(
        Refused, match=r"front\.reviewKubeconfig: Invalid kube-config file"
    ):
        access_of(
            settings(
                folder, requestHeaderCa=authority, reviewKubeconfig=str(kubeconfig)
            ),
            "0.0.0.0",  # noqa: S104
        )
    with pytest.raises(
        Refused, match=r"front\.reviewKubeconfig: Service host/port is not set"
    ):
        access_of(
            settings(folder, requestHeaderCa=authority, reviewKubeconfig="in-cluster"),
            "0.0.0.0",  # noqa: S104
        )
    same = settings(
        folder,
        requestHeaderCa=authority,
        clientCa=authority,
        accessFile=folder / "access.yaml",
    )
    (folder / "access.yaml").write_text("rules: []")
    with pytest.raises(
        Refused,
        match=r"front\.clientCa and front\.requestHeaderCa have an authority in common",
    ):
        access_of(same, "0.0.0.0")  # noqa: S104
    assert access_of(
        same.model_copy(update={"client_ca": Authority(folder / "users").ca}),
        "0.0.0.0",  # noqa: S104
    )
    with pytest.raises(
        Refused,
        match=r"front\.scalerListen needs front\.accessFile and front\.scalerClientCa",
    ):
        scaler_credentials(
            settings(
                folder, scalerListen="127.0.0.1:9443", reviewKubeconfig=str(kubeconfig)
            )
        )
    reviewed = settings(folder, clientCa=authority, reviewKubeconfig=str(kubeconfig))
    with pytest.raises(
        Refused,
        match=r"front\.clientCa needs .*front\.reviewKubeconfig does not apply to users",
    ):
        server_tls(reviewed)
    kubeconfig.write_text("not a certificate")
    with pytest.raises(Refused, match=r"front\.requestHeaderCa: "):
        access_of(
            settings(folder, requestHeaderCa=kubeconfig, accessFile=kubeconfig),
            "0.0.0.0",  # noqa: S104
        )
