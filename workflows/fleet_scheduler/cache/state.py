"""What one run of the scheduler carries to the next.

The fleet and most of what is beside it are packed for the way, because the input of a workflow may not be large; `SchedulerCache` unpacks
them. Fields with an alias keep the name under which earlier runs carried them.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types import names
from api_types.base import Message
from api_types.messages.scheduling import PlacementRequest
from api_types.resources.status import EventRecord

# After a loss of the scheduler, a cluster or a deployment that does not answer may know a replica that no other object knows. For so long
# deletions of other objects wait for it. A broken object must not stop them for ever. A replica that is found later is charged, and a
# deployment that is applied again under its name deletes it.
HOLDS_OTHERS_MS = 10 * 60 * 1000


class ReceivedSignal(NamedTuple):
    """A signal as it arrived: its name and its argument. In JSON a list of the two."""

    name: str
    payload: Any


class SurveyProgress(Message):
    """How far a rebuild is.

    Attributes:
        step: the number of the step; `after`: the page of visibility that is next; `listed`: there is none.
        left: packed workflow ids, with their clusters, whose accounts are to be read before that.

    """

    step: int = 0
    after: str = ""
    listed: bool = False
    left: str = ""


class Takeover(Message):
    """How a scheduler took over the state of one that was lost.

    Attributes:
        predecessor: the epoch of the lost one. Whoever has seen a greater one, which is not ours either, knows another scheduler since.
        begun: whether the clusters are asked already.
        announce_at: the time in ms when the epoch is announced at the latest; before, when every cluster has answered.

    """

    predecessor: int
    begun: bool = False
    announce_at: int = 0


class SecondPayload(Message):
    """Texts of the carried state that have no room in its own payload: the last parts of the fleet, and the messages that arrived."""

    fleet: list[str] = Field(default_factory=list)
    arrived: str = ""


class SchedulerState(BaseModel):
    """All that the scheduler carries.

    Attributes:
        inbox: signals that are not read yet.
        queue: requests that wait for a decision; `unplaced`: those that were decided and wait for capacity.
        policy_lost: why the policy of an earlier scheduler is unknown.
        announced: the epoch that was last announced to all.
        rebuild: what is known cannot be used: all entities have to be read anew.
        survey: how far a rebuild is; None when it is complete.
        takeover: set by a scheduler that continued the state of one that was lost; a rebuild ends that.
        untold: clusters that answered it and have not heard of its epoch yet.
        unresponsive: entities whose accounts are missing, with the clusters that take no new replica for that long.
        unresponsive_since: the time in ms since which each of them is missing.
        asked_again: those of them that are alive, and will answer at once.
        withheld: requests that wait for the account of their deployment, by deployment.
        deleting_deployments: the uids of those that wait until nothing is charged to them, by namespace/name.
        classes: the generation that each last reported.
        deleting_clusters: the charged replicas that were last reported to each; None: not reported yet.
        phase: the one in its search attributes; empty while that is the one of the start.
        events: the messages that were ignored last.
        time: of the end of the last run (`SteadyTime`).

    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

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
    unresponsive: dict[str, list[str]] = Field(default_factory=dict, alias="silent")
    unresponsive_since: dict[str, int] = Field(default_factory=dict, alias="silentSince")
    asked_again: list[str] = Field(default_factory=list)
    withheld: dict[str, PlacementRequest] = Field(default_factory=dict)
    deleting_clusters: dict[str, list[str] | None] = Field(default_factory=dict, alias="leaving")
    deleting_deployments: dict[str, str] = Field(default_factory=dict)
    classes: dict[str, int] = Field(default_factory=dict)
    reservations_checked: int = Field(default=0, alias="holdsSeen")
    audit: list[str] = Field(default_factory=list)
    time: str = ""
    decided: int = 0
    placed: int = 0
    phase: str = ""
    events: list[EventRecord] = Field(default_factory=list)

    def take_over(self, second: SecondPayload) -> None:
        """Add what was carried beside this."""
        self.fleet += second.fleet
        self.arrived = self.arrived or second.arrived

    @property
    def is_complete(self) -> bool:
        """Whether all entities are known: an epoch is drawn, and a rebuild has ended or was not necessary."""
        return self.epoch > 0 and self.survey is None and not self.rebuild

    def raise_epoch(self, seen: int) -> None:
        """Take an epoch that is greater than one that an entity has seen.

        A scheduler that took over another's state, and not that of the last one, has to read all entities instead.
        """
        if self.takeover is not None and seen > self.takeover.predecessor and seen != self.epoch:
            self.rebuild = True
        elif seen > self.epoch:
            self.epoch = seen + 1

    def holds_up(self, workflow_id: str) -> bool:
        """Whether a cluster has to be asked and told, whatever it reports: it may have heard of a scheduler that is not known here."""
        return self.takeover is not None and workflow_id in self.unresponsive

    def may_be_occupied(self, cluster: str, now: int) -> bool:
        """Whether a replica that is not known may be on a cluster: the account of one that may name it is missing."""
        return any(
            cluster in clusters or (workflow_id.startswith("modeldeployment/") and self._holds_others(workflow_id, now))
            for workflow_id, clusters in self.unresponsive.items()
        )

    def may_have_replicas(self, namespace: str, deployment: str, now: int) -> bool:
        """Whether a replica that is not known may be of a deployment: its account is missing, or that of a cluster, which may name it."""
        for workflow_id in self.unresponsive:
            kind, *_, name = workflow_id.split("/")
            if kind == "inferencecluster" and self._holds_others(workflow_id, now):
                return True
            if workflow_id == names.workflow_id("ModelReplica", namespace, name) and names.may_be_replica_of(name, deployment):
                return True
        return False

    def _holds_others(self, workflow_id: str, now: int) -> bool:
        """Whether deletions of other objects still wait for an account that is missing."""
        return now < self.unresponsive_since.get(workflow_id, now) + HOLDS_OTHERS_MS

    def others_held_until(self, now: int) -> int | None:
        """Return the time in ms when the next account that is missing holds other objects no longer; None if none holds any."""
        ends = [since + HOLDS_OTHERS_MS for since in self.unresponsive_since.values()]
        return min((end for end in ends if end > now), default=None)

    def is_accounted(self, cluster: str) -> bool:
        """Whether nothing is unknown about what is on a cluster."""
        return not any(cluster in clusters for clusters in self.unresponsive.values())
