"""The keys of a token issuer: when they are loaded, which are accepted, and for how
long.
"""

import asyncio
from pathlib import Path
from typing import Any

import jwt.api_jwt
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from multidict import CIMultiDict

from api_types.sections.front import FrontSettings
from front.access import issuer as issuer_module
from front.access.issuer import (
    ASK_AGAIN_SECONDS,
    HOLD_SECONDS,
    KEYS_MAX,
    LATELY_SECONDS,
    Issuer,
    is_issuer,
    is_safe,
    keys_in,
)
from front.access.limits import Allowance
from front.access.request_header import InvalidUserHeader
from front.configuration.users import access_of
from front.serving.reads import watching
from testbed.cluster.pki import Authority
from tests.front.fleet_of_tenants import ACCESS
from tests.front.issuer_under_test import PATH, served
from tests.front.token_issuer import (
    AUDIENCE,
    TokenIssuer,
    an_issuer,
    ec_key,
    jwk,
    rsa_key,
)
from tests.workflows.environment.harness import eventually

ANSWER_SECONDS_MAX = 20.0


async def test_a_new_key_is_loaded_when_a_token_names_it_and_a_withdrawn_one_is_rejected(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with served(tmp_path, issuer) as front:
        old, new = issuer.token(), issuer.token(ec_key(), "two", "ES256")
        assert (await front.ask(old))[0] == 200
        issuer.keys = [jwk(ec_key(), "two", alg="ES256")]
        # The issuer is not queried again at once, no matter which tokens arrive.
        assert [(await front.ask(new))[0] for _ in range(5)] == [401] * 5
        assert issuer.asked.count("/realm/keys") == 1
        front.clock.now += ASK_AGAIN_SECONDS
        assert [(await front.ask(each))[0] for each in (new, old, new)] == [
            200,
            401,
            200,
        ]
        assert issuer.asked.count("/realm/keys") == 2


async def test_a_withdrawn_key_is_rejected_after_a_pause_though_its_name_is_known(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with served(tmp_path, issuer) as front:
        token = issuer.token()
        assert (await front.ask(token))[0] == 200
        issuer.keys = [jwk(rsa_key(2), "one")]
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(token))[0] == 401


@pytest.mark.slow
async def test_old_keys_stay_valid_while_an_issuer_is_down_and_only_one_request_waits(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.silent = asyncio.Event()
        monkeypatch.setattr(issuer_module, "ANSWER_SECONDS", 0.1)
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        monkeypatch.setattr(issuer_module, "ANSWER_SECONDS", 600.0)
        front.clock.now += ASK_AGAIN_SECONDS
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            assert (await front.ask(issuer.token()))[0] == 200
        await eventually(
            lambda: _count(issuer),
            lambda count: count == 4,
            what="another attempt to read the keys",
        )


async def _count(issuer: TokenIssuer) -> int:
    return len(issuer.asked)


async def test_after_another_pause_requests_wait_for_keys_again(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.answers = False
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.answers, issuer.keys = True, [jwk(rsa_key(2), "one")]
        front.clock.now += LATELY_SECONDS
        assert (await front.ask(issuer.token()))[0] == 401


@pytest.mark.parametrize("name", ["one", None], ids=["the same name", "no name"])
async def test_a_new_key_with_an_old_name_is_loaded_when_a_token_uses_it(
    tmp_path: Path, issuer: TokenIssuer, name: str | None
) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token(name=name)))[0] == 200
        issuer.keys = [jwk(rsa_key(2), "one")]
        new = issuer.token(rsa_key(2), name)
        assert [(await front.ask(new))[0] for _ in range(3)] == [401] * 3
        front.clock.now += ASK_AGAIN_SECONDS
        assert [
            (await front.ask(each))[0] for each in (new, issuer.token(name=name), new)
        ] == [200, 401, 200]
        assert issuer.asked.count("/realm/keys") == 2


async def test_a_set_without_keys_removes_none(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.keys = []
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        assert issuer.asked.count("/realm/keys") == 2


async def test_requests_of_an_address_that_wait_for_keys_are_limited_like_a_user(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    issuer.silent = asyncio.Event()
    allowance = Allowance(per_second=100, burst=100, requests=2, watches=2)
    async with served(tmp_path, issuer, allowance=allowance) as front:
        asked = [asyncio.create_task(front.ask(issuer.token())) for _ in range(6)]
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            while (
                len(refused := [each.result()[0] for each in asked if each.done()])
                < len(asked) - allowance.requests
            ):
                await asyncio.wait(
                    [each for each in asked if not each.done()],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            assert refused == [429] * 4
            issuer.silent.set()
            assert (
                sorted(status for status, _ in await asyncio.gather(*asked))
                == [200] * 2 + [429] * 4
            )


async def test_known_users_wait_for_keys_though_their_address_is_blocked(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    allowance = Allowance(per_second=0.0001, burst=3, requests=9, watches=9)
    async with served(tmp_path, issuer, allowance=allowance) as front:
        good, forged = issuer.token(), issuer.token(rsa_key(2))
        assert (await front.ask(good))[0] == 200
        assert [(await front.ask(forged))[0] for _ in range(4)] == [401] * 3 + [429]
        front.clock.now += HOLD_SECONDS
        assert [(await front.ask(each))[0] for each in (forged, good)] == [429, 200]
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(good))[0] == 200
        assert issuer.asked.count("/realm/keys") == 3


@pytest.mark.parametrize(
    ("trusted", "knows"), [("issuers", True), ("others", False), ("", False)]
)
async def test_keys_are_loaded_over_tls_with_the_configured_authority(
    tmp_path: Path, trusted: str, knows: bool
) -> None:
    authorities = {name: Authority(tmp_path / name) for name in ("issuers", "others")}
    for authority in authorities.values():
        authority.ensure()
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS)
    async with an_issuer(authorities["issuers"]) as issuer:
        ca = authorities[trusted].ca if trusted else None
        access = access_of(
            FrontSettings(
                access_file=file,
                oidc_issuer_url=issuer.url,
                oidc_client_id=AUDIENCE,
                oidc_ca_file=ca,
            ),
            "127.0.0.1",
        )
        try:
            token = issuer.token()
            await access.learn(token)
            if knows:
                user = access.user_of(token, CIMultiDict(), None)
                assert (user and user.name) == f"{issuer.url}#ann"
            else:
                with pytest.raises(InvalidUserHeader, match="cannot be loaded"):
                    access.user_of(token, CIMultiDict(), None)
            assert bool(issuer.asked) is knows
        finally:
            access.close()


def test_an_entry_with_an_unknown_curve_or_number_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, read = jwk(rsa_key(), "one"), jwt.PyJWK

    def of(entry: dict[str, Any]) -> Any:
        if entry["kid"] == "odd":
            raise UnsupportedAlgorithm("no such curve here")
        return read(entry)

    monkeypatch.setattr(jwt, "PyJWK", of)
    assert [key.name for key in keys_in({"keys": [{**good, "kid": "odd"}, good]})] == [
        "one"
    ]


async def test_keys_are_loaded_without_tls_only_from_this_machine(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        async with front.client.get(
            f"{PATH.format('a')}?watch=true", headers=headers
        ) as watch:
            assert watch.status == 200
            issuer.keys = [jwk(rsa_key(2), "one")]
            front.clock.now += HOLD_SECONDS
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                assert await watch.read() == b""


async def test_known_keys_stay_valid_while_the_issuer_is_down(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with served(tmp_path, issuer) as front:
        issuer.answers = False
        status, message = await front.ask(issuer.token())
        assert (status, message) == (
            401,
            "Unauthorized: the keys of the token issuer cannot be loaded; try again later",
        )
        # Tokens of other issuers cause no queries, and the error reveals nothing.
        front.clock.now += ASK_AGAIN_SECONDS
        assert await front.ask(issuer.token(iss="https://other")) == (
            401,
            "Unauthorized",
        )
        assert len(issuer.asked) == 1
        issuer.answers = True
        front.clock.now += ASK_AGAIN_SECONDS
        assert (await front.ask(issuer.token()))[0] == 200
        issuer.answers = False
        front.clock.now += HOLD_SECONDS
        assert [(await front.ask(issuer.token()))[0] for _ in range(3)] == [200] * 3


async def test_the_wait_for_an_unresponsive_issuer_is_short(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_module, "ANSWER_SECONDS", 0.1)
    issuer.silent = asyncio.Event()
    async with served(tmp_path, issuer) as front:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            answers = await asyncio.gather(
                *(front.ask(issuer.token()) for _ in range(10))
            )
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
async def test_untrusted_keys_are_rejected(
    tmp_path: Path, issuer: TokenIssuer, change: dict[str, Any]
) -> None:
    for name, value in change.items():
        setattr(issuer, name, value)
    if address := issuer.discovery.get("jwks_uri"):
        issuer.discovery["jwks_uri"] = address.replace(
            "HOST", issuer.url.removeprefix("http://")
        )
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token()))[0] == 401
        assert front.keys.keys == ()


def test_invalid_keys_are_skipped() -> None:
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


async def test_a_token_without_a_key_name_is_tried_with_all_keys(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    issuer.keys = [
        jwk(ec_key(), "two"),
        jwk(rsa_key(2), "three"),
        jwk(rsa_key(), "one"),
    ]
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token(name=None)))[0] == 200
        # A key is limited to one algorithm if the issuer names one.
        issuer.keys = [jwk(rsa_key(), "one", alg="RS512")]
        front.clock.now += HOLD_SECONDS
        assert (await front.ask(issuer.token(name="new")))[0] == 401
        assert (await front.ask(issuer.token()))[0] == 401


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
def test_keys_are_loaded_over_tls_or_from_this_machine(
    address: str, safe: bool
) -> None:
    assert is_safe(address) is safe
    assert is_issuer(address) is (safe and "?" not in address)
