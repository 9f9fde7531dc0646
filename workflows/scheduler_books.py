"""The scheduler's books: the ledger, the queue and the answers, and how each message changes them.

Nothing here waits or calls out. The workflow hands in what arrived; what must be told or decided, it reads here.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types.messages import (
    Bound,
    Forget,
    Place,
    Released,
    ReplicaState,
    ReportClass,
    ReportCluster,
    Revoked,
    SetPolicy,
)
from scheduler.fleet import Fleet
from scheduler.holds import next_expiry
from scheduler.policydocument import read_policy
from scheduler.reasons import BOUND, RELEASING, RESERVED
from scheduler.types import ReplicaView
from scheduler.views import cluster_view
from scheduler.wire import from_wire
from workflows.packing import pack, pack_bytes, unpack, unpack_bytes

NO_EXECUTE = "NoExecute"

# What somebody sent and nobody can read is worth a line, never a failed task.
Log = logging.Logger | logging.LoggerAdapter[Any]


class SchedulerState(BaseModel):
    """All that the scheduler carries."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    epoch: int = 0
    fleet: str = ""
    inbox: list[tuple[str, Any]] = Field(default_factory=list)
    queue: list[Place] = Field(default_factory=list)
    unplaced: list[Place] = Field(default_factory=list)
    answers: str = ""
    clusters: dict[str, int] = Field(default_factory=dict)
    policy: dict[str, Any] | None = None
    policy_problem: str = ""
    silent: dict[str, str] = Field(default_factory=dict)
    leaving: dict[str, list[str]] = Field(default_factory=dict)
    classes: dict[str, int] = Field(default_factory=dict)
    holds_seen: int = 0
    decided: int = 0
    placed: int = 0


class Books:
    """All that the scheduler knows. `now` gives the time in ms."""

    def __init__(self, state: SchedulerState, now: Callable[[], int], log: Log) -> None:
        self.state = state
        self.now = now
        self.log = log
        self.fleet = Fleet.load(unpack_bytes(state.fleet)) if state.fleet else Fleet()
        self.answers: dict[str, dict[str, Any]] = unpack(state.answers) or {}
        self.superseded: dict[str, dict[str, Any]] = {}
        self.drained: dict[tuple[str, str], None] = {}
        self.unbound = dict.fromkeys(entry.uid for entry in self.fleet.entries() if entry.state == RESERVED)
        state.fleet = state.answers = ""
        if state.policy is not None:
            self.fleet.set_options(read_policy(state.policy))

    def carried(self) -> SchedulerState:
        """Give everything in the form that continue-as-new carries."""
        self.state.fleet = pack_bytes(self.fleet.dump())
        self.state.answers = pack(self.answers)
        return self.state

    def take_inbox(self) -> None:
        """Apply what arrived, in order; requests join the queue, and those that waited join it when capacity may have grown."""
        inbox, self.state.inbox = self.state.inbox, []
        handlers: dict[str, Callable[[Any], bool]] = {
            "place": self._take_place,
            "bound": self._take_bound,
            "released": self._take_released,
            "revoked": self._take_revoked,
            "report_cluster": self._take_cluster,
            "report_class": self._take_class,
            "forget": self._take_forget,
            "set_policy": self._take_policy,
        }
        grown = self._holds_ran_out()
        for kind, order in inbox:
            try:
                grown = handlers[kind](order) or grown
            except ValueError as error:
                self.log.warning("a malformed message was ignored", extra={"signal": kind, "problems": str(error)})
        if grown and self.state.unplaced:
            asked = {(place.namespace, place.name) for place in self.state.queue}
            self.try_again([place for place in self.state.unplaced if (place.namespace, place.name) not in asked])

    def _holds_ran_out(self) -> bool:
        """Whether capacity that was held for those ahead came free since this was last asked."""
        seen, self.state.holds_seen = self.state.holds_seen, self.now()
        kept = self.fleet.options.hold_for_seconds * 1000
        return any(seen <= hold.since + kept < self.state.holds_seen for hold in self.fleet.holds.values())

    def holds_end_after(self) -> timedelta | None:
        """Say when to look again because a hold runs out, None if there is none."""
        now = self.now()
        expiry = next_expiry(self.fleet.holds, now, self.fleet.options.hold_for_seconds)
        return None if expiry is None else timedelta(milliseconds=expiry - now)

    def try_again(self, places: list[Place]) -> None:
        """Queue what waited for room; its last answer is kept aside, so that only a different one is told."""
        self.state.queue += places
        self.state.unplaced = []
        for place in places:
            if place.request_id in self.answers:
                self.superseded[place.request_id] = self.answers.pop(place.request_id)

    def _take_place(self, order: Any) -> bool:
        place = Place.model_validate(order)
        key = (place.namespace, place.name)
        self.state.queue = [waiting for waiting in self.state.queue if (waiting.namespace, waiting.name) != key]
        if place.request_id not in self.answers:
            self.state.unplaced = [waiting for waiting in self.state.unplaced if (waiting.namespace, waiting.name) != key]
        self.state.queue.append(place)
        return False

    def _take_bound(self, order: Any) -> bool:
        for uid, wire in Bound.model_validate(order).entries.items():
            if self.fleet.replica(uid) is None:
                # Placed by a scheduler that was lost before anybody told us: what runs is charged, whatever we would have said.
                self.fleet.put_replica(replace(from_wire(ReplicaView, wire), since=self.now()))
            self.fleet.bind(uid, self.now())
            self.unbound.pop(uid, None)
        return False

    def _take_released(self, order: Any) -> bool:
        return self._release(Released.model_validate(order).uid)

    def _take_revoked(self, order: Any) -> bool:
        return self._release(Revoked.model_validate(order).uid)

    def _release(self, uid: str) -> bool:
        self.unbound.pop(uid, None)
        return self.fleet.release(uid)

    def _take_policy(self, order: Any) -> bool:
        document = SetPolicy.model_validate(order).policy
        if not isinstance(document, dict):
            self.state.policy_problem = "the policy must be an object"
            return False
        try:
            self.fleet.set_options(read_policy(document))
        except ValueError as error:
            self.state.policy_problem = str(error)
            return False
        self.state.policy, self.state.policy_problem = document, ""
        return True

    def _take_cluster(self, order: Any) -> bool:
        report = ReportCluster.model_validate(order)
        if report.gone or report.sequence < self.state.clusters.get(report.name, 0):
            return False
        self.state.clusters[report.name] = report.sequence
        before = self.fleet.version
        accounted = report.name not in self.state.silent.values()
        self._note_drained(report)
        self.fleet.put_cluster(cluster_view(report.manifest, accounted=accounted), self.now())
        if "deletionTimestamp" in report.manifest["metadata"]:
            self.state.leaving[report.name] = ["?"]
        return self.fleet.version != before

    def _note_drained(self, report: ReportCluster) -> None:
        """Note the deployments that a new NoExecute taint concerns: they must ask where their replicas may stay."""
        old = self.fleet.cluster(report.name)
        known = {(taint.key, taint.value) for taint in old.taints if taint.effect == NO_EXECUTE} if old else set()
        new = {(taint.key, taint.value) for taint in cluster_view(report.manifest).taints if taint.effect == NO_EXECUTE}
        if new - known:
            self.drained |= dict.fromkeys((entry.namespace, entry.deployment) for entry in self.fleet.on_cluster(report.name).values())

    def _take_class(self, order: Any) -> bool:
        report = ReportClass.model_validate(order)
        self.state.classes[report.name] = report.generation
        return False

    def _take_forget(self, order: Any) -> bool:
        gone = Forget.model_validate(order)
        if gone.kind == "InferenceCluster":
            self.fleet.remove_cluster(gone.name)
            self.state.clusters.pop(gone.name, None)
            self.state.leaving.pop(gone.name, None)
            # No more room, but those who wait should not be told of a cluster that is gone.
            return True
        if gone.kind == "InferenceClass":
            self.state.classes.pop(gone.name, None)
        elif gone.kind == "ModelDeployment":
            key = (gone.namespace, gone.name)
            self.state.queue = [place for place in self.state.queue if (place.namespace, place.name) != key]
            self.state.unplaced = [place for place in self.state.unplaced if (place.namespace, place.name) != key]
            waited = self.fleet.set_hold(key, None)
            unused = [entry.uid for entry in self.fleet.owned(*key).values() if entry.state == RESERVED]
            released = [self._release(uid) for uid in unused]
            return waited or any(released)
        return False

    def settle_accounts(self) -> None:
        """Open the clusters whose account is whole, and hold the others."""
        held = {cluster for cluster in self.state.silent.values() if cluster}
        for name, slot in list(self.fleet.clusters.items()):
            if slot.view.accounted == (name in held):
                self.fleet.put_cluster(replace(slot.view, accounted=name not in held), self.now())
                self.try_again(self.state.unplaced)
        self.fleet.rebuilding = any(workflow_id.startswith("inferencecluster/") for workflow_id in self.state.silent)

    def take_account(self, workflow_id: str, account: Any) -> None:
        """Enter what an entity says of itself, after a loss."""
        kind = workflow_id.split("/", 1)[0]
        if kind == "inferencecluster":
            self._take_cluster(account)
        elif kind == "inferenceclass":
            self._take_class(account)
        elif kind == "modelreplica":
            self._take_replica(account, BOUND)
        else:
            for unstarted in account["unstarted"]:
                self._take_replica(unstarted, RESERVED)

    def _take_replica(self, account: Any, state: str) -> None:
        replica = ReplicaState.model_validate(account)
        if replica.gone or not replica.entry:
            return
        if self.fleet.replica(replica.uid) is not None:
            if state == BOUND:
                self.fleet.bind(replica.uid, self.now())
            return
        entry = from_wire(ReplicaView, replica.entry)
        state = RELEASING if replica.deleting else state
        self.fleet.put_replica(replace(entry, state=state, since=self.now(), ready=replica.ready, serving=replica.serving))
