"""What a ModelCache says to clusters, replicas and deployments, hears from them, and orders of activities.

A cache does not know its users by itself: whoever references one registers and is told from then on. Credentials travel as references;
what is told of their content is a keyed digest.
"""

from typing import Any

from pydantic import Field

from api_types.base import Message
from api_types.messages.cluster_work import Connection

# --- with clusters ----------------------------------------------------------------------------------------------------------------------


class CacheSite(Message):
    """What caches must know of a cluster; without a connection or a storage class nothing new can be staged there.

    `present`: its record exists; `leaving`: it is being deleted. Settings come from the worker that made contact, because workflow code
    reads none: `attempts_max` is `cache.maxAttempts` (0: no end), `evict_grace_seconds` is `cache.evictGrace`.
    """

    name: str
    uid: str
    sequence: int
    labels: dict[str, str] = Field(default_factory=dict)
    connection: Connection | None = None
    storage_class_name: str = ""
    scheduler_type: str = "none"
    present: bool = True
    leaving: bool = False
    attempts_max: int = 0
    evict_grace_seconds: int = 600


class CacheOnCluster(Message):
    """A cache has objects on this cluster, or (`staged` False) none any more: a cluster that is being deleted waits for that."""

    cache: str
    staged: bool = True


class CacheAccount(Message):
    """Where a cache believes to have objects, for an observer that has just begun."""

    namespace: str
    name: str
    uid: str
    clusters: list[str] = Field(default_factory=list)


# --- with replicas and deployments ------------------------------------------------------------------------------------------------------


class CacheWanted(Message):
    """Somebody references a cache and wants to hear of it; `used` False ends that.

    A deployment names itself only. A replica says where it runs, and in `claims` what its pods may mount now.
    """

    workflow_id: str
    uid: str
    cluster: str = ""
    deployment: str = ""
    claims: list[str] = Field(default_factory=list)
    used: bool = True


class CacheReport(Message):
    """What a replica must know of its cache on its cluster: `claim` is the volume claim to mount, empty while there is none to be had."""

    cache: str
    uid: str
    sequence: int
    cluster: str
    phase: str = ""
    claim: str = ""
    artefact_key: str = ""
    revision: str = ""
    message: str = ""


class CacheChanged(Message):
    """What placement reads of a cache: where it may be staged, and how far it is by cluster. `present` False: it does not exist (any more).

    Sent to deployments that registered, and, without a uid, to everybody in the namespace when a cache is born.
    """

    cache: str
    uid: str = ""
    sequence: int = 0
    present: bool = True
    deleting: bool = False
    match_labels: dict[str, str] = Field(default_factory=dict)
    phases: dict[str, str] = Field(default_factory=dict)


# --- talk to activities -----------------------------------------------------------------------------------------------------------------


class ResolveRevision(Message):
    """Find out which commit or digest a cache's source means now."""

    namespace: str
    name: str
    spec: dict[str, Any]


class ResolvedRevision(Message):
    """A commit (40 hex digits) or a digest (`sha256:` and 64)."""

    revision: str


class CacheOrder(Message):
    """Bring one artefact to one cluster. `hydrate`: its Job is wanted too, and not the one with uid `spent_job`, which has failed."""

    connection: Connection
    cluster: str
    namespace: str
    name: str
    uid: str
    generation: int
    spec: dict[str, Any]
    revision: str = ""
    storage_class_name: str
    scheduler_type: str = "none"
    hydrate: bool = True
    spent_job: str = ""


class CacheApplied(Message):
    """What stands now. `job_uid` is empty if no Job was made; `credential_missing` then says which Secret it waits for.

    `credential_version` is the keyed digest of the Secret that was read, empty if there was none. `volume_digest` as `content_digest`
    makes it.
    """

    claim: str
    artefact_key: str
    volume_digest: str
    job_uid: str = ""
    credential_version: str = ""
    credential_missing: str = ""
    warnings: list[str] = Field(default_factory=list)


class CacheDeparture(Message):
    """Take one artefact off a cluster; `steps` are numbers of `CACHE_STEPS`, done in order, each until nothing is left."""

    connection: Connection
    cluster: str
    namespace: str
    uid: str
    claim: str
    steps: list[int]


class AwaitCredential(Message):
    """Wait until a Secret, or its key, differs from what was last seen; `version` empty: it was missing."""

    namespace: str
    name: str
    key: str
    version: str = ""
