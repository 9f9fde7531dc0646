"""The scheduler's books: the ledger, the queue and the answers, and how each message changes them.

Nothing here waits or calls out. The workflow hands in what arrived; what must be told or decided, it reads here.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from heapq import nsmallest
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api_types import names
from api_types.messages.entities import (
    Bound,
    Forget,
    KnownReplica,
    Place,
    Released,
    ReplicaState,
    ReportClass,
    ReportCluster,
    Revoked,
    SetPolicy,
)
from scheduler import (
    ClusterView,
    Fleet,
    ReplicaView,
    SnapshotReader,
    cluster_view,
    decision_state,
    evicted_workloads,
    from_wire,
    next_expiry,
    next_timeouts,
    pack_rows,
    read_policy,
    reasons,
)
from workflows.fleet_scheduler.carry_over import PackedFleet
from workflows.fleet_scheduler.packing import pack, unpack, unpack_bytes
from workflows.fleet_scheduler.queueing_hints import QueueingHints

# Entries of one page of the ledger: packed in a tenth of a second, a tenth of what one answer may hold.
LEDGER_PAGE = 5_000

# Messages that are read in a tenth of a second.
INBOX_AT_ONCE = 250

NO_EXECUTE = "NoExecute"

# What somebody sent and nobody can read is worth a line, never a failed task.
Log = logging.Logger | logging.LoggerAdapter[Any]


class SchedulerState(BaseModel):
    """All that the scheduler carries."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    epoch: int = 0
    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    arrived: str = ""
    rebuild: bool = False
    inbox: list[tuple[str, Any]] = Field(default_factory=list)
    queue: dict[str, Place] = Field(default_factory=dict)
    unplaced: dict[str, Place] = Field(default_factory=dict)
    answers: str = ""
    clusters: dict[str, int] = Field(default_factory=dict)
    policy: dict[str, Any] | None = None
    policy_problem: str = ""
    silent: dict[str, str] = Field(default_factory=dict)
    leaving: dict[str, list[str]] = Field(default_factory=dict)
    classes: dict[str, int] = Field(default_factory=dict)
    holds_seen: int = 0
    audit: list[str] = Field(default_factory=list)
    decided: int = 0
    placed: int = 0


class SchedulerCache:
    """All that the scheduler knows. `now` gives the time in ms."""

    def __init__(self, state: SchedulerState, now: Callable[[], int], log: Log) -> None:
        self.state = state
        self.now = now
        self.log = log
        self._unpacking = SnapshotReader([unpack_bytes(part) for part in state.fleet])
        self.fleet: Fleet = self._unpacking.fleet
        self.answers: dict[str, dict[str, Any]] = unpack(state.answers) or {}
        self.superseded: dict[str, dict[str, Any]] = {}
        self.drained: dict[tuple[str, str], None] = {}
        # Placed, and nobody has said yet that it was started. Some are taken back before.
        self.unbound: dict[str, None] = {}
        self._taken_back: list[str] = []
        self.grown = QueueingHints()
        # Cluster -> workload -> the ms at which it will have waited too long for admission.
        self.timeouts: dict[str, dict[str, int]] = {}
        if state.carried_extras:
            self._take_carried_extras(unpack(state.carried_extras))
        if state.arrived:
            state.inbox = [(kind, order) for kind, order in unpack(state.arrived)] + state.inbox
        state.fleet, state.answers, state.carried_extras, state.arrived = [], "", "", ""
        if state.policy is not None and not self.parts_left:
            self.fleet.set_options(read_policy(state.policy))

    @property
    def parts_left(self) -> int:
        """Parts of the carried fleet that are still to be read; until then the fleet is not whole."""
        return self._unpacking.left

    def read_part(self) -> None:
        """Read the next part of the carried fleet."""
        self._unpacking.read_next()
        if not self.parts_left:
            reserved = [entry.uid for entry in self.fleet.entries() if entry.state == reasons.RESERVED]
            self.unbound = dict.fromkeys((*reserved, *self._taken_back))
            for slot in self.fleet.clusters.values():
                self._note_waiting(slot.view)

    def carried_extras(self) -> dict[str, Any]:
        """Give what is carried beside the fleet."""
        state = self.state
        return {
            "answers": self.answers,
            "unplaced": {owner: place.wire() for owner, place in state.unplaced.items()},
            "clusters": state.clusters,
            "classes": state.classes,
            "silent": state.silent,
            "leaving": state.leaving,
            "takenBack": [uid for uid in self.unbound if (entry := self.unbound_entry(uid)) and entry.state == reasons.RELEASING],
        }

    def ledger_page(self, after: str) -> dict[str, Any]:
        """Give the packed ledger entries whose uid comes after `after`; the first page has what else decisions depend on."""
        entries = nsmallest(LEDGER_PAGE, (entry for entry in self.fleet.entries() if entry.uid > after), key=lambda entry: entry.uid)
        more = entries[-1].uid if len(entries) == LEDGER_PAGE else ""
        page = {"version": self.fleet.version, "entries": pack(pack_rows(entries)), "after": more}
        return page if after else {**page, "state": pack(decision_state(self.fleet))}

    def _take_carried_extras(self, carried_extras: dict[str, Any]) -> None:
        state = self.state
        state.unplaced = {owner: Place.model_validate(place) for owner, place in carried_extras["unplaced"].items()}
        state.clusters, state.classes = carried_extras["clusters"], carried_extras["classes"]
        state.silent, state.leaving = carried_extras["silent"], carried_extras["leaving"]
        self._taken_back = carried_extras.get("takenBack", [])

    def carried(self, packed: PackedFleet) -> SchedulerState:
        """Give everything in the form that continue-as-new carries; what is too large to be carried is asked for again by the next run."""
        state = self.state
        carried = {"fleet": packed.fleet, "carried_extras": packed.carried_extras, "answers": packed.answers, "rebuild": packed.too_large}
        left_out: dict[str, Any] = {"inbox": [], "unplaced": {}, "clusters": {}, "classes": {}, "silent": {}, "leaving": {}}
        # Thousands of messages may have arrived meanwhile, and most of them are alike.
        return state.model_copy(update={**left_out, **carried, "arrived": pack(state.inbox) if state.inbox else ""})

    def take_inbox(self) -> bool:
        """Apply what arrived, in order, a bounded number at once; True while there is more.

        Requests join the queue, and so do those that waited, when their answer may have changed.
        """
        inbox, self.state.inbox = self.state.inbox[:INBOX_AT_ONCE], self.state.inbox[INBOX_AT_ONCE:]
        handlers: dict[str, Callable[[Any], None]] = {
            "place": self._take_place,
            "bound": self._take_bound,
            "released": self._take_released,
            "revoked": self._take_revoked,
            "report_cluster": self._take_cluster,
            "report_class": self._take_class,
            "forget": self._take_forget,
            "set_policy": self._take_policy,
        }
        for kind, order in inbox:
            try:
                handlers[kind](order)
            except ValueError as error:
                self.log.warning("a malformed message was ignored", extra={"signal": kind, "problems": str(error)})
        self._ask_about_waiting()
        if self._holds_ran_out():
            self.grown.anywhere()
        self.requeue()
        return bool(self.state.inbox)

    def requeue(self) -> None:
        """Queue those that wait and whose answer may have changed."""
        grown, self.grown = self.grown, QueueingHints()
        if grown:
            self.try_again(
                [place for place in grown.concerned(self.state.unplaced.values(), self.fleet) if owner_of(place) not in self.state.queue]
            )

    def unbound_entry(self, uid: str) -> ReplicaView | None:
        """Find a replica that nobody has said to have started; None for all others."""
        return self.fleet.replica(uid) if uid in self.unbound else None

    def expired(self) -> list[ReplicaView]:
        """Give the reservations that nobody has used within their time, taken back meanwhile or not, oldest first."""
        limit = self.now() - self.fleet.options.reservation_ttl_seconds * 1000
        waiting = [entry for uid in self.unbound if (entry := self.unbound_entry(uid))]
        return sorted((entry for entry in waiting if entry.since <= limit), key=lambda entry: (entry.since, entry.uid))

    def _holds_ran_out(self) -> bool:
        """Whether capacity that was held for those ahead came free since this was last asked."""
        seen, self.state.holds_seen = self.state.holds_seen, self.now()
        kept = self.fleet.options.hold_for_seconds * 1000
        return any(seen <= hold.since + kept < self.state.holds_seen for hold in self.fleet.queue_reservations.values())

    def holds_end_after(self) -> timedelta | None:
        """Say when to look again because a hold runs out, None if there is none."""
        now = self.now()
        expiry = next_expiry(self.fleet.queue_reservations, now, self.fleet.options.hold_for_seconds)
        return None if expiry is None else timedelta(milliseconds=expiry - now)

    def try_again(self, places: list[Place]) -> None:
        """Queue what waited for room; its last answer is kept aside, so that only a different one is told."""
        for place in places:
            self.state.queue[owner_of(place)] = place
            del self.state.unplaced[owner_of(place)]
            if place.request_id in self.answers:
                self.superseded[place.request_id] = self.answers.pop(place.request_id)

    def _take_place(self, order: Any) -> None:
        place = Place.model_validate(order)
        owner = owner_of(place)
        # A newer request joins the end of the queue in place of the older.
        self.state.queue.pop(owner, None)
        if place.request_id not in self.answers:
            self.state.unplaced.pop(owner, None)
            self._adopt_reported(place.kept)
        self.state.queue[owner] = place

    def _adopt_reported(self, told: Iterable[KnownReplica]) -> None:
        """Believe a deployment what its replicas carry: an order never reached them if it had asked anew before it read the answer."""
        for kept in told:
            entry = self.fleet.replica(kept.uid)
            if entry is None:
                continue
            believed = entry
            if kept.template and kept.template != entry.template:
                believed = replace(believed, template=kept.template)
            # Whoever is preempted is told of it by itself, and not in an answer.
            if entry.state == reasons.RELEASING and not kept.terminating and entry.nominated_for is None:
                believed = replace(believed, state=reasons.RESERVED if kept.uid in self.unbound else reasons.BOUND, since=self.now())
            if believed is not entry:
                self.fleet.put_replica(believed)

    def _take_bound(self, order: Any) -> None:
        for uid, wire in Bound.model_validate(order).entries.items():
            if self.fleet.replica(uid) is None:
                # Placed by a scheduler that was lost before anybody told us: what runs is charged, whatever we would have said.
                self.fleet.put_replica(replace(from_wire(ReplicaView, wire), since=self.now()))
            self.fleet.bind(uid, self.now())
            self.unbound.pop(uid, None)

    def _take_released(self, order: Any) -> None:
        self._release(Released.model_validate(order).uid)

    def _take_revoked(self, order: Any) -> None:
        self._release(Revoked.model_validate(order).uid)

    def _release(self, uid: str) -> None:
        self.unbound.pop(uid, None)
        entry = self.fleet.replica(uid)
        if entry is not None:
            self.fleet.release(uid)
            self.grown.on(entry.cluster)

    def _take_policy(self, order: Any) -> None:
        document = SetPolicy.model_validate(order).policy
        if not isinstance(document, dict):
            self.state.policy_problem = "the policy must be an object"
            return
        try:
            self.fleet.set_options(read_policy(document))
        except ValueError as error:
            self.state.policy_problem = str(error)
            return
        self.state.policy, self.state.policy_problem = document, ""
        self.grown.anywhere()

    def _take_cluster(self, order: Any) -> None:
        report = ReportCluster.model_validate(order)
        if report.gone or report.sequence < self.state.clusters.get(report.name, 0):
            return
        self.state.clusters[report.name] = report.sequence
        before = self.fleet.version
        view = cluster_view(report.manifest, accounted=report.name not in self.state.silent.values())
        self._note_drained(view)
        self._note_waiting(view)
        self._note_evicted(view)
        self.fleet.put_cluster(view, self.now())
        if "deletionTimestamp" in report.manifest["metadata"]:
            self.state.leaving[report.name] = ["?"]
        if self.fleet.version != before:
            self.grown.on(report.name)

    def _note_waiting(self, view: ClusterView) -> None:
        """Note when the replicas that a cluster has not admitted will have waited too long."""
        self.timeouts.pop(view.name, None)
        waiting = dict(next_timeouts(view, self.fleet.options))
        if waiting:
            self.timeouts[view.name] = waiting

    def _ask_about_waiting(self) -> None:
        """Have deployments ask anew whose replicas have waited too long for admission."""
        now = self.now()
        for cluster in [name for name, waiting in self.timeouts.items() if min(waiting.values()) <= now]:
            overdue = {workload for workload, due in self.timeouts[cluster].items() if due <= now}
            self.timeouts[cluster] = {workload: due for workload, due in self.timeouts[cluster].items() if due > now}
            if not self.timeouts[cluster]:
                del self.timeouts[cluster]
            self._ask_owners(cluster, overdue)

    def _note_evicted(self, view: ClusterView) -> None:
        """Note the deployments whose pods an admission has just evicted, or let back: they must hear what that means for them."""
        old = self.fleet.cluster(view.name)
        changed = evicted_workloads(view) ^ (evicted_workloads(old) if old else frozenset())
        if changed:
            self._ask_owners(view.name, changed)

    def _ask_owners(self, cluster: str, workloads: Collection[str]) -> None:
        self.drained |= dict.fromkeys(
            (entry.namespace, entry.deployment)
            for entry in self.fleet.on_cluster(cluster).values()
            if names.workload_name(entry.namespace, entry.name) in workloads
        )

    def look_again_after(self) -> timedelta | None:
        """Say when time alone changes something: a hold runs out, or a replica has waited too long for admission. None for never."""
        due = [timedelta(milliseconds=max(1, min(waiting.values()) - self.now())) for waiting in self.timeouts.values()]
        expiry = self.holds_end_after()
        return min(due if expiry is None else [*due, expiry], default=None)

    def _note_drained(self, view: ClusterView) -> None:
        """Note the deployments that a new NoExecute taint concerns: they must ask where their replicas may stay."""
        old = self.fleet.cluster(view.name)
        known = {(taint.key, taint.value) for taint in old.taints if taint.effect == NO_EXECUTE} if old else set()
        new = {(taint.key, taint.value) for taint in view.taints if taint.effect == NO_EXECUTE}
        if new - known:
            self.drained |= dict.fromkeys((entry.namespace, entry.deployment) for entry in self.fleet.on_cluster(view.name).values())

    def _take_class(self, order: Any) -> None:
        report = ReportClass.model_validate(order)
        self.state.classes[report.name] = report.generation

    def _take_forget(self, order: Any) -> None:
        gone = Forget.model_validate(order)
        if gone.kind == "InferenceCluster":
            self.fleet.remove_cluster(gone.name)
            self.state.clusters.pop(gone.name, None)
            self.state.leaving.pop(gone.name, None)
            self.timeouts.pop(gone.name, None)
            # No more room, but those who wait should not be told of a cluster that is gone.
            self.grown.anywhere()
        elif gone.kind == "InferenceClass":
            self.state.classes.pop(gone.name, None)
        elif gone.kind == "ModelDeployment":
            self._forget_deployment(gone.namespace, gone.name)

    def _forget_deployment(self, namespace: str, name: str) -> None:
        self.state.queue.pop(f"{namespace}/{name}", None)
        self.state.unplaced.pop(f"{namespace}/{name}", None)
        self.end_hold(namespace, name)
        for uid in [entry.uid for entry in self.fleet.owned(namespace, name).values() if entry.state == reasons.RESERVED]:
            self._release(uid)

    def end_hold(self, namespace: str, name: str) -> None:
        """Forget that a deployment waited, and let those behind it try."""
        if self.fleet.set_queue_reservation((namespace, name), None):
            self.grown.anywhere()

    def settle_accounts(self) -> None:
        """Open the clusters whose account is whole, and hold the others."""
        held = {cluster for cluster in self.state.silent.values() if cluster}
        for name, slot in list(self.fleet.clusters.items()):
            if slot.view.accounted == (name in held):
                self.fleet.put_cluster(replace(slot.view, accounted=name not in held), self.now())
                self.grown.on(name)
        self.requeue()
        self.fleet.rebuilding = any(workflow_id.startswith("inferencecluster/") for workflow_id in self.state.silent)

    def take_account(self, workflow_id: str, account: Any) -> None:
        """Enter what an entity says of itself, after a loss."""
        kind = workflow_id.split("/", 1)[0]
        if kind == "inferencecluster":
            self._take_cluster(account)
        elif kind == "inferenceclass":
            self._take_class(account)
        elif kind == "modelreplica":
            self._take_replica(account, reasons.BOUND)
        else:
            for unstarted in account["unstarted"]:
                self._take_replica(unstarted, reasons.RESERVED)

    def _take_replica(self, account: Any, state: str) -> None:
        replica = ReplicaState.model_validate(account)
        if replica.gone or not replica.entry:
            return
        if self.fleet.replica(replica.uid) is not None:
            if state == reasons.BOUND:
                self.fleet.bind(replica.uid, self.now())
            return
        entry = from_wire(ReplicaView, replica.entry)
        state = reasons.RELEASING if replica.deleting else state
        self.fleet.put_replica(replace(entry, state=state, since=self.now(), ready=replica.ready, serving=replica.serving))


def owner_of(place: Place) -> str:
    """Name whose request it is; of one deployment only the newest counts."""
    return f"{place.namespace}/{place.name}"
