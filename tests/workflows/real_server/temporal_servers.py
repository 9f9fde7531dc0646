"""Temporal servers that a test stops and restarts over the same data.

`SqliteServer` is the server of the testbed, with its data in a file. `PostgresServer`
is the same version of the server over PostgreSQL, with the default timing and caches of
a production server.
"""

import asyncio
import json
import os
import pwd
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from fleet_client.temporal.converter import DATA_CONVERTER
from fleet_client.temporal.queries import RetriedQueries
from testbed import temporal
from testbed.fleet.home import Home
from testbed.programs.install import Installer
from testbed.programs.versions import TEMPORAL_SERVER_TOOLS, TOOLS
from tests.environment.waiting import pauses
from worker import register_search_attributes

# A server that is stopped gracefully completes the requests in progress.
STOP_SECONDS = 60
NAMESPACE = "default"
_RETENTION = timedelta(days=1)
_DEBIAN = Path("/usr/lib/postgresql")
_UNPRIVILEGED = "nobody"
_STORES = {"temporal": "temporal", "temporal_visibility": "visibility"}
"""The databases, and the folder of the schema of each."""


class TemporalServer(ABC):
    """A Temporal server whose data outlives its process."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Use `folder` for this server alone, with `settings` as its dynamic configuration."""
        self.home = Home(folder)
        self.settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return the address for clients."""
        return temporal.address(self.home)

    @abstractmethod
    def command(self) -> Sequence[str]:
        pass

    def start(self) -> None:
        """Start the server without waiting for it."""
        with (self.home.folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the server, if it runs, and wait for its end."""
        process, self._process = self._process, None
        if process:
            process.send_signal(number)
            process.wait(STOP_SECONDS)

    async def client(self) -> Client:
        """Connect as soon as the server serves its namespace."""
        for pause in pauses():
            with suppress(RuntimeError, RPCError):
                client = await Client.connect(
                    self.address, data_converter=DATA_CONVERTER, interceptors=[RetriedQueries()]
                )
                await self.prepare(client)
                await client.count_workflows()
                return client
            if self._process is None or self._process.poll() is not None:
                break
            await asyncio.sleep(pause)
        raise AssertionError(f"the server does not serve its namespace:\n{self.log()[-4000:]}")

    async def prepare(self, client: Client) -> None:  # noqa: B027 - the default does nothing
        """Create the namespace if the server does not create it itself."""

    async def started(self) -> Client:
        """Start the server for the first time; return a client that may start workflows."""
        self.start()
        client = await self.client()
        await register_search_attributes(client)
        return client

    def log(self) -> str:
        return (self.home.folder / "temporal.log").read_text()


class SqliteServer(TemporalServer):
    """A server with a file database, as the testbed starts it."""

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(folder, settings or {})
        self.home.choose_ports(list(temporal.PORTS), print)
        self._program = Installer(print).programs(
            tool for tool in TOOLS if tool.name == temporal.TEMPORAL
        )[temporal.TEMPORAL]

    @property
    def file(self) -> Path:
        """Return the database file."""
        return self.home.folder / "temporal.db"

    def command(self) -> Sequence[str]:
        more = [f"{key}={json.dumps(value)}" for key, value in self.settings.items()]
        return [
            *temporal.process(self.home, self._program).argv,
            *(word for each in more for word in ("--dynamic-config-value", each)),
        ]


class PostgresServer(TemporalServer):
    """A server whose data is in a running PostgreSQL."""

    _SERVICES = ("frontend", "history", "matching", "worker")

    def __init__(
        self, folder: Path, database: "Postgres", settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(folder, settings or {})
        members = [f"{service}-membership" for service in self._SERVICES]
        self.home.choose_ports([temporal.TEMPORAL, *self._SERVICES[1:], *members], print)
        programs = Installer(print).programs(TEMPORAL_SERVER_TOOLS)
        self._program = programs["temporal-server"]
        self._configure(database)
        for name, schema in _STORES.items():
            database.create(programs["temporal-sql-tool"], name, schema)

    def command(self) -> Sequence[str]:
        return [
            str(self._program),
            "--root",
            str(self.home.folder),
            "--config",
            ".",
            "--env",
            "development",
            "--allow-no-auth",
            "start",
        ]

    async def prepare(self, client: Client) -> None:
        retention = Duration()
        retention.FromTimedelta(_RETENTION)
        request = RegisterNamespaceRequest(
            namespace=NAMESPACE, workflow_execution_retention_period=retention
        )
        try:
            await client.workflow_service.register_namespace(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise

    def _configure(self, database: "Postgres") -> None:
        folder = self.home.folder
        ports = {
            "frontend": self.home.port(temporal.TEMPORAL),
            **{each: self.home.port(each) for each in self._SERVICES[1:]},
        }
        services = {
            name: {
                "rpc": {
                    "grpcPort": port,
                    "membershipPort": self.home.port(f"{name}-membership"),
                    "bindOnLocalHost": True,
                }
            }
            for name, port in ports.items()
        }
        active = {
            "enabled": True,
            "initialFailoverVersion": 1,
            "rpcName": "frontend",
            "rpcAddress": self.address,
        }
        config = {
            "log": {"stdout": True, "level": "warn"},
            "persistence": {
                "defaultStore": "temporal",
                "visibilityStore": "temporal_visibility",
                "numHistoryShards": 4,
                "datastores": {name: {"sql": database.connection(name)} for name in _STORES},
            },
            "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
            "services": services,
            "clusterMetadata": {
                "enableGlobalNamespace": False,
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {"active": active},
            },
            "dynamicConfigClient": {
                "filepath": str(folder / "dynamic.yaml"),
                "pollInterval": "10s",
            },
        }
        (folder / "development.yaml").write_text(yaml.safe_dump(config))
        dynamic = {
            key: [{"value": value, "constraints": {}}] for key, value in self.settings.items()
        }
        (folder / "dynamic.yaml").write_text(yaml.safe_dump(dynamic))


class Postgres:
    """A PostgreSQL for one test.

    It refuses to run as root, so root starts it as `nobody`.
    """

    def __init__(self, folder: Path) -> None:
        """Use an empty folder whose parents every user can enter."""
        self._programs = _postgres_programs()
        self._folder = folder
        self._home = Home(folder / "home")
        self._home.choose_ports(["postgres"], print)
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(_UNPRIVILEGED)
            os.chown(folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        command = [
            self._programs / "initdb",
            "--username=temporal",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
            self._data,
        ]
        subprocess.run(
            [str(word) for word in command],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            **self._user,
        )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _port(self) -> int:
        return self._home.port("postgres")

    def connection(self, name: str) -> dict[str, Any]:
        """Return the settings with which Temporal reaches a database."""
        return {
            "pluginName": "postgres12",
            "databaseName": name,
            "connectAddr": f"127.0.0.1:{self._port}",
            "connectProtocol": "tcp",
            "user": "temporal",
            "password": "temporal",
            "maxConns": 20,
            "maxIdleConns": 20,
        }

    def start(self) -> None:
        """Start PostgreSQL and wait until it accepts connections."""
        options = {
            "port": self._port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        command += [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        with (self._folder / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, **self._user
            )
        ready = [
            str(self._programs / "pg_isready"),
            "--quiet",
            "--host=127.0.0.1",
            f"--port={self._port}",
            "--timeout=60",
        ]
        for _ in range(STOP_SECONDS):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
                break
        raise AssertionError(
            f"PostgreSQL does not start:\n{(self._folder / 'postgres.log').read_text()[-4000:]}"
        )

    def end(self) -> None:
        """Stop PostgreSQL like a crash.

        SIGQUIT also ends processes that SIGKILL would leave behind.
        """
        process, self._process = self._process, None
        if process:
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_SECONDS)

    def create(self, tool: Path, name: str, schema: str) -> None:
        """Create a database with a schema of Temporal, with `temporal-sql-tool`."""
        base = [
            str(tool),
            "--plugin",
            "postgres12",
            "--endpoint",
            "127.0.0.1",
            "--port",
            str(self._port),
            "--user",
            "temporal",
        ]
        base += ["--password", "temporal", "--database", name]
        steps = (
            ["create-database"],
            ["setup-schema", "--version", "0.0"],
            ["update-schema", "--schema-name", f"postgresql/v12/{schema}"],
        )
        for step in steps:
            answer = subprocess.run([*base, *step], capture_output=True, text=True, check=False)
            assert answer.returncode == 0, answer.stdout + answer.stderr


def _postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs: from PATH, or else the newest of Debian's."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    installed = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert installed, "PostgreSQL is not installed; install it, for example Debian's postgresql"
    return installed[-1].parent


@contextmanager
def a_postgres() -> Iterator[Postgres]:
    """Start an empty PostgreSQL, and stop it at the end."""
    # Only pytest's user can enter pytest's folders.
    with TemporaryDirectory(prefix="modelplane-postgres-") as folder:
        database = Postgres(Path(folder))
        database.start()
        try:
            yield database
        finally:
            database.end()


@asynccontextmanager
async def a_server(
    store: str, folder: Path, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[TemporalServer]:
    """Run a server over a store, `sqlite` or `postgres`, with our search attributes."""
    with a_postgres() if store == "postgres" else nullcontext() as database:
        server = (
            PostgresServer(folder, database, settings)
            if database
            else SqliteServer(folder, settings)
        )
        try:
            await server.started()
            yield server
        finally:
            server.end()
