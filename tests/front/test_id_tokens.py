"""ID tokens of a real issuer at a real front: valid tokens and their users, and invalid
tokens.
"""

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt.api_jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from api_types.clock import utc_now
from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access import id_tokens
from front.access.id_tokens import NO_PREFIX, TOKEN_MAX, TRIED_MAX, Claims, IdTokens
from front.access.issuer import ASK_AGAIN_SECONDS, KEYS_MAX, Issuer
from front.access.limits import Allowance
from front.configuration.users import access_of
from front.serving.reads import watching
from tests.front.fleet_of_tenants import ACCESS, TOKENS
from tests.front.issuer_under_test import CLAIMS, PATH, served
from tests.front.token_issuer import AUDIENCE, NULL, TokenIssuer, jwk, rsa_key

ANSWER_SECONDS_MAX = 20.0


async def test_the_bearer_has_the_rights_of_the_tokens_groups(
    tmp_path: Path, issuer: TokenIssuer
) -> None:
    async with served(tmp_path, issuer) as front:
        assert await front.ask(issuer.token()) == (200, "")
        status, message = await front.ask(issuer.token(), "b")
        assert (status, f'User "{issuer.url}#ann" cannot list' in message) == (
            403,
            True,
        )
        # Tokens of the access file stay valid, and no ID token can take one of its
        # names.
        assert (await front.ask(TOKENS["ann"]))[0] == 200
        assert (await front.ask(issuer.token(sub="root", groups=[])))[0] == 403
        assert issuer.asked == [
            "/realm/.well-known/openid-configuration",
            "/realm/keys",
        ]


def segment(tree: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(tree).encode()).rstrip(b"=").decode()


def unsigned(issuer: TokenIssuer) -> str:
    body = issuer.token().split(".")[1]
    return f"{segment({'alg': 'none', 'kid': 'one'})}.{body}."


def signed_with_what_is_public(issuer: TokenIssuer) -> str:
    """A token with this header fools a verifier that trusts the token's own algorithm:
    it uses the public key as shared secret.
    """
    secret = (
        rsa_key()
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    text = f"{segment({'alg': 'HS256', 'kid': 'one'})}.{issuer.token().split('.')[1]}"
    signature = hmac.digest(secret, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


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
    "many groups": lambda issuer: issuer.token(
        groups=[f"g{number}" for number in range(300)]
    ),
    "no token": lambda _: "a.b.c",
    "deep": lambda _: f"{base64.urlsafe_b64encode(b'[' * 3000).decode()}.e30.e30",
}


@pytest.mark.parametrize("case", BAD)
async def test_an_invalid_token_has_no_user_and_is_not_revealed(
    tmp_path: Path, issuer: TokenIssuer, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(tmp_path, issuer) as front:
        # The keys are already loaded.
        assert (await front.ask(issuer.token()))[0] == 200
        token = BAD[case](issuer)
        if len(token) < TOKEN_MAX:
            assert await front.ask(token) == (401, "Unauthorized")
        else:
            with_header = {"Authorization": f"Bearer {token}"}
            async with front.client.get(
                PATH.format("a"), headers=with_header
            ) as answer:
                assert answer.status in (400, 401)
        assert token not in caplog.text
        assert (await front.ask(issuer.token()))[0] == 200


async def test_a_token_above_the_size_limit_is_not_parsed(issuer: TokenIssuer) -> None:
    tokens = IdTokens(Issuer(issuer.url), AUDIENCE, CLAIMS, ["RS256"])
    token = issuer.token(more="x" * TOKEN_MAX)
    await tokens.learn(token)
    assert (tokens.user_of(token), issuer.asked) == (None, [])


REQUIRED = Claims(required=(("hd", "example.com"), ("tier", "1")))
USERS = [
    (Claims(), {}, ("ISSUER#ann", "system:authenticated")),
    (
        Claims(user_prefix=NO_PREFIX, groups="groups"),
        {},
        ("ann", "team-a", "system:authenticated"),
    ),
    (
        Claims(user_prefix="oidc:", groups="groups", groups_prefix="oidc:"),
        {},
        ("oidc:ann", "oidc:team-a", "system:authenticated"),
    ),
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
    (
        CLAIMS,
        {"groups": ["", "team-a", "x" * 254, "a\nb", "team-b"]},
        ("ISSUER#ann", "team-a", "team-b", "system:authenticated"),
    ),
    (
        Claims(groups="groups", groups_prefix="oidc:"),
        {"groups": ["", "x" * 250]},
        ("ISSUER#ann", "system:authenticated"),
    ),
    (
        REQUIRED,
        {"hd": "example.com", "tier": "1"},
        ("ISSUER#ann", "system:authenticated"),
    ),
    (REQUIRED, {"hd": "example.com"}, None),
    (REQUIRED, {"hd": "example.com", "tier": 1}, None),
    (REQUIRED, {"hd": ["example.com"], "tier": "1"}, None),
]


@pytest.mark.parametrize(
    ("claims", "said", "expected"),
    USERS,
    ids=[f"{number}" for number in range(len(USERS))],
)
async def test_names_and_groups_are_parsed_like_an_api_server(
    issuer: TokenIssuer,
    claims: Claims,
    said: dict[str, Any],
    expected: tuple[str, ...] | None,
) -> None:
    tokens, token = (
        IdTokens(Issuer(issuer.url), AUDIENCE, claims, ["RS256"]),
        issuer.token(**said),
    )
    await tokens.learn(token)
    user = tokens.user_of(token)
    assert (user and (user.name, *user.groups)) == (
        expected and tuple(each.replace("ISSUER", issuer.url) for each in expected)
    )
    assert user is None or not user.is_of_api_server


async def test_signatures_are_checked_only_for_plausible_tokens(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.keys = [jwk(rsa_key(2), f"k{number}") for number in range(1, KEYS_MAX)] + [
        jwk(rsa_key(2), "one")
    ]
    async with served(tmp_path, issuer) as front:
        assert (await front.ask(issuer.token(rsa_key(2), None)))[0] == 200
        checked = _counted_checks(monkeypatch)
        for bad in (
            "wrong audience",
            "expired",
            "wrong issuer",
            "not yet good",
            "no audience",
            "never expires",
        ):
            assert (await front.ask(BAD[bad](issuer)))[0] == 401
        assert checked == []
        # Without a key name, a token is tried with a limited number of keys.
        assert (await front.ask(issuer.token(rsa_key(3), None)))[0] == 401
        assert len(checked) == TRIED_MAX


async def test_the_least_recently_used_valid_tokens_are_forgotten_first(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_tokens, "KEPT_MAX", 2)
    tokens = IdTokens(Issuer(issuer.url), AUDIENCE, CLAIMS, ["RS256"])
    sent, admitted = (
        [issuer.token(more=str(number)) for number in range(3)],
        list[int](),
    )
    await tokens.learn(sent[0])
    for number in (0, 1, 0, 2, 0, 1):

        def admit(number: int = number) -> AbstractContextManager[None]:
            admitted.append(number)
            return nullcontext()

        assert tokens.user_of(sent[number], admit)
    # A caller with a remembered valid token is not delayed again.
    assert admitted == [0, 1, 2, 1]


def _counted_checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    checked: list[str] = []
    verify = RSAAlgorithm.verify

    def noted(self: RSAAlgorithm, *arguments: Any) -> bool:
        checked.append("a signature")
        return verify(self, *arguments)

    monkeypatch.setattr(RSAAlgorithm, "verify", noted)
    return checked


async def test_too_many_invalid_tokens_block_an_address_but_not_its_known_users(
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
        # Also where keys may be loaded.
        assert [(await front.ask(forged))[0] for _ in range(3)] == [429] * 3
        assert len(checked) == 3
        assert (await front.ask(good))[0] == 200


async def test_a_token_that_expires_ends_its_watch(
    tmp_path: Path, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.1)
    async with served(tmp_path, issuer) as front:
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        async with front.client.get(
            f"{PATH.format('a')}?watch=true", headers=headers
        ) as watch:
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
    ("change", "problem"),
    [
        ({"oidc_issuer_url": "http://issuer.example.com"}, "oidcIssuerUrl"),
        ({"oidc_issuer_url": "https://issuer.example.com?x=1"}, "oidcIssuerUrl"),
        ({"oidc_client_id": ""}, "oidcIssuerUrl"),
        ({"access_file": None}, "oidcIssuerUrl"),
        ({"oidc_ca_file": Path("/nowhere/ca.crt")}, "oidcCaFile"),
    ],
)
def test_contradictory_settings_are_rejected(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS)
    good = FrontSettings(
        access_file=file,
        oidc_issuer_url="https://issuer.example.com",
        oidc_client_id=AUDIENCE,
    )
    access_of(good, "127.0.0.1").close()
    with pytest.raises(Refused, match=problem):
        access_of(good.model_copy(update=change), "127.0.0.1")


def test_the_setting_defines_the_required_claims(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS)
    given = {
        "accessFile": file,
        "oidcIssuerUrl": "https://issuer.example.com",
        "oidcClientId": AUDIENCE,
    }
    settings = FrontSettings.model_validate(
        {**given, "oidcRequiredClaims": {"hd": "example.com"}}
    )
    access = access_of(settings, "127.0.0.1")
    try:
        assert access._id_tokens is not None
        assert access._id_tokens._claims.required == (("hd", "example.com"),)
    finally:
        access.close()


def test_no_algorithm_with_a_shared_secret_can_be_set() -> None:
    with pytest.raises(ValueError, match="oidcSigningAlgs"):
        FrontSettings.model_validate({"oidcSigningAlgs": ["HS256"]})
