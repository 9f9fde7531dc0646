"""Replicas and caches whose copies of Secrets or ConfigMaps are not of the present version are told, seconds after the store has another.

Each copy on a cluster has the version of its source on it, a keyed digest, and the watch of the cluster knows the copies. So what is
compared is what stands there: a worker that starts after a change finds it too, and nothing is remembered that could be lost. A day without
a change costs nothing. A cache has copies while it downloads alone.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.copy_index import CopyIndex, SourceKey
from activities.clusters.watch.observation_index import REPLICA
from activities.messaging.sending import send_signal
from activities.observe.cache import MODEL_CACHE
from activities.secrets.store import SecretReader
from api_types.errors import ModelplaneError
from api_types.messages.delivery import entity
from api_types.messages.entities import SecretsChanged
from api_types.messages.signals import CopyUserSignals, ModelCacheSignals, ModelReplicaSignals

# Between two looks. A store that is an API server is asked once for each source: many sources are looked at less often, but each minute.
LOOK_SECONDS, LOOK_SECONDS_MAX = 10.0, 60.0
_SECONDS_PER_SOURCE = 0.1
_RECEIVERS: dict[str, type[CopyUserSignals]] = {REPLICA: ModelReplicaSignals, MODEL_CACHE: ModelCacheSignals}
# A replica that cannot follow, for its cluster refuses or two workers have different stores, is told ever more rarely.
REPEAT_SECONDS = (60.0, 3600.0)

log = structlog.get_logger("modelplane.rotated_secrets")


def pause_seconds(sources: int) -> float:
    """Give the pause between two looks at that many sources."""
    return min(max(LOOK_SECONDS, _SECONDS_PER_SOURCE * sources), LOOK_SECONDS_MAX)


class SourceVersions:
    """The versions of entries of the secret store, read at most once in a while for all clusters of a worker."""

    def __init__(self, store: SecretReader) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._known: dict[SourceKey, tuple[float, str]] = {}

    async def of(self, sources: Iterable[SourceKey]) -> dict[SourceKey, str]:
        """Give the version of each; empty for what is gone or may not be read."""
        found: dict[SourceKey, str] = {}
        async with self._lock:
            now = asyncio.get_running_loop().time()
            self._known = {source: known for source, known in self._known.items() if known[0] + LOOK_SECONDS > now}
            for source in sources:
                if source not in self._known:
                    self._known[source] = (asyncio.get_running_loop().time(), await self._read(source))
                found[source] = self._known[source][1]
        return found

    async def _read(self, source: SourceKey) -> str:
        try:
            info = await self._store.describe(source.namespace, source.name)
        except (ModelplaneError, OSError):
            # Its replicas say why when they compare their copies. A cluster says of what its copies are, and may make a name up.
            return ""
        return info.version if info and info.kind == source.kind else ""


class RotationNotifier:
    """Tells the replicas and caches on one cluster. `owners` gives those that have objects there."""

    def __init__(self, versions: SourceVersions, client: Client, copies: CopyIndex, owners: Callable[[], Sequence[Owner]]) -> None:
        self._versions = versions
        self._client = client
        self._copies = copies
        self._owners = owners
        # By uid: when each may be told again, and after which pause the time after that.
        self._next: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        """Tell them until cancelled."""
        while True:
            await asyncio.sleep(pause_seconds(len(self._copies.sources())))
            await self.notify()

    async def notify(self) -> None:
        """Look once."""
        behind = set(self._copies.users_of_others(await self._versions.of(self._copies.sources())))
        self._next = {uid: due for uid, due in self._next.items() if uid in behind}
        now = asyncio.get_running_loop().time()
        shortest, longest = REPEAT_SECONDS
        for owner in sorted(owner for owner in self._owners() if owner.kind in _RECEIVERS and owner.uid in behind):
            at, pause = self._next.get(owner.uid, (now, shortest))
            if at <= now and await self._tell(owner):
                self._next[owner.uid] = (now + pause, min(2 * pause, longest))

    async def _tell(self, owner: Owner) -> bool:
        receiver = entity(_RECEIVERS[owner.kind], owner.namespace, owner.name)
        try:
            await send_signal(self._client, CopyUserSignals.SECRETS_CHANGED.request(receiver, SecretsChanged(uid=owner.uid)))
        except (RPCError, TimeoutError) as error:
            log.warning("a user of a copy was not told of a changed Secret", user=owner.workflow_id, error=str(error))
            return False
        return True
