"""Messages of a ModelCache: signals to and from clusters, replicas and deployments, input and output of its activities.

A cache does not know its users by itself: a workflow that references one registers, and the cache signals every registered user.
Credentials travel as references; of their content only a keyed digest is sent.
"""

from typing import Any

from pydantic import Field

from api_types.base import Id, Message, SentAt, Text
from api_types.messages.cluster_work import CacheMount, Connection, Seconds, StorageClasses

# --- with clusters ----------------------------------------------------------------------------------------------------------------------


class CacheSite(Message):
    """What caches must know of a cluster; without a connection or a storage class nothing new can be staged there.

    `present`: the InferenceCluster exists; `deleting`: it is being deleted. Settings come from the worker that connected, because workflow
    code reads none: `attempts_max` is `cache.maxAttempts` (0: no limit), `evict_grace_seconds` is `cache.evictGrace`. `storage_classes` are
    as in `ClusterFacts`. `holders`: the uids of the caches that a cluster waits for that is
    being deleted, by name.
    """

    name: Id
    uid: Id
    sequence: SentAt
    labels: dict[str, str] = Field(default_factory=dict)
    connection: Connection | None = None
    storage_class_name: Id = ""
    storage_classes: StorageClasses | None = None
    scheduler_type: Id = "none"
    present: bool = True
    deleting: bool = Field(default=False, alias="leaving")
    attempts_max: int = 0
    evict_grace_seconds: Seconds = 600
    holders: dict[Id, Id] = Field(default_factory=dict)


class CacheOnCluster(Message):
    """A cache has objects on this cluster, or (`staged` False) none: a cluster that is being deleted waits for that.

    `sequence` orders what the cache with this `uid` tells clusters.
    """

    cache: Id
    uid: Id = ""
    sequence: SentAt = 0
    staged: bool = True


class CacheAccount(Message):
    """Where a cache has objects as far as it knows, for a watch that has just started."""

    namespace: str
    name: str
    uid: str
    clusters: list[str] = Field(default_factory=list)


# --- with replicas and deployments ------------------------------------------------------------------------------------------------------


class CacheUse(Message):
    """Register as a user of a cache, to be signalled about its changes; `used` False unregisters.

    A deployment sends only its own identity, a replica also its cluster, and in `claims` what its pods may mount now. `sequence` orders the
    registrations of the object with this `uid`. `report_missing`: the object has no report of the cache, whatever the cache has sent to it.
    """

    workflow_id: Id
    uid: Id
    sequence: SentAt = 0
    cluster: Id = ""
    deployment: Id = ""
    claims: list[Id] = Field(default_factory=list)
    used: bool = True
    report_missing: bool = False


class CacheReport(Message):
    """What a replica must know of its cache on its cluster: `claim` is the volume claim to mount, empty while there is none.

    `size_gib` is the size of the volume that the cache asks for; `mount` says how the claim is mounted, where that is not as usual.
    """

    cache: Id
    uid: Id
    sequence: SentAt
    cluster: Id
    phase: Id = ""
    claim: Id = ""
    size_gib: int = Field(default=0, ge=0)
    mount: CacheMount | None = None
    artifact_key: Id = Field(default="", alias="artefactKey")
    revision: Id = ""
    message: Text = ""


class CacheChanged(Message):
    """What placement reads of a cache: where it may be staged, and its phase on each cluster. `present` False: it does not exist.

    Sent to deployments that registered, and, without a uid, to every deployment of the namespace when a cache is created.
    """

    cache: Id
    uid: Id = ""
    sequence: SentAt = 0
    present: bool = True
    deleting: bool = False
    match_labels: dict[str, str] = Field(default_factory=dict)
    phases: dict[Id, Id] = Field(default_factory=dict)


# --- activities -------------------------------------------------------------------------------------------------------------------------


class ResolveRevision(Message):
    """Resolve the source of a cache to a commit or digest."""

    namespace: str
    name: str
    spec: dict[str, Any]


class ResolvedRevision(Message):
    """A commit (40 hex digits) or a digest (`sha256:` and 64)."""

    revision: str


class ApplyCache(Message):
    """Apply the objects of one artifact on one cluster. `hydrate`: its Job too; `failed_job_uid` is the uid of one that failed."""

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
    failed_job_uid: str = Field(default="", alias="spentJob")


class EarlierClaim(Message):
    """A volume claim that an earlier run of the same cache left; `uid` is the uid of that run."""

    claim: str
    uid: Id


class CacheApplied(Message):
    """What was applied. `job_uid` is empty if no Job was created; `credential_missing` then says which Secret it waits for.

    `credential_version` is the keyed digest of the Secret that was read, empty if there was none. `volume_digest` is a `content_digest`.
    `access_mode` is what the volume has. `adopted` are the uids of earlier runs of this cache whose objects are its own from now on.
    `earlier` are the claims of other artifacts that such runs left on the cluster.
    """

    claim: str
    artifact_key: str = Field(alias="artefactKey")
    volume_digest: str
    access_mode: Id = ""
    job_uid: str = ""
    credential_version: str = ""
    credential_missing: str = ""
    warnings: list[str] = Field(default_factory=list)
    adopted: list[Id] = Field(default_factory=list)
    earlier: list[EarlierClaim] = Field(default_factory=list)


class DeleteCacheObjects(Message):
    """Delete the objects of one artifact from a cluster; `steps` are numbers of `CACHE_STEPS`, each done until nothing is left.

    `uid` is the uid of the run that owns them: of this cache, or of an earlier run of it.
    """

    connection: Connection
    cluster: str
    namespace: str
    uid: str
    claim: str
    steps: list[int]


class SecretKey(Message):
    """One key of a Secret or ConfigMap; an empty key is that of a docker config."""

    name: Id
    key: Id = ""


class AwaitCredential(Message):
    """Wait until a Secret, or its key, differs from the version last read; `version` empty: it was missing.

    `name` may be empty; `others` are read with it, and have one version with it.
    """

    namespace: str
    name: str
    key: str
    version: str = ""
    others: list[SecretKey] = Field(default_factory=list)
