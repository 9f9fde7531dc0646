"""The state of a ModelCache. Continue-as-new carries all of it."""

from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.caches import CacheSite
from api_types.messages.observations import ObservedCache
from api_types.messages.versions import MessageVersion, ObservationVersion
from api_types.payloads.packing import Compact
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.state import EntityState

# With the delays between them, these take about nine minutes. A source restarts in less
# time, and users wait longer than that for weights.
RESOLVE_ATTEMPTS = 7
# The watches of Jobs and of pods are not ordered.
COMMIT_WAIT = timedelta(seconds=30)


class StatePart(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )


class PinnedRevision(StatePart):
    """The revision that the source's reference was resolved to.

    Attributes:
        reference, refresh: the resolved reference and refresh annotation. If either
            changes, the reference is resolved again.
        revision: the revision. Empty if the reference could not be resolved.
        problem: why the last attempt to resolve it failed.
        errors: the number of consecutive failures.
        retry_at: when the next attempt may start. Empty if no retry is planned.
        final: whether the source rejected the request, so that waiting does not help.

    """

    reference: str
    refresh: str = ""
    revision: str = ""
    problem: str = ""
    errors: int = 0
    retry_at: str = ""
    final: bool = False

    @property
    def waits_for_source(self) -> bool:
        """Whether staging waits because the source may soon resolve the reference."""
        return (
            bool(self.problem)
            and not self.revision
            and not self.final
            and self.errors < RESOLVE_ATTEMPTS
        )


class CacheCopy(StatePart):
    """One artifact on one cluster.

    Times are RFC 3339. Digests and uids are empty until they are known.

    Attributes:
        applied_generation: the generation that was last applied. 0 if the artifact has to
            be applied (again).
        claim_digest: the digest of the applied volume claim.
        job_uid: the Job of the current attempt.
        job_observed: whether the observer has reported that Job.
        failed_job_uid: the last failed Job. While it equals `job_uid`, the next attempt
            waits for `retry_at`.
        missing_credential: the credential that the download waits for.
        cleaned_up: whether neither a Job nor a credential is left on the cluster.
        owner_uid: the uid of the earlier run of this cache that left the artifact, or its
            own uid if the workflow was reset and forgot it. Empty for an artifact that
            the workflow knows.
        access_mode: the access mode of the volume claim.
        image: the image that pods mount instead of a volume claim.
        pull_secret: the Secret that nodes use to pull `image`.
        node_local: whether each pod fills its own volume, so that there is no claim.
        literal: whether the artifact was staged by the unresolved reference in the spec.
        commit: the commit that the volume of a literal artifact reports.
        pinned_key: the key of the artifact at the pinned revision, once `commit` is the
            pinned revision.

    """

    artifact_key: str = ""
    claim: str
    revision: str = ""
    applied_generation: int = 0
    claim_digest: str = ""
    job_uid: str = ""
    job_observed: bool = False
    failed_job_uid: str = ""
    attempts: int = 0
    failure: str = ""
    exit_code: int = 0
    retry_at: str = ""
    missing_credential: str = ""
    warning: str = ""
    cleaned_up: bool = True
    started_at: str = ""
    ready_at: str = ""
    literal: bool = False
    commit: str = ""
    pinned_key: str = ""
    owner_uid: str = ""
    access_mode: str = ""
    image: str = ""
    pull_secret: str = ""
    node_local: bool = False

    @property
    def by_pods(self) -> bool:
        """Whether nothing is staged on the cluster, because each pod gets its own data."""
        return bool(self.image) or self.node_local

    def is_of(self, artifact_key: str) -> bool:
        """Return whether this is the given artifact, by its own key or its pinned key."""
        return artifact_key in (self.artifact_key, self.pinned_key)

    def says_commit_later(self, now: datetime) -> bool:
        """Return whether the artifact is complete but its commit may still be reported."""
        return (
            self.literal
            and bool(self.ready_at)
            and not self.commit
            and now < self.commit_awaited_until
        )

    @property
    def commit_awaited_until(self) -> datetime:
        """Until when a complete Job's pod may still report its commit."""
        return datetime.fromisoformat(self.ready_at) + COMMIT_WAIT

    @property
    def failed(self) -> bool:
        """Whether the last attempt failed and the next one has not started."""
        return bool(self.failed_job_uid) and self.failed_job_uid == self.job_uid


class ClusterStaging(StatePart):
    """One cluster with the artifacts on it.

    The desired artifact is the first one.

    Attributes:
        site: the last report of the cluster.
        site_version: the version of that report.
        copies: the artifacts on the cluster.
        unselected_since: when the selector stopped selecting the cluster.
        error: why the last step failed.
        errors: the number of consecutive failures.
        retry_at: when the failed step is repeated.
        registered: whether the cluster waits for this cache when it is deleted.
        doubted: whether the last report may be of an earlier cluster of this name, or was
            missed. The next pass queries the cluster.
        awaits: the cluster whose volume determines the revision for this cluster.
        volume_class: the storage class in the spec. Empty for the one that the cluster
            reports.
        by_pods: whether nothing is staged, because each pod gets its own data.
        turn_began: since when this cluster is the first to stage an unresolved reference.

    """

    site: CacheSite
    site_version: MessageVersion = Field(default_factory=MessageVersion)
    copies: list[CacheCopy] = Field(default_factory=list)
    observed: ObservedCache | None = None
    observed_version: ObservationVersion = Field(default_factory=ObservationVersion)
    unselected_since: str = ""
    error: Failure = NO_FAILURE
    errors: int = 0
    retry_at: str = ""
    registered: bool = False
    doubted: bool = False
    awaits: str = ""
    volume_class: str = ""
    by_pods: bool = False
    turn_began: str = ""

    @property
    def can_stage(self) -> bool:
        """Whether an artifact can be staged on the cluster if it has none."""
        site = self.site
        return (
            site.present
            and not site.deleting
            and site.connection is not None
            and (self.by_pods or bool(self.storage_class))
        )

    @property
    def storage_class(self) -> str:
        """The storage class of a new volume; empty if there is none."""
        return self.volume_class or self.site.storage_class_name

    @property
    def published(self) -> CacheCopy | None:
        """The newest complete artifact. Pods on this cluster may mount it."""
        return next((copy for copy in self.copies if copy.ready_at), None)

    def is_backing_off(self, now: datetime) -> bool:
        """Return whether the last failed step has to wait before it is repeated."""
        return bool(self.retry_at) and now < datetime.fromisoformat(self.retry_at)


class CacheUser(StatePart):
    """A replica or, without a cluster, a deployment that references this cache.

    Attributes:
        claims: the claims that its pods may mount.
        assigned_claim: the claim that was last assigned to it.
        sequence: the sequence number of its last registration.

    """

    workflow_id: str
    cluster: str = ""
    deployment: str = ""
    claims: list[str] = Field(default_factory=list)
    assigned_claim: str = ""
    sequence: int = 0

    @property
    def name(self) -> str:
        """Its name within the namespace."""
        return self.workflow_id.rpartition("/")[2]

    @property
    def is_switching(self) -> bool:
        """Whether its pods are being replaced by pods that mount another volume."""
        return (
            bool(self.claims)
            and bool(self.assigned_claim)
            and self.claims != [self.assigned_claim]
        )


class CacheState(EntityState):
    """The carried state of a cache.

    Attributes:
        pin: the pinned revision.
        stagings: the clusters that hold or shall hold objects of this cache, by name.
        silent: the clusters without a staging that did not answer the last query and have
            not reported since.
        unready: selected clusters without a staging, with the reason why nothing can be
            staged on them.
        users: the users, by uid.
        reported: the digest of the last message to each user, by workflow ID.
        former_users: the last registration of former users, by uid.
        surveyed: whether all clusters were queried since the spec last changed.
        surveys: the number of queries of all clusters for the current spec.
        survey_at: when all clusters are queried again. Empty if that is not planned.
        announcements: how often this cache was announced to its namespace.
        sequence: the number of the last batch of messages to users.
        users_checks: how often the deletion has asked whether its users still run.
        credential: the keyed digest of the credential that was last used. Empty if there
            was none.

    """

    pin: PinnedRevision | None = None
    stagings: Compact[dict[str, ClusterStaging]] = Field(default_factory=dict)
    silent: Compact[list[str]] = Field(default_factory=list)
    unready: Compact[dict[str, str]] = Field(default_factory=dict)
    users: Compact[dict[str, CacheUser]] = Field(default_factory=dict)
    reported: Compact[dict[str, str]] = Field(default_factory=dict)
    former_users: Compact[dict[str, int]] = Field(default_factory=dict)
    surveyed: bool = False
    surveys: int = 0
    survey_at: str = ""
    announcements: int = 0
    resyncs: int = 0
    sequence: int = 0
    users_checks: int = 0
    credential: str = ""
    was_ready: bool = False
