"""The ModelReplicas of a deployment: what they report, and what is ordered so that they become as the state has them.

No call is made here: each step changes the state and gives orders, and takes the results of orders.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from api_types import names
from api_types.messages.delivery import MessageT, Signal, SignalRequest, entity
from api_types.messages.entities import Delete, ReplicaChanged, StartedReplicas
from api_types.messages.scheduling import Bound, Released, ReplicaAccount, Revoked
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals, ModelReplicaSignals
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
from workflows.model_deployment.orders import Order, ReadAccounts, Send, Start
from workflows.model_deployment.state import DeploymentState, TrackedReplica

# A replica that ends reports that first, and the report takes no longer than this to arrive.
LAST_REPORT_TIMEOUT = timedelta(seconds=2)

# A replica of that name may still be being deleted; it reports when it is gone, this is the fallback.
NAME_CONFLICT_RETRY = timedelta(seconds=4)

# Why a replica is deleted whose name was given to another one while it did not run.
TERMINATED = "it was terminated"


class ReplicaController:
    """Decides which ModelReplicas are started, updated, deleted, and started again after they were terminated."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self.namespace = context.namespace

    # --- what arrived -------------------------------------------------------------------------------------------------------------

    def record_report(self, report: ReplicaChanged) -> None:
        """Store what a replica reports of itself; the highest sequence of a uid wins."""
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
        """Have another replica of the name started at once."""
        state = self._context.state
        for replica in [replica for replica in state.replicas.values() if replica.name == name]:
            state.update(replica, start_after="")

    def _update(self, replica: TrackedReplica, report: ReplicaChanged) -> None:
        state = self._context.state
        state.replicas[replica.uid] = replica.reported(report)
        if report.generation > replica.generation:
            # It runs what an earlier deployment of this name ordered: templates to come have to be newer than that.
            state.update(replica, generation=report.generation)
            state.generation = max(state.generation, report.generation)

    def _remove(self, replica: TrackedReplica, report: ReplicaChanged) -> None:
        """Forget a replica that is gone; what a forced teardown left behind is listed on the deployment, which stays."""
        state, context = self._context.state, self._context
        del state.replicas[replica.uid]
        state.lost.pop(replica.uid, None)
        if replica.deletion_reason:
            context.record_event("Normal", "ReplicaDeleted", f"{replica.name} was deleted from {replica.cluster}")
        else:
            context.record_event("Warning", "ReplicaGone", f"{report.name} on {replica.cluster} is gone; a new placement is requested")
        if report.left_behind:
            state.add_left_behind(report.left_behind)
            count = len(report.left_behind)
            context.record_event(
                "Warning", "LeftBehind", f"{replica.name} left {count} objects on {replica.cluster}; see status.leftBehind"
            )

    def record_released(self, uid: str) -> None:
        """Store that a replica is gone, which may be one of another deployment: what waited for its nodes is started."""
        state = self._context.state
        state.record_gone(uid)
        replica = state.replicas.get(uid)
        if replica is not None and not (replica.started or replica.starting):
            # A late eviction has named it, or it ended before its workflow could be started again.
            del state.replicas[uid]
            self._context.mark_changed()
        self._context.requeue()

    def record_revoked(self, uid: str) -> None:
        """Store that the scheduler asks about a reservation."""
        if uid not in self._context.state.revoked:
            self._context.state.revoked.append(uid)
        self._context.requeue()

    def record_unknown(self, replicas: Sequence[str]) -> None:
        """Store names of replicas that belong to this deployment and are not tracked."""
        state = self._context.state
        state.unknown += [name for name in replicas if name not in state.unknown]
        self._context.requeue()

    def record_ended(self, workflow_ids: Sequence[str]) -> None:
        """Store that replicas of an earlier deployment were terminated."""
        state = self._context.state
        names_of = [workflow_id.rsplit("/", 1)[-1] for workflow_id in workflow_ids]
        state.ended += [name for name in names_of if name not in state.ended]

    def read_ended(self) -> None:
        """Have the replicas read that were terminated before this deployment was there: those that are not gone are tracked then."""
        ended, self._context.state.ended = self._context.state.ended, []
        if ended:
            self.record_unknown(ended)

    def request_resync(self) -> None:
        """Have all replicas repeat their reports with the next pass."""
        self._context.state.resync_due = True

    # --- placements that are not used ---------------------------------------------------------------------------------------------

    def give_back(self, uid: str) -> None:
        """Never start a placement: the scheduler learns of it, and a new request takes its place."""
        state = self._context.state
        state.replicas.pop(uid, None)
        if uid not in state.returned:
            state.returned.append(uid)
        self.record_revoked(uid)
        state.requested_inputs = None

    def answer_revoked(self) -> list[Order]:
        """Give reservations back that were never used; confirm those that are."""
        state = self._context.state
        asked, state.revoked = state.revoked, []
        used = {uid: state.replicas[uid].entry for uid in asked if uid in state.replicas and state.replicas[uid].was_started}
        for uid in asked:
            if uid not in used and (uid in state.replicas or uid not in state.returned):
                self.give_back(uid)
        state.revoked = []
        confirmed = [FleetSchedulerSignals.BOUND.request(FLEET_SCHEDULER, Bound(entries=used))] if used else []
        unused = [
            FleetSchedulerSignals.REVOKED.request(FLEET_SCHEDULER, Revoked(uid=uid, deployment_uid=state.uid))
            for uid in asked
            if uid not in used
        ]
        return send([*confirmed, *unused], f"answer for {len(asked)} reservations", recorded=bool(unused))

    # --- replicas that are not tracked --------------------------------------------------------------------------------------------

    def read_unknown(self) -> list[Order]:
        """Query replicas that report to this deployment and are not tracked."""
        state = self._context.state
        wanted, state.unknown = state.unknown, []
        return [ReadAccounts(wanted)] if wanted else []

    def accounts_read(self, order: ReadAccounts, answers: Mapping[str, Any], unresponsive: Collection[str]) -> list[Order]:
        """Adopt the replicas that answered; those that did not are queried again."""
        state = self._context.state
        if order.unfinished:
            self._finish(answers)
            return []
        orders = self.adopt(answers)
        silent = [name for name in order.names if self._workflow_id(name) in unresponsive]
        if silent:
            state.unknown += silent
            self._context.requeue_after(backoff.after_retries(state.unknown_attempts))
            state.unknown_attempts += 1
        else:
            state.unknown_attempts = 0
        return orders

    def adopt(self, accounts: Mapping[str, Any]) -> list[Order]:
        """Track replicas that run. Whether they stay is the scheduler's decision; a placement that was given back is deleted."""
        state, context = self._context.state, self._context
        deleted: list[SignalRequest] = []
        for found in self._untracked(accounts):
            if found.gone:
                continue
            if found.uid in state.returned:
                deleted.append(self._deletion(found.name, found.uid))
                continue
            state.generation = max(state.generation, found.generation)
            # It takes no labels that are older than those of an earlier deployment of this name, whatever the clock has done since.
            state.registration = max(state.registration, found.template_sequence)
            reason = "Terminating" if found.deleting else ""
            state.replicas[found.uid] = TrackedReplica.of(
                found, generation=found.generation, started=True, bound=True, deletion_reason=reason
            )
            context.record_event("Normal", "Adopted", f"{found.name} on {found.cluster}")
            # What it has reported was dropped, and it reports a change, or to a deployment that was started since.
            self.request_resync()
            context.requeue()
        return send(deleted, f"delete {len(deleted)} replicas without a placement")

    def _untracked(self, accounts: Mapping[str, Any]) -> Iterator[ReplicaAccount]:
        """Read the accounts of replicas of this deployment that are not tracked."""
        state, context = self._context.state, self._context
        for account in accounts.values():
            try:
                found = ReplicaAccount.model_validate(account)
            except ValidationError as error:
                context.record_event("Warning", "UnreadableAccount", f"a replica is not adopted: {error.error_count()} problems")
                continue
            if (found.namespace, found.deployment) == (context.namespace, context.name) and found.uid not in state.replicas:
                yield found

    def _finish(self, accounts: Mapping[str, Any]) -> None:
        """Start replicas again that were terminated, to be deleted: until they are complete, their names are not free."""
        state, context = self._context.state, self._context
        for found in self._untracked(accounts):
            state.replicas[found.uid] = TrackedReplica.of(found, generation=state.generation, restarted=True, deletion_reason=TERMINATED)
            context.record_event("Warning", "ReplicaLost", f"{found.name} was terminated; it is started again to be deleted")
            context.requeue()

    # --- replicas whose workflows do not run --------------------------------------------------------------------------------------

    def sent(self, missing: Collection[str]) -> None:
        """Record which replicas do not run, of those that were signalled."""
        state = self._context.state
        # A last report may still be on the way. A replica that sends none was terminated, and what it applied is still there.
        due = self._context.moment() + LAST_REPORT_TIMEOUT
        for replica in state.started():
            if self._workflow_id(replica.name) in missing and replica.uid not in state.lost:
                state.lost[replica.uid] = due.isoformat()
        if state.lost:
            self._context.requeue_after(LAST_REPORT_TIMEOUT)

    def restart_lost(self) -> None:
        """Mark replicas to be started again whose workflows were terminated: only a workflow can delete what it applied."""
        state = self._context.state
        for uid, due in list(state.lost.items()):
            if self._context.is_future(due):
                # Each pass begins without a time for the next one.
                self._context.requeue_at(datetime.fromisoformat(due))
                continue
            del state.lost[uid]
            replica = state.replicas.get(uid)
            if replica is not None and replica.started:
                self._context.record_event("Warning", "ReplicaLost", f"the workflow of {replica.name} does not run; it is started again")
                # It may have reported that it is gone to the scheduler alone: that has to confirm it anew.
                # What its terminated run has reported may still arrive, and is old.
                sequence = self._context.next_number(replica.sequence)
                state.update(replica, started=False, bound=False, restarted=True, sequence=sequence)

    def check_leaving(self) -> list[Order]:
        """Check that replicas that are being deleted still run, ever more rarely: one that was terminated would never report."""
        state, context = self._context.state, self._context
        leaving = [replica for replica in state.started() if replica.deletion_reason]
        uids = [replica.uid for replica in leaving]
        if uids != state.leaving:
            state.leaving, state.leaving_checks = uids, 0
            state.leaving_check_at = (context.moment() + backoff.check_of_deletion(0)).isoformat() if uids else ""
        if not uids:
            return []
        if context.is_future(state.leaving_check_at):
            context.requeue_at(datetime.fromisoformat(state.leaving_check_at))
            return []
        state.leaving_checks += 1
        state.leaving_check_at = (context.moment() + backoff.check_of_deletion(state.leaving_checks)).isoformat()
        context.requeue_at(datetime.fromisoformat(state.leaving_check_at))
        return self.delete(leaving)

    # --- starting -----------------------------------------------------------------------------------------------------------------

    def start(self) -> list[Order]:
        """Start what can be started, and confirm to the scheduler what was."""
        state, context = self._context.state, self._context
        ready = startable(state.by_name(), context.moment())
        for replica in state.replicas.values():
            if replica.must_wait(context.moment()):
                context.requeue_at(datetime.fromisoformat(replica.start_after))
        flags = read_flags(state).flags
        number = context.next_registration() if ready else 0
        messages = [start_message(state, context.namespace, context.name, replica, flags, sequence=number) for replica in ready]
        for replica in ready:
            state.update(replica, starting=True)
        starts = [Start(batch) for batch in split_by_size(messages, name=lambda message: f"the start of replica {message.name}")]
        return [*starts, *self.confirm_bound()]

    def started(self, order: Start, result: StartedReplicas) -> list[Order]:
        """Record which replicas run now. One that was deleted while it was started is deleted now, and one that is not tracked too."""
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
                # A scheduler that was started since does not know that.
                gone.append(FleetSchedulerSignals.RELEASED.request(FLEET_SCHEDULER, Released(uid=message.uid, name=message.name)))
            elif message.name in result.conflicts:
                if replica is not None:
                    held = f"{replica.name} is held by another uid; started when that is gone"
                    self._start_later(replica, NAME_CONFLICT_RETRY, "NameConflict", held)
            elif message.name in result.refused:
                if replica is not None:
                    refused = f"{replica.name} cannot be started, which is tried again: {result.refused[message.name]}"
                    self._start_later(replica, backoff.permanent(0), "StartRefused", refused)
            else:
                if replica is not None:
                    state.update(replica, starting=False, started=True, start_after="")
                if replica is None or replica.deletion_reason:
                    deleted.append(self._deletion(message.name, message.uid))
                elif replica.restarted:
                    # It may run all the time, with the template of an earlier deployment of this name.
                    taken_over.append(message.uid)
        return [
            *([ReadAccounts(result.unfinished, unfinished=True)] if result.unfinished else []),
            *send(gone, f"report that {len(gone)} replicas are gone"),
            *self.confirm_bound(),
            *self.update_templates(taken_over),
            *send(deleted, f"delete {len(deleted)} replicas that were started"),
        ]

    def _start_later(self, replica: TrackedReplica, pause: timedelta, reason: str, message: str) -> None:
        """Start a replica later whose name is held by another uid, or which the server refuses."""
        state, context = self._context.state, self._context
        if not replica.start_after:
            context.record_event("Warning", reason, message)
        due = context.moment() + pause
        context.requeue_at(due)
        state.update(replica, starting=False, start_after=due.isoformat())
        if replica.deletion_reason and not state.replicas[replica.uid].was_started:
            self.give_back(replica.uid)

    def confirm_bound(self) -> list[Order]:
        """Report to the scheduler which replicas were started."""
        state = self._context.state
        unbound = [replica for replica in state.started() if not replica.bound]
        for replica in unbound:
            state.update(replica, bound=True)
        bound = Bound(entries={replica.uid: replica.entry for replica in unbound})
        return send([FleetSchedulerSignals.BOUND.request(FLEET_SCHEDULER, bound)], "report started replicas") if unbound else []

    # --- changing -----------------------------------------------------------------------------------------------------------------

    def resync(self) -> list[Order]:
        """Have all replicas repeat their reports, and give those the present template again that are behind, if that was requested."""
        state = self._context.state
        due, state.resync_due = state.resync_due, False
        if not due:
            return []
        staying = [replica for replica in state.started() if not replica.deletion_reason]
        behind = [
            replica.uid for replica in staying if replica.applied_generation < replica.generation or replica.adopted < replica.adoption
        ]
        return [*self.signal(state.started(), ModelReplicaSignals.RESYNC, None), *self.update_templates(behind)]

    def update_templates(self, uids: Collection[str]) -> list[Order]:
        """Give the present template to some of the replicas."""
        state = self._context.state
        replicas = [replica for replica in state.started() if replica.uid in uids]
        flags, number = read_flags(state).flags, self._context.next_registration() if replicas else 0
        requests = [
            self._request(replica.name, ModelReplicaSignals.SET_TEMPLATE, template_message(state, replica, flags, number))
            for replica in replicas
        ]
        # A later generation may have the template of the one before: the scheduler has to know that these have another one.
        return send(requests, f"new template for {len(replicas)} replicas", recorded=True)

    def update_labels(self) -> list[Order]:
        """Give replicas the labels that users want on them, and the flags of their pickers; neither is part of the template."""
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
            self._request(replica.name, ModelReplicaSignals.SET_LABELS, labels_message(state, replica, flags, number))
            for replica in state.started()
        ]
        return send(requests, f"labels for {len(requests)} replicas", recorded=True)

    # --- deleting -----------------------------------------------------------------------------------------------------------------

    def mark_deleted(self, replica: TrackedReplica, reason: str) -> None:
        """Mark a replica as being deleted; one that was never started is given back at once."""
        state, context = self._context.state, self._context
        if not replica.was_started:
            context.record_event("Normal", "PlacementDropped", f"{replica.name} is not started on {replica.cluster}: {reason}")
            self.give_back(replica.uid)
            return
        if not replica.deletion_reason:
            context.record_event("Normal", "ReplicaDeleting", f"{replica.name} is being deleted from {replica.cluster}: {reason}")
        state.update(replica, deletion_reason=reason)

    def delete(self, replicas: Sequence[TrackedReplica], *, recorded: bool = False) -> list[Order]:
        """Begin the teardown of replicas; `recorded`: not before the decision is in the history."""
        deletions = [self._deletion(replica.name, replica.uid) for replica in replicas]
        return send(deletions, f"delete {len(replicas)} replicas", recorded=recorded)

    # --- sending ------------------------------------------------------------------------------------------------------------------

    def signal(
        self,
        replicas: Sequence[TrackedReplica],
        signal: Signal[ModelReplicaSignals, MessageT],
        message: MessageT,
        *,
        recorded: bool = False,
    ) -> list[Order]:
        """Send the same signal to several replicas."""
        requests = [self._request(replica.name, signal, message) for replica in replicas]
        return send(requests, f"{signal.name} to {len(replicas)} replicas", recorded=recorded)

    def _deletion(self, name: str, uid: str) -> SignalRequest:
        return self._request(name, ModelReplicaSignals.DELETE, Delete(by=f"{self._context.kind} {self._context.name}", uid=uid))

    def _request(self, name: str, signal: Signal[ModelReplicaSignals, MessageT], message: MessageT) -> SignalRequest:
        return signal.request(entity(ModelReplicaSignals, self._context.namespace, name), message)

    def _workflow_id(self, name: str) -> str:
        return names.workflow_id("ModelReplica", self._context.namespace, name)


def send(signals: list[SignalRequest], summary: str, *, recorded: bool = False) -> list[Order]:
    """Order that signals are sent; without any signal there is no order."""
    return [Send(signals, summary, recorded)] if signals else []
