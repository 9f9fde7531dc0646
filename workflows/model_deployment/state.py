"""All that a ModelDeployment knows; continue-as-new carries it whole.

Field names on the wire are older than some names here: those have an alias, so that a run of an older worker can be continued.
"""

from typing import Annotated, Any, NamedTuple, Self

from pydantic import BeforeValidator, Field

from api_types.base import Message
from api_types.messages.caches import CacheChanged
from api_types.messages.entities import ReplicaChanged
from api_types.messages.scheduling import PlacedCondition, PlacementResponse, ReplicaEviction, ReplicaPlacement
from api_types.resources.status import LastScale
from workflows.entity.state import EntityState, none_if_empty
from workflows.model_deployment.revisions import Revision


class TrackedReplica(Message):
    """A replica of this deployment, from its placement until it is deleted.

    Attributes:
        entry: its ledger entry, which the scheduler gets back when it lost its state.
        after: uids of replicas that must be deleted before this one is started.
        generation: that of the template which was last ordered; `applied_generation`: that of the one it runs.
        bound: the scheduler knows that it was started.
        deletion_reason: why it is being deleted; empty while it is not.
        sequence: that of its last report.

    """

    uid: str
    name: str
    cluster: str
    index: int
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[str] = Field(default_factory=list)
    generation: int = 0
    started: bool = False
    bound: bool = False
    deletion_reason: str = Field(default="", alias="leaving")
    sequence: int = 0
    phase: str = "Pending"
    ready: bool = False
    serving: bool = False
    applied_generation: int = 0
    endpoint: str = ""
    message: str = ""

    @classmethod
    def placed(cls, placement: ReplicaPlacement, generation: int) -> Self:
        """Track a replica that was just placed."""
        return cls(
            uid=placement.uid,
            name=placement.name,
            cluster=placement.cluster,
            index=placement.index,
            entry=placement.entry,
            after=placement.after,
            generation=generation,
        )

    @property
    def was_started(self) -> bool:
        """Whether its workflow was ever started: objects of it may be on the cluster, even if the workflow does not run at present."""
        return self.started or self.bound

    @property
    def current(self) -> bool:
        """Ready with the template that was last ordered."""
        return self.ready and self.applied_generation == self.generation

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
            }
        )


class GenerationTimings(Message):
    """How long a generation took: from its acceptance (`accepted`, seconds since 1970) to its placement and to Ready, in seconds."""

    generation: int
    accepted: float
    placed_seconds: float | None = None
    ready_seconds: float | None = None


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


class DeploymentState(EntityState):
    """What a deployment carries from run to run.

    Attributes:
        cache: what its cache last reported; `cache_registered`: the name of the cache at which it is registered.
        applied_replicas: the replica count that was last applied; another one may have been ordered since.
        requests_made: how many requests for placements were made; `request_id`: the id of the last one.
        requested_inputs: what the last request was made from; None if the next pass has to request in any case.
        answer: the answer that arrived and is not carried out yet; `answered`: the last request was answered.
        scheduler_conditions: the conditions of the last answer.
        more: the last answer has steps left that depend on the health of replicas.
        adopted: replicas of an earlier deployment of this name were looked for.
        sent_labels, sent_flags: what was last sent to replicas beside their template.
        forgotten: the scheduler knows that this deployment is being deleted.
        orphans: replicas that report to this deployment and that it did not place.

    """

    cache: CacheChanged | None = None
    cache_registered: str = ""
    replicas: dict[str, TrackedReplica] = Field(default_factory=dict)
    applied_replicas: int | None = None
    last_scale: LastScale | None = None
    requests_made: int = Field(default=0, alias="asks")
    request_id: str = Field(default="", alias="asked")
    requested_inputs: Annotated[PlacementInputs | None, BeforeValidator(none_if_empty), Field(alias="askedFor")] = None
    answer: PlacementResponse | None = None
    answered: bool = True
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
    revisions: list[Revision] = Field(default_factory=list)
    evictions: list[ReplicaEviction] = Field(default_factory=list)
    forgotten: bool = False
    orphans: list[str] = Field(default_factory=list)

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

    def update(self, replica: TrackedReplica, **fields: Any) -> None:
        """Change fields of a replica."""
        self.replicas[replica.uid] = self.replicas[replica.uid].model_copy(update=fields)
