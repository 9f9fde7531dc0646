"""The scheduler's cache: the fleet with its ledger, the queue and the answers, as one run of the workflow keeps them.

Nothing here waits or calls out. How messages change it is in `inbox`, how entities' own accounts do, in `rebuild`.
"""

from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from datetime import timedelta
from heapq import nsmallest
from typing import Any

from api_types.limits import POLICY_BYTES_MAX
from api_types.messages.scheduling import PlacementRequest
from api_types.messages.signals import FleetSchedulerSignals
from api_types.names import workflow_id
from api_types.payloads.limits import wire_size
from api_types.payloads.packing import pack, unpack, unpack_bytes
from scheduler import (
    Eviction,
    Fleet,
    LedgerEntry,
    Owner,
    SnapshotReader,
    decision_state,
    named_in,
    next_expiry,
    pack_rows,
    read_policy,
    reasons,
)
from workflows.fleet_scheduler.cache.admission import AdmissionTimeouts
from workflows.fleet_scheduler.cache.answers import AnswerCache
from workflows.fleet_scheduler.cache.carry_over import PackedFleet, fits
from workflows.fleet_scheduler.cache.known_versions import KnownVersions
from workflows.fleet_scheduler.cache.queue import SchedulingQueue
from workflows.fleet_scheduler.cache.queueing_hints import QueueingHints
from workflows.fleet_scheduler.cache.reservations import Reservations
from workflows.fleet_scheduler.cache.state import ReceivedSignal, SchedulerState
from workflows.fleet_scheduler.cache.verification import Verification

# Entries of one page of the ledger: packed in a tenth of a second, a tenth of what one answer may hold.
LEDGER_PAGE = 5_000
# A deployment that deletes a preempted replica says so at once, however long the deletion takes. After this time without a word, the
# deployment counts as broken.
UNANSWERED_MS = 2 * 60 * 1000
# Where the scheduler itself comes so much later to that, workers were missing, and deployments could not answer either.
_LATE_MS = 30 * 1000


class SchedulerCache:
    """All that the scheduler knows. `now` gives the time in ms."""

    def __init__(self, state: SchedulerState, now: Callable[[], int]) -> None:
        self.state = state
        self.now = now
        self._reader = SnapshotReader([unpack_bytes(part) for part in state.fleet])
        self.fleet: Fleet = self._reader.fleet
        self.answers = AnswerCache(unpack(state.answers) or {})
        self.queue = SchedulingQueue(state, self.fleet, self.answers)
        self.hints = QueueingHints()
        self.admission = AdmissionTimeouts(self.fleet, now)
        self.reservations = Reservations(self.fleet)
        self.verification = Verification()
        self.deployments, self.clusters = KnownVersions(), KnownVersions()
        # Those that no answer to a request orders.
        self.evictions: list[Eviction] = []
        # Preempted replicas whose deployments have not said that they delete them, with the time in ms since which they are waited for.
        self.unanswered: dict[str, int] = {}
        # Replicas that are gone, each with a deployment that waits for its nodes.
        self.awaited_releases: list[tuple[str, Owner]] = []
        # Deployments that have to request placements again.
        self.resyncs: dict[Owner, None] = {}
        # How many messages and pages of accounts this run has read, and which of them was the last report of each cluster, and the
        # last request of each deployment. A run asks again for all missing accounts, so it need not know of earlier ones.
        self.messages_read = 0
        self.reported_at: dict[str, int] = {}
        self.requested_at: dict[str, int] = {}
        if state.carried_extras:
            self._read_carried_extras(unpack(state.carried_extras))
        if state.arrived:
            state.inbox = [ReceivedSignal(*signal) for signal in unpack(state.arrived)] + state.inbox
        state.fleet, state.answers, state.carried_extras, state.arrived = [], "", "", ""
        if state.policy is not None and not self.parts_left:
            self.fleet.set_options(read_policy(state.policy))

    # --- from run to run ----------------------------------------------------------------------------------------------------------

    @property
    def parts_left(self) -> int:
        """Parts of the carried fleet that are still to be read; until then the fleet is incomplete."""
        return self._reader.left

    def read_part(self) -> None:
        """Read the next part of the carried fleet."""
        self._reader.read_next()
        if not self.parts_left:
            for info in self.fleet.clusters.values():
                self.admission.update(info.view)

    def carried_extras(self) -> dict[str, Any]:
        """Give what is carried beside the fleet."""
        state = self.state
        return {
            "answers": self.answers.by_request,
            "unplaced": {owner: place.wire() for owner, place in state.unplaced.items()},
            "classes": state.classes,
            "silent": state.unresponsive,
            "silentSince": state.unresponsive_since,
            "withheld": {owner: place.wire() for owner, place in state.withheld.items()},
            "leaving": state.deleting_clusters,
            "deletingDeployments": state.deleting_deployments,
            "evictions": [list(astuple(eviction)) for eviction in self.evictions],
            "unanswered": self.unanswered,
            "awaitedReleases": self.awaited_releases,
            "resyncs": [list(owner) for owner in self.resyncs],
            "reservations": self.reservations.wire(),
            "verification": self.verification.wire(),
            "versions": {"deployments": self.deployments.wire(), "clusters": self.clusters.wire()},
        }

    def _read_carried_extras(self, extras: dict[str, Any]) -> None:
        state = self.state
        state.unplaced = {owner: PlacementRequest.model_validate(place) for owner, place in extras["unplaced"].items()}
        state.classes = extras["classes"]
        state.unresponsive, state.deleting_clusters = extras["silent"], extras["leaving"]
        state.unresponsive_since = extras.get("silentSince", {})
        state.deleting_deployments = extras.get("deletingDeployments", {})
        self.evictions = [Eviction(*eviction) for eviction in extras.get("evictions", ())]
        self.unanswered = dict(extras.get("unanswered", {}))
        self.awaited_releases = [(uid, (namespace, name)) for uid, (namespace, name) in extras.get("awaitedReleases", ())]
        state.withheld = {owner: PlacementRequest.model_validate(place) for owner, place in extras.get("withheld", {}).items()}
        self.request_resync((namespace, name) for namespace, name in extras.get("resyncs", ()))
        self.reservations.load(extras["reservations"])
        self.verification.load(extras["verification"])
        self.deployments.load(extras["versions"]["deployments"])
        self.clusters.load(extras["versions"]["clusters"])

    def carried(self, packed: PackedFleet) -> SchedulerState:
        """Give everything in the form that continue-as-new carries; the next run rebuilds what is too large to be carried."""
        state = self.state
        carried: dict[str, Any] = {"fleet": packed.fleet, "carried_extras": packed.carried_extras, "answers": packed.answers}
        carried["rebuild"] = packed.too_large or state.rebuild
        left_out: dict[str, Any] = {"inbox": [], "unplaced": {}, "classes": {}, "unresponsive": {}, "deleting_clusters": {}}
        left_out |= {"unresponsive_since": {}, "withheld": {}, "deleting_deployments": {}}
        # Thousands of messages may have arrived meanwhile, and most of them are alike.
        following = state.model_copy(update={**left_out, **carried, "arrived": pack(state.inbox) if state.inbox else ""})
        if fits(following):
            return following
        # So many messages cannot be carried. A rebuild asks every entity that sent one; a policy was sent by a user.
        policies = [signal for signal in state.inbox if signal.name == FleetSchedulerSignals.SET_POLICY.name]
        newest = [signal for signal in policies if wire_size(signal.payload) <= 2 * POLICY_BYTES_MAX][-1:]
        left_out |= {"queue": {}, "asked_again": [], "survey": None}
        return state.model_copy(update={**left_out, "rebuild": True, "arrived": pack(newest) if newest else ""})

    # --- the ledger ---------------------------------------------------------------------------------------------------------------

    def ledger_page(self, after: str) -> dict[str, Any]:
        """Give the packed ledger entries whose uid comes after `after`; the first page has what else decisions depend on.

        A page is not `complete` while a new run still reads the parts of a large fleet, or a rebuild the accounts of all entities.
        """
        entries = nsmallest(LEDGER_PAGE, (entry for entry in self.fleet.entries() if entry.uid > after), key=lambda entry: entry.uid)
        more = entries[-1].uid if len(entries) == LEDGER_PAGE else ""
        complete = self.state.is_complete and not self.parts_left
        page = {"version": self.fleet.version, "complete": complete, "entries": pack(pack_rows(entries)), "after": more}
        return page if after else {**page, "state": pack(decision_state(self.fleet))}

    def release(self, uid: str) -> None:
        """Free the nodes of a replica."""
        self.reservations.release(uid)
        self.verification.discard(uid)
        entry = self.fleet.replica(uid)
        if entry is not None:
            self.fleet.release(uid)
            self.hints.add_cluster(entry.cluster)
            self.awaited_releases += [(uid, owner) for owner in self.waiting_for(entry)]

    def next_unanswered(self) -> timedelta | None:
        """Return the time until the next preemption without an answer is given up; None if there is none."""
        since = min(self.unanswered.values(), default=None)
        return None if since is None else timedelta(milliseconds=max(0, since + UNANSWERED_MS - self.now()))

    def give_up_unanswered(self) -> list[LedgerEntry]:
        """End preemptions that deployments did not answer in time, and return the replicas.

        Such a replica holds its nodes until it is gone, for nobody. The placements that waited for it are evicted, and decided again.
        """
        given_up: list[LedgerEntry] = []
        for uid, since in list(self.unanswered.items()):
            entry = self.fleet.replica(uid)
            if entry is None or entry.state != reasons.RELEASING or entry.nominated_for is None:
                del self.unanswered[uid]
            elif self.now() - since >= UNANSWERED_MS + _LATE_MS:
                self.unanswered[uid] = self.now()
            elif self.now() - since >= UNANSWERED_MS:
                del self.unanswered[uid]
                given_up.append(entry)
                self.fleet.put_replica(replace(entry, nominated_for=None))
                broken = named_in(entry.nominated_for[0], (entry.namespace, entry.deployment))
                for waiting in list(self.fleet.owned(*entry.nominated_for).values()):
                    if waiting.state == reasons.RESERVED and waiting.cluster == entry.cluster:
                        self.evict(waiting, "PreemptionUnanswered", f"{broken} was preempted and does not delete its replica")
        return given_up

    def waiting_for(self, entry: LedgerEntry) -> list[Owner]:
        """Give the deployments with a placement that may be after a replica: its own, and the one that it was preempted for."""
        owners = dict.fromkeys([(entry.namespace, entry.deployment), entry.nominated_for or (entry.namespace, entry.deployment)])
        return [
            owner
            for owner in owners
            if any(other.state == reasons.RESERVED and other.cluster == entry.cluster for other in self.fleet.owned(*owner).values())
        ]

    def is_reused(self, entry: LedgerEntry) -> bool:
        """Tell whether nodes of a releasing replica are promised to a placement of its own deployment."""
        owned = self.fleet.owned(entry.namespace, entry.deployment).values()
        return any(other.reuse and other.state == reasons.RESERVED and other.cluster == entry.cluster for other in owned)

    def give_back(self, uid: str, deployment_uid: str) -> None:
        """Free the nodes of a replica that its deployment says it never started. Only the one that it was placed for can know."""
        entry = self.fleet.replica(uid)
        if entry is None:
            return
        if self.reservations.entry(uid) and entry.origin[0] in ("", deployment_uid):
            self.release(uid)
        else:
            self.verification.add(entry)

    def started_entry(self, uid: str) -> LedgerEntry | None:
        """Find a replica whose workflow was started; None for all others."""
        return None if self.reservations.entry(uid) else self.fleet.replica(uid)

    def evict(self, entry: LedgerEntry, reason: str, detail: str) -> None:
        """Have a deployment delete one of its replicas."""
        self.evictions.append(Eviction(entry.uid, entry.name, entry.cluster, reason, detail, entry.namespace, entry.deployment))

    def forget_owner(self, namespace: str, name: str) -> None:
        """Forget the requests of a deployment that does not run. What it may have started is checked before its nodes are freed."""
        self.end_requests(namespace, name)
        for uid, entry in list(self.fleet.owned(namespace, name).items()):
            if self.reservations.entry(uid):
                self.verification.add(entry)

    def has_doubts(self, namespace: str, name: str) -> bool:
        """Tell whether it is checked for a replica of a deployment whether it runs. What is not there must not be placed as its own.

        Nor what was reserved: the deployment would start it, and a check that found nothing before that frees its nodes.
        """
        owned = self.fleet.owned(namespace, name).values()
        return any(entry.uid in self.verification.doubts and entry.state != reasons.RELEASING for entry in owned)

    def withhold_doubtful(self) -> None:
        """Keep requests back of deployments with a doubt that came after them."""
        if self.verification.doubts:
            for place in list(self.state.queue.values()):
                if self.has_doubts(place.namespace, place.name):
                    self.queue.withhold(place)

    def release_withheld(self) -> None:
        """Queue the requests of deployments of which everything is known again."""
        missing = self.state.unresponsive
        self.queue.release_withheld(
            lambda place: (
                workflow_id("ModelDeployment", place.namespace, place.name) not in missing
                and not self.has_doubts(place.namespace, place.name)
            )
        )

    def await_account(self, workflow_id: str, clusters: Iterable[str]) -> None:
        """Have the account of an entity read at once; these clusters take no new replica until it is."""
        state = self.state
        state.unresponsive[workflow_id] = sorted({*state.unresponsive.get(workflow_id, ()), *clusters})
        state.asked_again.append(workflow_id)
        for name in state.unresponsive[workflow_id]:
            view = self.fleet.cluster(name)
            if view is not None and view.accounted:
                self.fleet.put_cluster(replace(view, accounted=False), self.now())

    def forget_fleet(self) -> None:
        """Forget all that entities reported; a rebuild learns it anew."""
        for entry in list(self.fleet.entries()):
            self.fleet.release(entry.uid)
        for name in list(self.fleet.clusters):
            self.fleet.remove_cluster(name)
            self.admission.forget(name)
        self.reservations, self.verification = Reservations(self.fleet), Verification()
        self.deployments, self.clusters = KnownVersions(), KnownVersions()
        self.state.unresponsive_since.clear()
        for known in (self.state.classes, self.state.unresponsive, self.state.deleting_clusters, self.state.deleting_deployments):
            known.clear()
        self.evictions, self.awaited_releases = [], []

    # --- the queue ----------------------------------------------------------------------------------------------------------------

    def requeue_unplaced(self) -> None:
        """Queue the requests that wait for capacity and whose answer may have changed since this was last done."""
        hints, self.hints = self.hints, QueueingHints()
        self.queue.requeue_unplaced(hints)

    def request_resync(self, deployments: Iterable[Owner]) -> None:
        """Record deployments that have to request placements again."""
        self.resyncs |= dict.fromkeys(deployments)

    def end_requests(self, namespace: str, name: str) -> None:
        """Forget that a deployment requests anything."""
        self.queue.remove(namespace, name)
        self.fleet.unfinished_searches.pop((namespace, name), None)
        self.fleet.ended_searches.pop((namespace, name), None)
        self.end_queue_reservation(namespace, name)

    def end_queue_reservation(self, namespace: str, name: str) -> None:
        """Forget that capacity was reserved for a waiting deployment, and let those behind it try."""
        if self.fleet.set_queue_reservation((namespace, name), None):
            self.hints.add_everywhere()

    def expire_queue_reservations(self) -> None:
        """Record whether capacity that was reserved for waiting deployments became free since this was last done."""
        checked, self.state.reservations_checked = self.state.reservations_checked, self.now()
        kept = self.fleet.options.hold_for_seconds * 1000
        reservations = self.fleet.queue_reservations.values()
        if any(checked <= reservation.since + kept < self.state.reservations_checked for reservation in reservations):
            self.hints.add_everywhere()

    def next_queue_reservation_expiry(self) -> timedelta | None:
        """Give the time until the next queue reservation expires, None if there is none."""
        now = self.now()
        expiry = next_expiry(self.fleet.queue_reservations, now, self.fleet.options.hold_for_seconds)
        return None if expiry is None else timedelta(milliseconds=expiry - now)

    def next_timeout(self) -> timedelta | None:
        """Give the time until a queue reservation expires or a replica has waited too long for admission; None for never."""
        due, expiry = self.admission.delays(), self.next_queue_reservation_expiry()
        return min(due if expiry is None else [*due, expiry], default=None)
