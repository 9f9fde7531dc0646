"""What arrived by signal, and how each message changes the scheduler's cache.

Handlers of the workflow only append: thousands of messages may arrive at once, and no task of the workflow may take long. They are read
here, in order, a bounded number at a time.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from api_types.messages.delivery import MessageT, Signal
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
from scheduler import ClusterView, Owner, check_names, cluster_view, read_entry, read_need, read_policy, reasons
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
            ]
        )

    def append(self, signal: Signal[FleetSchedulerSignals, Any], payload: Any) -> None:
        """Store what arrived."""
        self._cache.state.inbox.append(ReceivedSignal(signal.name, payload))

    def read(self) -> bool:
        """Apply the first messages, in order; True while there are more. A malformed message is logged and ignored.

        Requests join the queue, and so do those that wait for capacity, when their answer may have changed.
        """
        cache, state = self._cache, self._cache.state
        messages, state.inbox = state.inbox[:READ_AT_ONCE], state.inbox[READ_AT_ONCE:]
        for signal in messages:
            try:
                self.readers[signal.name](signal.payload)
            except ValueError as error:
                self._log.warning("a malformed message was ignored", extra={"signal": signal.name, "problems": str(error)})
        cache.request_resync(cache.admission.take_overdue())
        cache.expire_queue_reservations()
        cache.requeue_unplaced()
        return bool(state.inbox)

    # --- from deployments and replicas --------------------------------------------------------------------------------------------

    def _place(self, message: PlacementRequest) -> None:
        need = read_need(message.need)
        if (need.namespace, need.name) != (message.namespace, message.name):
            raise ValueError(f"need: is that of {need.namespace}/{need.name}, and the request that of {message.namespace}/{message.name}")
        if message.request_id not in self._cache.answers:
            self._adopt_reported(message.kept)
        self._cache.queue.add(message)

    def _adopt_reported(self, reported: Iterable[KnownReplica]) -> None:
        """Take over what a deployment reports of its replicas.

        An order in an answer never reached them if the deployment sent another request before it read that answer.
        """
        cache = self._cache
        for known in reported:
            entry = cache.fleet.replica(known.uid)
            if entry is None:
                continue
            adopted = entry
            if known.template and known.template != entry.template:
                adopted = replace(adopted, template=known.template)
            # A preempted replica is evicted by a signal of its own, and not in an answer.
            if entry.state == reasons.RELEASING and not known.terminating and entry.nominated_for is None:
                adopted = replace(adopted, state=reasons.RESERVED if known.uid in cache.unbound else reasons.BOUND, since=cache.now())
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
                cache.fleet.put_replica(replace(entry, since=cache.now()))
            cache.fleet.bind(uid, cache.now())
            cache.unbound.pop(uid, None)
        if problems:
            raise ValueError("; ".join(problems))

    def _released(self, message: Released) -> None:
        self._cache.release(message.uid)

    def _revoked(self, message: Revoked) -> None:
        self._cache.release(message.uid)

    # --- from clusters and classes ------------------------------------------------------------------------------------------------

    def report_cluster(self, message: ReportCluster) -> None:
        """Take over how a cluster is. Raises ValueError when the report cannot be read; nothing is changed then."""
        cache, state = self._cache, self._cache.state
        if message.gone or message.sequence < state.clusters.get(message.name, 0):
            return
        view = cluster_view(message.manifest, accounted=message.name not in state.unresponsive.values())
        check_names([("metadata.name", view.name)])
        if view.name != message.name:
            raise ValueError(f"metadata.name: is {view.name!r}, and the report that of {message.name!r}")
        state.clusters[message.name] = message.sequence
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

    def _newly_tainted(self, view: ClusterView) -> list[Owner]:
        """Give the deployments on a cluster with a new NoExecute taint: they have to request placements again."""
        fleet = self._cache.fleet
        old = fleet.cluster(view.name)
        known = {(taint.key, taint.value) for taint in old.taints if taint.effect == NO_EXECUTE} if old else set()
        new = {(taint.key, taint.value) for taint in view.taints if taint.effect == NO_EXECUTE}
        return [(entry.namespace, entry.deployment) for entry in fleet.on_cluster(view.name).values()] if new - known else []

    def report_class(self, message: ReportClass) -> None:
        """Take over which generation a class has."""
        self._cache.state.classes[message.name] = message.generation

    def _forget(self, message: Forget) -> None:
        cache, state = self._cache, self._cache.state
        if message.kind == "InferenceCluster":
            cache.fleet.remove_cluster(message.name)
            state.clusters.pop(message.name, None)
            state.deleting_clusters.pop(message.name, None)
            cache.admission.forget(message.name)
            # This frees nothing, but the conditions of waiting requests should not name a cluster that is gone.
            cache.hints.add_everywhere()
        elif message.kind == "InferenceClass":
            state.classes.pop(message.name, None)
        elif message.kind == "ModelDeployment":
            self._forget_deployment(message.namespace, message.name)

    def _forget_deployment(self, namespace: str, name: str) -> None:
        cache = self._cache
        cache.queue.remove(namespace, name)
        cache.end_queue_reservation(namespace, name)
        for uid in [entry.uid for entry in cache.fleet.owned(namespace, name).values() if entry.state == reasons.RESERVED]:
            cache.release(uid)

    # --- from users ---------------------------------------------------------------------------------------------------------------

    def _set_policy(self, message: SetPolicy) -> None:
        cache, state = self._cache, self._cache.state
        if not isinstance(message.policy, dict):
            state.policy_problem = "the policy must be an object"
            return
        try:
            cache.fleet.set_options(read_policy(message.policy))
        except ValueError as error:
            state.policy_problem = str(error)
            return
        state.policy, state.policy_problem = message.policy, ""
        cache.hints.add_everywhere()


def _reader(signal: Signal[FleetSchedulerSignals, MessageT], apply: Callable[[MessageT], None]) -> tuple[str, Callable[[Any], None]]:
    return signal.name, lambda payload: apply(signal.parse(payload))
