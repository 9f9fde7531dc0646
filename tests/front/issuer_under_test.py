"""A real front that accepts tokens of a real issuer, with a clock that tests control."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.access.id_tokens import Claims, IdTokens
from front.access.issuer import Issuer
from front.access.limits import Allowance, Limits
from front.serving.app import Front
from front.serving.receiving import RUNNER_OPTIONS
from front.store.projection import Projection
from tests.front.fleet_of_tenants import ACCESS
from tests.front.token_issuer import AUDIENCE, TokenIssuer

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/{}/modeldeployments"
CLAIMS = Claims(groups="groups")


class Clock:
    """A clock in seconds that a test advances."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Served:
    """A front that accepts tokens of an issuer."""

    def __init__(
        self,
        client: "TestClient[web.Request, web.Application]",
        keys: Issuer,
        clock: Clock,
    ) -> None:
        self.client, self.keys, self.clock = client, keys, clock

    async def ask(self, token: str, namespace: str = "a") -> tuple[int, str]:
        """List deployments; return the status and the error message."""
        async with self.client.get(
            PATH.format(namespace), headers={"Authorization": f"Bearer {token}"}
        ) as answer:
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
    access = AccessControl(
        AccessRules(file), id_tokens=IdTokens(keys, AUDIENCE, claims, algorithms)
    )
    server = TestServer(
        Front(
            cast("ControlPlane", None),
            projection,
            access,
            limits=Limits(allowance, clock),
        ).app()
    )
    await server.start_server(**RUNNER_OPTIONS)
    async with TestClient(server) as client:
        yield Served(client, keys, clock)
    access.close()
