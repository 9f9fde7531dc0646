"""What arrived by signal, and how each message changes the scheduler's cache.

Handlers of the workflow only append: thousands of messages may arrive at once, and no task of the workflow may take long. They are read
here, in order, a bounded number at a time.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from api_types import clock, queues
from api_types.limits import CAPACITY_BYTES_MAX, FLEET_OBJECTS_MAX, POLICY_BYTES_MAX, UNKNOWN_REPLICAS_MAX
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
from api_types.messages.versions import Version
from api_types.names import workflow_id
from api_types.payloads.limits import shortened, wire_size
from api_types.payloads.packing import pack
from scheduler import ClusterView, Owner, check_names, cluster_view, named_in, read_entry, read_need, read_policy, reasons
from workflows.entity.arguments import PROBLEM_BYTES_MAX, problems_of
from workflows.entity.calls.delivery import undelivered
from workflows.entity.conditions import CALL_REFUSED, CANCEL_REFUSED, MALFORMED, RECEIVER_REFUSES, REFUSALS_KEPT, with_event
from workflows.fleet_scheduler.cache.admission import evicted_or_readmitted
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import ReceivedSignal

# Messages that are read in a tenth of a second.
READ_AT_ONCE = 250

NO_EXECUTE = "NoExecute"

Log = logging.Logger | logging.LoggerAdapter[Any]


class Inbox:
    """The signals that the workflow received and has not read yet."""

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
        """Store what arrived."""
        self.append_received(ReceivedSignal(signal.name, payload))

    def append_received(self, received: ReceivedSignal) -> None:
        """Store what arrived, with its name."""
        self._cache.state.inbox.append(received)

    def read(self) -> bool:
        """Apply the first messages, in order; True while there are more. A malformed message is logged and ignored.

        Requests join the queue, and so do those that wait for capacity, when their answer may have changed.
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
        cache.expire_queue_reservations()
        cache.requeue_unplaced()
        return bool(state.inbox)

    def refuse(self, signal: str, problems: str) -> None:
        """Record a message that is ignored."""
        self._log.warning("a malformed message was ignored", extra={"signal": signal, "problems": problems})
        self._record(MALFORMED, f"a {signal} message was ignored: {problems}")

    def _cancel_requested(self, message: CancelRequested) -> None:
        reason = f" ({message.reason})" if message.reason else ""
        self._record(CANCEL_REFUSED, f"the scheduler was to be cancelled{reason}, and goes on: nothing could be placed without it")

    def _delivery(self, message: Delivery) -> None:
        if message.problem:
            self._record(RECEIVER_REFUSES, undelivered(message))

    def preemption_unanswered(self, replica: str) -> None:
        """Record that a deployment did not answer the preemption of a replica."""
        self._record("PreemptionUnanswered", f"the deployment of {replica} does not delete it: others are preempted instead")

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a worker refused a call, which is made again."""
        self._record(CALL_REFUSED, f"{summary}: {problem}. It is tried again; upgrade the workers that serve {queues.WORKFLOWS}")

    def _record(self, reason: str, message: str) -> None:
        state, now = self._cache.state, clock.timestamp(datetime.fromtimestamp(self._cache.now() / 1000, UTC))
        state.events = with_event(state.events, "Warning", reason, message, now=now, of_reason_max=REFUSALS_KEPT)

    # --- from deployments and replicas --------------------------------------------------------------------------------------------

    def _place(self, message: PlacementRequest) -> None:
        need = read_need(message.need)
        if (need.namespace, need.name) != (message.namespace, message.name):
            raise ValueError(f"need: is that of {need.namespace}/{need.name}, and the request that of {message.namespace}/{message.name}")
        deployment, owner = workflow_id("ModelDeployment", message.namespace, message.name), f"{message.namespace}/{message.name}"
        _check_room(owner, has_room=self._cache.deployments.has_room(owner))
        if self._cache.deployments.is_doubtful(owner, message.uid) or self._is_of_an_earlier_scheduler(message):
            self._cache.await_account(deployment, ())
            return
        if not self._cache.deployments.accept(owner, message.uid, message.sequence):
            return
        self._cache.requested_at[owner] = self._cache.messages_read
        self._cache.state.deleting_deployments.pop(owner, None)
        if self._cache.fleet.refresh_policy(need):
            # Others may be decided before this one, and are to see its replicas protected as it is now.
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
        """Tell whether a request was made before this scheduler was started: one that is lost may have decided it.

        The uid of a replica follows from the request. To decide it again could give one to a new replica that another has had, and what is
        late of that would be taken for its own. Whoever is asked for an account learns the epoch, and requests anew.
        """
        return message.epoch < self._cache.state.epoch and 0 < message.sequence < self._cache.state.epoch

    def _unknown(self, message: PlacementRequest) -> list[KnownReplica]:
        """Give the listed replicas that the ledger does not have, and that were not released: what they use is not charged."""
        cache = self._cache
        return [known for known in message.kept if cache.fleet.replica(known.uid) is None and known.uid not in cache.reservations.released]

    def _check_unlisted(self, message: PlacementRequest) -> None:
        """Have replicas checked that are being deleted and that their deployment does not know.

        One that is not being deleted is in the answer, and its deployment takes it over.
        """
        cache, listed = self._cache, {known.uid for known in message.kept}
        for uid, entry in cache.fleet.owned(message.namespace, message.name).items():
            if uid not in listed and entry.state == reasons.RELEASING and not cache.reservations.entry(uid):
                cache.verification.add(entry)

    def _adopt_reported(self, reported: Iterable[KnownReplica], owner: Owner) -> None:
        """Take over what a deployment reports of its replicas.

        An order in an answer never reached them if the deployment sent another request before it read that answer.
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
            if known.template and known.template != entry.template:
                adopted = replace(adopted, template=known.template)
            # A preempted replica is evicted by a signal of its own, and not in an answer.
            if entry.state == reasons.RELEASING and not known.terminating and entry.nominated_for is not None:
                cache.evict(entry, reasons.PREEMPTED, f"preempted by {named_in(entry.namespace, entry.nominated_for)}")
            elif entry.state == reasons.RELEASING and not known.terminating and cache.is_reused(entry):
                # The answer that evicts it has promised its nodes.
                cache.evict(entry, "Releasing", "another replica gets its nodes")
            elif entry.state == reasons.RELEASING and not known.terminating and known.uid not in cache.verification.doubts:
                adopted = replace(
                    adopted, state=reasons.RESERVED if cache.reservations.entry(known.uid) else reasons.BOUND, since=cache.now()
                )
            if adopted is not entry:
                cache.fleet.put_replica(adopted)

    def _bound(self, message: Bound) -> None:
        cache = self._cache
        problems: list[str] = []
        for uid, wire in message.entries.items():
            if cache.fleet.replica(uid) is None:
                # Placed by a scheduler that was lost before this arrived: what runs is charged, whatever would be decided now.
                try:
                    entry = read_entry(wire)
                except ValueError as error:
                    problems.append(f"entries.{uid}: {error}")
                    continue
                if uid in cache.reservations.released:
                    # Started although its nodes were freed, or reported so late that it is gone again: it is charged until it has answered.
                    cache.fleet.put_replica(entry.as_releasing(cache.now()))
                    cache.verification.add(entry)
                    continue
                cache.fleet.put_replica(entry.as_bound(cache.now()))
                # It may be so late that the replica is gone; its deployment must not start that again.
                cache.verification.add(entry)
            cache.fleet.bind(uid, cache.now())
            cache.reservations.bind(uid)
        if problems:
            raise ValueError("; ".join(problems))

    def _released(self, message: Released) -> None:
        self._cache.release(message.uid)

    def _revoked(self, message: Revoked) -> None:
        self._cache.give_back(message.uid, message.deployment_uid)

    # --- from clusters and classes ------------------------------------------------------------------------------------------------

    def report_cluster(self, message: ReportCluster) -> None:
        """Take over how a cluster is. Raises ValueError when the report cannot be read; nothing is changed then."""
        cache, state = self._cache, self._cache.state
        if message.gone or not cache.clusters[message.name].accepts(message.uid, message.sequence):
            return
        _check_room(message.name, has_room=cache.clusters.has_room(message.name))
        if cache.clusters.is_doubtful(message.name, message.uid) or self._may_be_gone(message):
            cache.await_account(workflow_id("InferenceCluster", "", message.name), [message.name])
            return
        _check_capacity(message.manifest)
        view = cluster_view(with_plain_admission(message.manifest))
        replicas = [(namespace, name) for namespace, _, name in (each.partition("/") for each in message.replicas)]
        check_names([("metadata.name", view.name), *(("replicas", part) for replica in replicas for part in replica)])
        if view.name != message.name:
            raise ValueError(f"metadata.name: is {view.name!r}, and the report that of {message.name!r}")
        cache.clusters.accept(message.name, message.uid, message.sequence)
        cache.reported_at[message.name] = cache.messages_read
        state.raise_epoch(message.epoch)
        if not state.holds_up(own_id := workflow_id("InferenceCluster", "", message.name)):
            state.unresponsive.pop(own_id, None)
        self._await_unknown(message.name, replicas)
        view = replace(view, accounted=state.is_accounted(message.name))
        before = cache.fleet.version
        cache.request_resync(self._newly_tainted(view))
        cache.admission.update(view)
        cache.request_resync(evicted_or_readmitted(cache.fleet, view))
        cache.fleet.put_cluster(view, cache.now())
        if "deletionTimestamp" in message.manifest["metadata"]:
            # Whatever was reported to it before, it may have lost.
            state.deleting_clusters[message.name] = None
        if cache.fleet.version != before:
            cache.hints.add_cluster(message.name)

    def _await_unknown(self, cluster: str, replicas: Iterable[tuple[str, str]]) -> None:
        """Have replicas that stand on a cluster asked for an account: they are charged, whoever has forgotten them.

        Their names are what the cluster says. One that makes them up holds up itself only: no more of them are asked at a time than can be
        carried, and listed again and again.
        """
        cache = self._cache
        unknown = [
            workflow_id("ModelReplica", namespace, name)
            for namespace, name in replicas
            if not any(entry.namespace == namespace for entry in cache.fleet.ledger.named(name))
        ]
        awaited = {each for each, clusters in cache.state.unresponsive.items() if cluster in clusters}
        asked = [each for each in unknown if each in awaited]
        asked += [each for each in unknown if each not in awaited][: max(0, UNKNOWN_REPLICAS_MAX - len(awaited))]
        for each in asked:
            cache.await_account(each, [cluster])
        if left := len(unknown) - len(asked):
            message = f"cluster {cluster} has objects of {left} more replicas that no object reports: they are not asked for"
            self._record("UnknownReplicas", message)

    def _may_be_gone(self, message: ReportCluster) -> bool:
        """Tell whether a report may be a late one of a cluster that was deleted before this scheduler was started.

        The rebuild has read those that ran. One that was applied later would have reported its end here, so a fleet that registers its
        clusters is not asked about any of them.
        """
        return self._cache.clusters[message.name] == Version() and 0 < message.created < self._cache.state.epoch

    def _newly_tainted(self, view: ClusterView) -> list[Owner]:
        """Give the deployments on a cluster with a new NoExecute taint: they have to request placements again."""
        fleet = self._cache.fleet
        old = fleet.cluster(view.name)
        known = {(taint.key, taint.value) for taint in old.taints if taint.effect == NO_EXECUTE} if old else set()
        new = {(taint.key, taint.value) for taint in view.taints if taint.effect == NO_EXECUTE}
        return [(entry.namespace, entry.deployment) for entry in fleet.on_cluster(view.name).values()] if new - known else []

    def report_class(self, message: ReportClass) -> None:
        """Take over which generation a class has."""
        classes = self._cache.state.classes
        _check_room(message.name, has_room=message.name in classes or len(classes) < FLEET_OBJECTS_MAX)
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
        """Forget a cluster that is gone, unless another one has its name by now. An account that is awaited may be that of the next one."""
        cache = self._cache
        if not cache.clusters.end(name, uid):
            return
        cache.fleet.remove_cluster(name)
        cache.reported_at.pop(name, None)
        # Replicas are still charged there if the deletion was forced. Nothing else would have their deployments request again.
        cache.request_resync((entry.namespace, entry.deployment) for entry in cache.fleet.on_cluster(name).values())
        cache.state.deleting_clusters.pop(name, None)
        cache.admission.forget(name)
        # This frees nothing, but the conditions of waiting requests should not name a cluster that is gone.
        cache.hints.add_everywhere()

    def _forget_deployment(self, message: Forget) -> None:
        cache, namespace, name = self._cache, message.namespace, message.name
        check_names([("namespace", namespace)])
        owner = f"{namespace}/{name}"
        if cache.deployments.is_doubtful(owner, message.uid):
            # It repeats this until it is answered.
            cache.await_account(workflow_id("ModelDeployment", namespace, name), ())
            return
        if not cache.deployments.end(owner, message.uid):
            return
        cache.requested_at.pop(owner, None)
        if message.gone:
            cache.state.deleting_deployments[owner] = message.uid
        cache.end_requests(namespace, name)
        for entry in list(cache.fleet.owned(namespace, name).values()):
            # The scheduler that was lost may have lost the report of what it reserved.
            if entry.state == reasons.RESERVED and entry.since >= cache.state.epoch:
                cache.give_back(entry.uid, message.uid)
            elif entry.state == reasons.RESERVED or message.gone:
                cache.verification.add(entry)

    # --- from users ---------------------------------------------------------------------------------------------------------------

    def _set_policy(self, message: SetPolicy) -> None:
        cache, state = self._cache, self._cache.state
        if not isinstance(message.policy, dict):
            state.policy_problem = "the policy must be an object"
            return
        if (size := wire_size(message.policy)) > POLICY_BYTES_MAX:
            state.policy_problem = f"the policy is {size} bytes of JSON; at most {POLICY_BYTES_MAX} are stored"
            return
        try:
            cache.fleet.set_options(read_policy(message.policy))
        except ValueError as error:
            state.policy_problem = str(error)
            return
        state.policy, state.policy_problem, state.policy_lost = message.policy, "", ""
        cache.hints.add_everywhere()


def _check_capacity(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError for a capacity that would fill what is carried of all clusters."""
    status = manifest.get("status")
    capacity = status.get("capacity") if isinstance(status, Mapping) else None
    # What is small as it is need not be packed to know it.
    if wire_size(capacity) > CAPACITY_BYTES_MAX and (size := len(pack(capacity))) > CAPACITY_BYTES_MAX:
        raise ValueError(f"status.capacity: is {size} bytes when it is packed, and at most {CAPACITY_BYTES_MAX} are carried of a cluster")


def _check_room(name: str, *, has_room: bool) -> None:
    if not has_room:
        raise ValueError(f"{name}: is one more than the {FLEET_OBJECTS_MAX} of its kind that are remembered")


def _reader(signal: Signal[FleetSchedulerSignals, MessageT], apply: Callable[[MessageT], None]) -> tuple[str, Callable[[Any], None]]:
    def read(payload: Any) -> None:
        apply(signal.parse(payload))

    return signal.name, read
