"""The two servers: a front without Temporal, and a kube-apiserver with our kinds."""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
from aiohttp.test_utils import TestServer
from yarl import URL

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.serving.app import Front
from front.serving.receiving import RUNNER_OPTIONS
from front.store.projection import Projection
from testbed.cluster.control_plane import ClusterControlPlane
from testbed.cluster.pki import Authority
from testbed.fleet.home import Home
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from tests.front.conformance.definitions import definitions
from tests.front.conformance.store import TreesWithoutParts
from tests.front.fleet_of_tenants import ACCESS, TOKENS
from tests.workflows.environment.harness import eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
USER_AGENT = "conformance/1"
PROGRAMS = ("kubernetes", "etcd")
# A request needs no namespace, and every custom resource is watched at once.
_FLAGS = (
    "--disable-admission-plugins=NamespaceLifecycle",
    "--anonymous-auth=false",
)
_STOP_SECONDS = 20


@dataclass(frozen=True)
class Answer:
    """The answer of a server; `headers` have names in lower case."""

    status: int
    headers: Mapping[str, list[str]]
    body: bytes

    @property
    def tree(self) -> Any:
        """The JSON of the body; None if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Server:
    """A server, with the headers that name its administrator."""

    address: str
    session: aiohttp.ClientSession
    identity: Mapping[str, str]
    stranger: aiohttp.ClientSession
    """A session without a certificate."""

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        anonymous: bool = False,
    ) -> Answer:
        """Send a request as it is, without a header that the caller did not set."""
        sent = {"User-Agent": USER_AGENT, **headers}
        session = self.stranger if anonymous else self.session
        if not anonymous:
            sent = {**self.identity, **sent}
        async with session.request(
            method,
            URL(self.address + path, encoded=True),
            data=None if body is None else io.BytesIO(body),
            headers=sent,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type"),
            allow_redirects=False,
        ) as answer:
            told: dict[str, list[str]] = {}
            for name, value in answer.headers.items():
                told.setdefault(name.lower(), []).append(value)
            return Answer(answer.status, told, await answer.read())


@asynccontextmanager
async def a_front(folder: Path) -> AsyncIterator[Server]:
    """Serve an empty front whose objects have no parts."""
    projection = Projection()
    projection.complete = True
    plane = TreesWithoutParts(projection=projection)
    file = folder / "access.yaml"
    file.write_text(ACCESS)
    front = Front(
        cast("ControlPlane", plane), projection, AccessControl(AccessRules(file))
    )
    server = TestServer(front.app())
    await server.start_server(**RUNNER_OPTIONS)
    try:
        async with _session() as session:
            identity = {"Authorization": f"Bearer {TOKENS['root']}"}
            yield Server(str(server.make_url("")), session, identity, session)
    finally:
        await server.close()


@asynccontextmanager
async def an_api_server(folder: Path) -> AsyncIterator[Server]:
    """Run etcd and a kube-apiserver with our kinds."""
    tools = [tool for tool in TOOLS if tool.name in PROGRAMS]
    parts = ClusterControlPlane(
        "conformance", Home(folder), Installer().programs(tools), simulated=False
    )
    parts.home.choose_ports(parts.ports(), print)
    parts.home.number_clusters([parts.name])
    parts.write_files()
    async with AsyncExitStack() as stack:
        for spec in parts.store_and_server():
            flags = _FLAGS if spec.name.endswith("kube-apiserver") else ()
            await stack.enter_async_context(
                _running([*spec.argv, *flags], folder / f"{spec.name}.log")
            )
        server = await stack.enter_async_context(
            _administrator(parts.server, parts.authority)
        )
        await eventually(lambda: _is_ready(server), bool, what="the API server")
        await _install(server)
        yield server


@asynccontextmanager
async def _administrator(address: str, pki: Authority) -> AsyncIterator[Server]:
    """Connect to an API server with the certificate of its administrator."""
    anybody, trusted = (
        ssl.create_default_context(cafile=str(pki.ca)) for _ in range(2)
    )
    admin = pki.pair("admin")
    trusted.load_cert_chain(str(admin.certificate), str(admin.key))
    async with _session(trusted) as session, _session(anybody) as stranger:
        yield Server(address, session, {}, stranger)


def _session(trusted: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=trusted or True, limit=0)
    return aiohttp.ClientSession(
        connector=connector, auto_decompress=False, max_line_size=64 * 1024
    )


@asynccontextmanager
async def _running(argv: list[str], log: Path) -> AsyncIterator[None]:
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*argv, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _is_ready(server: Server) -> bool:
    try:
        return (await server.ask("GET", "/readyz", {}, None)).status == 200
    except aiohttp.ClientError:
        return False


async def _install(server: Server) -> None:
    """Create the definitions, and wait until all are served and documented."""
    headers = {"Content-Type": "application/json"}
    found = definitions()
    for definition in found:
        body = json.dumps(definition).encode()
        answer = await server.ask("POST", CRDS, headers, body)
        assert answer.status == 201, answer.body.decode()

    async def served() -> list[int]:
        group = "/apis/modelplane.ai/v1alpha1"
        plurals = [each["spec"]["names"]["plural"] for each in found]
        paths = [f"/openapi/v3{group}", *(f"{group}/{plural}" for plural in plurals)]
        return [(await server.ask("GET", path, {}, None)).status for path in paths]

    await eventually(
        served,
        lambda answers: set(answers) == {200},
        what="the custom resources",
    )
