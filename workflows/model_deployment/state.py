"""All that a ModelDeployment knows; continue-as-new carries it whole.

Field names on the wire are older than some names here: those have an alias, so that a run of an older worker can be continued.
"""

from datetime import datetime
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, Field

from api_types.base import Message
from api_types.messages.caches import CacheChanged
from api_types.messages.entities import ReplicaChanged
from api_types.messages.scheduling import PlacedCondition, PlacementResponse, ReplicaAccount, ReplicaEviction, ReplicaPlacement
from api_types.payloads.packing import Compact
from api_types.resources.status import LastScale
from scheduler import reasons
from workflows.entity.state import EntityState, none_if_empty
from workflows.model_deployment.revisions import Revision


class TrackedReplica(Message):
    """A replica of this deployment, from its placement until it is deleted.

    Attributes:
        entry: its ledger entry, which the scheduler gets back when it lost its state.
        after: uids of replicas, of this deployment or others, that must be gone before this one is started.
        generation: that of the template which was last ordered; `applied_generation`: that of the one it runs.
        starting: its start is ordered and was not answered yet; `bound`: the scheduler knows that it was started.
        restarted: its workflow was terminated, and is started or was started again.
        deletion_reason: why it is being deleted; empty while it is not.
        start_after: another uid of its name still runs, and it is started no earlier than this.
        sequence: that of its last report.
        adoption: the last one that was ordered, as in `SetTemplate`; `adopted`: the last one that it has applied.
        pending: why its pods would be other ones if they were made now; `adopting`: they shall be replaced without being told to.

    """

    uid: str
    name: str
    cluster: str
    index: int
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[str] = Field(default_factory=list)
    generation: int = 0
    starting: bool = False
    started: bool = False
    bound: bool = False
    restarted: bool = False
    deletion_reason: str = Field(default="", alias="leaving")
    start_after: str = ""
    sequence: int = 0
    phase: str = "Pending"
    ready: bool = False
    serving: bool = False
    applied_generation: int = 0
    endpoint: str = ""
    message: str = ""
    adoption: int = 0
    adopted: int = 0
    pending: str = ""
    adopting: bool = False

    @classmethod
    def of(cls, found: ReplicaPlacement | ReplicaEviction | ReplicaAccount, **fields: Any) -> Self:
        """Track the replica of a message, with other fields."""
        return cls(uid=found.uid, name=found.name, cluster=found.cluster, index=found.index, entry=found.entry, **fields)

    @classmethod
    def placed(cls, placement: ReplicaPlacement, generation: int, deployment_uid: str) -> Self:
        """Track a replica that was just placed, or that an earlier deployment of this name may have started.

        That one may have been terminated before it reported the start, so that the scheduler still has the placement as reserved.
        """
        entry = placement.entry
        was_bound = entry.get("state", reasons.BOUND) != reasons.RESERVED
        # What still waits for nodes was not started by any deployment.
        was_given_to_another = entry.get("origin", ("",))[0] not in ("", deployment_uid) and not placement.after
        return cls.of(placement, after=placement.after, generation=generation, restarted=was_bound or was_given_to_another)

    @classmethod
    def to_delete(cls, evicted: ReplicaEviction, generation: int) -> Self:
        """Track a replica that was not known, and whose workflow may not run any more: it is started again to delete its objects."""
        return cls.of(evicted, generation=generation, restarted=True, deletion_reason=evicted.reason)

    def must_wait(self, now: datetime) -> bool:
        """Whether it is too early to try again to start it."""
        return bool(self.start_after) and datetime.fromisoformat(self.start_after) > now

    @property
    def was_started(self) -> bool:
        """Whether its workflow may ever have been started: objects of it may be on the cluster, even if it does not run at present."""
        return self.starting or self.started or self.bound or self.restarted

    @property
    def current(self) -> bool:
        """Ready with the template that was last ordered."""
        return self.ready and self.applied_generation == self.generation and self.adopted >= self.adoption

    @property
    def adoption_due(self) -> int:
        """The adoption that it is still to apply, 0 for none: one that was started again knows none, and would replace its pods again."""
        return self.adoption if self.adopted < self.adoption else 0

    def reported(self, report: ReplicaChanged) -> Self:
        """Give this replica as it reports itself."""
        return self.model_copy(
            update={
                "sequence": report.sequence,
                "phase": report.phase,
                "ready": report.ready,
                "serving": report.serving,
                "applied_generation": report.generation,
                "endpoint": report.endpoint,
                "message": report.message,
                "adopted": max(self.adopted, report.adoption),
                "pending": report.pending,
                "adopting": report.adopting,
            }
        )


class GenerationTimings(Message):
    """How long a generation took: from its acceptance (`accepted`, seconds since 1970) to its placement and to Ready, in seconds."""

    generation: int
    accepted: float
    placed_seconds: float | None = None
    ready_seconds: float | None = None


class ScaleWriter(Message):
    """Who sets the replica count: the last times, in seconds since 1970, and whether that is a program."""

    by: str
    automatic: bool = False
    times: list[float]


class ReplicaIdentity(NamedTuple):
    """A replica, and whether it is being deleted."""

    uid: str
    terminating: bool


class ReplicaHealth(NamedTuple):
    """A replica, and how far it is: an answer with more steps depends on that."""

    uid: str
    current: bool
    serving: bool


class PlacementInputs(NamedTuple):
    """All that an answer of the scheduler depends on: as long as it stays equal, nothing has to be requested."""

    generation: int
    epoch: int
    replicas: list[ReplicaIdentity]
    health: list[ReplicaHealth]
    cache: dict[str, Any]
    adoption: int = 0


class AdapterCache(BaseModel):
    """How a deployment follows the cache of an adapter: as `cache` and `cache_registered` of its state do."""

    cache: CacheChanged | None = None
    cache_registered: str = ""


class DeploymentState(EntityState):
    """What a deployment carries from run to run.

    Attributes:
        cache: what its cache last reported; `cache_registered`: the name of the cache at which it is registered.
        adapters: how it follows the caches of its adapters, by name.
        applied_replicas: the replica count that was last applied; another one may have been ordered since.
        scale_writers: who has set the replica count in the last minutes, the newest at the end.
        last_request: the number of the last request for placements; `request_id`: its id.
        requested_inputs: what the last request was made from; None if the next pass has to request in any case.
        answer: the answer that arrived and is not carried out yet; `answered`: the last request was answered, last with `answer_sequence`.
        scheduler_conditions: the conditions of the last answer.
        more: the last answer has steps left that depend on the health of replicas.
        adopted: replicas of an earlier deployment of this name were looked for.
        sent_labels, sent_flags: what was last sent to replicas beside their template.
        forgotten: the scheduler knows that this deployment is being deleted.
        released: the scheduler has confirmed that nothing is charged to it; asked `release_checks` times, and next at `release_check_at`.
        ended: names of replicas that were terminated before this deployment was there; read when it is deleted.
        unknown: names of replicas that report to this deployment and are not tracked; queried `unknown_attempts` times in vain.
        revoked: reservations that the scheduler asks about, or that have to be given back.
        returned: placements that were given back or refused and are never started, until the scheduler has answered a request with them;
            `requested_returned` are those that the last request listed.
        lost: replicas that could not be signalled, and from when on they are started again.
        leaving: replicas that are being deleted, checked `leaving_checks` times, and next at `leaving_check_at`.
        resync_due: all replicas have to repeat their reports.
        adoption: the last one that was begun: a rollout that replaces pods although the template is the same.

    """

    cache: CacheChanged | None = None
    cache_registered: str = ""
    adapters: dict[str, AdapterCache] = Field(default_factory=dict)
    replicas: Compact[dict[str, TrackedReplica]] = Field(default_factory=dict)
    applied_replicas: int | None = None
    last_scale: LastScale | None = None
    scale_writers: list[ScaleWriter] = Field(default_factory=list)
    last_request: int = Field(default=0, alias="asks")
    request_id: str = Field(default="", alias="asked")
    requested_inputs: Annotated[PlacementInputs | None, BeforeValidator(none_if_empty), Field(alias="askedFor")] = None
    answer: PlacementResponse | None = None
    answered: bool = True
    answer_sequence: int = 0
    shortfall: int = 0
    message: str = ""
    scheduler_conditions: list[PlacedCondition] = Field(default_factory=list, alias="scheduled")
    more: bool = False
    epoch: int = 0
    timings: GenerationTimings | None = Field(default=None, alias="pace")
    adopted: bool = False
    sent_labels: dict[str, str] = Field(default_factory=dict, alias="toldLabels")
    sent_flags: str = Field(default="", alias="toldFlags")
    template_generation: int = 0
    revisions: Compact[list[Revision]] = Field(default_factory=list)
    evictions: Compact[list[ReplicaEviction]] = Field(default_factory=list)
    forgotten: bool = False
    released: bool = False
    release_checks: int = 0
    release_check_at: str = ""
    ended: list[str] = Field(default_factory=list)
    unknown: list[str] = Field(default_factory=list, alias="orphans")
    unknown_attempts: int = 0
    revoked: list[str] = Field(default_factory=list)
    returned: list[str] = Field(default_factory=list)
    requested_returned: list[str] = Field(default_factory=list)
    lost: dict[str, str] = Field(default_factory=dict)
    leaving: list[str] = Field(default_factory=list)
    leaving_checks: int = 0
    leaving_check_at: str = ""
    resync_due: bool = False
    adoption: int = 0

    @property
    def wanted(self) -> int:
        """How many replicas are wanted."""
        return 0 if self.deleting or self.spec is None else int(self.spec["replicas"])

    def by_name(self) -> list[TrackedReplica]:
        """Give the replicas in name order; a successor may have the name of one that is being deleted."""
        return sorted(self.replicas.values(), key=lambda replica: (replica.name, replica.uid))

    def started(self) -> list[TrackedReplica]:
        """Give the replicas whose workflows were started, in name order."""
        return [replica for replica in self.by_name() if replica.started]

    def staying(self) -> list[TrackedReplica]:
        """Give the replicas that are not being deleted, in name order."""
        return [replica for replica in self.by_name() if not replica.deletion_reason]

    def record_gone(self, uid: str) -> None:
        """Record that a replica is gone: none waits for it any more, nor one in an answer that is not carried out yet."""
        for replica in [replica for replica in self.replicas.values() if uid in replica.after]:
            self.update(replica, after=[other for other in replica.after if other != uid])
        if self.answer is not None and any(uid in placement.after for placement in self.answer.placements):
            placements = [
                placement.model_copy(update={"after": [other for other in placement.after if other != uid]})
                for placement in self.answer.placements
            ]
            self.answer = self.answer.model_copy(update={"placements": placements})

    def update(self, replica: TrackedReplica, **fields: Any) -> None:
        """Change fields of a replica."""
        self.replicas[replica.uid] = self.replicas[replica.uid].model_copy(update=fields)
