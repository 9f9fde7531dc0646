"""The scheduler's received signals, and how each message changes the cache.

Handlers of the workflow only append to the inbox, because thousands of messages may
arrive at once and no workflow task may take long. The inbox reads them in order, a
bounded number at a time.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from api_types import clock, queues
from api_types.limits import (
    CAPACITY_BYTES_MAX,
    FLEET_OBJECTS_MAX,
    POLICY_BYTES_MAX,
    UNKNOWN_REPLICAS_MAX,
)
from api_types.messages.capacity import with_plain_admission
from api_types.messages.delivery import Delivery, MessageT, Signal
from api_types.messages.entities import CancelRequested
from api_types.messages.scheduling import (
    Bound,
    Forget,
    KnownReplica,
    PlacementRequest,
    Released,
    ReportClass,
    ReportCluster,
    Revoked,
    SetPolicy,
)
from api_types.messages.signals import FleetSchedulerSignals
from api_types.messages.versions import MessageVersion
from api_types.names import workflow_id
from api_types.payloads.limits import shortened, wire_size
from api_types.payloads.packing import pack
from scheduler import (
    ClusterView,
    LedgerEntry,
    Owner,
    check_names,
    cluster_view,
    named_in,
    read_entry,
    read_need,
    read_policy,
    reasons,
)
from workflows.entity.arguments import PROBLEM_BYTES_MAX, problems_of
from workflows.entity.calls.delivery import undelivered
from workflows.entity.conditions import (
    CALL_REFUSED,
    CANCEL_REFUSED,
    MALFORMED,
    RECEIVER_REFUSES,
    REFUSALS_KEPT,
    with_event,
)
from workflows.fleet_scheduler.cache.admission import evicted_or_readmitted
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import ReceivedSignal

# The number of messages that take a tenth of a second.
READ_AT_ONCE = 250

NO_EXECUTE = "NoExecute"

Log = logging.Logger | logging.LoggerAdapter[Any]


class Inbox:
    """The signals that the workflow has received and not yet read."""

    def __init__(self, cache: SchedulerCache, log: Log) -> None:
        self._cache = cache
        self._log = log
        self.readers: dict[str, Callable[[Any], None]] = dict(
            [
                _reader(FleetSchedulerSignals.PLACE, self._place),
                _reader(FleetSchedulerSignals.BOUND, self._bound),
                _reader(FleetSchedulerSignals.RELEASED, self._released),
                _reader(FleetSchedulerSignals.REVOKED, self._revoked),
                _reader(FleetSchedulerSignals.REPORT_CLUSTER, self.report_cluster),
                _reader(FleetSchedulerSignals.REPORT_CLASS, self.report_class),
                _reader(FleetSchedulerSignals.FORGET, self._forget),
                _reader(FleetSchedulerSignals.SET_POLICY, self._set_policy),
                _reader(FleetSchedulerSignals.CANCEL_REQUESTED, self._cancel_requested),
                _reader(FleetSchedulerSignals.DELIVERY, self._delivery),
            ]
        )

    def append(self, signal: Signal[FleetSchedulerSignals, Any], payload: Any) -> None:
        self.append_received(ReceivedSignal(signal.name, payload))

    def append_received(self, received: ReceivedSignal) -> None:
        self._cache.state.inbox.append(received)

    def read(self) -> bool:
        """Apply the first messages, in order; return True while there are more.

        A malformed message is logged and ignored. Requests join the queue. So do
        requests that wait for capacity, when their answer may have changed.
        """
        cache, state = self._cache, self._cache.state
        messages, state.inbox = state.inbox[:READ_AT_ONCE], state.inbox[READ_AT_ONCE:]
        for signal in messages:
            cache.messages_read += 1
            try:
                self.readers[signal.name](signal.payload)
            except ValidationError as error:
                self.refuse(signal.name, problems_of(error))
            except ValueError as error:
                self.refuse(signal.name, shortened(str(error), PROBLEM_BYTES_MAX))
        cache.release_withheld()
        cache.request_resync(cache.admission.take_overdue())
        cache.notice_expiries()
        cache.requeue_unplaced()
        return bool(state.inbox)

    def refuse(self, signal: str, problems: str) -> None:
        """Record an ignored message."""
        self._log.warning(
            "a malformed message was ignored",
            extra={"signal": signal, "problems": problems},
        )
        self._record(MALFORMED, f"a {signal} message was ignored: {problems}")

    def _cancel_requested(self, message: CancelRequested) -> None:
        reason = f" ({message.reason})" if message.reason else ""
        self._record(
            CANCEL_REFUSED,
            f"a request to cancel the scheduler{reason} was ignored: "
            "without the scheduler, no replica could be placed",
        )

    def _delivery(self, message: Delivery) -> None:
        if message.problem:
            self._record(RECEIVER_REFUSES, undelivered(message))

    def preemption_unanswered(self, replica: str) -> None:
        """Record that a deployment did not answer the preemption of a replica."""
        self._record(
            "PreemptionUnanswered",
            f"the deployment of replica {replica} does not delete it: "
            "other replicas are preempted instead",
        )

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a worker refused a call, which is retried."""
        self._record(
            CALL_REFUSED,
            f"{summary}: {problem}. The call is retried; "
            f"upgrade the workers that serve {queues.WORKFLOWS}",
        )

    def _record(self, reason: str, message: str) -> None:
        state, now = (
            self._cache.state,
            clock.timestamp(datetime.fromtimestamp(self._cache.now() / 1000, UTC)),
        )
        state.events = with_event(
            state.events,
            "Warning",
            reason,
            message,
            now=now,
            of_reason_max=REFUSALS_KEPT,
        )

    # Messages of deployments and replicas

    def _place(self, message: PlacementRequest) -> None:
        need = read_need(message.need)
        owner = f"{message.namespace}/{message.name}"
        if (need.namespace, need.name) != (message.namespace, message.name):
            raise ValueError(
                f"need: must describe {owner}, the sender of the request; "
                f"got {need.namespace}/{need.name}"
            )
        deployment = workflow_id("ModelDeployment", message.namespace, message.name)
        _check_room(owner, has_room=self._cache.deployments.has_room(owner))
        if self._cache.deployments.is_doubtful(
            owner, message.uid
        ) or self._is_of_an_earlier_scheduler(message):
            self._cache.await_account(deployment, ())
            return
        if not self._cache.deployments.accept(owner, message.uid, message.sequence):
            return
        self._cache.requested_at[owner] = self._cache.messages_read
        self._cache.state.deleting_deployments.pop(owner, None)
        if self._cache.fleet.refresh_policy(need):
            # Other requests may be decided before this one. They must respect the
            # present protection of its replicas.
            self._cache.hints.add_everywhere()
        if message.request_id not in self._cache.answers:
            for uid in message.returned:
                self._cache.give_back(uid, message.uid)
            self._adopt_reported(message.kept, (message.namespace, message.name))
            self._check_unlisted(message)
        self._cache.state.raise_epoch(message.epoch)
        if unknown := self._unknown(message):
            self._cache.await_account(deployment, (known.cluster for known in unknown))
            self._cache.queue.withhold(message)
        elif self._cache.has_doubts(message.namespace, message.name):
            self._cache.queue.withhold(message)
        else:
            self._cache.queue.add(message)

    def _is_of_an_earlier_scheduler(self, message: PlacementRequest) -> bool:
        """Return whether a request was made before this scheduler started.

        Then a lost scheduler may have decided it. The uid of a replica follows from the
        request. A second decision could reuse the uid of an earlier replica, and late
        messages of the earlier replica would be applied to the new one. A query for the
        deployment's account carries the new epoch, and the deployment then sends a new
        request.
        """
        return (
            message.epoch < self._cache.state.epoch
            and 0 < message.sequence < self._cache.state.epoch
        )

    def _unknown(self, message: PlacementRequest) -> list[KnownReplica]:
        """Return the listed replicas that are neither charged nor released.

        The nodes of these replicas are not charged.
        """
        cache = self._cache
        return [
            known
            for known in message.kept
            if cache.fleet.replica(known.uid) is None
            and known.uid not in cache.reservations.released
        ]

    def _check_unlisted(self, message: PlacementRequest) -> None:
        """Check replicas under deletion that their deployment does not list.

        Other unlisted replicas are in the answer, and their deployment adopts them.
        """
        cache, listed = self._cache, {known.uid for known in message.kept}
        for uid, entry in cache.fleet.owned(message.namespace, message.name).items():
            if (
                uid not in listed
                and entry.state == reasons.RELEASING
                and not cache.reservations.entry(uid)
            ):
                cache.verification.add(entry)

    def _adopt_reported(self, reported: Iterable[KnownReplica], owner: Owner) -> None:
        """Apply a deployment's report of its replicas.

        If the deployment sent another request before it read an answer, an order in
        that answer never reached the replicas.
        """
        cache = self._cache
        for known in reported:
            entry = cache.fleet.replica(known.uid)
            if entry is None:
                if known.terminating and known.uid in cache.reservations.released:
                    cache.awaited_releases.append((known.uid, owner))
                continue
            if known.terminating:
                cache.unanswered.pop(known.uid, None)
            adopted = entry
            if entry.held and known.ready and known.template == entry.held_until:
                adopted = entry.as_rolled_out()
                cache.hints.add_cluster(entry.cluster)
            if known.template and known.template != entry.template:
                adopted = replace(adopted, template=known.template)
            if entry.state == reasons.RELEASING and not known.terminating:
                adopted = self._without_order(entry, adopted)
            if adopted is not entry:
                cache.fleet.put_replica(adopted)

    def _without_order(self, entry: LedgerEntry, adopted: LedgerEntry) -> LedgerEntry:
        """Return the entry of a releasing replica that its deployment does not delete.

        The replica is evicted again if others need its nodes, and stays otherwise.
        """
        cache = self._cache
        if entry.nominated_for is not None:
            # A preempted replica is evicted by a signal, not by an answer.
            preemptor = named_in(entry.namespace, entry.nominated_for)
            cache.evict(entry, reasons.PREEMPTED, f"preempted by {preemptor}")
        elif cache.is_reused(entry):
            # The answer that evicts this replica has assigned its nodes to another one.
            cache.evict(entry, "Releasing", "another replica gets its nodes")
        elif entry.uid not in cache.verification.doubts:
            is_reserved = bool(cache.reservations.entry(entry.uid))
            state = reasons.RESERVED if is_reserved else reasons.BOUND
            return replace(adopted, state=state, since=cache.now())
        return adopted

    def _bound(self, message: Bound) -> None:
        cache = self._cache
        problems: list[str] = []
        for uid, wire in message.entries.items():
            if cache.fleet.replica(uid) is None:
                # A lost scheduler has placed this replica. A running replica is
                # charged, whatever this scheduler would decide.
                try:
                    entry = read_entry(wire)
                except ValueError as error:
                    problems.append(f"entries.{uid}: {error}")
                    continue
                if uid in cache.reservations.released:
                    # The replica started although its nodes were freed, or its report
                    # is late and it is gone again. It is charged until it has answered.
                    cache.fleet.put_replica(entry.as_releasing(cache.now()))
                    cache.verification.add(entry)
                    continue
                cache.fleet.put_replica(entry.as_bound(cache.now()))
                # The report may be so late that the replica is gone. Its deployment
                # must not start it again.
                cache.verification.add(entry)
            cache.fleet.bind(uid, cache.now())
            cache.reservations.bind(uid)
        if problems:
            raise ValueError("; ".join(problems))

    def _released(self, message: Released) -> None:
        self._cache.release(message.uid)

    def _revoked(self, message: Revoked) -> None:
        self._cache.give_back(message.uid, message.deployment_uid)

    # Messages of clusters and classes

    def report_cluster(self, message: ReportCluster) -> None:
        """Apply the report of a cluster.

        Raises ValueError if the report cannot be read; then nothing changes.
        """
        cache, state = self._cache, self._cache.state
        if message.gone or not cache.clusters[message.name].accepts(
            message.uid, message.sequence
        ):
            return
        _check_room(message.name, has_room=cache.clusters.has_room(message.name))
        if cache.clusters.is_doubtful(message.name, message.uid) or self._may_be_gone(
            message
        ):
            cache.await_account(
                workflow_id("InferenceCluster", "", message.name), [message.name]
            )
            return
        _check_capacity(message.manifest)
        view = cluster_view(with_plain_admission(message.manifest))
        replicas = [
            (namespace, name)
            for namespace, _, name in (each.partition("/") for each in message.replicas)
        ]
        check_names(
            [
                ("metadata.name", view.name),
                *(("replicas", part) for replica in replicas for part in replica),
            ]
        )
        if view.name != message.name:
            raise ValueError(
                f"metadata.name: must be {message.name!r}, the sender of the report; "
                f"got {view.name!r}"
            )
        cache.clusters.accept(message.name, message.uid, message.sequence)
        cache.reported_at[message.name] = cache.messages_read
        state.raise_epoch(message.epoch)
        if not state.holds_up(
            own_id := workflow_id("InferenceCluster", "", message.name)
        ):
            state.unresponsive.pop(own_id, None)
        self._await_unknown(message.name, replicas)
        view = replace(view, accounted=state.is_accounted(message.name))
        before = cache.fleet.version
        cache.request_resync(self._displaced(view))
        cache.admission.update(view)
        cache.request_resync(evicted_or_readmitted(cache.fleet, view))
        cache.fleet.put_cluster(view, cache.now())
        if "deletionTimestamp" in message.manifest["metadata"]:
            # The cluster may have lost earlier reports to it.
            state.deleting_clusters[message.name] = None
        if cache.fleet.version != before:
            cache.hints.add_cluster(message.name)

    def _await_unknown(self, cluster: str, replicas: Iterable[tuple[str, str]]) -> None:
        """Query the unknown replicas with objects on a cluster for their accounts.

        They are charged even if every other object has forgotten them. The cluster
        reports the names. A cluster that invents names delays only itself: the number
        of pending queries is limited to what can be carried, and the cluster lists its
        replicas repeatedly.
        """
        cache = self._cache
        unknown = [
            workflow_id("ModelReplica", namespace, name)
            for namespace, name in replicas
            if not any(
                entry.namespace == namespace for entry in cache.fleet.ledger.named(name)
            )
        ]
        awaited = {
            each
            for each, clusters in cache.state.unresponsive.items()
            if cluster in clusters
        }
        asked = [each for each in unknown if each in awaited]
        asked += [each for each in unknown if each not in awaited][
            : max(0, UNKNOWN_REPLICAS_MAX - len(awaited))
        ]
        for each in asked:
            cache.await_account(each, [cluster])
        if left := len(unknown) - len(asked):
            message = (
                f"cluster {cluster} has objects of {left} more replicas without a known "
                "ModelReplica: their accounts are not requested yet"
            )
            self._record("UnknownReplicas", message)

    def _may_be_gone(self, message: ReportCluster) -> bool:
        """Return whether the cluster of a report may be deleted by now.

        The report may be late, and the deletion may have happened before this scheduler
        started. The rebuild has read the running clusters. A cluster that was applied
        later would have reported its end here, so a fleet that registers its clusters
        causes no queries.
        """
        return (
            self._cache.clusters[message.name] == MessageVersion()
            and 0 < message.created < self._cache.state.epoch
        )

    def _displaced(self, view: ClusterView) -> list[Owner]:
        """Return the deployments that have to request placements again.

        The cluster has a new NoExecute taint, or lacks a pool of theirs now.
        """
        fleet = self._cache.fleet
        old = fleet.cluster(view.name)
        known = _evicting_taints(old) if old else set()
        evicts = bool(_evicting_taints(view) - known)
        pools = {pool.name for pool in view.pools}
        gone = {pool.name for pool in old.pools} - pools if old else set()
        if not evicts and not gone:
            return []
        return [
            (entry.namespace, entry.deployment)
            for entry in fleet.on_cluster(view.name).values()
            if evicts
            or any(
                member.pool in gone
                for engine in entry.engines
                for member in engine.members
            )
        ]

    def report_class(self, message: ReportClass) -> None:
        """Apply the generation of a class."""
        classes = self._cache.state.classes
        _check_room(
            message.name,
            has_room=message.name in classes or len(classes) < FLEET_OBJECTS_MAX,
        )
        self._cache.state.raise_epoch(message.epoch)
        classes[message.name] = message.generation

    def _forget(self, message: Forget) -> None:
        check_names([("name", message.name)])
        if message.kind == "InferenceCluster":
            self.forget_cluster(message.name, message.uid)
        elif message.kind == "InferenceClass":
            self._cache.state.classes.pop(message.name, None)
        elif message.kind == "ModelDeployment":
            self._forget_deployment(message)

    def forget_cluster(self, name: str, uid: str) -> None:
        """Forget a deleted cluster, unless another cluster has its name by now.

        A pending query for its account may belong to the next cluster.
        """
        cache = self._cache
        if not cache.clusters.end(name, uid):
            return
        cache.fleet.remove_cluster(name)
        cache.reported_at.pop(name, None)
        # After a forced deletion, replicas are still charged there. Nothing else would
        # make their deployments request again.
        cache.request_resync(
            (entry.namespace, entry.deployment)
            for entry in cache.fleet.on_cluster(name).values()
        )
        cache.state.deleting_clusters.pop(name, None)
        cache.admission.forget(name)
        # This frees nothing, but the conditions of waiting requests should not name a
        # deleted cluster.
        cache.hints.add_everywhere()

    def _forget_deployment(self, message: Forget) -> None:
        cache, namespace, name = self._cache, message.namespace, message.name
        check_names([("namespace", namespace)])
        owner = f"{namespace}/{name}"
        if cache.deployments.is_doubtful(owner, message.uid):
            # The deployment repeats this message until it is answered.
            cache.await_account(workflow_id("ModelDeployment", namespace, name), ())
            return
        if not cache.deployments.end(owner, message.uid):
            return
        cache.requested_at.pop(owner, None)
        if message.gone:
            cache.state.deleting_deployments[owner] = message.uid
        cache.end_requests(namespace, name)
        for entry in list(cache.fleet.owned(namespace, name).values()):
            # The lost scheduler may have lost the report of a reserved replica.
            if entry.state == reasons.RESERVED and entry.since >= cache.state.epoch:
                cache.give_back(entry.uid, message.uid)
            elif entry.state == reasons.RESERVED or message.gone:
                cache.verification.add(entry)

    # Messages of users

    def _set_policy(self, message: SetPolicy) -> None:
        cache, state = self._cache, self._cache.state
        if not isinstance(message.policy, dict):
            state.policy_problem = "the policy must be an object"
            return
        if (size := wire_size(message.policy)) > POLICY_BYTES_MAX:
            state.policy_problem = (
                f"the policy has {size} bytes of JSON; "
                f"at most {POLICY_BYTES_MAX} are accepted"
            )
            return
        try:
            cache.fleet.set_options(read_policy(message.policy))
        except ValueError as error:
            state.policy_problem = str(error)
            return
        state.policy, state.policy_problem, state.policy_lost = message.policy, "", ""
        cache.hints.add_everywhere()


def _evicting_taints(view: ClusterView) -> set[tuple[str, str]]:
    return {
        (taint.key, taint.value) for taint in view.taints if taint.effect == NO_EXECUTE
    }


def _check_capacity(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError for a capacity that is too large to be carried."""
    status = manifest.get("status")
    capacity = status.get("capacity") if isinstance(status, Mapping) else None
    # A small capacity need not be packed.
    if (
        wire_size(capacity) > CAPACITY_BYTES_MAX
        and (size := len(pack(capacity))) > CAPACITY_BYTES_MAX
    ):
        raise ValueError(
            f"status.capacity: has {size} packed bytes; "
            f"at most {CAPACITY_BYTES_MAX} are accepted"
        )


def _check_room(name: str, *, has_room: bool) -> None:
    if not has_room:
        raise ValueError(
            f"{name}: the scheduler already has {FLEET_OBJECTS_MAX} objects of this kind, "
            "which is the maximum"
        )


def _reader(
    signal: Signal[FleetSchedulerSignals, MessageT], apply: Callable[[MessageT], None]
) -> tuple[str, Callable[[Any], None]]:
    def read(payload: Any) -> None:
        apply(signal.parse(payload))

    return signal.name, read
