"""The state that one run of the scheduler carries to the next.

The fleet and most of the other state are packed, because the input of a workflow may
not be large. `SchedulerCache` unpacks them.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types import names
from api_types.base import Message
from api_types.messages.scheduling import PlacementRequest
from api_types.resources.status import EventRecord

# After a loss of the scheduler, an unresponsive cluster or deployment may know a
# replica that no other object knows. Deletions of other objects wait for it this long.
# A broken object must not block them indefinitely. A replica that is found later is
# charged, and a deployment that is applied again under its name deletes it.
HOLDS_OTHERS_MS = 10 * 60 * 1000


class ReceivedSignal(NamedTuple):
    """A received signal: its name and its argument. In JSON it is a list of the two."""

    name: str
    payload: Any


class SurveyProgress(Message):
    """The progress of a rebuild.

    Attributes:
        step: the number of the step.
        after: the next page of visibility.
        listed: whether there is no further page.
        left: packed workflow ids with their clusters, to read before the next page.

    """

    step: int = 0
    after: str = ""
    listed: bool = False
    left: str = ""


class Takeover(Message):
    """The takeover of a lost scheduler's state.

    Attributes:
        predecessor: the epoch of the lost scheduler. An entity with a greater epoch that
            is not the epoch of this scheduler knows a later scheduler.
        begun: whether the clusters are queried already.
        announce_at: the latest time of the announcement of the epoch in milliseconds.
            It is earlier if every cluster has answered.

    """

    predecessor: int
    begun: bool = False
    announce_at: int = 0


class SecondPayload(Message):
    """Texts of the carried state that do not fit into the first payload.

    They are the last parts of the fleet, and the received messages.
    """

    fleet: list[str] = Field(default_factory=list)
    arrived: str = ""


class SchedulerState(BaseModel):
    """The state that the scheduler carries.

    Attributes:
        inbox: unread signals.
        queue: requests that wait for a decision.
        unplaced: decided requests that wait for capacity.
        policy_lost: why the policy of an earlier scheduler is unknown.
        announced: the epoch of the last announcement.
        rebuild: the state is unusable, and all entities must be read.
        survey: the progress of a rebuild; None when it is complete.
        takeover: set by a scheduler that continued the state of a lost one, until a
            rebuild.
        untold: clusters that answered it, but do not know its epoch yet.
        unresponsive: entities whose accounts are missing, with the clusters that take
            no new replica meanwhile.
        unresponsive_since: the time in milliseconds since which each is missing.
        asked_again: the unresponsive entities that are alive and will answer at once.
        withheld: requests that wait for the account of their deployment, by deployment.
        deleting_deployments: by namespace/name, the uids of deployments that wait until
            nothing is charged to them.
        classes: the generation that each class last reported.
        deleting_clusters: the charged replicas that were last reported to each cluster
            under deletion; None if none were reported yet.
        phase: the phase in the search attributes; empty while it is that of the start.
        events: the last ignored messages.
        time: the time at the end of the last run (see `SteadyTime`).

    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    epoch: int = 0
    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    arrived: str = ""
    rebuild: bool = False
    inbox: list[ReceivedSignal] = Field(default_factory=list)
    queue: dict[str, PlacementRequest] = Field(default_factory=dict)
    unplaced: dict[str, PlacementRequest] = Field(default_factory=dict)
    answers: str = ""
    policy: dict[str, Any] | None = None
    policy_problem: str = ""
    policy_lost: str = ""
    announced: int = 0
    survey: SurveyProgress | None = None
    takeover: Takeover | None = None
    untold: list[str] = Field(default_factory=list)
    unresponsive: dict[str, list[str]] = Field(default_factory=dict)
    unresponsive_since: dict[str, int] = Field(default_factory=dict)
    asked_again: list[str] = Field(default_factory=list)
    withheld: dict[str, PlacementRequest] = Field(default_factory=dict)
    deleting_clusters: dict[str, list[str] | None] = Field(default_factory=dict)
    deleting_deployments: dict[str, str] = Field(default_factory=dict)
    classes: dict[str, int] = Field(default_factory=dict)
    expiries_checked: int = 0
    audit: list[str] = Field(default_factory=list)
    time: str = ""
    decided: int = 0
    placed: int = 0
    phase: str = ""
    events: list[EventRecord] = Field(default_factory=list)

    def take_over(self, second: SecondPayload) -> None:
        """Add the second payload of the carried state."""
        self.fleet += second.fleet
        self.arrived = self.arrived or second.arrived

    @property
    def is_complete(self) -> bool:
        """Return whether all entities are known.

        An epoch is drawn, and no rebuild is necessary or in progress.
        """
        return self.epoch > 0 and self.survey is None and not self.rebuild

    def raise_epoch(self, seen: int) -> None:
        """Adopt an epoch that is greater than the epoch of an entity.

        After a takeover, an epoch later than that of the predecessor means that the
        state is outdated. Then all entities must be read.
        """
        if (
            self.takeover is not None
            and seen > self.takeover.predecessor
            and seen != self.epoch
        ):
            self.rebuild = True
        elif seen > self.epoch:
            self.epoch = seen + 1

    def holds_up(self, workflow_id: str) -> bool:
        """Return whether a cluster still has to be queried after a takeover.

        It may know a later scheduler, whatever it reports.
        """
        return self.takeover is not None and workflow_id in self.unresponsive

    def may_be_occupied(self, cluster: str, now: int) -> bool:
        """Return whether an unknown replica may be on a cluster.

        The account of an entity that may list the replica is missing.
        """
        return any(
            cluster in clusters
            or (
                workflow_id.startswith("modeldeployment/")
                and self._holds_others(workflow_id, now)
            )
            for workflow_id, clusters in self.unresponsive.items()
        )

    def may_have_replicas(self, namespace: str, deployment: str, now: int) -> bool:
        """Return whether a deployment may have unknown replicas.

        Its account is missing, or that of a cluster that may list them.
        """
        for workflow_id in self.unresponsive:
            kind, *_, name = workflow_id.split("/")
            if kind == "inferencecluster" and self._holds_others(workflow_id, now):
                return True
            if workflow_id == names.workflow_id(
                "ModelReplica", namespace, name
            ) and names.may_be_replica_of(name, deployment):
                return True
        return False

    def _holds_others(self, workflow_id: str, now: int) -> bool:
        """Return whether a missing account still blocks deletions of other objects."""
        return now < self.unresponsive_since.get(workflow_id, now) + HOLDS_OTHERS_MS

    def others_held_until(self, now: int) -> int | None:
        """Return when the next missing account stops blocking other objects.

        The time is in milliseconds; None if no account blocks any.
        """
        ends = [since + HOLDS_OTHERS_MS for since in self.unresponsive_since.values()]
        return min((end for end in ends if end > now), default=None)

    def is_accounted(self, cluster: str) -> bool:
        """Return whether all accounts that concern a cluster are known."""
        return not any(cluster in clusters for clusters in self.unresponsive.values())
