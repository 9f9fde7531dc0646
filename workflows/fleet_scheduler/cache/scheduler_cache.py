"""The scheduler's cache in one run: the fleet with its ledger, queue and answers.

Nothing here waits or calls. Messages change the cache in `inbox`, and the accounts of
entities in `rebuild`.
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
    expiries,
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

# The number of entries on one page of the ledger. Packing them takes a tenth of a
# second, and they fill a tenth of an answer.
LEDGER_PAGE = 5_000
# A deployment confirms at once that it deletes a preempted replica, however long the
# deletion takes. A deployment that does not confirm within this time counts as broken.
UNANSWERED_MS = 2 * 60 * 1000
# If a check is late by more than this, workers were missing, so deployments could not
# answer either.
_LATE_MS = 30 * 1000


class SchedulerCache:
    """The whole state of the scheduler. `now` returns the time in milliseconds."""

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
        # Evictions that are not part of an answer to a request.
        self.evictions: list[Eviction] = []
        # Preempted replicas whose deployments have not confirmed the deletion, with the
        # start of the wait in milliseconds.
        self.unanswered: dict[str, int] = {}
        # Deleted replicas, each with a deployment that waits for its nodes.
        self.awaited_releases: list[tuple[str, Owner]] = []
        # Deployments that have to request placements again.
        self.resyncs: dict[Owner, None] = {}
        # The number of messages and pages of accounts that this run has read, and the
        # numbers of each cluster's last report and each deployment's last request. Each
        # run queries all missing accounts again, so it needs no numbers of earlier
        # runs.
        self.messages_read = 0
        self.reported_at: dict[str, int] = {}
        self.requested_at: dict[str, int] = {}
        if state.carried_extras:
            self._read_carried_extras(unpack(state.carried_extras))
        if state.arrived:
            state.inbox = [
                ReceivedSignal(*signal) for signal in unpack(state.arrived)
            ] + state.inbox
        state.fleet, state.answers, state.carried_extras, state.arrived = [], "", "", ""
        if state.policy is not None and not self.parts_left:
            self.fleet.set_options(read_policy(state.policy))

    # From run to run

    @property
    def parts_left(self) -> int:
        """Return the number of unread parts of the carried fleet.

        The fleet is incomplete until all are read.
        """
        return self._reader.left

    def read_part(self) -> None:
        """Read the next part of the carried fleet."""
        self._reader.read_next()
        if not self.parts_left:
            for info in self.fleet.clusters.values():
                self.admission.update(info.view)

    def carried_extras(self) -> dict[str, Any]:
        """Return the carried state without the fleet."""
        state = self.state
        return {
            "answers": self.answers.by_request,
            "unplaced": {
                owner: place.wire() for owner, place in state.unplaced.items()
            },
            "classes": state.classes,
            "unresponsive": state.unresponsive,
            "unresponsiveSince": state.unresponsive_since,
            "withheld": {
                owner: place.wire() for owner, place in state.withheld.items()
            },
            "deleting": state.deleting_clusters,
            "deletingDeployments": state.deleting_deployments,
            "evictions": [list(astuple(eviction)) for eviction in self.evictions],
            "unanswered": self.unanswered,
            "awaitedReleases": self.awaited_releases,
            "resyncs": [list(owner) for owner in self.resyncs],
            "reservations": self.reservations.wire(),
            "verification": self.verification.wire(),
            "versions": {
                "deployments": self.deployments.wire(),
                "clusters": self.clusters.wire(),
            },
        }

    def _read_carried_extras(self, extras: dict[str, Any]) -> None:
        state = self.state
        state.unplaced = {
            owner: PlacementRequest.model_validate(place)
            for owner, place in extras["unplaced"].items()
        }
        state.classes = extras["classes"]
        state.unresponsive, state.deleting_clusters = (
            extras["unresponsive"],
            extras["deleting"],
        )
        state.unresponsive_since = extras["unresponsiveSince"]
        state.deleting_deployments = extras.get("deletingDeployments", {})
        self.evictions = [
            Eviction(*eviction) for eviction in extras.get("evictions", ())
        ]
        self.unanswered = dict(extras.get("unanswered", {}))
        self.awaited_releases = [
            (uid, (namespace, name))
            for uid, (namespace, name) in extras.get("awaitedReleases", ())
        ]
        state.withheld = {
            owner: PlacementRequest.model_validate(place)
            for owner, place in extras.get("withheld", {}).items()
        }
        self.request_resync(
            (namespace, name) for namespace, name in extras.get("resyncs", ())
        )
        self.reservations.load(extras["reservations"])
        self.verification.load(extras["verification"])
        self.deployments.load(extras["versions"]["deployments"])
        self.clusters.load(extras["versions"]["clusters"])

    def carried(self, packed: PackedFleet) -> SchedulerState:
        """Return the state for continue-as-new.

        The next run rebuilds a state that is too large to be carried.
        """
        state = self.state
        carried: dict[str, Any] = {
            "fleet": packed.fleet,
            "carried_extras": packed.carried_extras,
            "answers": packed.answers,
        }
        carried["rebuild"] = packed.too_large or state.rebuild
        left_out: dict[str, Any] = {
            "inbox": [],
            "unplaced": {},
            "classes": {},
            "unresponsive": {},
            "deleting_clusters": {},
        }
        left_out |= {
            "unresponsive_since": {},
            "withheld": {},
            "deleting_deployments": {},
        }
        # Thousands of messages may have arrived during the packing, and most of them
        # are similar.
        following = state.model_copy(
            update={
                **left_out,
                **carried,
                "arrived": pack(state.inbox) if state.inbox else "",
            }
        )
        if fits(following):
            return following
        # So many messages cannot be carried. A rebuild queries every entity that sent
        # one. A policy comes from a user, and the rebuild cannot query it.
        policies = [
            signal
            for signal in state.inbox
            if signal.name == FleetSchedulerSignals.SET_POLICY.name
            and wire_size(signal.payload) <= 2 * POLICY_BYTES_MAX
        ]
        newest = policies[-1:]
        left_out |= {"queue": {}, "asked_again": [], "survey": None}
        return state.model_copy(
            update={
                **left_out,
                "rebuild": True,
                "arrived": pack(newest) if newest else "",
            }
        )

    # Ledger

    def ledger_page(self, after: str) -> dict[str, Any]:
        """Return the packed ledger entries whose uid comes after `after`.

        The first page also has the other inputs of decisions. A page is not `complete`
        while a new run reads the parts of a large fleet, or a rebuild reads the
        accounts of all entities.
        """
        entries = nsmallest(
            LEDGER_PAGE,
            (entry for entry in self.fleet.entries() if entry.uid > after),
            key=lambda entry: entry.uid,
        )
        more = entries[-1].uid if len(entries) == LEDGER_PAGE else ""
        complete = self.state.is_complete and not self.parts_left
        page = {
            "version": self.fleet.version,
            "complete": complete,
            "entries": pack(pack_rows(entries)),
            "after": more,
        }
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
        """Return the time until the next unanswered preemption ends; None for never."""
        since = min(self.unanswered.values(), default=None)
        return (
            None
            if since is None
            else timedelta(milliseconds=max(0, since + UNANSWERED_MS - self.now()))
        )

    def give_up_unanswered(self) -> list[LedgerEntry]:
        """End preemptions that deployments did not answer in time; return the replicas.

        Such a replica holds its nodes until it is gone, without a beneficiary. The
        placements that waited for it are evicted, and decided again.
        """
        given_up: list[LedgerEntry] = []
        for uid, since in list(self.unanswered.items()):
            entry = self.fleet.replica(uid)
            if (
                entry is None
                or entry.state != reasons.RELEASING
                or entry.nominated_for is None
            ):
                del self.unanswered[uid]
            elif self.now() - since >= UNANSWERED_MS + _LATE_MS:
                self.unanswered[uid] = self.now()
            elif self.now() - since >= UNANSWERED_MS:
                del self.unanswered[uid]
                given_up.append(entry)
                self.fleet.put_replica(replace(entry, nominated_for=None))
                broken = named_in(
                    entry.nominated_for[0], (entry.namespace, entry.deployment)
                )
                for waiting in list(self.fleet.owned(*entry.nominated_for).values()):
                    if (
                        waiting.state == reasons.RESERVED
                        and waiting.cluster == entry.cluster
                    ):
                        self.evict(
                            waiting,
                            "PreemptionUnanswered",
                            f"{broken} was preempted and does not delete its replica",
                        )
        return given_up

    def waiting_for(self, entry: LedgerEntry) -> list[Owner]:
        """Return the deployments whose placements may wait for a replica's nodes.

        These are its own deployment and the one that preempted it.
        """
        owners = dict.fromkeys(
            [
                (entry.namespace, entry.deployment),
                entry.nominated_for or (entry.namespace, entry.deployment),
            ]
        )
        return [
            owner
            for owner in owners
            if any(
                other.state == reasons.RESERVED and other.cluster == entry.cluster
                for other in self.fleet.owned(*owner).values()
            )
        ]

    def is_reused(self, entry: LedgerEntry) -> bool:
        """Return whether a releasing replica's own deployment reuses its nodes."""
        owned = self.fleet.owned(entry.namespace, entry.deployment).values()
        return any(
            other.reuse
            and other.state == reasons.RESERVED
            and other.cluster == entry.cluster
            for other in owned
        )

    def give_back(self, uid: str, deployment_uid: str) -> None:
        """Free the nodes of a replica that its deployment has never started.

        Only the deployment for which it was placed can know this.
        """
        entry = self.fleet.replica(uid)
        if entry is None:
            return
        if self.reservations.entry(uid) and entry.origin[0] in ("", deployment_uid):
            self.release(uid)
        else:
            self.verification.add(entry)

    def started_entry(self, uid: str) -> LedgerEntry | None:
        """Return a replica whose workflow was started; None for all others."""
        return None if self.reservations.entry(uid) else self.fleet.replica(uid)

    def evict(self, entry: LedgerEntry, reason: str, detail: str) -> None:
        """Order a deployment to delete one of its replicas."""
        self.evictions.append(
            Eviction(
                entry.uid,
                entry.name,
                entry.cluster,
                reason,
                detail,
                entry.namespace,
                entry.deployment,
            )
        )

    def forget_owner(self, namespace: str, name: str) -> None:
        """Forget the requests of a deployment that does not run.

        A check of replicas that it may have started precedes freeing their nodes.
        """
        self.end_requests(namespace, name)
        for uid, entry in list(self.fleet.owned(namespace, name).items()):
            if self.reservations.entry(uid):
                self.verification.add(entry)

    def has_doubts(self, namespace: str, name: str) -> bool:
        """Return whether a check of a deployment's replica is pending.

        A missing replica must not be placed as an existing one. A reserved replica must
        not be answered either: the deployment would start it, and an earlier check that
        found nothing would free its nodes.
        """
        owned = self.fleet.owned(namespace, name).values()
        return any(
            entry.uid in self.verification.doubts and entry.state != reasons.RELEASING
            for entry in owned
        )

    def withhold_doubtful(self) -> None:
        """Withhold the requests of deployments that have a pending check."""
        if self.verification.doubts:
            for place in list(self.state.queue.values()):
                if self.has_doubts(place.namespace, place.name):
                    self.queue.withhold(place)

    def release_withheld(self) -> None:
        """Queue withheld requests of deployments that are fully known again."""
        missing = self.state.unresponsive
        self.queue.release_withheld(
            lambda place: (
                workflow_id("ModelDeployment", place.namespace, place.name)
                not in missing
                and not self.has_doubts(place.namespace, place.name)
            )
        )

    def await_account(self, workflow_id: str, clusters: Iterable[str]) -> None:
        """Request the account of an entity.

        The given clusters take no new replica until it arrives.
        """
        state = self.state
        state.unresponsive[workflow_id] = sorted(
            {*state.unresponsive.get(workflow_id, ()), *clusters}
        )
        state.asked_again.append(workflow_id)
        for name in state.unresponsive[workflow_id]:
            view = self.fleet.cluster(name)
            if view is not None and view.accounted:
                self.fleet.put_cluster(replace(view, accounted=False), self.now())

    def forget_fleet(self) -> None:
        """Forget everything that entities reported. A rebuild reads it again."""
        for entry in list(self.fleet.entries()):
            self.fleet.release(entry.uid)
        for name in list(self.fleet.clusters):
            self.fleet.remove_cluster(name)
            self.admission.forget(name)
        self.reservations, self.verification = Reservations(self.fleet), Verification()
        self.deployments, self.clusters = KnownVersions(), KnownVersions()
        self.state.unresponsive_since.clear()
        for known in (
            self.state.classes,
            self.state.unresponsive,
            self.state.deleting_clusters,
            self.state.deleting_deployments,
        ):
            known.clear()
        self.evictions, self.awaited_releases = [], []

    # Queue

    def requeue_unplaced(self) -> None:
        """Queue the waiting requests whose answer may have changed since the last call."""
        hints, self.hints = self.hints, QueueingHints()
        self.queue.requeue_unplaced(hints)

    def request_resync(self, deployments: Iterable[Owner]) -> None:
        """Record deployments that have to request placements again."""
        self.resyncs |= dict.fromkeys(deployments)

    def end_requests(self, namespace: str, name: str) -> None:
        """Forget the requests of a deployment."""
        self.queue.remove(namespace, name)
        self.fleet.unfinished_searches.pop((namespace, name), None)
        self.fleet.ended_searches.pop((namespace, name), None)
        self.end_queue_reservation(namespace, name)

    def end_queue_reservation(self, namespace: str, name: str) -> None:
        """End the capacity reservation of a waiting deployment.

        Requests behind it are decided again.
        """
        if self.fleet.set_queue_reservation((namespace, name), None):
            self.hints.add_everywhere()

    def notice_expiries(self) -> None:
        """Queue the waiting requests if a time limit has ended since the last call."""
        checked, self.state.expiries_checked = self.state.expiries_checked, self.now()
        if self.state.unplaced and any(
            checked < end <= self.state.expiries_checked for end in expiries(self.fleet)
        ):
            self.hints.add_everywhere()

    def next_timeout(self) -> timedelta | None:
        """Return the time until a limit ends or an admission times out; None for never."""
        delays, now = self.admission.delays(), self.now()
        end = next_expiry(self.fleet, now) if self.state.unplaced else None
        if end is not None:
            delays.append(timedelta(milliseconds=end - now))
        return min(delays, default=None)
