"""The front with users and TLS, in this process or in its own, and a test client.

Its control plane has simulated clusters.
"""

import asyncio
import hashlib
import json
import os
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from api_types.environment import CONFIG_VARIABLE
from api_types.settings import Settings
from front.main import serve
from testbed.cluster.pki import Authority
from tests.workflows.environment.harness import ControlPlane, eventually, free_port

Json = dict[str, Any]
TOKENS = {"admin": "token-of-admin", "alice": "token-of-alice", "bob": "token-of-bob"}
ACCESS = """
users:
- {{name: admin, groups: [admins], tokenSha256: [{admin}]}}
- {{name: alice, groups: [team-a], tokenSha256: [{alice}]}}
- {{name: bob, groups: [team-b], tokenSha256: [{bob}]}}
rules:
- {{groups: [admins], namespaces: ["*"], clusterScoped: true, resources: ["*"], verbs: ["*"]}}
- {{groups: [team-a], namespaces: [team-a], resources: ["*", "*/scale", "*/status"], verbs: ["*"]}}
- {{groups: [team-b], namespaces: [team-b], resources: ["*"], verbs: [get, list, watch]}}
- {{groups: ["oidc:team-o"], namespaces: [team-o], resources: ["*", "*/scale"], verbs: ["*"]}}
- {{groups: ["system:masters"], namespaces: [team-m], resources: ["*", "*/scale"], verbs: ["*"]}}
"""
ROOT = Path(__file__).parents[2]
CERTIFIED = "testbed-admin"
"""The user of the certificate `admin` of the front's authority, in the group
system:masters.
"""
KUBECTL_SECONDS = 60
# With this selector, a deployment keeps its count but has no replicas.
NOWHERE = {"matchLabels": {"nowhere": "to-be-found"}}
BASE = "/apis/modelplane.ai/v1alpha1"
DEPLOYMENTS = f"{BASE}/namespaces/{{}}/modeldeployments"


@dataclass
class FrontUnderTest:
    """A running front. `folder` has its files."""

    plane: ControlPlane
    folder: Path
    settings: Settings
    listener: socket.socket | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None

    @property
    def url(self) -> str:
        """The address of the front."""
        return f"https://{self.settings.front.listen}"

    def audit(self) -> list[Json]:
        """The file of its audit log."""
        return [
            json.loads(line)
            for line in Path(self.settings.front.audit_file).read_text().splitlines()
        ]

    async def start(self) -> None:
        """Start the front, and wait until it has read all objects."""
        self.stop.clear()
        assert self.listener
        self._task = asyncio.create_task(
            serve(self.settings, self.stop, self.listener.dup())
        )
        await eventually(self._is_ready, bool, what="the front")

    async def shut_down(self) -> None:
        if self._task:
            self.stop.set()
            await self._task
            self._task = None

    async def _is_ready(self) -> bool:
        if self._task and self._task.done():
            self._task.result()
        try:
            status, _ = await self.ask("GET", "/readyz", user="")
        except aiohttp.ClientError:
            return False
        return status == 200

    @asynccontextmanager
    async def session(
        self, user: str = "admin"
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """Open a connection as a user; anonymous if the name is empty."""
        headers = {"Authorization": f"Bearer {TOKENS.get(user, user)}"} if user else {}
        trusted = ssl.create_default_context(
            cafile=str(Authority(self.folder / "pki").ca)
        )
        connector = aiohttp.TCPConnector(ssl=trusted)
        async with aiohttp.ClientSession(
            self.url, connector=connector, headers=headers
        ) as session:
            yield session

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        user: str = "admin",
        **headers: str,
    ) -> tuple[int, Any]:
        """Send a request; return the status and body."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with (
            self.session(user) as session,
            session.request(method, path, data=data, headers=sent) as answer,
        ):
            text = await answer.read()
            return answer.status, json.loads(
                text
            ) if answer.content_type == "application/json" else text.decode()

    async def watched(
        self,
        path: str,
        user: str = "admin",
        seconds: int = 60,
        begun: list[str] | None = None,
    ) -> AsyncIterator[Json]:
        """Return the events of a watch; `begun` receives an entry once it is answered."""
        separator = "&" if "?" in path else "?"
        async with (
            self.session(user) as session,
            session.get(
                f"{path}{separator}watch=true&timeoutSeconds={seconds}"
            ) as answer,
        ):
            assert answer.status == 200, await answer.text()
            if begun is not None:
                begun.append(path)
            async for line in answer.content:
                yield json.loads(line)

    async def kubectl(
        self,
        *arguments: str,
        user: str = "admin",
        input: str = "",  # noqa: A002
        fails: bool = False,
    ) -> str:
        """Run kubectl; return the output of both streams."""
        program = shutil.which("kubectl")
        assert program, "kubectl is not on the PATH"
        pki = Authority(self.folder / "pki")
        mine = pki.pair("admin")
        certificate = [
            "--client-certificate",
            str(mine.certificate),
            "--client-key",
            str(mine.key),
        ]
        who = certificate if user == CERTIFIED else ["--token", TOKENS.get(user, user)]
        trust = ["--server", self.url, "--certificate-authority", str(pki.ca), *who]
        process = await asyncio.create_subprocess_exec(
            program,
            *trust,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "KUBECONFIG": "/dev/null",
                "EDITOR": str(self.folder / "editor"),
            },
        )
        async with asyncio.timeout(KUBECTL_SECONDS):
            told, _ = await process.communicate(input.encode())
        assert (process.returncode != 0) is fails, told.decode()
        return told.decode()


@dataclass
class FrontProgram(FrontUnderTest):
    """A front in its own process. `environment` adds settings to those of its file."""

    environment: Mapping[str, str] = field(default_factory=dict)
    _process: asyncio.subprocess.Process | None = None

    @property
    def _log(self) -> Path:
        return self.folder / "front.log"

    async def start(self) -> None:
        """Start the front, and wait until it has read all objects."""
        environment = {
            **os.environ,
            **self.environment,
            CONFIG_VARIABLE: str(self.folder / "config.yaml"),
        }
        with self._log.open("wb") as log:
            command = (sys.executable, "-m", "front.main")
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        await eventually(self._is_ready, bool, what="the front")

    async def shut_down(self) -> None:
        """Stop the front, which must exit cleanly."""
        process, self._process = self._process, None
        if process:
            process.terminate()
            assert await process.wait() == 0, self._log.read_text()

    async def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self._log.read_text()
        return await super()._is_ready()


@asynccontextmanager
async def a_front(
    plane: ControlPlane, folder: Path, **more: str
) -> AsyncIterator[FrontUnderTest]:
    """Run a front with users, rules, TLS and further settings during the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    tree = _settings(plane, folder, f"127.0.0.1:{listener.getsockname()[1]}", more)
    under_test = FrontUnderTest(plane, folder, Settings.model_validate(tree), listener)
    try:
        await under_test.start()
        yield under_test
    finally:
        await under_test.shut_down()
        listener.close()


@asynccontextmanager
async def a_front_program(
    plane: ControlPlane, folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[FrontProgram]:
    """Run the front's program with users, rules, TLS and settings during the block.

    The settings are passed as environment variables.
    """
    tree = _settings(plane, folder, f"127.0.0.1:{free_port()}", {})
    # YAML includes JSON.
    (folder / "config.yaml").write_text(json.dumps(tree))
    program = FrontProgram(
        plane, folder, Settings.model_validate(tree), environment=environment
    )
    try:
        await program.start()
        yield program
    finally:
        await program.shut_down()


def _settings(
    plane: ControlPlane, folder: Path, address: str, more: Mapping[str, str]
) -> Json:
    """Write the files of a front to a folder; return its settings."""
    pki = Authority(folder / "pki")
    pki.ensure()
    access = folder / "access.yaml"
    access.write_text(
        ACCESS.format(
            **{
                name: hashlib.sha256(token.encode()).hexdigest()
                for name, token in TOKENS.items()
            }
        )
    )
    pair = pki.pair("apiserver")
    front = {
        "listen": address,
        "accessFile": str(access),
        "tlsCert": str(pair.certificate),
        "tlsKey": str(pair.key),
    }
    front |= {"clientCa": str(pki.ca), "auditFile": str(folder / "audit.jsonl"), **more}
    return {"temporal": {"address": plane.running.temporal_address}, "front": front}
