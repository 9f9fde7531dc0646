"""All that a ModelCache knows; continue-as-new carries it whole.

Where a field has an alias, that is its name in the JSON of every release so far.
"""

from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.caches import CacheSite
from api_types.messages.observations import ObservedCache
from api_types.messages.versions import ObservationVersion, Version
from api_types.payloads.packing import Compact
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.state import EntityState

# With the waits between them some nine minutes: longer than a source is restarted, shorter than anyone waits for weights.
RESOLVE_ATTEMPTS = 7
# The watches of Jobs and of pods are not ordered.
COMMIT_WAIT = timedelta(seconds=30)


class StatePart(BaseModel):
    """A part of the state that changes in place."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")


class PinnedRevision(StatePart):
    """Which revision the source's reference meant when it was resolved.

    `reference` and `refresh` say what was resolved; when either differs, it is resolved again. `revision` is empty when resolving failed.
    `errors` counts failures in a row; `retry_at` is when it is resolved again, empty: not by time. `final`: the source itself refused, so
    that waiting for it helps nothing.
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
        """Whether nothing is staged yet, because the source may soon say what the reference means."""
        return bool(self.problem) and not self.revision and not self.final and self.errors < RESOLVE_ATTEMPTS


class Copy(StatePart):
    """One artifact on one cluster. Times are RFC 3339; digests and uids are empty until known.

    Attributes:
        applied_generation: the generation that was last applied; 0: it has to be applied (again).
        claim_digest: that of the volume claim as it was applied.
        job_uid: the Job of the present attempt; `job_observed`: the observer has reported it.
        failed_job_uid: the last Job that failed. While it equals `job_uid`, the next attempt waits for `retry_at`.
        missing_credential: which credential the download waits for.
        cleaned_up: neither Job nor credential are left on the cluster.
        owner_uid: the uid of the earlier run of this cache that left it; empty for an artifact of this run.
        access_mode: that of the volume claim. `image`: pods mount this image, which nodes pull with `pull_secret`; there is no claim.
        node_local: pods fill volumes of their own; there is no claim.
        literal: staged by the reference as it is written in the spec. `commit` is what the volume says that it was, and `pinned_key` the
            key of the artifact that it is, once that commit is the pinned revision.

    """

    artifact_key: str = Field(default="", alias="artefactKey")
    claim: str
    revision: str = ""
    applied_generation: int = Field(default=0, alias="applied")
    claim_digest: str = Field(default="", alias="digest")
    job_uid: str = Field(default="", alias="job")
    job_observed: bool = Field(default=False, alias="seen")
    failed_job_uid: str = Field(default="", alias="spent")
    attempts: int = 0
    failure: str = ""
    exit_code: int = 0
    retry_at: str = ""
    missing_credential: str = Field(default="", alias="missing")
    warning: str = ""
    cleaned_up: bool = Field(default=True, alias="tidy")
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
        """Whether nothing of it is staged on the cluster, because each pod has its own."""
        return bool(self.image) or self.node_local

    def is_of(self, artifact_key: str) -> bool:
        """Whether it is this artifact, under its own key or under that of the revision that its reference meant."""
        return artifact_key in (self.artifact_key, self.pinned_key)

    def says_commit_later(self, now: datetime) -> bool:
        """Whether it is complete, and its pod may be observed a moment later than its Job."""
        return self.literal and bool(self.ready_at) and not self.commit and now < self.commit_awaited_until

    @property
    def commit_awaited_until(self) -> datetime:
        """Until when the pod of a complete Job is waited for."""
        return datetime.fromisoformat(self.ready_at) + COMMIT_WAIT

    @property
    def failed(self) -> bool:
        """Whether the last attempt failed and the next one has not started."""
        return bool(self.failed_job_uid) and self.failed_job_uid == self.job_uid


class ClusterStaging(StatePart):
    """One cluster, with the artifacts on it, the desired one first.

    `site`: the last report of the cluster; `site_version`: that of the report. `unselected_since`: when the selector stopped selecting the
    cluster. `error` is that of the last failed step, which is repeated at `retry_at`; `errors` counts failures in a row. `registered`: the
    cluster knows that it waits for this cache when it is deleted. `doubted`: a report came of what may be an earlier cluster. `awaits`: the
    cluster whose volume will say which revision is staged here. `volume_class`: the storage class that the spec names, empty for the one
    that the cluster reports. `by_pods`: each pod has its own, so that nothing is staged on the cluster. `turn_began`: since when it is the
    first to stage a reference that is not resolved.
    """

    site: CacheSite
    site_version: Version = Field(default_factory=Version)
    copies: list[Copy] = Field(default_factory=list)
    observed: ObservedCache | None = None
    observed_version: ObservationVersion = Field(default_factory=ObservationVersion)
    unselected_since: str = Field(default="", alias="unmatchedSince")
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
        return site.present and not site.deleting and site.connection is not None and (self.by_pods or bool(self.storage_class))

    @property
    def storage_class(self) -> str:
        """The storage class of a new volume; empty if there is none."""
        return self.volume_class or self.site.storage_class_name

    @property
    def published(self) -> Copy | None:
        """The artifact that pods on this cluster may mount: the newest that is complete."""
        return next((copy for copy in self.copies if copy.ready_at), None)

    def is_backing_off(self, now: datetime) -> bool:
        """Tell whether the last step failed so recently that it is not repeated yet."""
        return bool(self.retry_at) and now < datetime.fromisoformat(self.retry_at)


class User(StatePart):
    """A replica, or (without a cluster) a deployment, that references this cache.

    `claims` are those that its pods may mount; `assigned_claim` is the one that was last assigned to it. `sequence`: that of its last
    registration.
    """

    workflow_id: str
    cluster: str = ""
    deployment: str = ""
    claims: list[str] = Field(default_factory=list)
    assigned_claim: str = Field(default="", alias="given")
    sequence: int = 0

    @property
    def name(self) -> str:
        """Its name within the namespace."""
        return self.workflow_id.rpartition("/")[2]

    @property
    def is_switching(self) -> bool:
        """Whether its pods are being replaced by pods that mount another volume."""
        return bool(self.claims) and bool(self.assigned_claim) and self.claims != [self.assigned_claim]


class CacheState(EntityState):
    """What a cache carries.

    Attributes:
        stagings: the clusters that hold something of this cache or shall do so, by name.
        silent: the clusters without a staging that did not answer when they were queried last, and
            have not reported since.
        unready: clusters that the selector matches and that have no staging, by name, with why nothing can be staged on them.
        users: by uid. `reported`: digest of the last message to each workflow. `former_users`: by uid, the last registration of those
            that use the cache no longer.
        surveyed: all clusters were queried since the spec last changed. `surveys`: how often. `survey_at`: when all clusters are
            queried again; empty: no such time is set.
        announcements: how often this cache was announced to its namespace.
        sequence: number of the last batch of messages to users.
        credential: keyed digest of the credential that was last used; empty: there was none.

    """

    pin: PinnedRevision | None = None
    stagings: Compact[dict[str, ClusterStaging]] = Field(default_factory=dict, alias="places")
    silent: Compact[list[str]] = Field(default_factory=list)
    unready: Compact[dict[str, str]] = Field(default_factory=dict)
    users: Compact[dict[str, User]] = Field(default_factory=dict)
    reported: Compact[dict[str, str]] = Field(default_factory=dict, alias="told")
    former_users: Compact[dict[str, int]] = Field(default_factory=dict)
    surveyed: bool = False
    surveys: int = 0
    survey_at: str = ""
    announcements: int = Field(default=0, alias="announced")
    resyncs: int = 0
    sequence: int = 0
    credential: str = ""
    was_ready: bool = False
