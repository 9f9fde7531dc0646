"""Helm for all clusters of a worker: `HelmPool` over the kubeconfigs that the Kubernetes clients use too."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from activities.clients.helm.binary import HelmBinary
from activities.clients.helm.charts import ChartStore
from activities.clients.helm.client import HelmTools, helm_client
from activities.clients.helm.folders import WorkerFolder, memory_folder, sweep
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import HelmPool, HelmPort
from activities.clients.kubernetes.kubeconfig import Access
from api_types.errors import Unsupported
from api_types.messages.cluster_work import Connection
from api_types.settings import StackSettings

log = structlog.get_logger("modelplane.helm")


class AccessSource(Protocol):
    """Where kubeconfigs are resolved."""

    async def access(self, connection: Connection) -> Access:
        """Resolve the reference to a kubeconfig and read it. Raises CredentialsInvalid and PermissionDenied."""
        ...


class HelmClients(HelmPool):
    """The helm of one worker: its program, its folders, its limits. `places` are further paths where a helm may be."""

    def __init__(self, source: AccessSource, settings: StackSettings, places: Sequence[Path] = ()) -> None:
        self._source = source
        self._settings = settings
        self._binary = HelmBinary(settings.helm, places)
        self._limits = HelmLimits(settings.helm_concurrency)
        self._memory: WorkerFolder | None = None
        self._disk: WorkerFolder | None = None

    async def start(self, *, serves_clusters: bool) -> None:
        """Remove what killed workers left, and say at once if stacks cannot be installed by a worker that would be asked to."""
        for base in dict.fromkeys((memory_folder(), Path(tempfile.gettempdir()))):
            if removed := sweep(base):
                log.info("removed what workers that were killed left behind", folders=[str(each) for each in removed])
        if not serves_clusters:
            return
        try:
            helm = await self._binary.get()
        except Unsupported as error:
            log.warning("serving stacks cannot be installed", reason=error.message)
        else:
            log.info("helm", path=helm.path, version=".".join(map(str, helm.version)))

    @contextlib.asynccontextmanager
    async def at(self, connection: Connection) -> AsyncIterator[HelmPort]:
        """See `HelmPool`."""
        helm = await self._binary.get()
        access = await self._source.access(connection)
        if self._memory is None or self._disk is None:
            self._memory, self._disk = WorkerFolder(memory_folder()), WorkerFolder(Path(tempfile.gettempdir()))
            self._charts = ChartStore(self._disk, self._limits, self._settings)
        tools = HelmTools(helm, self._charts, self._memory, self._limits)
        async with helm_client(access, connection.cluster, tools=tools) as client:
            yield client

    def close(self) -> None:
        """Remove all files."""
        for folder in (self._memory, self._disk):
            if folder is not None:
                folder.remove()
        self._memory = self._disk = None
