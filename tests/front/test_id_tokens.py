"""Tokens of OpenID Connect, signed by a real issuer and read by a real front: whose they are, and which are nobody's."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import jwt.api_jwt
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from api_types.clock import utc_now
from api_types.sections.front import FrontSettings
from client.errors import Refused
from client.temporal.control_plane import ControlPlane
from front.access import issuer as issuer_module
from front.access.access import Access
from front.access.access_file import AccessRules
from front.access.id_tokens import NO_PREFIX, TOKEN_MAX, TRIED_MAX, Claims, IdTokens
from front.access.issuer import ASK_AGAIN_SECONDS, HOLD_SECONDS, KEYS_MAX, LATELY_SECONDS, Issuer, is_issuer, is_safe, keys_in
from front.access.limits import Allowance, Limits
from front.main import access_of
from front.serving import watching
from front.serving.app import RUNNER_OPTIONS, Front
from front.store.projection import Projection
from tests.front.fleet_of_tenants import ACCESS, TOKENS
from tests.front.token_issuer import AUDIENCE, NULL, TokenIssuer, an_issuer, ec_key, jwk, rsa_key
from tests.workflows.environment.harness import eventually

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/{}/modeldeployments"
CLAIMS = Claims(groups="groups")
ANSWER_SECONDS_MAX = 20.0


class Clock:
    """Seconds that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    async with an_issuer() as found:
        yield found


class Served:
    """A front that takes tokens of an issuer."""

    def __init__(self, client: "TestClient[web.Request, web.Application]", keys: Issuer, clock: Clock) -> None:
        self.client, self.keys, self.clock = client, keys, clock

    async def ask(self, token: str, namespace: str = "a") -> tuple[int, str]:
        """List deployments; gives the status and the message of a refusal."""
        async with self.client.get(PATH.format(namespace), headers={"Authorization": f"Bearer {token}"}) as answer:
            return answer.status, (await answer.json()).get("message", "")


@asynccontextmanager
async def served(
    folder: Path,
    issuer: TokenIssuer,
    claims: Claims = CLAIMS,
    algorithms: tuple[str, ...] = ("RS256", "ES256"),
    allowance: Allowance | None = None,
) -> AsyncIterator[Served]:
    file, clock, projection = folder / "access.yaml", Clock(), Projection()
    file.write_text(ACCESS)
    projection.complete = True
    keys = Issuer(issuer.url, now=clock)
    access = Access(AccessRules(file), id_tokens=IdTokens(keys, AUDIENCE, claims, algorithms))
    server = TestServer(Front(cast("ControlPlane", None), projection, access, limits=Limits(allowance, clock)).app())
    await server.start_server(**RUNNER_OPTIONS)
    async with TestClient(server) as client:
        yield Served(client, keys, clock)
    access.close()


async def test_the_bearer_has_the_rights_of_the_groups_that_the_token_names(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as front:
        assert await front.ask(issuer.token()) == (200, "")
        status, message = await front.ask(issuer.token(), "b")
        assert (status, f'User "{issuer.url}#ann" cannot list' in message) == (403, True)
        # Those of the access file go on, and no token takes one of its names.
        assert (await front.ask(TOKENS["ann"]))[0] == 200
        assert (await front.ask(issuer.token(sub="root", groups=[])))[0] == 403
        assert issuer.asked == ["/realm/.well-known/openid-configuration", "/realm/keys"]


def segment(tree: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(tree).encode()).rstrip(b"=").decode()


def unsigned(issuer: TokenIssuer) -> str:
    body = issuer.token().split(".")[1]
    return f"{segment({'alg': 'none', 'kid': 'one'})}.{body}."


def signed_with_what_is_public(issuer: TokenIssuer) -> str:
    """What a reader takes that asks the token how it is signed: the public key is the shared secret."""
    secret = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{segment({'alg': 'HS256', 'kid': 'one'})}.{issuer.token().split('.')[1]}"
    return f"{text}.{base64.urlsafe_b64encode(hmac.digest(secret, text.encode(), hashlib.sha256)).rstrip(b'=').decode()}"


def with_a_changed_body(issuer: TokenIssuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{issuer.token(sub='eve').split('.')[1]}.{signature}"


BAD: dict[str, Callable[[TokenIssuer], str]] = {
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 60),
    "not yet good": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "never expires": lambda issuer: issuer.token(exp=None),
    "expires after all time": lambda issuer: issuer.token(exp=1e400),
    "wrong audience": lambda issuer: issuer.token(aud="other"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "wrong issuer": lambda issuer: issuer.token(iss=f"{issuer.url}/other"),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "signed by nobody": unsigned,
    "signed with what is public": signed_with_what_is_public,
    "signed by another": lambda issuer: issuer.token(rsa_key(2)),
    "another algorithm": lambda issuer: issuer.token(algorithm="PS256"),
    "an unknown key": lambda issuer: issuer.token(rsa_key(2), "two"),
    "a changed body": with_a_changed_body,
    "huge": lambda issuer: issuer.token(more="x" * TOKEN_MAX),
    "no name": lambda issuer: issuer.token(sub=None),
    "an empty name": lambda issuer: issuer.token(sub=""),
    "a name that is no text": lambda issuer: issuer.token(sub=1),
    "a name that cannot be shown": lambda issuer: issuer.token(sub="a\nb"),
    "a long name": lambda issuer: issuer.token(sub="x" * 300),
    "groups that are no texts": lambda issuer: issuer.token(groups=["team-a", 1]),
    "many groups": lambda issuer: issuer.token(groups=[f"g{number}" for number in range(300)]),
    "no token": lambda _: "a.b.c",
    "deep": lambda _: f"{base64.urlsafe_b64encode(b'[' * 3000).decode()}.e30.e30",
}


@pytest.mark.parametrize("case", BAD)
async def test_a_token_that_is_not_good_is_nobodys_and_nothing_of_it_is_told(
    tmp_path: Path, issuer: TokenIssuer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(tmp_path, issuer) as front:
        # With the keys at hand.
        assert (await front.ask(issuer.token()))[0] == 200
        token = BAD[case](issuer)
        if len(token) < TOKEN_MAX:
            assert await front.ask(token) == (401, "Unauthorized")
        else:
            with_header = {"Authorization": f"Bearer {token}"}
            async with front.client.get(PATH.format("a"), headers=with_header) as answer:
                assert answer.status in (400, 401)
        assert token not in caplog.text
        assert (await front.ask(issuer.token()))[0] == 200


async def test_a_token_longer_than_the_most_is_not_read(issuer: TokenIssuer) -> None:
    tokens = IdTokens(Issuer(issuer.url), AUDIENCE, CLAIMS, ["RS256"])
    token = issuer.token(more="x" * TOKEN_MAX)
    await tokens.learn(token)
    assert (tokens.user_of(token), issuer.asked) == (None, [])


USERS = [
    (Claims(), {}, ("ISSUER#ann", "system:authenticated")),
    (Claims(user_prefix=NO_PREFIX, groups="groups"), {}, ("ann", "team-a", "system:authenticated")),
    (Claims(user_prefix="oidc:", groups="groups", groups_prefix="oidc:"), {}, ("oidc:ann", "oidc:team-a", "system:authenticated")),
    (
        Claims(user="email", groups="groups"),
        {"email": "a@b.c", "email_verified": True, "groups": "g"},
        ("a@b.c", "g", "system:authenticated"),
    ),
    (Claims(user="email"), {"email": "a@b.c"}, ("a@b.c", "system:authenticated")),
    (Claims(user="email"), {"email": "a@b.c", "email_verified": False}, None),
    (Claims(user="email"), {"email": "a@b.c", "email_verified": "true"}, None),
    (Claims(groups="roles"), {}, ("ISSUER#ann", "system:authenticated")),
    (Claims(groups="roles"), {"roles": NULL}, ("ISSUER#ann", "system:authenticated")),
    (CLAIMS, {"groups": ["", "team-a", "x" * 254, "a\nb", "team-b"]}, ("ISSUER#ann", "team-a", "team-b", "system:authenticated")),
    (Claims(groups="groups", groups_prefix="oidc:"), {"groups": ["", "x" * 250]}, ("ISSUER#ann", "system:authenticated")),
]


@pytest.mark.parametrize(("claims", "said", "expected"), USERS, ids=[f"{number}" for number in range(len(USERS))])
async def test_names_and_groups_are_read_as_an_api_server_reads_them(
    issuer: TokenIssuer, claims: Claims, said: dict[str, Any], expected: tuple[str, ...] | None
) -> None:
    tokens, token = IdTokens(Issuer(issuer.url), AUDIENCE, claims, ["RS256"]), issuer.token(**said)
    await tokens.learn(token)
    user = tokens.user_of(token)
    assert (user and (user.name, *user.groups)) == (expected and tuple(each.replace("ISSUER", issuer.url) for each in expected))
    assert user is None or not user.is_of_api_server


async def test_a_new_key_is_read_when_a_token_names_it_and_a_withdrawn_one_opens_nothing(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as front:
        old, new = issuer.token(), issuer.token(ec_key(), "two", "ES256")
        assert (await front.ask(old))[0] == 200
        issuer.keys = [jwk(ec_key(), "two", alg="ES256")]
        # Whatever tokens come, the issuer is not asked again at once.
        assert [(await front.ask(new))[0] for _ in range(5)] == [401] * 5
        assert issuer.asked.count("/realm/keys") == 1
        front.clock.now += ASK_AGAIN_SECONDS
        assert [(await front.ask(each))[0] for each in (new, old, new)] == [200, 401, 200]
        assert issuer.asked.count("/realm/keys") == 2


async def test_after_a_pause_no_withdrawn_key_opens_anything_though_its_name_is_known(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as front:
        token = issuer.token()
        assert (await front.ask(token))[0] == 200
        issuer.keys = [jwk(rsa_key(2), "one")]
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(token))[0] == 401


async def test_old_keys_hold_while_an_issuer_is_silent_and_one_request_alone_waits(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "ANSWER_SECONDS", 0.1)
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.silent = asyncio.Event()
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        monkeypatch.setattr(issuer_module, "ANSWER_SECONDS", 600.0)
        front.clock.now += ASK_AGAIN_SECONDS
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            assert (await front.ask(issuer.token()))[0] == 200
        await eventually(lambda: _count(issuer), lambda count: count == 4, what="another attempt to read the keys")


async def _count(issuer: TokenIssuer) -> int:
    return len(issuer.asked)


async def test_after_another_pause_old_keys_are_waited_for_again(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.answers = False
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.answers, issuer.keys = True, [jwk(rsa_key(2), "one")]
        front.clock.now += LATELY_SECONDS
        assert (await front.ask(issuer.token()))[0] == 401


@pytest.mark.parametrize("name", ["one", None], ids=["the same name", "no name"])
async def test_a_new_key_without_a_new_name_is_read_when_a_token_is_signed_with_it(
    tmp_path: Path, issuer: TokenIssuer, name: str | None
) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token(name=name)))[0] == 200
        issuer.keys = [jwk(rsa_key(2), "one")]
        new = issuer.token(rsa_key(2), name)
        assert [(await front.ask(new))[0] for _ in range(3)] == [401] * 3
        front.clock.now += ASK_AGAIN_SECONDS
        assert [(await front.ask(each))[0] for each in (new, issuer.token(name=name), new)] == [200, 401, 200]
        assert issuer.asked.count("/realm/keys") == 2


async def test_a_set_without_keys_removes_none(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.keys = []
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        assert issuer.asked.count("/realm/keys") == 2


async def test_only_signatures_of_tokens_that_may_be_good_are_checked(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.keys = [jwk(rsa_key(2), f"k{number}") for number in range(1, KEYS_MAX)] + [jwk(rsa_key(2), "one")]
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token(rsa_key(2), None)))[0] == 200
        checked = _counted_checks(monkeypatch)
        for bad in ("wrong audience", "expired", "wrong issuer", "not yet good", "no audience", "never expires"):
            assert (await front.ask(BAD[bad](issuer)))[0] == 401
        assert checked == []
        # Without the name of its key a token is not tried with as many as an issuer likes to have.
        assert (await front.ask(issuer.token(rsa_key(3), None)))[0] == 401
        assert len(checked) == TRIED_MAX


def _counted_checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    checked: list[str] = []
    verify = RSAAlgorithm.verify

    def noted(self: RSAAlgorithm, *arguments: Any) -> bool:
        checked.append("a signature")
        return verify(self, *arguments)

    monkeypatch.setattr(RSAAlgorithm, "verify", noted)
    return checked


async def test_an_address_that_has_sent_too_many_wrong_tokens_has_no_more_checked_and_keeps_no_known_user_out(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowance = Allowance(per_second=0.001, burst=3, requests=9, watches=9)
    async with served(tmp_path, issuer, allowance=allowance) as front:
        good = issuer.token()
        assert (await front.ask(good))[0] == 200
        checked, forged = _counted_checks(monkeypatch), issuer.token(rsa_key(2))
        assert [(await front.ask(forged))[0] for _ in range(6)] == [401] * 3 + [429] * 3
        assert len(checked) == 3
        front.clock.now += ASK_AGAIN_SECONDS
        # Not where keys may be read either.
        assert [(await front.ask(forged))[0] for _ in range(3)] == [429] * 3
        assert len(checked) == 3
        assert (await front.ask(good))[0] == 200


async def test_no_more_requests_of_an_address_wait_for_keys_than_those_of_one_user(tmp_path: Path, issuer: TokenIssuer) -> None:
    issuer.silent = asyncio.Event()
    allowance = Allowance(per_second=100, burst=100, requests=2, watches=2)
    async with served(tmp_path, issuer, allowance=allowance) as front:
        asked = [asyncio.create_task(front.ask(issuer.token())) for _ in range(6)]
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while len(refused := [each.result()[0] for each in asked if each.done()]) < len(asked) - allowance.requests:
                await asyncio.wait([each for each in asked if not each.done()], return_when=asyncio.FIRST_COMPLETED)
            assert refused == [429] * 4
            issuer.silent.set()
            assert sorted(status for status, _ in await asyncio.gather(*asked)) == [200] * 2 + [429] * 4


def test_an_entry_with_an_unknown_curve_or_number_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    good, read = jwk(rsa_key(), "one"), jwt.PyJWK

    def of(entry: dict[str, Any]) -> Any:
        if entry["kid"] == "odd":
            raise UnsupportedAlgorithm("no such curve here")
        return read(entry)

    monkeypatch.setattr(jwt, "PyJWK", of)
    assert [key.name for key in keys_in({"keys": [{**good, "kid": "odd"}, good]})] == ["one"]


async def test_keys_without_tls_are_those_of_an_issuer_on_this_machine_alone(issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    here, remote = issuer.url, Issuer("https://issuer.example.com")
    read = issuer_module._document

    async def document(session: Any, address: str) -> dict[str, Any]:
        if address.startswith(remote.url):
            return {"issuer": remote.url, "jwks_uri": f"{here}/keys"}
        return await read(session, address)

    monkeypatch.setattr(issuer_module, "_document", document)
    await remote.learn("one")
    assert (remote.keys, issuer.asked) == ((), [])


async def test_a_withdrawn_key_ends_a_watch_though_nobody_else_asks(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.1)
    async with served(tmp_path, issuer) as front:
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        async with front.client.get(f"{PATH.format('a')}?watch=true", headers=headers) as watch:
            assert watch.status == 200
            issuer.keys = [jwk(rsa_key(2), "one")]
            front.clock.now += HOLD_SECONDS
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                assert await watch.read() == b""


async def test_known_keys_hold_while_the_issuer_is_down(tmp_path: Path, issuer: TokenIssuer) -> None:
    async with served(tmp_path, issuer) as front:
        issuer.answers = False
        status, message = await front.ask(issuer.token())
        assert (status, message) == (401, "Unauthorized: the keys of the issuer of tokens cannot be read at this moment")
        # Of another issuer nothing is said, and for its tokens nobody is asked.
        front.clock.now += ASK_AGAIN_SECONDS
        assert await front.ask(issuer.token(iss="https://other")) == (401, "Unauthorized")
        assert len(issuer.asked) == 1
        issuer.answers = True
        front.clock.now += ASK_AGAIN_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.answers = False
        front.clock.now += HOLD_SECONDS
        assert [(await front.ask(issuer.token()))[0] for _ in range(3)] == [200] * 3


async def test_an_issuer_that_does_not_answer_is_not_waited_for_long(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "ANSWER_SECONDS", 0.1)
    issuer.silent = asyncio.Event()
    async with served(tmp_path, issuer) as front:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            answers = await asyncio.gather(*(front.ask(issuer.token()) for _ in range(10)))
        assert {status for status, _ in answers} == {401}
        assert len(issuer.asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"discovery": {"issuer": "https://other"}},
        {"discovery": {"jwks_uri": "http://example.com/keys"}},
        {"discovery": {"jwks_uri": "file:///etc/passwd"}},
        {"discovery": {"jwks_uri": None}},
        {"discovery": {"jwks_uri": "http://user:password@HOST/keys"}},
        {"discovery": {"jwks_uri": "http://HOST/moved"}},
        {"padding": issuer_module.DOCUMENT_BYTES_MAX},
        {"keys": []},
        {"keys": {}},
        {"keys": [jwk(rsa_key(), "one", use="enc")]},
        {"keys": [jwk(rsa_key(3, 1024), "one")]},
        {"keys": [{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}]},
    ],
    ids=[
        "another issuer",
        "http",
        "a file",
        "no address",
        "with a password",
        "redirected",
        "large",
        "no key",
        "no keys",
        "to encrypt",
        "weak",
        "shared",
    ],
)
async def test_keys_that_cannot_be_trusted_are_not_taken(tmp_path: Path, issuer: TokenIssuer, change: dict[str, Any]) -> None:
    for name, value in change.items():
        setattr(issuer, name, value)
    if address := issuer.discovery.get("jwks_uri"):
        issuer.discovery["jwks_uri"] = address.replace("HOST", issuer.url.removeprefix("http://"))
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 401
        assert front.keys.keys == ()


def test_what_is_no_key_is_left_out() -> None:
    good = jwk(rsa_key(), "one")
    odd: list[Any] = [
        None,
        1,
        "x",
        {},
        {"kty": "RSA"},
        {**good, "kid": 1},
        {**good, "n": "%"},
        {**good, "alg": 5},
        {"kty": "EC", "crv": "x"},
    ]
    assert [key.name for key in keys_in({"keys": [*odd, good]})] == ["one"]
    assert len(keys_in({"keys": [good] * (KEYS_MAX + 1)})) == KEYS_MAX
    assert keys_in({}) == keys_in({"keys": "x"}) == ()


async def test_a_token_without_the_name_of_its_key_is_tried_with_all(tmp_path: Path, issuer: TokenIssuer) -> None:
    issuer.keys = [jwk(ec_key(), "two"), jwk(rsa_key(2), "three"), jwk(rsa_key(), "one")]
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token(name=None)))[0] == 200
        # A key is for one algorithm if its issuer says so.
        issuer.keys = [jwk(rsa_key(), "one", alg="RS512")]
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token(name="new")))[0] == 401
        assert (await front.ask(issuer.token()))[0] == 401


async def test_a_token_that_expires_ends_its_watch(tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.1)
    async with served(tmp_path, issuer) as front:
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        async with front.client.get(f"{PATH.format('a')}?watch=true", headers=headers) as watch:
            assert watch.status == 200
            later = utc_now() + timedelta(hours=1)

            class Later:
                @staticmethod
                def now(tz: object = None) -> object:
                    del tz
                    return later

            monkeypatch.setattr(jwt.api_jwt, "datetime", Later)
            assert await watch.read() == b""


@pytest.mark.parametrize(
    ("address", "safe"),
    [
        ("https://issuer.example.com", True),
        ("http://127.0.0.1:8080/realm", True),
        ("http://[::1]:80", True),
        ("http://localhost", True),
        ("http://issuer.example.com", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1@issuer.example.com", False),
        ("https://user:password@issuer.example.com", False),
        ("https://:password@issuer.example.com", False),
        ("https://@issuer.example.com", False),
        ("https://issuer.example.com#x", False),
        ("https://issuer.example.com/keys?policy=1", True),
        ("ftp://127.0.0.1", False),
        ("https://", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_keys_are_read_over_tls_or_on_this_machine(address: str, safe: bool) -> None:
    assert is_safe(address) is safe
    assert is_issuer(address) is (safe and "?" not in address)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"oidc_issuer_url": "http://issuer.example.com"}, "oidcIssuerUrl"),
        ({"oidc_issuer_url": "https://issuer.example.com?x=1"}, "oidcIssuerUrl"),
        ({"oidc_client_id": ""}, "oidcIssuerUrl"),
        ({"access_file": None}, "oidcIssuerUrl"),
        ({"oidc_ca_file": Path("/nowhere/ca.crt")}, "oidcCaFile"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS)
    good = FrontSettings(access_file=file, oidc_issuer_url="https://issuer.example.com", oidc_client_id=AUDIENCE)
    access_of(good, "127.0.0.1").close()
    with pytest.raises(Refused, match=problem):
        access_of(good.model_copy(update=change), "127.0.0.1")


def test_no_algorithm_with_a_shared_secret_can_be_set() -> None:
    with pytest.raises(ValueError, match="oidcSigningAlgs"):
        FrontSettings.model_validate({"oidcSigningAlgs": ["HS256"]})
