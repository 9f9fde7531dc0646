"""Notify replicas and caches when the secret store has a newer version of their copies.

Each copy on a cluster contains the version of its source, a keyed digest, and the watch
of the cluster observes all copies. The versions on the cluster are compared with the
store. So a worker that starts after a change detects it too, and no state in memory can
be lost. Without changes there are no notifications. A cache has copies only while it
downloads.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.copy_index import CopyIndex, SourceKey
from activities.clusters.watch.observation_index import REPLICA
from activities.messaging.sending import send_signal
from activities.observe.cache import MODEL_CACHE
from activities.secrets.store import SecretReader
from api_types.errors import ModelplaneError
from api_types.messages.delivery import entity
from api_types.messages.entities import SecretsChanged
from api_types.messages.signals import (
    CopyUserSignals,
    ModelCacheSignals,
    ModelReplicaSignals,
)

# The pause between two checks. If the store is an API server, each source costs it a
# request, so many sources are checked less often, but at least every minute.
LOOK_SECONDS, LOOK_SECONDS_MAX = 10.0, 60.0
_SECONDS_PER_SOURCE = 0.1
_RECEIVERS: dict[str, type[CopyUserSignals]] = {
    REPLICA: ModelReplicaSignals,
    MODEL_CACHE: ModelCacheSignals,
}
# The first and the longest pause between notifications of a replica that cannot apply
# the new version, because its cluster refuses or two workers have different stores.
REPEAT_SECONDS = (60.0, 3600.0)

log = structlog.get_logger("modelplane.rotated_secrets")


def pause_seconds(sources: int) -> float:
    """Return the pause between two checks of that many sources."""
    return min(max(LOOK_SECONDS, _SECONDS_PER_SOURCE * sources), LOOK_SECONDS_MAX)


class SourceVersions:
    """The versions of entries of the secret store, cached for all clusters of a worker."""

    def __init__(self, store: SecretReader) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._known: dict[SourceKey, tuple[float, str]] = {}

    async def of(self, sources: Iterable[SourceKey]) -> dict[SourceKey, str]:
        """Return the version of each source.

        It is empty if the source is gone or may not be read.
        """
        found: dict[SourceKey, str] = {}
        async with self._lock:
            now = asyncio.get_running_loop().time()
            self._known = {
                source: known
                for source, known in self._known.items()
                if known[0] + LOOK_SECONDS > now
            }
            for source in sources:
                if source not in self._known:
                    self._known[source] = (
                        asyncio.get_running_loop().time(),
                        await self._read(source),
                    )
                found[source] = self._known[source][1]
        return found

    async def _read(self, source: SourceKey) -> str:
        try:
            info = await self._store.describe(source.namespace, source.name)
        except (ModelplaneError, OSError):
            # Replicas report the reason themselves when they compare their copies. A
            # cluster provides the names of the sources, and may invent one.
            return ""
        return info.version if info and info.kind == source.kind else ""


class RotationNotifier:
    """Notifies the replicas and caches on one cluster.

    `owners` returns the owners of objects there.
    """

    def __init__(
        self,
        versions: SourceVersions,
        client: Client,
        copies: CopyIndex,
        owners: Callable[[], Sequence[ObjectOwner]],
    ) -> None:
        self._versions = versions
        self._client = client
        self._copies = copies
        self._owners = owners
        # By uid: when the owner may be notified again, and the pause after that.
        self._next: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(pause_seconds(len(self._copies.sources())))
            await self.notify()

    async def notify(self) -> None:
        """Compare the copies with the store once, and notify the owners of old ones."""
        behind = set(
            self._copies.users_of_others(
                await self._versions.of(self._copies.sources())
            )
        )
        self._next = {uid: due for uid, due in self._next.items() if uid in behind}
        now = asyncio.get_running_loop().time()
        shortest, longest = REPEAT_SECONDS
        for owner in sorted(self._owners()):
            if owner.kind not in _RECEIVERS or owner.uid not in behind:
                continue
            at, pause = self._next.get(owner.uid, (now, shortest))
            if at <= now and await self._send(owner):
                self._next[owner.uid] = (now + pause, min(2 * pause, longest))

    async def _send(self, owner: ObjectOwner) -> bool:
        receiver = entity(_RECEIVERS[owner.kind], owner.namespace, owner.name)
        try:
            await send_signal(
                self._client,
                CopyUserSignals.SECRETS_CHANGED.request(
                    receiver, SecretsChanged(uid=owner.uid)
                ),
            )
        except (RPCError, TimeoutError) as error:
            log.warning(
                "could not notify the user of a copy of a changed Secret; will retry",
                user=owner.workflow_id,
                error=str(error),
            )
            return False
        return True
