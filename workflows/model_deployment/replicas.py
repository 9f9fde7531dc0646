"""The ModelReplicas of a deployment: their reports, and orders to them.

Nothing here calls: each step changes the state, returns orders, and accepts the results
of orders.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from api_types import names
from api_types.messages.delivery import MessageT, Signal, SignalRequest, entity
from api_types.messages.entities import Delete, ReplicaChanged, StartedReplicas
from api_types.messages.scheduling import Bound, Released, ReplicaAccount, Revoked
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    FleetSchedulerSignals,
    ModelReplicaSignals,
)
from api_types.payloads.limits import split_by_size
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.model_deployment.decisions.plan import startable
from workflows.model_deployment.decisions.template import (
    flags_text,
    labels_message,
    read_flags,
    start_message,
    template_labels,
    template_message,
)
from workflows.model_deployment.orders import (
    Order,
    ReadReplicaAccounts,
    SendDeploymentSignals,
    StartReplicaWorkflows,
)
from workflows.model_deployment.state import DeploymentState, TrackedReplica

# A replica reports when it ends, and the report arrives within this time.
LAST_REPORT_TIMEOUT = timedelta(seconds=2)

# A replica of this name may still be in deletion. It reports when it is gone; this is
# the fallback.
NAME_CONFLICT_RETRY = timedelta(seconds=4)

# The reason for the deletion of a replica whose name was reused while it did not run.
TERMINATED = "it was terminated"


class DeploymentReplicaController:
    """Decides on starts, updates, deletions and restarts of ModelReplicas."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self.namespace = context.namespace

    # Messages

    def record_report(self, report: ReplicaChanged) -> None:
        """Store the report of a replica; the highest sequence of a uid wins."""
        replica = self._context.state.replicas.get(report.uid)
        if replica is not None and report.sequence > replica.sequence:
            if report.phase == "Gone":
                self._remove(replica, report)
            else:
                self._update(replica, report)
            self._context.mark_changed()
        elif replica is None and report.phase not in ("Gone", "Terminating"):
            self.record_unknown([report.name])
        if report.phase == "Gone":
            self._free_name(report.name)
            self.record_released(report.uid)

    def _free_name(self, name: str) -> None:
        """Start another replica of this name at once."""
        state = self._context.state
        for replica in [
            replica for replica in state.replicas.values() if replica.name == name
        ]:
            state.update(replica, start_after="")

    def _update(self, replica: TrackedReplica, report: ReplicaChanged) -> None:
        state = self._context.state
        state.replicas[replica.uid] = replica.reported(report)
        if report.generation > replica.generation:
            # The replica runs a template of an earlier deployment of this name. Later
            # templates need a higher sequence.
            state.update(replica, generation=report.generation)
            state.generation = max(state.generation, report.generation)
        elif report.generation < replica.applied_generation:
            # The last report came late, from an earlier run of the replica. This run
            # does not have the template of that run.
            self.request_resync()

    def _remove(self, replica: TrackedReplica, report: ReplicaChanged) -> None:
        """Forget a replica that is gone.

        The deployment lists the objects that a forced teardown left.
        """
        state, context = self._context.state, self._context
        del state.replicas[replica.uid]
        state.lost.pop(replica.uid, None)
        if replica.deletion_reason:
            context.record_event(
                "Normal",
                "ReplicaDeleted",
                f"{replica.name} was deleted from {replica.cluster}",
            )
        else:
            context.record_event(
                "Warning",
                "ReplicaGone",
                f"{report.name} on {replica.cluster} is gone; a new placement is requested",
            )
        if report.left_behind:
            state.add_left_behind(report.left_behind)
            count = len(report.left_behind)
            context.record_event(
                "Warning",
                "LeftBehind",
                f"{replica.name} left {count} objects on {replica.cluster}; see status.leftBehind",
            )

    def record_released(self, uid: str) -> None:
        """Record the end of a replica, perhaps of another deployment, and start its successors."""
        state = self._context.state
        state.record_gone(uid)
        replica = state.replicas.get(uid)
        if replica is not None and not (replica.started or replica.starting):
            # A late eviction named this replica, or it ended before its workflow was
            # restarted.
            del state.replicas[uid]
            self._context.mark_changed()
        self._context.requeue()

    def record_revoked(self, uid: str) -> None:
        """Record the scheduler's question about a reservation."""
        if uid not in self._context.state.revoked:
            self._context.state.revoked.append(uid)
        self._context.requeue()

    def record_unknown(self, replicas: Sequence[str]) -> None:
        """Record the names of replicas of this deployment that it does not track."""
        state = self._context.state
        state.unknown += [name for name in replicas if name not in state.unknown]
        self._context.requeue()

    def record_ended(self, workflow_ids: Sequence[str]) -> None:
        """Record terminated replicas of an earlier deployment."""
        state = self._context.state
        names_of = [workflow_id.rsplit("/", 1)[-1] for workflow_id in workflow_ids]
        state.ended += [name for name in names_of if name not in state.ended]

    def read_ended(self) -> None:
        """Read the accounts of replicas that were terminated before this deployment existed.

        Replicas that are not gone are tracked then.
        """
        ended, self._context.state.ended = self._context.state.ended, []
        if ended:
            self.record_unknown(ended)

    def request_resync(self) -> None:
        """Request the reports of all replicas with the next pass."""
        self._context.state.resync_due = True

    # Unused placements

    def give_back(self, uid: str) -> None:
        """Never start this placement.

        The scheduler is informed, and a new request replaces the placement.
        """
        state = self._context.state
        state.replicas.pop(uid, None)
        if uid not in state.returned:
            state.returned.append(uid)
        self.record_revoked(uid)
        state.requested_inputs = None

    def answer_revoked(self) -> list[Order]:
        """Return reservations that were never used; confirm the used ones."""
        state = self._context.state
        asked, state.revoked = state.revoked, []
        used = {
            uid: state.replicas[uid].entry
            for uid in asked
            if uid in state.replicas and state.replicas[uid].was_started
        }
        for uid in asked:
            if uid not in used and (uid in state.replicas or uid not in state.returned):
                self.give_back(uid)
        state.revoked = []
        confirmed = (
            [FleetSchedulerSignals.BOUND.request(FLEET_SCHEDULER, Bound(entries=used))]
            if used
            else []
        )
        unused = [
            FleetSchedulerSignals.REVOKED.request(
                FLEET_SCHEDULER, Revoked(uid=uid, deployment_uid=state.uid)
            )
            for uid in asked
            if uid not in used
        ]
        return send(
            [*confirmed, *unused],
            f"answer for {len(asked)} reservations",
            recorded=bool(unused),
        )

    # Untracked replicas

    def read_unknown(self) -> list[Order]:
        """Query untracked replicas that report to this deployment."""
        state = self._context.state
        wanted, state.unknown = state.unknown, []
        return [ReadReplicaAccounts(wanted)] if wanted else []

    def accounts_read(
        self,
        order: ReadReplicaAccounts,
        answers: Mapping[str, Any],
        unresponsive: Collection[str],
    ) -> list[Order]:
        """Adopt the replicas that answered, and query the others again."""
        state = self._context.state
        if order.unfinished:
            self._finish(answers)
            return []
        orders = self.adopt(answers)
        silent = [
            name for name in order.names if self._workflow_id(name) in unresponsive
        ]
        if silent:
            state.unknown += silent
            self._context.requeue_after(backoff.after_retries(state.unknown_attempts))
            state.unknown_attempts += 1
        else:
            state.unknown_attempts = 0
        return orders

    def adopt(self, accounts: Mapping[str, Any]) -> list[Order]:
        """Track running replicas.

        The scheduler decides whether they stay. A replica whose placement was returned
        is deleted.
        """
        state, context = self._context.state, self._context
        deleted: list[SignalRequest] = []
        for found in self._untracked(accounts):
            if found.gone:
                continue
            if found.uid in state.returned:
                deleted.append(self._deletion(found.name, found.uid))
                continue
            state.generation = max(state.generation, found.generation)
            # The replica ignores labels older than its last ones, so number them above
            # those of an earlier deployment of this name, whatever the clock has done
            # since.
            state.registration = max(state.registration, found.template_sequence)
            reason = "Terminating" if found.deleting else ""
            state.replicas[found.uid] = TrackedReplica.of(
                found,
                generation=found.generation,
                started=True,
                bound=True,
                deletion_reason=reason,
            )
            context.record_event(
                "Normal", "Adopted", f"{found.name} on {found.cluster}"
            )
            # Its earlier reports were dropped, and it repeats none without a change or
            # a restarted deployment.
            self.request_resync()
            context.requeue()
        return send(deleted, f"delete {len(deleted)} replicas without a placement")

    def _untracked(self, accounts: Mapping[str, Any]) -> Iterator[ReplicaAccount]:
        """Read the accounts of untracked replicas of this deployment."""
        state, context = self._context.state, self._context
        for account in accounts.values():
            try:
                found = ReplicaAccount.model_validate(account)
            except ValidationError as error:
                context.record_event(
                    "Warning",
                    "UnreadableAccount",
                    f"a replica is not adopted: {error.error_count()} problems",
                )
                continue
            if (found.namespace, found.deployment) == (
                context.namespace,
                context.name,
            ) and found.uid not in state.replicas:
                yield found

    def _finish(self, accounts: Mapping[str, Any]) -> None:
        """Restart terminated replicas so that they are deleted.

        Their names are not free until then.
        """
        state, context = self._context.state, self._context
        for found in self._untracked(accounts):
            state.replicas[found.uid] = TrackedReplica.of(
                found,
                generation=state.generation,
                restarted=True,
                deletion_reason=TERMINATED,
            )
            context.record_event(
                "Warning",
                "ReplicaLost",
                f"{found.name} was terminated; it is started again to be deleted",
            )
            context.requeue()

    # Replicas whose workflows do not run

    def sent(self, missing: Collection[str]) -> None:
        """Record the signalled replicas that do not run."""
        state = self._context.state
        # A last report may still be on its way. A replica that sends none was
        # terminated, and its objects remain.
        due = self._context.moment() + LAST_REPORT_TIMEOUT
        for replica in state.started():
            if (
                self._workflow_id(replica.name) in missing
                and replica.uid not in state.lost
            ):
                state.lost[replica.uid] = due.isoformat()
        if state.lost:
            self._context.requeue_after(LAST_REPORT_TIMEOUT)

    def restart_lost(self) -> None:
        """Mark terminated replicas for a restart: only a workflow can delete its objects."""
        state = self._context.state
        for uid, due in list(state.lost.items()):
            if self._context.waits_until(due):
                continue
            del state.lost[uid]
            replica = state.replicas.get(uid)
            if replica is not None and replica.started:
                self._context.record_event(
                    "Warning",
                    "ReplicaLost",
                    f"the workflow of {replica.name} does not run; it is started again",
                )
                # The replica may have reported its end to the scheduler alone, which
                # has to confirm it again. Reports of the terminated run may still
                # arrive, and are outdated.
                sequence = self._context.next_number(replica.sequence)
                state.update(
                    replica,
                    started=False,
                    bound=False,
                    restarted=True,
                    sequence=sequence,
                )

    def check_leaving(self) -> list[Order]:
        """Check that replicas in deletion still run, with growing pauses.

        A terminated replica would never report its end.
        """
        state, context = self._context.state, self._context
        leaving = [replica for replica in state.started() if replica.deletion_reason]
        uids = [replica.uid for replica in leaving]
        if uids != state.leaving:
            state.leaving, state.leaving_checks = uids, 0
            state.leaving_check_at = (
                (context.moment() + backoff.check_of_deletion(0)).isoformat()
                if uids
                else ""
            )
        if not uids:
            return []
        if context.waits_until(state.leaving_check_at):
            return []
        state.leaving_checks += 1
        state.leaving_check_at = (
            context.moment() + backoff.check_of_deletion(state.leaving_checks)
        ).isoformat()
        context.requeue_at(datetime.fromisoformat(state.leaving_check_at))
        return self.delete(leaving)

    # Starts

    def start(self) -> list[Order]:
        """Start replicas that are due, and confirm started ones to the scheduler."""
        state, context = self._context.state, self._context
        ready = startable(state.by_name(), context.moment())
        for replica in state.replicas.values():
            if replica.must_wait(context.moment()):
                context.requeue_at(datetime.fromisoformat(replica.start_after))
        flags = read_flags(state).flags
        number = context.next_registration() if ready else 0
        messages = [
            start_message(
                state, context.namespace, context.name, replica, flags, sequence=number
            )
            for replica in ready
        ]
        for replica in ready:
            state.update(replica, starting=True)
        starts = [
            StartReplicaWorkflows(batch)
            for batch in split_by_size(
                messages, name=lambda message: f"the start of replica {message.name}"
            )
        ]
        return [*starts, *self.confirm_bound()]

    def started(
        self, order: StartReplicaWorkflows, result: StartedReplicas
    ) -> list[Order]:
        """Record which replicas run now.

        A replica that was deleted or lost its tracking during its start is deleted now.
        """
        state = self._context.state
        deleted: list[SignalRequest] = []
        gone: list[SignalRequest] = []
        taken_over: list[str] = []
        for message in order.replicas:
            replica = state.replicas.get(message.uid)
            if message.name in result.completed:
                if replica is not None:
                    state.update(replica, starting=False)
                self.record_released(message.uid)
                # A scheduler that was restarted meanwhile does not know the start.
                gone.append(
                    FleetSchedulerSignals.RELEASED.request(
                        FLEET_SCHEDULER, Released(uid=message.uid, name=message.name)
                    )
                )
            elif message.name in result.conflicts:
                if replica is not None:
                    held = f"{replica.name} is held by another uid; started when that is gone"
                    self._start_later(
                        replica, NAME_CONFLICT_RETRY, "NameConflict", held
                    )
            elif message.name in result.refused:
                if replica is not None:
                    problem = result.refused[message.name]
                    refused = (
                        f"{replica.name} cannot be started and is retried: {problem}"
                    )
                    self._start_later(
                        replica, backoff.permanent(0), "StartRefused", refused
                    )
            else:
                if replica is not None:
                    state.update(replica, starting=False, started=True, start_after="")
                if replica is None or replica.deletion_reason:
                    deleted.append(self._deletion(message.name, message.uid))
                elif replica.restarted:
                    # The replica may have run all along, with a template of an earlier
                    # deployment of this name.
                    taken_over.append(message.uid)
        return [
            *(
                [ReadReplicaAccounts(result.unfinished, unfinished=True)]
                if result.unfinished
                else []
            ),
            *send(gone, f"report that {len(gone)} replicas are gone"),
            *self.confirm_bound(),
            *self.update_templates(taken_over),
            *send(deleted, f"delete {len(deleted)} replicas that were started"),
        ]

    def _start_later(
        self, replica: TrackedReplica, pause: timedelta, reason: str, message: str
    ) -> None:
        """Start a replica later, because its name is taken or the server refuses."""
        state, context = self._context.state, self._context
        if not replica.start_after:
            context.record_event("Warning", reason, message)
        due = context.moment() + pause
        context.requeue_at(due)
        state.update(replica, starting=False, start_after=due.isoformat())
        if replica.deletion_reason and not state.replicas[replica.uid].was_started:
            self.give_back(replica.uid)

    def confirm_bound(self) -> list[Order]:
        """Report started replicas to the scheduler."""
        state = self._context.state
        unbound = [replica for replica in state.started() if not replica.bound]
        for replica in unbound:
            state.update(replica, bound=True)
        bound = Bound(entries={replica.uid: replica.entry for replica in unbound})
        return (
            send(
                [FleetSchedulerSignals.BOUND.request(FLEET_SCHEDULER, bound)],
                "report started replicas",
            )
            if unbound
            else []
        )

    # Updates

    def resync(self) -> list[Order]:
        """Request reports of all replicas and repeat missed templates, if a resync is due."""
        state = self._context.state
        due, state.resync_due = state.resync_due, False
        if not due:
            return []
        staying = [
            replica for replica in state.started() if not replica.deletion_reason
        ]
        behind = [
            replica.uid
            for replica in staying
            if replica.applied_generation < replica.generation
            or replica.adopted < replica.adoption
        ]
        return [
            *self.signal(state.started(), ModelReplicaSignals.RESYNC, None),
            *self.update_templates(behind),
        ]

    def update_templates(self, uids: Collection[str]) -> list[Order]:
        """Send the present template to some replicas."""
        state = self._context.state
        replicas = [replica for replica in state.started() if replica.uid in uids]
        flags, number = (
            read_flags(state).flags,
            self._context.next_registration() if replicas else 0,
        )
        requests = [
            self._request(
                replica.name,
                ModelReplicaSignals.SET_TEMPLATE,
                template_message(state, replica, flags, number),
            )
            for replica in replicas
        ]
        # A later generation may return to the previous template, so the scheduler must
        # know that these replicas have another one.
        return send(
            requests, f"new template for {len(replicas)} replicas", recorded=True
        )

    def update_labels(self) -> list[Order]:
        """Send the users' labels and the flags of pickers, which are not part of the template."""
        state = self._context.state
        wanted, text = template_labels(state), flags_text(state)
        if (wanted, text) == (state.sent_labels, state.sent_flags):
            return []
        flags, problem = read_flags(state)
        if problem and text != state.sent_flags:
            self._context.record_event("Warning", "InvalidAnnotation", problem)
        state.sent_labels, state.sent_flags = wanted, text
        number = self._context.next_registration()
        requests = [
            self._request(
                replica.name,
                ModelReplicaSignals.SET_LABELS,
                labels_message(state, replica, flags, number),
            )
            for replica in state.started()
        ]
        return send(requests, f"labels for {len(requests)} replicas", recorded=True)

    # Deletions

    def mark_deleted(self, replica: TrackedReplica, reason: str) -> None:
        """Mark a replica for deletion; return the placement of one that was never started."""
        state, context = self._context.state, self._context
        if not replica.was_started:
            context.record_event(
                "Normal",
                "PlacementDropped",
                f"{replica.name} is not started on {replica.cluster}: {reason}",
            )
            self.give_back(replica.uid)
            return
        if not replica.deletion_reason:
            context.record_event(
                "Normal",
                "ReplicaDeleting",
                f"{replica.name} is being deleted from {replica.cluster}: {reason}",
            )
        state.update(replica, deletion_reason=reason)

    def delete(
        self, replicas: Sequence[TrackedReplica], *, recorded: bool = False
    ) -> list[Order]:
        """Start the teardown of replicas.

        With `recorded`, the history records the decision before the signal is sent.
        """
        deletions = [self._deletion(replica.name, replica.uid) for replica in replicas]
        return send(deletions, f"delete {len(replicas)} replicas", recorded=recorded)

    # Signals

    def signal(
        self,
        replicas: Sequence[TrackedReplica],
        signal: Signal[ModelReplicaSignals, MessageT],
        message: MessageT,
        *,
        recorded: bool = False,
    ) -> list[Order]:
        """Return orders for one signal to several replicas."""
        requests = [
            self._request(replica.name, signal, message) for replica in replicas
        ]
        return send(
            requests, f"{signal.name} to {len(replicas)} replicas", recorded=recorded
        )

    def _deletion(self, name: str, uid: str) -> SignalRequest:
        return self._request(
            name,
            ModelReplicaSignals.DELETE,
            Delete(by=f"{self._context.kind} {self._context.name}", uid=uid),
        )

    def _request(
        self,
        name: str,
        signal: Signal[ModelReplicaSignals, MessageT],
        message: MessageT,
    ) -> SignalRequest:
        return signal.request(
            entity(ModelReplicaSignals, self._context.namespace, name), message
        )

    def _workflow_id(self, name: str) -> str:
        return names.workflow_id("ModelReplica", self._context.namespace, name)


def send(
    signals: list[SignalRequest], summary: str, *, recorded: bool = False
) -> list[Order]:
    """Return the order to send signals; none without signals."""
    return [SendDeploymentSignals(signals, summary, recorded)] if signals else []
