"""All that a ModelCache knows; continue-as-new carries it whole."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages.caches import CacheSite
from api_types.messages.observations import ObservedCache
from workflows.entity.state import EntityState


class Memory(BaseModel):
    """A part of the state that changes as news arrive."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")


class Pin(Memory):
    """Which revision the source's reference meant when it was asked.

    `reference` and `refresh` say what was asked; either differing means asking again. `revision` is empty when nobody could say.
    """

    reference: str
    refresh: str = ""
    revision: str = ""
    problem: str = ""
    with_credential: bool = False


class Copy(Memory):
    """One artefact on one cluster. Times are RFC 3339; digests and uids are empty until known.

    Attributes:
        applied: the generation that was last applied; 0: the cluster has to be brought there (again).
        digest: that of the volume claim as we applied it.
        job: uid of the Job of the present attempt; `seen`: the observer has told of it.
        spent: uid of the last Job that failed. While it equals `job`, the next attempt waits for `retry_at`.
        missing: which credential staging waits for.
        tidy: neither Job nor credential are left on the cluster.

    """

    artefact_key: str
    claim: str
    revision: str = ""
    applied: int = 0
    digest: str = ""
    job: str = ""
    seen: bool = False
    spent: str = ""
    attempts: int = 0
    failure: str = ""
    exit_code: int = 0
    retry_at: str = ""
    missing: str = ""
    warning: str = ""
    tidy: bool = True
    started_at: str = ""
    ready_at: str = ""

    @property
    def failed(self) -> bool:
        """Whether the last attempt failed and the next one has not begun."""
        return bool(self.spent) and self.spent == self.job


class ClusterStaging(Memory):
    """One cluster, with the artefacts there, the one that is wanted now first.

    `unmatched_since`: when the selector stopped choosing the cluster. `error` is that of the last failed step, which waits for `retry_at`.
    """

    site: CacheSite
    copies: list[Copy] = Field(default_factory=list)
    observed: ObservedCache | None = None
    unmatched_since: str = ""
    error: tuple[str, str] = ("", "")
    errors: int = 0
    retry_at: str = ""
    registered: bool = False

    @property
    def published(self) -> Copy | None:
        """The artefact that pods on this cluster may mount: the newest that is whole."""
        return next((copy for copy in self.copies if copy.ready_at), None)

    def waits_until(self, now: datetime) -> bool:
        """Tell whether the last step failed so recently that it is not yet tried again."""
        return bool(self.retry_at) and now < datetime.fromisoformat(self.retry_at)


class User(Memory):
    """A replica, or (without a cluster) a deployment, that references this cache.

    `claims` are those that its pods may mount; `given` is the one that it was last told to mount.
    """

    workflow_id: str
    cluster: str = ""
    deployment: str = ""
    claims: list[str] = Field(default_factory=list)
    given: str = ""

    @property
    def name(self) -> str:
        """Its name within the namespace."""
        return self.workflow_id.rpartition("/")[2]

    @property
    def is_moving(self) -> bool:
        """Whether its pods are on their way to another volume."""
        return bool(self.claims) and bool(self.given) and self.claims != [self.given]


class CacheState(EntityState):
    """What a cache carries.

    Attributes:
        known: every cluster that was looked at, so that a later look asks only about others.
        surveyed: all clusters were looked at since the spec last changed.
        users: by uid. `told`: digest of what each workflow last heard.
        credential: keyed digest of the credential that was last used; empty: there was none.

    """

    pin: Pin | None = None
    places: dict[str, ClusterStaging] = Field(default_factory=dict)
    users: dict[str, User] = Field(default_factory=dict)
    told: dict[str, str] = Field(default_factory=dict)
    known: list[str] = Field(default_factory=list)
    surveyed: bool = False
    announced: int = 0
    resyncs: int = 0
    sequence: int = 0
    credential: str = ""
    was_ready: bool = False
