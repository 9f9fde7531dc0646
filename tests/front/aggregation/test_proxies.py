"""Whom an API server names in headers is believed of that server alone, and its answers about rights are kept for a moment."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from kubernetes.client.exceptions import ApiException
from multidict import CIMultiDict

from api_types.sections.front import FrontSettings
from client.errors import Refused
from front.access import reviews
from front.access.access import Access
from front.access.access_file import ANY, Attempt, User
from front.access.request_header import Proxies
from front.access.reviews import Reviews, Unanswered, spec_of
from front.main import access_of
from testbed.cluster.pki import Authority

CLIENTS = {"proxy": ("front-proxy-client", None), "other": ("other-proxy", None), "ann": ("ann", "team-a")}
ALICE = User("alice", ("developers", "system:authenticated"), (("scopes", "read"),))
GET = Attempt("get", "modeldeployments/scale", "team-a", "chat")


def naming(**more: str) -> CIMultiDict[str]:
    headers = CIMultiDict({"X-Remote-User": "alice", "X-Remote-Group": "developers", "X-Remote-Extra-Scopes": "read", **more})
    headers.add("X-Remote-Group", "system:authenticated")
    return headers


class Connection:
    """A connection over TLS whose handshake has verified a certificate of either authority."""

    def __init__(self, folder: Path, authority: str, client: str) -> None:
        self._file = Authority(folder / authority).pair(client).certificate

    def get_extra_info(self, name: str) -> "Connection":
        assert name == "ssl_object"
        return self

    def getpeercert(self, binary_form: bool = False) -> Any:
        if binary_form:
            return x509.load_pem_x509_certificate(self._file.read_bytes()).public_bytes(Encoding.DER)
        return ssl._ssl._test_decode_cert(str(self._file))  # type: ignore[attr-defined]  # what a socket gives of its peer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities, one for API servers and one for users, which have signed certificates of the same names."""
    made = tmp_path_factory.mktemp("pki")
    for name in ("proxies", "users"):
        Authority(made / name, clients=CLIENTS).ensure()
    return made


@pytest.fixture(scope="module")
def access(folder: Path) -> Access:
    """One that believes an API server, and knows users by certificates."""
    signers = {name: x509.load_pem_x509_certificates(Authority(folder / name).ca.read_bytes()) for name in ("proxies", "users")}
    return Access(proxies=Proxies(signers["proxies"], frozenset({"front-proxy-client"})), authorities=signers["users"])


@pytest.mark.parametrize(
    ("connection", "headers", "want"),
    [
        pytest.param(("proxies", "proxy"), naming(), ALICE, id="the API server"),
        pytest.param(("proxies", "other"), naming(), None, id="another name"),
        pytest.param(("proxies", "proxy"), CIMultiDict(), None, id="it names nobody"),
        pytest.param(("proxies", "proxy"), naming(**{"X-Remote-User": "x" * 1025}), None, id="a long name"),
        pytest.param(("proxies", "ann"), CIMultiDict(), None, id="its authority signs for no users"),
        pytest.param(("users", "proxy"), naming(), User("front-proxy-client", ("system:authenticated",)), id="the authority of users"),
        pytest.param(("users", "ann"), naming(), User("ann", ("team-a", "system:authenticated")), id="a user who names another"),
    ],
)
def test_headers_are_believed_of_an_api_server_alone(
    folder: Path, access: Access, connection: tuple[str, str], headers: CIMultiDict[str], want: User | None
) -> None:
    assert access.user_of(None, headers, Connection(folder, *connection)) == want


def test_headers_are_not_believed_without_a_certificate(access: Access) -> None:
    assert access.user_of(None, naming(), None) is None
    assert access.user_of("t", naming(), None) is None
    assert not access.is_open


def test_what_is_asked_names_user_and_object_as_kubernetes_does() -> None:
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
    everywhere = spec_of(ALICE, Attempt("list", "modeldeployments", ANY))["resourceAttributes"]
    assert everywhere == {"verb": "list", "group": "modelplane.ai", "resource": "modeldeployments"}


async def test_an_answer_holds_for_a_moment_for_that_user_and_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "HOLDS_SECONDS", 0.2)
    asked: list[dict[str, Any]] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec)
        return bool(spec["extra"] == {"scopes": ["read"]})

    found = Reviews(review)
    assert [await found.allows(ALICE, GET) for _ in range(3)] == [True] * 3
    assert len(asked) == 1
    assert not await found.allows(User(ALICE.name, ALICE.groups), GET)
    assert await found.allows(ALICE, Attempt("update", GET.resource, GET.namespace, GET.name))
    assert len(asked) == 3
    await asyncio.sleep(0.25)
    assert await found.allows(ALICE, GET)
    assert len(asked) == 4


@pytest.mark.parametrize("error", [ApiException(500), ConnectionError("no route"), ConnectionRefusedError()])
async def test_an_api_server_that_does_not_answer_allows_nothing_and_is_asked_again(error: Exception) -> None:
    answers: list[Exception | bool] = [error, True]

    def review(_spec: dict[str, Any]) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = Access(reviews=Reviews(review))
    with pytest.raises(Unanswered):
        await found.allows(ALICE, GET)
    assert await found.allows(ALICE, GET)


async def test_no_more_answers_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "KEPT_MAX", 2)
    asked: list[str] = []

    def review(spec: dict[str, Any]) -> bool:
        asked.append(spec["user"])
        return True

    found = Reviews(review)
    for name in ("a", "b", "c", "c", "a"):
        assert await found.allows(User(name), GET)
    assert asked == ["a", "b", "c", "a"]


def settings(folder: Path, **more: Any) -> FrontSettings:
    pair = Authority(folder / "users").pair("apiserver")
    return FrontSettings.model_validate({"listen": "0.0.0.0:1", "tlsCert": pair.certificate, "tlsKey": pair.key, **more})


def test_settings_that_do_not_go_together_are_refused_with_the_next_step(folder: Path) -> None:
    authority, kubeconfig = Authority(folder / "proxies").ca, folder / "kubeconfig"
    with pytest.raises(Refused, match=r"front\.requestHeaderCa: API servers are known by a certificate, which needs TLS, and their users"):
        access_of(settings(folder, requestHeaderCa=authority), "0.0.0.0")  # noqa: S104 - where others can reach it
    with pytest.raises(Refused, match=r"front\.reviewKubeconfig: Invalid kube-config file"):
        access_of(settings(folder, requestHeaderCa=authority, reviewKubeconfig=str(kubeconfig)), "0.0.0.0")  # noqa: S104
    with pytest.raises(Refused, match=r"front\.reviewKubeconfig: Service host/port is not set"):
        access_of(settings(folder, requestHeaderCa=authority, reviewKubeconfig="in-cluster"), "0.0.0.0")  # noqa: S104
    kubeconfig.write_text("not a certificate")
    with pytest.raises(Refused, match=r"front\.requestHeaderCa: "):
        access_of(settings(folder, requestHeaderCa=kubeconfig, accessFile=kubeconfig), "0.0.0.0")  # noqa: S104
