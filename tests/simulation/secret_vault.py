"""An in-memory secret store, and in-memory hubs of models."""

import hashlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from activities.render.cache.artifact import SOURCE_HUGGINGFACE, SOURCE_OCI, Artifact
from activities.secrets.store import OPAQUE, SecretInfo, SecretMissing, SecretReader, StoredSecret
from api_types.errors import ServerError, Throttled
from api_types.labels import PROPAGATE

Pause = Callable[[float, float], Awaitable[None]]
Place = tuple[str, str]


@dataclass
class SecretVault(SecretReader):
    """The store. Scripts change its `contents`; a Secret may be copied to clusters."""

    contents: dict[Place, dict[str, str]] = field(default_factory=dict)

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        """See `SecretReader`."""
        found = await self.read(namespace, name)
        if key not in found.data:
            raise SecretMissing(namespace, name, key, detail=f"it has no key {key}")
        return found.data[key]

    async def read(self, namespace: str, name: str) -> StoredSecret:
        """See `SecretReader`."""
        found = self.contents.get((namespace, name))
        if found is None:
            raise SecretMissing(namespace, name)
        data = {key: value.encode() for key, value in found.items()}
        return StoredSecret(namespace, name, data, OPAQUE, {PROPAGATE: "true"})

    async def describe(self, namespace: str, name: str) -> SecretInfo | None:
        """See `SecretReader`."""
        found = self.contents.get((namespace, name))
        if found is None:
            return None
        version = hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]
        return SecretInfo(
            namespace, name, "Secret", OPAQUE, {PROPAGATE: "true"}, tuple(sorted(found)), version
        )


@dataclass
class ModelHub:
    """Every hub, bucket and registry. Their contents change with each of `moves`."""

    pause: Pause
    strikes: Callable[[str, str], bool]
    draw: random.Random
    moves: int = 0

    async def resolve(self, artifact: Artifact, credential: str) -> str:
        """See `RevisionSource`."""
        del credential
        await self.pause(0.05, 2.0)
        if self.strikes("hub.error", artifact.origin):
            raise self.draw.choice(
                (
                    ServerError(f"{artifact.origin}: no answer"),
                    Throttled(f"{artifact.origin}: limits the rate"),
                )
            )
        if (
            artifact.revision
            and artifact.source == SOURCE_HUGGINGFACE
            and len(artifact.revision) == len(self.commit(""))
        ):
            return artifact.revision
        digest = hashlib.sha256(
            f"{artifact.origin} {artifact.revision} {self.moves}".encode()
        ).hexdigest()
        return digest[:40] if artifact.source == SOURCE_HUGGINGFACE else f"sha256:{digest}"

    def commit(self, origin: str, source: str = SOURCE_HUGGINGFACE) -> str:
        """Return the present revision of an origin."""
        digest = hashlib.sha256(f"{origin}  {self.moves}".encode()).hexdigest()
        return f"sha256:{digest}" if source == SOURCE_OCI else digest[:40]
