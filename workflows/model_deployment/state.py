"""The state of a ModelDeployment, which continue-as-new carries completely."""

from datetime import datetime
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, Field

from api_types.base import Message
from api_types.messages.caches import CacheChanged
from api_types.messages.entities import ReplicaChanged
from api_types.messages.scheduling import (
    PlacedCondition,
    PlacementResponse,
    ReplicaAccount,
    ReplicaEviction,
    ReplicaPlacement,
)
from api_types.payloads.packing import Compact
from api_types.resources.status import LastScale
from scheduler import reasons
from workflows.entity.state import EntityState
from workflows.model_deployment.revisions import TemplateRevision


class TrackedReplica(Message):
    """A replica of this deployment, from its placement to its deletion.

    Attributes:
        entry: its ledger entry, which restores the scheduler after a loss of its state.
        after: uids of replicas of any deployment that must be gone before this one
            starts.
        generation: the generation of the last ordered template; `applied_generation`:
            of the template it runs.
        starting: its start was ordered and has no result yet; `bound`: the scheduler
            knows that it was started.
        restarted: its workflow was terminated, and is or was restarted.
        deletion_reason: the reason for its deletion; empty while it stays.
        start_after: another uid of its name still runs, so it starts no earlier than at
            this time.
        sequence: the number of its last report.
        adoption: the last ordered adoption, as in `SetTemplate`; `adopted`: the last
            one that it applied.
        pending: why its pods would differ if they were created now; `adopting`: an
            adoption replaces these pods.

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
    deletion_reason: str = ""
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
    def of(
        cls, found: ReplicaPlacement | ReplicaEviction | ReplicaAccount, **fields: Any
    ) -> Self:
        """Track the replica of a message, with other fields."""
        return cls(
            uid=found.uid,
            name=found.name,
            cluster=found.cluster,
            index=found.index,
            entry=found.entry,
            **fields,
        )

    @classmethod
    def placed(
        cls, placement: ReplicaPlacement, generation: int, deployment_uid: str
    ) -> Self:
        """Track a newly placed replica.

        An earlier deployment of this name may have started it, and may have been
        terminated before it reported the start. The scheduler then still has a
        reservation.
        """
        entry = placement.entry
        was_bound = entry.get("state", reasons.BOUND) != reasons.RESERVED
        # No deployment has started a replica that still waits for nodes.
        was_given_to_another = (
            entry.get("origin", ("",))[0] not in ("", deployment_uid)
            and not placement.after
        )
        return cls.of(
            placement,
            after=placement.after,
            generation=generation,
            restarted=was_bound or was_given_to_another,
        )

    @classmethod
    def to_delete(cls, evicted: ReplicaEviction, generation: int) -> Self:
        """Track an unknown replica, whose workflow restarts to delete its objects."""
        return cls.of(
            evicted,
            generation=generation,
            restarted=True,
            deletion_reason=evicted.reason,
        )

    def must_wait(self, now: datetime) -> bool:
        """Whether it is too early for the next attempt to start it."""
        return bool(self.start_after) and datetime.fromisoformat(self.start_after) > now

    @property
    def was_started(self) -> bool:
        """Whether its workflow may have been started, so that it may have objects."""
        return self.starting or self.started or self.bound or self.restarted

    @property
    def current(self) -> bool:
        """Ready with the last ordered template."""
        return (
            self.ready
            and self.applied_generation == self.generation
            and self.adopted >= self.adoption
        )

    @property
    def adoption_due(self) -> int:
        """The adoption that the replica has not applied yet, 0 for none.

        A restarted replica knows no adoptions, and would replace its pods again.
        """
        return self.adoption if self.adopted < self.adoption else 0

    def reported(self, report: ReplicaChanged) -> Self:
        """Return the account of this replica."""
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
    """The duration of a generation from its acceptance to placement and Ready, in seconds.

    `accepted` is in seconds since 1970.
    """

    generation: int
    accepted: float
    placed_seconds: float | None = None
    ready_seconds: float | None = None


class ScaleWriter(Message):
    """A writer of the replica count: its last times, and whether it is a program.

    Times are in seconds since 1970.
    """

    by: str
    automatic: bool = False
    times: list[float]


class ReplicaIdentity(NamedTuple):
    """A replica, and whether it is being deleted."""

    uid: str
    terminating: bool


class ReplicaHealth(NamedTuple):
    """The progress of a replica; an answer with further steps depends on it."""

    uid: str
    current: bool
    serving: bool


class PlacementInputs(NamedTuple):
    """All inputs of an answer of the scheduler.

    While they stay equal, no request is needed.
    """

    generation: int
    epoch: int
    replicas: list[ReplicaIdentity]
    health: list[ReplicaHealth]
    cache: dict[str, Any]
    adoption: int = 0


class DeploymentAdapterCache(BaseModel):
    """The state of the registration at the cache of an adapter."""

    cache: CacheChanged | None = None
    cache_registered: str = ""


class DeploymentState(EntityState):
    """The state that a deployment carries from run to run.

    Attributes:
        cache: the last report of its cache; `cache_registered`: the name of the cache
            with its registration.
        adapters: the registrations at the caches of its adapters, by name.
        applied_replicas: the last applied replica count; `scale` may have ordered
            another one since.
        scale_writers: the writers of the replica count in the last minutes, the newest
            last.
        last_request: the number of the last request for placements; `request_id`: its
            id.
        requested_inputs: the inputs of the last request; None forces another request.
        answer: an answer that is not applied yet; `answered`: the last request was
            answered, last with `answer_sequence`.
        scheduler_conditions: the conditions of the last answer.
        more: the last answer has further steps that depend on the health of replicas.
        drain_due: when the drain budget stops protecting a replica of the last answer;
            empty if it protects none.
        adopted: the deployment has looked for replicas of an earlier one of this name.
        sent_labels, sent_flags: the labels and flags that replicas have received beside
            their template.
        forgotten: the scheduler knows about the deletion of this deployment.
        released: the scheduler has confirmed that it charges nothing; `release_checks`
            requests so far, the next at `release_check_at`.
        ended: names of replicas that were terminated before this deployment existed;
            read when it is deleted.
        unknown: names of untracked replicas that report here; queried
            `unknown_attempts` times without an answer.
        revoked: reservations that the scheduler asks about, or that have to be
            returned.
        returned: placements that were returned or refused and never start, until the
            scheduler has answered a request that lists them; `requested_returned` are
            those of the last request.
        lost: replicas that do not take signals, and the time of their restart.
        leaving: replicas in deletion, checked `leaving_checks` times, next at
            `leaving_check_at`.
        resync_due: all replicas have to repeat their reports.
        adoption: the last adoption: a rollout that replaces pods although the template
            is the same.

    """

    cache: CacheChanged | None = None
    cache_registered: str = ""
    adapters: dict[str, DeploymentAdapterCache] = Field(default_factory=dict)
    replicas: Compact[dict[str, TrackedReplica]] = Field(default_factory=dict)
    applied_replicas: int | None = None
    last_scale: LastScale | None = None
    scale_writers: list[ScaleWriter] = Field(default_factory=list)
    last_request: int = 0
    request_id: str = ""
    requested_inputs: PlacementInputs | None = None
    answer: PlacementResponse | None = None
    answered: bool = True
    answer_sequence: int = 0
    shortfall: int = 0
    message: str = ""
    scheduler_conditions: list[PlacedCondition] = Field(default_factory=list)
    more: bool = False
    drain_due: str = ""
    epoch: int = 0
    timings: GenerationTimings | None = None
    adopted: bool = False
    sent_labels: dict[str, str] = Field(default_factory=dict)
    sent_flags: str = ""
    template_generation: int = 0
    revisions: Compact[list[TemplateRevision]] = Field(default_factory=list)
    evictions: Compact[list[ReplicaEviction]] = Field(default_factory=list)
    forgotten: bool = False
    released: bool = False
    release_checks: int = 0
    release_check_at: str = ""
    ended: list[str] = Field(default_factory=list)
    unknown: list[str] = Field(default_factory=list)
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
        """The wanted number of replicas."""
        return 0 if self.deleting or self.spec is None else int(self.spec["replicas"])

    def by_name(self) -> list[TrackedReplica]:
        """The replicas in name order; a successor may share the name of a replica in deletion."""
        return sorted(
            self.replicas.values(), key=lambda replica: (replica.name, replica.uid)
        )

    def started(self) -> list[TrackedReplica]:
        """The replicas whose workflows were started, in name order."""
        return [replica for replica in self.by_name() if replica.started]

    def staying(self) -> list[TrackedReplica]:
        """The replicas that are not being deleted, in name order."""
        return [replica for replica in self.by_name() if not replica.deletion_reason]

    def record_gone(self, uid: str) -> None:
        """Record the end of a replica, so that no placement waits for it any more."""
        for replica in [
            replica for replica in self.replicas.values() if uid in replica.after
        ]:
            self.update(
                replica, after=[other for other in replica.after if other != uid]
            )
        if self.answer is not None and any(
            uid in placement.after for placement in self.answer.placements
        ):
            placements = [
                placement.model_copy(
                    update={
                        "after": [other for other in placement.after if other != uid]
                    }
                )
                for placement in self.answer.placements
            ]
            self.answer = self.answer.model_copy(update={"placements": placements})

    def update(self, replica: TrackedReplica, **fields: Any) -> None:
        """Change fields of a replica."""
        self.replicas[replica.uid] = self.replicas[replica.uid].model_copy(
            update=fields
        )
