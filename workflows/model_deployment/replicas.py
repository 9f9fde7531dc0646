"""The ModelReplicas of a deployment: they are started, updated, deleted, and started again when their workflow was terminated."""

from collections.abc import Sequence
from datetime import timedelta

from activities.messaging.entity_client import EntityClient
from api_types.messages.delivery import MessageT, Signal, SignalRequest, entity
from api_types.messages.entities import Delete, ReplicaChanged, StartReplicas
from api_types.messages.scheduling import Bound, Revoked
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals, ModelReplicaSignals
from workflows.entity.context import EntityContext
from workflows.entity.sending import LOCAL_CALLS_MAX, call_entities, send_all
from workflows.model_deployment.plan import startable
from workflows.model_deployment.state import DeploymentState, TrackedReplica
from workflows.model_deployment.template import flags_text, labels_message, read_flags, start_message, template_labels, template_message

# A replica that ends reports that first, and the report takes no longer than this to arrive.
LAST_REPORT_TIMEOUT = timedelta(seconds=2)

# A replica of that name may still be being deleted; it reports when it is gone, this is the fallback.
NAME_CONFLICT_RETRY = timedelta(seconds=4)


class ReplicaController:
    """Starts, updates and deletes ModelReplicas until they are as the state has them."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self._revoked: list[str] = []
        self._lost: list[str] = []
        self._resync_due = False

    # --- what arrived -------------------------------------------------------------------------------------------------------------

    def record_report(self, report: ReplicaChanged) -> None:
        """Store what a replica reports of itself; the highest sequence of a uid wins."""
        state, context = self._context.state, self._context
        replica = state.replicas.get(report.uid)
        if replica is None:
            if report.phase not in ("Gone", "Terminating") and state.adopted:
                # It was started by a repeated request, after this deployment had dropped it.
                state.orphans.append(report.name)
                context.requeue()
            return
        if report.sequence <= replica.sequence:
            return
        if report.phase == "Gone":
            self._remove(replica, report)
        else:
            state.replicas[replica.uid] = replica.reported(report)
        context.mark_changed()

    def _remove(self, replica: TrackedReplica, report: ReplicaChanged) -> None:
        """Forget a replica that is gone; what a forced teardown left behind is listed on the deployment, which stays."""
        state, context = self._context.state, self._context
        del state.replicas[replica.uid]
        if replica.deletion_reason:
            context.record_event("Normal", "ReplicaDeleted", f"{replica.name} was deleted from {replica.cluster}")
        else:
            context.record_event("Warning", "ReplicaGone", f"{report.name} on {replica.cluster} is gone; a new placement is requested")
        if report.left_behind:
            state.left_behind += report.left_behind
            count = len(report.left_behind)
            context.record_event(
                "Warning", "LeftBehind", f"{replica.name} left {count} objects on {replica.cluster}; see status.leftBehind"
            )

    def record_revoked(self, uid: str) -> None:
        """Store that the scheduler asks about a reservation."""
        self._revoked.append(uid)
        self._context.requeue()

    def request_resync(self) -> None:
        """Have all replicas repeat their reports with the next pass."""
        self._resync_due = True

    # --- the steps of a pass --------------------------------------------------------------------------------------------------------

    async def answer_revoked(self) -> None:
        """Give reservations back that were never used; confirm those that are."""
        state = self._context.state
        while self._revoked:
            uid = self._revoked.pop(0)
            replica = state.replicas.get(uid)
            if replica and replica.was_started:
                await self._context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.BOUND, Bound(entries={uid: replica.entry}))
                continue
            state.replicas.pop(uid, None)
            await self._context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.REVOKED, Revoked(uid=uid))

    async def delete_orphans(self) -> None:
        """Delete replicas of this deployment that no placement is for."""
        state = self._context.state
        known = {replica.name for replica in state.replicas.values()}
        orphans, state.orphans = [name for name in state.orphans if name not in known], []
        await self._send(
            [self._request(name, ModelReplicaSignals.DELETE, self.deletion()) for name in dict.fromkeys(orphans)],
            "delete replicas without a placement",
        )

    async def delete_preempted(self) -> None:
        """Delete replicas that the scheduler preempts."""
        state = self._context.state
        evictions, state.evictions = state.evictions, []
        preempted: list[TrackedReplica] = []
        for eviction in evictions:
            replica = state.replicas.get(eviction.uid)
            if replica:
                self.mark_deleted(replica, eviction.reason)
                preempted.append(replica)
        await self.delete([replica for replica in preempted if replica.started])

    async def resync(self) -> None:
        """Have all replicas repeat their reports, if that was requested."""
        if self._resync_due:
            self._resync_due = False
            await self.signal(self._context.state.started(), ModelReplicaSignals.RESYNC, None)

    def restart_lost(self) -> None:
        """Mark replicas to be started again whose workflows were terminated: only a workflow can delete what it applied."""
        state = self._context.state
        lost, self._lost = [uid for uid in self._lost if uid in state.replicas], []
        for uid in lost:
            replica = state.replicas[uid]
            self._context.record_event("Warning", "ReplicaLost", f"the workflow of {replica.name} does not run; it is started again")
            state.update(replica, started=False)

    async def start(self) -> None:
        """Start what can be started, and report to the scheduler what was."""
        state = self._context.state
        ready = startable(state.replicas, state.by_name())
        if ready:
            await self._start(ready)
            await self.delete([replica for replica in ready if replica.deletion_reason])
        unbound = [replica for replica in state.started() if not replica.bound]
        if unbound:
            bound = Bound(entries={replica.uid: replica.entry for replica in unbound})
            await self._context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.BOUND, bound)
            for replica in unbound:
                if replica.uid in state.replicas:
                    state.update(replica, bound=True)

    async def _start(self, ready: Sequence[TrackedReplica]) -> None:
        state, context = self._context.state, self._context
        flags = read_flags(state).flags
        starts = StartReplicas(replicas=[start_message(state, context.namespace, context.name, replica, flags) for replica in ready])
        summary = f"start {len(ready)} replicas of {context.name}"
        started = await call_entities(EntityClient.start_replicas, starts, summary, local=len(ready) <= LOCAL_CALLS_MAX)
        for replica in ready:
            if replica.name in started.conflicts:
                context.record_event("Warning", "NameConflict", f"{replica.name} still runs with another uid; started when that is gone")
                context.requeue_after(NAME_CONFLICT_RETRY)
            else:
                state.update(replica, started=True)

    async def update_templates(self, uids: Sequence[str]) -> None:
        """Give the present template to some of the replicas."""
        state = self._context.state
        replicas = [replica for replica in state.started() if replica.uid in uids]
        flags = read_flags(state).flags
        await self._send(
            [
                self._request(replica.name, ModelReplicaSignals.SET_TEMPLATE, template_message(state, replica, flags))
                for replica in replicas
            ],
            f"new template for {len(replicas)} replicas",
        )

    async def update_labels(self) -> None:
        """Give replicas the labels that users want on them, and the flags of their pickers; neither is part of the template."""
        state = self._context.state
        wanted, text = template_labels(state), flags_text(state)
        if (wanted, text) == (state.sent_labels, state.sent_flags):
            return
        flags, problem = read_flags(state)
        if problem and text != state.sent_flags:
            self._context.record_event("Warning", "InvalidAnnotation", problem)
        state.sent_labels, state.sent_flags = wanted, text
        await self.signal(state.started(), ModelReplicaSignals.SET_LABELS, labels_message(state, flags))

    # --- deleting -----------------------------------------------------------------------------------------------------------------

    def mark_deleted(self, replica: TrackedReplica, reason: str) -> None:
        """Mark a replica as being deleted; one that was never started is dropped at once."""
        state, context = self._context.state, self._context
        if not replica.was_started:
            context.record_event("Normal", "PlacementDropped", f"{replica.name} is not started on {replica.cluster}: {reason}")
            del state.replicas[replica.uid]
            return
        if not replica.deletion_reason:
            context.record_event("Normal", "ReplicaDeleting", f"{replica.name} is being deleted from {replica.cluster}: {reason}")
        state.update(replica, deletion_reason=reason)

    async def delete(self, replicas: Sequence[TrackedReplica]) -> None:
        """Begin the teardown of replicas."""
        await self.signal(replicas, ModelReplicaSignals.DELETE, self.deletion())

    def deletion(self) -> Delete:
        """Give the message that begins the teardown of a replica."""
        return Delete(by=f"{self._context.kind} {self._context.name}")

    # --- sending ------------------------------------------------------------------------------------------------------------------

    async def signal(self, replicas: Sequence[TrackedReplica], signal: Signal[ModelReplicaSignals, MessageT], message: MessageT) -> None:
        """Send the same signal to several replicas."""
        requests = [self._request(replica.name, signal, message) for replica in replicas]
        await self._send(requests, f"{signal.name} to {len(replicas)} replicas")

    def _request(self, name: str, signal: Signal[ModelReplicaSignals, MessageT], message: MessageT) -> SignalRequest:
        return signal.request(entity(ModelReplicaSignals, self._context.namespace, name), message)

    async def _send(self, requests: list[SignalRequest], summary: str) -> None:
        """Send signals to replicas, and record those that do not run."""
        if not requests:
            return
        sent = await send_all(requests, summary, local=len(requests) <= LOCAL_CALLS_MAX)
        missing = [workflow_id.rsplit("/", 1)[-1] for workflow_id in sent]
        self._lost += [replica.uid for replica in self._context.state.started() if replica.name in missing]
        if self._lost:
            # Its last report may still be on the way. A replica that sends none was terminated, and what it applied is still there.
            self._context.requeue_after(LAST_REPORT_TIMEOUT)
