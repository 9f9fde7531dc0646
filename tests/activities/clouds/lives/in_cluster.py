"""The API server and the Helm of a created cluster.

They keep their input, and may fail.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from activities.clients.helm.port import ReleaseState
from activities.clouds.accounts import CloudAccounts
from activities.cluster_objects.cluster_api import ObjectList, Selection
from api_types.errors import ModelplaneError
from tests.activities.clouds.builders import a_node
from tests.activities.clouds.lives.deaths import (
    AFTER,
    BEFORE,
    CREATE,
    DELETE,
    POLLING,
    Deaths,
)


class Cluster:
    """A pool of one cluster.

    The next calls raise the `failures`, one each. `writes` lists the writes in order.
    """

    def __init__(self, accounts: CloudAccounts, deaths: Deaths) -> None:
        self.accounts = accounts
        self.deaths = deaths
        self.failures: list[ModelplaneError] = []
        self.applied: dict[str, Any] = {}
        self.releases: dict[str, str] = {}
        self.writes: list[str] = []

    async def _reached(self, connection: Any) -> None:
        await self.accounts.endpoint(connection.cloud)
        await self.accounts.token(connection.cloud, 60)
        if self.failures:
            raise self.failures.pop(0)

    async def at(self, connection: Any) -> "Cluster":
        await self._reached(connection)
        return self

    async def version(self) -> str:
        self.deaths.at(BEFORE, CREATE, "conn")
        self.deaths.at(AFTER, CREATE, "conn")
        return "v1.35.4"

    async def get(self, target: Any) -> Any:
        return self.applied.get(target.name)

    async def list(self, selection: Selection) -> ObjectList:
        self.deaths.at(POLLING, CREATE, f"nodes/{selection.labels.partition('=')[2]}")
        return ObjectList([a_node("system")], "1")

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.deaths.at(BEFORE, CREATE, "sc")
        self.applied[manifest["metadata"]["name"]] = manifest
        self.writes.append(f"apply {manifest['metadata']['name']}")
        self.deaths.at(AFTER, CREATE, "sc")
        return manifest

    async def delete(self, target: Any) -> bool:
        self.deaths.at(BEFORE, DELETE, "sc")
        gone = self.applied.pop(target.name, None) is not None
        self.writes.append(f"delete {target.name}")
        self.deaths.at(AFTER, DELETE, "sc")
        return gone


class Helm:
    """Helm for the same cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @contextlib.asynccontextmanager
    async def at(self, connection: Any) -> AsyncIterator["Helm"]:
        await self._cluster.at(connection)
        yield self

    async def ensure(self, release: Any) -> ReleaseState:
        key = f"chart/{release.name}"
        self._cluster.deaths.at(BEFORE, CREATE, key)
        self._cluster.releases[release.name] = "deployed"
        self._cluster.writes.append(f"install {release.name}")
        self._cluster.deaths.at(AFTER, CREATE, key)
        return _state(release.name, release.namespace)

    async def status(self, name: str, namespace: str) -> ReleaseState | None:
        return _state(name, namespace) if name in self._cluster.releases else None

    async def uninstall(self, name: str, namespace: str) -> None:
        del namespace
        key = f"chart/{name}"
        self._cluster.deaths.at(BEFORE, DELETE, key)
        self._cluster.releases.pop(name, None)
        self._cluster.writes.append(f"uninstall {name}")
        self._cluster.deaths.at(AFTER, DELETE, key)


def _state(name: str, namespace: str) -> ReleaseState:
    return ReleaseState(name, namespace, 1, "deployed", name, "1", "")
