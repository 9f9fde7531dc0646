"""The copies of Secrets and ConfigMaps on a cluster: of what each is one, in which version, and which replicas and caches need it."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import Kind, ObjectId
from activities.cluster_objects.ownership import owner_of
from activities.observe.cache import MODEL_CACHE
from activities.render.objects import components
from activities.render.objects.propagation import CONFIG_MAP, SECRET
from activities.watching.reflector import Key
from api_types import labels


class SourceKey(NamedTuple):
    """An entry of the secret store."""

    kind: str
    namespace: str
    name: str


class CopySeen(NamedTuple):
    """One copy. `version` is that of its source when it was written; `users` are uids of replicas and caches."""

    source: SourceKey
    version: str
    users: frozenset[str]


def read_copy(item: Mapping[str, Any]) -> CopySeen | None:
    """Reduce an object; None if it is no copy, or one of a version that did not write its source's down."""
    metadata = item["metadata"]
    notes = metadata.get("annotations") or {}
    owner = owner_of(item)
    version = str(notes.get(labels.SOURCE_VERSION, ""))
    if (metadata.get("labels") or {}).get(labels.COMPONENT) != components.SECRET or not version:
        return None
    if owner.kind == MODEL_CACHE:
        # Not shared: it belongs to the one that needs it.
        kind, _, name = str(notes.get(labels.SOURCE, "")).partition("/")
        return CopySeen(SourceKey(kind, owner.namespace, name), version, frozenset([owner.uid])) if name else None
    if owner.kind not in (SECRET, CONFIG_MAP):
        return None
    users = frozenset(str(uid) for key, uid in notes.items() if key.startswith(labels.USER_PREFIX))
    return CopySeen(SourceKey(owner.kind, owner.namespace, owner.name), version, users)


class CopyIndex:
    """The copies of one cluster."""

    def __init__(self) -> None:
        self._copies: dict[ObjectId, CopySeen] = {}

    def put(self, kind: Kind, key: Key, seen: CopySeen | None) -> None:
        """Keep one copy, or drop it."""
        target = ObjectId(kind, key.namespace, key.name)
        self._copies.pop(target, None)
        if seen:
            self._copies[target] = seen

    def sources(self) -> list[SourceKey]:
        """Give what the copies are of, each once."""
        return sorted({seen.source for seen in self._copies.values()})

    def users_of_others(self, versions: Mapping[SourceKey, str]) -> Iterator[str]:
        """Give the uids of those with a copy of another version than its source has; of a source that is gone, none."""
        for seen in self._copies.values():
            if versions.get(seen.source, "") not in ("", seen.version):
                yield from seen.users
