"""Messages of a ModelCache, and input and output of its activities.

A cache does not discover its users: each workflow that references a cache registers
with it, and the cache signals every registered user. Credentials travel as references;
messages contain only a keyed digest of their content.
"""

from typing import Any

from pydantic import Field

from api_types.base import Id, Message, SentAt, Text
from api_types.messages.cluster_work import (
    CacheMount,
    Connection,
    Seconds,
    StorageClasses,
    TeardownStepResult,
)

# Messages to and from clusters.


class CacheSite(Message):
    """The state of a cluster that its caches need.

    Without a connection or a storage class, nothing new can be staged on the cluster.
    `present`: the InferenceCluster exists. `deleting`: it is being deleted. Settings
    come from the worker that connected, because workflow code cannot read them:
    `attempts_max` is `cache.maxAttempts` (0: no limit), and `evict_grace_seconds` is
    `cache.evictGrace`. `storage_classes` is as in `ClusterFacts`. `holders` maps the
    names of caches with volumes on the cluster to their uids: a cluster that is being
    deleted names all, and waits for them. Otherwise it names only the cache that asks.
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
    deleting: bool = False
    attempts_max: int = 0
    evict_grace_seconds: Seconds = 600
    holders: dict[Id, Id] = Field(default_factory=dict)


class CacheOnCluster(Message):
    """Whether a cache has objects on a cluster.

    A cluster that is being deleted waits for `staged` to become false. `sequence`
    orders the messages of the cache with this `uid` to clusters.
    """

    cache: Id
    uid: Id = ""
    sequence: SentAt = 0
    staged: bool = True


class CacheAccount(Message):
    """The clusters where a cache knows of its objects, for a newly started watch."""

    namespace: str
    name: str
    uid: str
    clusters: list[str] = Field(default_factory=list)


# Messages to and from replicas and deployments.


class CacheUse(Message):
    """Registers an object as a user of a cache, which then signals it about changes.

    `used` False unregisters the object. A deployment sends only its own identity. A
    replica also sends its cluster, and in `claims` the claims that its pods may
    currently mount. `sequence` orders the registrations of the object with this `uid`.
    `report_missing` means that the object has no report of the cache, even if the cache
    has sent one.
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
    """The state of a replica's cache on its cluster.

    `claim` is the volume claim to mount, empty while there is none. `size_gib` is the
    requested size of the volume. `mount` is set if the claim is not mounted in the
    usual way.
    """

    cache: Id
    uid: Id
    sequence: SentAt
    cluster: Id
    phase: Id = ""
    claim: Id = ""
    size_gib: int = Field(default=0, ge=0)
    mount: CacheMount | None = None
    artifact_key: Id = ""
    revision: Id = ""
    message: Text = ""


class CacheChanged(Message):
    """The placement constraints of a cache: its clusters and its phase on each.

    `present` False means that the cache does not exist. The cache sends this message to
    registered deployments. When a cache is created, every deployment of the namespace
    gets it without a uid.
    """

    cache: Id
    uid: Id = ""
    sequence: SentAt = 0
    present: bool = True
    deleting: bool = False
    match_labels: dict[str, str] = Field(default_factory=dict)
    phases: dict[Id, Id] = Field(default_factory=dict)


# Input and output of activities.


class ResolveRevision(Message):
    namespace: str
    name: str
    spec: dict[str, Any]


class ResolvedRevision(Message):
    """A commit (40 hex digits) or a digest (`sha256:` and 64 hex digits)."""

    revision: str


class ApplyCache(Message):
    """Apply the objects of one artifact on one cluster.

    `hydrate`: also apply its Job. `failed_job_uid` is the uid of a failed Job.
    """

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
    failed_job_uid: str = ""


class EarlierClaim(Message):
    """A volume claim of another artifact of the same cache, with the uid of its run.

    It is from an earlier run, or from this run before the workflow was reset.
    """

    claim: str
    uid: Id


class CacheApplied(Message):
    """The result of `ApplyCache`.

    `job_uid` is empty if no Job was created; `credential_missing` is then the Secret
    that the Job waits for. `credential_version` is the keyed digest of the Secret,
    empty without a Secret. `volume_digest` is a `content_digest`. `access_mode` is the
    access mode of the volume. `adopted` are the uids of earlier runs of this cache
    whose objects it now owns. `earlier` are the claims of other artifacts of this cache
    on the cluster.
    """

    claim: str
    artifact_key: str
    volume_digest: str
    access_mode: Id = ""
    job_uid: str = ""
    credential_version: str = ""
    credential_missing: str = ""
    warnings: list[str] = Field(default_factory=list)
    adopted: list[Id] = Field(default_factory=list)
    earlier: list[EarlierClaim] = Field(default_factory=list)


class DeleteCacheObjects(Message):
    """Delete the objects of one artifact from a cluster.

    `steps` are numbers of `CACHE_STEPS`. Each step ends when all its objects are gone.
    `uid` is the uid of the run that owns the objects, which is the current run or an
    earlier one. With `search`, the result has the other artifacts of the cache and of
    its ended runs.
    """

    connection: Connection
    cluster: str
    namespace: str
    uid: str
    claim: str
    steps: list[int]
    search: bool = False


class CacheObjectsDeleted(TeardownStepResult):
    """The result of the deletion of one artifact's objects."""

    earlier: list[EarlierClaim] = Field(default_factory=list)


class SecretKey(Message):
    """One key of a Secret or ConfigMap; an empty key is the key of a docker config."""

    name: Id
    key: Id = ""


class AwaitCredential(Message):
    """Wait until a Secret or its key differs from the version that was last read.

    An empty `version` means that the Secret did not exist. `name` may be empty.
    `others` are read together with it, and `version` covers them too.
    """

    namespace: str
    name: str
    key: str
    version: str = ""
    others: list[SecretKey] = Field(default_factory=list)
