"""The next steps of the scheduler: read messages, order signals, record results.

Nothing here waits or calls. The workflow runs the decisions, sends the ordered signals,
and wakes up at due times.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import PlacementRequest, Resync
from api_types.messages.signals import (
    InferenceClassSignals,
    InferenceClusterSignals,
    ModelDeploymentSignals,
    ReportingSignals,
)
from api_types.payloads.packing import expand
from scheduler import Decision, from_wire, reasons
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.cache.carry_over import fits, in_payloads, packed_at_once
from workflows.fleet_scheduler.cache.queue import owner_of
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.verification import Doubt
from workflows.fleet_scheduler.charging import charge
from workflows.fleet_scheduler.decide_activity import Decided
from workflows.fleet_scheduler.inbox import Inbox, Log
from workflows.fleet_scheduler.orders import (
    Announce,
    Decide,
    Order,
    SendSchedulerSignals,
)
from workflows.fleet_scheduler.rebuild.lost_state import LostState

# The scheduler decides nothing while it sends these, and the server accepts a hundred
# signals per second. The remaining deployments follow in the next passes, with
# decisions in between.
RESYNCS_AT_ONCE = 256


class SchedulerController:
    """Decides which signals to send, and charges decisions to the cache."""

    def __init__(self, cache: SchedulerCache, inbox: Inbox, log: Log) -> None:
        self.cache = cache
        self.inbox = inbox
        self._log = log
        # The requests under decision, until all of them are answered.
        self.in_hand: list[PlacementRequest] = []

    # Signals that answer no request

    def due(self) -> list[Order]:
        """Return the orders that are due, independent of any decision."""
        for entry in self.cache.give_up_unanswered():
            self.inbox.preemption_unanswered(f"{entry.namespace}/{entry.name}")
        about_replicas = [
            *self._revocations(),
            *self._evictions(),
            *self._releases(),
            *self._forgotten(),
        ]
        return [
            *self._epoch_to_clusters(),
            *self._occupied(),
            *self._resyncs(),
            *about_replicas,
            *self._epoch(),
        ]

    def _occupied(self) -> list[Order]:
        """Report charged replicas to clusters under deletion, when these change.

        A cluster may have unknown replicas. Then no report says that it is empty,
        because their objects could not be deleted after its end.
        """
        cache, deleting = self.cache, self.cache.state.deleting_clusters
        signals: list[SignalRequest] = []
        for cluster, reported in deleting.items():
            charged = sorted(
                f"{entry.namespace}/{entry.name}"
                for entry in cache.fleet.on_cluster(cluster).values()
            )
            if charged != reported and (
                charged or not cache.state.may_be_occupied(cluster, cache.now())
            ):
                deleting[cluster] = charged
                signals.append(
                    outgoing.occupied(cluster, cache.clusters[cluster], charged)
                )
        summary = f"report charged replicas to {len(signals)} clusters under deletion"
        return [SendSchedulerSignals(signals, summary)] if signals else []

    def _resyncs(self) -> list[Order]:
        """Make deployments request placements again, up to the limit of one pass."""
        deployments = sorted(self.cache.resyncs)
        self.cache.resyncs = dict.fromkeys(deployments[RESYNCS_AT_ONCE:])
        signals = [
            outgoing.resync(*deployment) for deployment in deployments[:RESYNCS_AT_ONCE]
        ]
        return self._to_deployments(
            signals, f"have {len(signals)} deployments request placements again"
        )

    def _revocations(self) -> list[Order]:
        """Query the deployments of old reservations whether they still use them."""
        cache = self.cache
        expired = cache.reservations.expired(cache.now())
        cache.reservations.asked((entry.uid for entry in expired), cache.now())
        signals = [outgoing.revoke(entry, cache.state.epoch) for entry in expired]
        return self._to_deployments(signals, f"revoke {len(signals)} reservations")

    def _evictions(self) -> list[Order]:
        """Evict the replicas that no answer evicts."""
        evictions, self.cache.evictions = self.cache.evictions, []
        signals = [
            outgoing.eviction(
                eviction, self.cache.state.epoch, self.cache.started_entry(eviction.uid)
            )
            for eviction in evictions
        ]
        return self._to_deployments(signals, f"evict {len(signals)} replicas")

    def _releases(self) -> list[Order]:
        """Report deleted replicas to the deployments whose placements wait for them."""
        releases, self.cache.awaited_releases = self.cache.awaited_releases, []
        return self._to_deployments(
            [outgoing.released(*release) for release in releases],
            f"report {len(releases)} released replicas",
        )

    def _forgotten(self) -> list[Order]:
        """Report to deployments under deletion that no replica is charged to them.

        This requires that none of their replicas is unknown. If an account of a
        terminated replica arrived later, no deployment would be left to delete its
        objects.
        """
        cache, deleting = self.cache, self.cache.state.deleting_deployments
        released: dict[str, str] = {}
        for owner, uid in deleting.items():
            namespace, name = owner.split("/")
            if not (
                cache.fleet.owned(namespace, name)
                or cache.state.may_have_replicas(namespace, name, cache.now())
            ):
                released[owner] = uid
        for owner in released:
            del deleting[owner]
        signals = [
            outgoing.forgotten(owner, uid, cache.state.epoch)
            for owner, uid in released.items()
        ]
        return self._to_deployments(
            signals,
            f"report to {len(signals)} deployments that no replica is charged to them",
        )

    def _epoch_to_clusters(self) -> list[Order]:
        """Send the epoch, after a takeover, to clusters that have answered.

        The next report of a cluster in the history carries the epoch that it knew.
        """
        untold, self.cache.state.untold = self.cache.state.untold, []
        signals = [
            outgoing.epoch(workflow_id, self.cache.state.epoch)
            for workflow_id in untold
        ]
        summary = f"send the epoch to {len(signals)} clusters"
        return (
            [SendSchedulerSignals(signals, summary, told=tuple(untold))]
            if signals
            else []
        )

    def _epoch(self) -> list[Order]:
        """Announce a new epoch.

        A rebuild has announced its epoch to each entity that it read. After a takeover,
        only the deployments to which the lost scheduler was sending wait for an
        announcement. All others receive a query in any case. So the clusters answer
        first, because the scheduler decides nothing before.
        """
        state = self.cache.state
        if state.announced == state.epoch or self._announces_later():
            return []
        state.announced = state.epoch
        receivers: list[type[ReportingSignals]] = [
            ModelDeploymentSignals,
            InferenceClassSignals,
        ]
        if state.takeover is None:
            receivers.append(InferenceClusterSignals)
        signal = ReportingSignals.RESYNC.broadcast(
            Resync(epoch=state.epoch), *receivers
        )
        return [Announce(signal, f"announce epoch {state.epoch}")]

    def _announces_later(self) -> bool:
        takeover = self.cache.state.takeover
        return (
            takeover is not None
            and bool(self.cache.fleet.awaited)
            and self.cache.now() < takeover.announce_at
        )

    # Decisions

    def next_batch(self) -> Decide:
        """Take the next requests to decide; none while all of them are doubtful."""
        self.cache.withhold_doubtful()
        batch, answers = self.cache.queue.next_batch(), self.cache.answers
        self.in_hand = batch
        return Decide(
            requests=[place for place in batch if place.request_id not in answers],
            repeated=[place for place in batch if place.request_id in answers],
        )

    def decided(self, order: Decide, result: Decided) -> list[Order]:
        """Charge the decisions to the ledger, and order the answers.

        A request that was answered before gets the same answer.
        """
        cache = self.cache
        signals = [
            outgoing.answer_to(place, cache.answers[place.request_id])
            for place in order.repeated
        ]
        for place in order.requests:
            if place.request_id in result.decisions:
                decision = from_wire(
                    Decision, expand(result.decisions[place.request_id])
                )
                signals += charge(cache, place, decision, result.scheduler_version)
            elif place.request_id in result.problems:
                problem = result.problems[place.request_id]
                self._log.warning(
                    "an unreadable request was dropped",
                    extra={"request": place.request_id, "problem": problem},
                )
        cache.requeue_unplaced()
        return self._to_deployments(signals, f"answer {len(signals)} deployments")

    def handover(self) -> LostState:
        """Return the whole state, for a successor of this scheduler.

        `rebuild/takeover.py` reads it after this scheduler is lost. Signals that are
        being sent may not arrive. The requests in hand are answered again, and all
        other answers are repeated because of the new epoch.
        """
        cache = self.cache
        if not cache.state.epoch:
            return LostState(knew_nothing=True)
        if not cache.state.is_complete or cache.parts_left:
            return LostState(problem="the lost scheduler did not know all entities")
        carried = cache.carried(packed_at_once(cache))
        queue = {owner_of(place): place for place in self.in_hand} | carried.queue
        carried = carried.model_copy(update={"queue": queue})
        if carried.rebuild or not fits(carried):
            return LostState(problem="the state is too large to be carried")
        state, second = in_payloads(carried)
        return LostState(
            state=state.model_dump(mode="json", by_alias=True), second=second.wire()
        )

    # Results

    def checked(
        self,
        doubts: Sequence[Doubt],
        answers: Mapping[str, Any],
        unresponsive: Collection[str],
    ) -> None:
        """Record the answers of replicas about which ledger and deployment disagree.

        The answers are applied like messages of those replicas. A replica may be under
        deletion, itself or with its deployment, while its deployment does not know
        that. No other object deletes this replica, so its deployment does, and restarts
        the workflow of the replica if necessary.
        """
        cache = self.cache
        facts = cache.verification.facts(doubts, answers, unresponsive, cache.now())
        for message in facts.messages:
            self.inbox.append_received(message)
        for uid in facts.present:
            entry = cache.started_entry(uid)
            if entry is None:
                continue
            if (
                entry.state == reasons.RELEASING
                or f"{entry.namespace}/{entry.deployment}"
                in cache.state.deleting_deployments
            ):
                cache.evict(entry, "Releasing", "it was being deleted")

    def sent(self, order: SendSchedulerSignals, missing: Collection[str]) -> None:
        """Forget the requests of missing deployments.

        Do not wait any longer for clusters that received the epoch or do not run.
        """
        for workflow_id in order.told:
            self.cache.state.unresponsive.pop(workflow_id, None)
        for workflow_id in sorted(missing):
            known = order.deployments.get(workflow_id)
            owner = _owner(workflow_id)
            # A deployment that was created meanwhile has sent its own request.
            if known is not None and self.cache.deployments[owner] == known:
                self.cache.forget_owner(*owner.split("/"))

    def delay(self) -> timedelta | None:
        """Return the time until something is due without a message; None for never."""
        # A reservation that is unused after its time to live must be queried.
        state, now = self.cache.state, self.cache.now()
        delays = [
            self.cache.reservations.delay(now),
            self.cache.next_timeout(),
            self.cache.next_unanswered(),
        ]
        if state.takeover is not None and state.announced != state.epoch:
            delays.append(
                timedelta(milliseconds=max(0, state.takeover.announce_at - now))
            )
        held_until = (
            state.others_held_until(now)
            if state.deleting_clusters or state.deleting_deployments
            else None
        )
        if held_until is not None:
            delays.append(timedelta(milliseconds=held_until - now))
        return min((delay for delay in delays if delay is not None), default=None)

    def _to_deployments(
        self, signals: Sequence[SignalRequest], summary: str
    ) -> list[Order]:
        known = {
            signal.workflow_id: self.cache.deployments[_owner(signal.workflow_id)]
            for signal in signals
        }
        return [SendSchedulerSignals(list(signals), summary, known)] if signals else []


def _owner(workflow_id: str) -> str:
    return workflow_id.split("/", 1)[1]
