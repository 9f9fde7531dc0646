"""The scheduler's cache: the fleet with its ledger, the queue and the answers, as one run of the workflow keeps them.

Nothing here waits or calls out. How messages change it is in `inbox`, how entities' own accounts do, in `rebuild`.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from heapq import nsmallest
from typing import Any

from api_types.messages.scheduling import PlacementRequest
from api_types.packing import pack, unpack, unpack_bytes
from scheduler import Fleet, LedgerEntry, Owner, SnapshotReader, decision_state, next_expiry, pack_rows, read_policy, reasons
from workflows.fleet_scheduler.cache.admission import AdmissionTimeouts
from workflows.fleet_scheduler.cache.answers import AnswerCache
from workflows.fleet_scheduler.cache.carry_over import PackedFleet
from workflows.fleet_scheduler.cache.queue import SchedulingQueue
from workflows.fleet_scheduler.cache.queueing_hints import QueueingHints
from workflows.fleet_scheduler.cache.state import ReceivedSignal, SchedulerState

# Entries of one page of the ledger: packed in a tenth of a second, a tenth of what one answer may hold.
LEDGER_PAGE = 5_000


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
        # Placed, and not yet reported as started; some of them are released before that.
        self.unbound: dict[str, None] = {}
        self._released_unbound: list[str] = []
        # Deployments that have to request placements again.
        self.resyncs: dict[Owner, None] = {}
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
            reserved = [entry.uid for entry in self.fleet.entries() if entry.state == reasons.RESERVED]
            self.unbound = dict.fromkeys((*reserved, *self._released_unbound))
            for info in self.fleet.clusters.values():
                self.admission.update(info.view)

    def carried_extras(self) -> dict[str, Any]:
        """Give what is carried beside the fleet."""
        state = self.state
        return {
            "answers": self.answers.by_request,
            "unplaced": {owner: place.wire() for owner, place in state.unplaced.items()},
            "clusters": state.clusters,
            "classes": state.classes,
            "silent": state.unresponsive,
            "leaving": state.deleting_clusters,
            "takenBack": [uid for uid in self.unbound if (entry := self.unbound_entry(uid)) and entry.state == reasons.RELEASING],
        }

    def _read_carried_extras(self, extras: dict[str, Any]) -> None:
        state = self.state
        state.unplaced = {owner: PlacementRequest.model_validate(place) for owner, place in extras["unplaced"].items()}
        state.clusters, state.classes = extras["clusters"], extras["classes"]
        state.unresponsive, state.deleting_clusters = extras["silent"], extras["leaving"]
        self._released_unbound = extras.get("takenBack", [])

    def carried(self, packed: PackedFleet) -> SchedulerState:
        """Give everything in the form that continue-as-new carries; the next run rebuilds what is too large to be carried."""
        state = self.state
        carried = {"fleet": packed.fleet, "carried_extras": packed.carried_extras, "answers": packed.answers, "rebuild": packed.too_large}
        left_out: dict[str, Any] = {"inbox": [], "unplaced": {}, "clusters": {}, "classes": {}, "unresponsive": {}, "deleting_clusters": {}}
        # Thousands of messages may have arrived meanwhile, and most of them are alike.
        return state.model_copy(update={**left_out, **carried, "arrived": pack(state.inbox) if state.inbox else ""})

    # --- the ledger ---------------------------------------------------------------------------------------------------------------

    def ledger_page(self, after: str) -> dict[str, Any]:
        """Give the packed ledger entries whose uid comes after `after`; the first page has what else decisions depend on.

        A page is not `complete` while a new run still reads the parts of a large fleet.
        """
        entries = nsmallest(LEDGER_PAGE, (entry for entry in self.fleet.entries() if entry.uid > after), key=lambda entry: entry.uid)
        more = entries[-1].uid if len(entries) == LEDGER_PAGE else ""
        page = {"version": self.fleet.version, "complete": not self.parts_left, "entries": pack(pack_rows(entries)), "after": more}
        return page if after else {**page, "state": pack(decision_state(self.fleet))}

    def unbound_entry(self, uid: str) -> LedgerEntry | None:
        """Find a replica that was not reported as started; None for all others."""
        return self.fleet.replica(uid) if uid in self.unbound else None

    def expired_reservations(self) -> list[LedgerEntry]:
        """Give the replicas that were not started within their time, released meanwhile or not, oldest first."""
        limit = self.now() - self.fleet.options.reservation_ttl_seconds * 1000
        waiting = [entry for uid in self.unbound if (entry := self.unbound_entry(uid))]
        return sorted((entry for entry in waiting if entry.since <= limit), key=lambda entry: (entry.since, entry.uid))

    def release(self, uid: str) -> None:
        """Free the nodes of a replica."""
        self.unbound.pop(uid, None)
        entry = self.fleet.replica(uid)
        if entry is not None:
            self.fleet.release(uid)
            self.hints.add_cluster(entry.cluster)

    # --- the queue ----------------------------------------------------------------------------------------------------------------

    def requeue_unplaced(self) -> None:
        """Queue the requests that wait for capacity and whose answer may have changed since this was last done."""
        hints, self.hints = self.hints, QueueingHints()
        self.queue.requeue_unplaced(hints)

    def request_resync(self, deployments: Iterable[Owner]) -> None:
        """Record deployments that have to request placements again."""
        self.resyncs |= dict.fromkeys(deployments)

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
