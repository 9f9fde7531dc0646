"""The copies of Secrets and ConfigMaps on a cluster: sources, versions and users."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import GroupVersionKind, ObjectId
from activities.cluster_objects.ownership import owner_of
from activities.observe.cache import MODEL_CACHE
from activities.render.objects import components
from activities.render.objects.propagation import CONFIG_MAP, SECRET
from activities.watching.reflector import NamespacedName
from api_types import labels


class SourceKey(NamedTuple):
    kind: str
    namespace: str
    name: str


class CopySeen(NamedTuple):
    """One copy.

    `version` is the version of its source when the copy was written. `users` are the
    uids of replicas and caches.
    """

    source: SourceKey
    version: str
    users: frozenset[str]


def read_copy(item: Mapping[str, Any]) -> CopySeen | None:
    """Reduce an object.

    Returns None unless it is a copy with a recorded source version.
    """
    metadata = item["metadata"]
    notes = metadata.get("annotations") or {}
    owner = owner_of(item)
    version = str(notes.get(labels.SOURCE_VERSION, ""))
    component = (metadata.get("labels") or {}).get(labels.COMPONENT)
    if component != components.SECRET or not version:
        return None
    if owner.kind == MODEL_CACHE:
        # The copy of a cache is not shared: it belongs to the cache that needs it.
        kind, _, name = str(notes.get(labels.SOURCE, "")).partition("/")
        if not name:
            return None
        source = SourceKey(kind, owner.namespace, name)
        return CopySeen(source, version, frozenset([owner.uid]))
    if owner.kind not in (SECRET, CONFIG_MAP):
        return None
    users = frozenset(
        str(uid) for key, uid in notes.items() if key.startswith(labels.USER_PREFIX)
    )
    return CopySeen(SourceKey(owner.kind, owner.namespace, owner.name), version, users)


class CopyIndex:
    def __init__(self) -> None:
        self._copies: dict[ObjectId, CopySeen] = {}

    def put(
        self, kind: GroupVersionKind, key: NamespacedName, seen: CopySeen | None
    ) -> None:
        """Store one copy, or drop it."""
        target = ObjectId(kind, key.namespace, key.name)
        self._copies.pop(target, None)
        if seen:
            self._copies[target] = seen

    def sources(self) -> list[SourceKey]:
        """Return the distinct sources of the copies."""
        return sorted({seen.source for seen in self._copies.values()})

    def users_of_others(self, versions: Mapping[SourceKey, str]) -> Iterator[str]:
        """Yield the uids of users whose copy has another version than its source.

        Copies whose source is gone are left out.
        """
        for seen in self._copies.values():
            if versions.get(seen.source, "") not in ("", seen.version):
                yield from seen.users
