"""An OpenID Connect issuer: a real HTTP server with its own keys and tokens."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from testbed.cluster.pki import Authority

AUDIENCE = "modelplane"
NULL = object()
"""The value of a claim that is null."""
Json = dict[str, Any]
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def rsa_key(number: int = 1, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the RSA key with this number. Creating one takes a moment."""
    del number
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: Key, name: str, **more: str) -> Json:
    """Return the public part of a key as an entry of a key set."""
    public = key.public_key()
    entry = (
        RSAAlgorithm.to_jwk(public, as_dict=True)
        if isinstance(public, rsa.RSAPublicKey)
        else ECAlgorithm.to_jwk(public, as_dict=True)
    )
    return {**entry, "kid": name, **more}


@dataclass
class TokenIssuer:
    """The issuer.

    `keys` are the published entries, `discovery` adds to its document, `asked` records
    the paths of requests.
    """

    keys: list[Json] = field(default_factory=lambda: [jwk(rsa_key(), "one")])
    discovery: Json = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answers: bool = True
    silent: asyncio.Event | None = None
    padding: int = 0
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.silent:
            await self.silent.wait()
        if not self.answers:
            return web.Response(status=503)
        if request.path.endswith("/moved"):
            return web.Response(status=302, headers={"Location": f"{self.url}/keys"})
        if request.path.endswith("/keys"):
            return web.json_response({"keys": self.keys, "padding": "x" * self.padding})
        return web.json_response(
            {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.discovery}
        )

    def token(
        self,
        key: Any = None,
        name: str | None = "one",
        algorithm: str = "RS256",
        **claims: Any,
    ) -> str:
        """Sign a valid token with changed claims:

        None drops a claim, NULL makes it null.
        """
        now = int(time.time())
        said = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "groups": ["team-a"],
            "iat": now,
            "exp": now + 600,
            **claims,
        }
        headers = {} if name is None else {"kid": name}
        told = {
            claim: None if value is NULL else value
            for claim, value in said.items()
            if value is not None
        }
        return jwt.encode(told, key or rsa_key(), algorithm, headers=headers)


@asynccontextmanager
async def an_issuer(authority: Authority | None = None) -> AsyncIterator[TokenIssuer]:
    """Serve an issuer on a loopback address.

    `authority` signs its certificate; without one it has no TLS.
    """
    issuer, tls = TokenIssuer(), None
    if authority:
        tls, pair = (
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
            authority.pair("apiserver"),
        )
        tls.load_cert_chain(pair.certificate, pair.key)
    app = web.Application()
    app.router.add_get("/{path:.*}", issuer.answer)
    server = TestServer(app)
    await server.start_server(ssl=tls)
    issuer.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}/realm"
    try:
        yield issuer
    finally:
        if issuer.silent:
            issuer.silent.set()
        await server.close()
