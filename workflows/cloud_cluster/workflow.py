"""CloudCluster: owns the cloud objects of one InferenceCluster.

The first message of the InferenceCluster starts it. It ends when everything at the
cloud is deleted or abandoned. Its ID contains the uid of the InferenceCluster, so a new
InferenceCluster with the same name does not interfere with the deletion of the earlier
one.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

from temporalio import workflow

from activities.messaging.search_attributes import PHASE
from api_types import names
from api_types.base import Message
from api_types.digests import report_digest
from api_types.errors import InvalidInput
from api_types.messages.clouds import CloudDelete, CloudOrder
from api_types.messages.delivery import Delivery, entity
from api_types.messages.entities import CancelRequested, RetryNow
from api_types.messages.signals import CloudClusterSignals, InferenceClusterSignals
from workflows.cloud_cluster import readiness, shown
from workflows.cloud_cluster.account import idle_counts
from workflows.cloud_cluster.calls import Calls
from workflows.cloud_cluster.context import CloudContext
from workflows.cloud_cluster.converge import Converge
from workflows.cloud_cluster.entries import Inventory
from workflows.cloud_cluster.state import CloudState
from workflows.cloud_cluster.teardown import Teardown
from workflows.entity.calls.delivery import undelivered
from workflows.entity.calls.refusals import NEXT_CALL
from workflows.entity.calls.sending import send_all
from workflows.entity.conditions import CANCEL_REFUSED, MALFORMED, RECEIVER_REFUSES
from workflows.entity.handles import handles
from workflows.entity.memo import memo_to_carry
from workflows.entity.start import read_carried
from workflows.entity.timers.requeue_timer import RequeueTimer

# Reports are repeated. A new InferenceCluster of an earlier name learns in this way
# which objects the earlier one still has at its cloud.
_REPORT_AGAIN = timedelta(hours=6)


@workflow.defn(name="CloudCluster")
class CloudClusterWorkflow:
    """Workflow ID: cloud/<name>/<uid>, with the InferenceCluster's name and uid."""

    kind: ClassVar[str] = "CloudCluster"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        cluster, uid = names.cluster_of_cloud(workflow.info().workflow_id)
        if not cluster:
            raise InvalidInput(
                "id: must be cloud/<name>/<uid> for a CloudCluster, "
                f'got "{workflow.info().workflow_id}"'
            )
        self.state = read_carried(arguments, CloudState) or CloudState()
        self.context = CloudContext(cluster, uid, self.state)
        self.calls = Calls(self.context.requeue)
        self.entries = Inventory(self.context)
        self.converge = Converge(self.context, self.calls, self.entries)
        self.teardown = Teardown(self.context, self.calls, self.entries, self.converge)
        self.arrivals: Counter[str] = Counter()
        self._timer = RequeueTimer(
            f"{cluster}: next observation or attempt",
            self.context.requeue,
            self.context.steady_time,
        )
        self._published = ""

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        del arguments
        gone = False
        while not gone and not workflow.info().is_continue_as_new_suggested():
            await workflow.wait_condition(lambda: self.context.queued)
            self.context.queued, self.context.requeue_time = False, None
            gone = await self._pass()
            self._timer.update(self.context.requeue_time)
        self._timer.cancel()
        # The next run finds the objects that the cancelled activities created, and
        # continues.
        await self.calls.stop_all()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not gone:
            self.state.time = self.context.now().isoformat()
            workflow.continue_as_new(self.state, memo=memo_to_carry())

    async def _pass(self) -> bool:
        """Do one pass. Return True when everything is gone and that was reported."""
        deletion = self.state.deletion
        if deletion is not None and deletion.abandon:
            left = await self.teardown.given_up()
            if left is None:
                await self._report()
                return False
            self.context.record(
                "Warning",
                "Abandoned",
                f"left at the cloud: {', '.join(left) or 'nothing'}",
            )
            await self._report(gone=True, leftovers=left)
            return True
        if deletion is not None:
            gone = await self.teardown.update()
            await self._report(
                gone=gone, leftovers=self.teardown.stays() if gone else None
            )
            return gone
        self.converge.update()
        self.state.usable = self.state.usable or shown.is_usable(self.state)
        if readiness.is_ready(self.state) and not self.state.was_ready:
            self.state.was_ready = True
            self.context.record(
                "Normal", "Ready", readiness.ready_text(self.state, self.calls.keys)
            )
        await self._report()
        return False

    async def _report(
        self, *, gone: bool = False, leftovers: list[str] | None = None
    ) -> None:
        """Publish the phase, and report to the InferenceCluster if the report changed."""
        self._publish()
        report = shown.report_of(
            self.state, self.context.uid, self.calls.keys, leftovers or ()
        )
        if gone:
            report = report.model_copy(
                update={"phase": "Deleted", "usable": False, "ready": False}
            )
        digest = report_digest(shown.compared(report).wire())
        if (
            digest == self.state.reported
            and not report.events
            and not self.context.is_due(self.state.report_again_at)
        ):
            return
        self.state.reported, self.state.unreported = digest, 0
        self.state.report_again_at = self.context.later(_REPORT_AGAIN)
        self.context.requeue_at(self.context.now() + _REPORT_AGAIN)
        self.state.report_number = max(
            self.state.report_number + 1, int(workflow.time() * 1000)
        )
        numbered = report.model_copy(update={"sequence": self.state.report_number})
        receiver = entity(InferenceClusterSignals, "", self.context.cluster)
        missing = await send_all(
            [InferenceClusterSignals.CLOUD_REPORTED.request(receiver, numbered)],
            f"report {self.context.cluster}",
        )
        if missing and self.state.deletion is None:
            text = (
                f"InferenceCluster {self.context.cluster} is not running: its cloud "
                f"objects are kept until signal `delete` is sent to this workflow"
            )
            unreported = self.state.unreported
            self.context.record("Warning", "OwnerMissing", text)
            # Nobody receives this event. A message that arrived in the meantime may
            # have others for the next report.
            self.state.unreported = unreported

    def _publish(self) -> None:
        phase = shown.phase_of(self.state, self.calls.keys)
        if phase != self._published:
            workflow.upsert_search_attributes([PHASE.value_set(phase)])
            self._published = phase
        workflow.set_current_details(
            shown.details_of(self.context.cluster, self.state, self.calls.keys)
        )

    # Messages

    @handles(CloudClusterSignals.APPLY)
    def apply(self, message: CloudOrder) -> None:
        """Use a new manifest. Only the newest order counts."""
        if message.uid != self.context.uid:
            return
        if self.state.deletion is not None:
            self.context.record_refusal(
                "BeingDeleted", "rejected a new order: the cluster is being deleted"
            )
            return
        if self.state.order is None or message.sequence >= self.state.order.sequence:
            self._take(message)
            # The sender of a new order may not have received the last reports.
            self.state.reported, self.state.unreported = "", len(self.state.events)
            self.context.requeue()

    def _take(self, message: CloudOrder) -> None:
        pools = message.manifest.get("spec", {}).get("nodePools") or ()
        used = [pool.get("className", "") for pool in pools]
        # A class that was deleted still applies to pools that were created with it.
        known = {
            name: self.state.classes[name]
            for name in used
            if name in self.state.classes
        }
        self.state.classes = {**known, **message.classes}
        there = {
            entry.object.pool for entry in self.state.inventory.values() if entry.tried
        }
        before = self.state.order.manifest if self.state.order else {}
        for pool, text in idle_counts(before, message.manifest):
            if pool in there:
                self.context.record("Normal", "CountUnused", text)
        self.state.order = message
        self.converge.plan_again()

    @handles(CloudClusterSignals.DELETE)
    def delete(self, message: CloudDelete) -> None:
        if message.uid != self.context.uid:
            return
        if self.state.deletion is None:
            self.context.record("Normal", "Deleting", "the deletion was ordered")
        if message.order is not None and self.state.order is None:
            self._take(message.order)
        before = self.state.deletion
        if before is None or message.sequence >= before.sequence:
            order = message.order or (before.order if before else None)
            self.state.deletion = message.model_copy(update={"order": order})
        self.state.reported = ""
        self.context.requeue()

    @handles(CloudClusterSignals.RETRY_NOW)
    def retry_now(self, message: RetryNow) -> None:
        """Make everything due for its next attempt, even if it waits for a user."""
        self.context.record(
            "Normal",
            "Retried",
            f"{message.by or 'unknown'} requested an immediate retry",
        )
        self.entries.retry_all()
        self.state.audit_at, self.state.drift_at = "", ""
        self.converge.plan_again()

    @handles(CloudClusterSignals.CANCEL_REQUESTED)
    def cancel_requested(self, message: CancelRequested) -> None:
        """Reject the cancellation: it would leave the cloud objects without an owner."""
        reason = f" ({message.reason})" if message.reason else ""
        text = (
            f"ignored a request to cancel the workflow{reason}, which would delete "
            "nothing: delete the InferenceCluster instead"
        )
        self.context.record_refusal(CANCEL_REFUSED, text)

    @handles(CloudClusterSignals.DELIVERY)
    def delivery(self, message: Delivery) -> None:
        """Record that another workflow does not accept a signal of this one."""
        if message.problem:
            self.context.record_refusal(RECEIVER_REFUSES, undelivered(message))

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal whose argument is invalid."""
        self.context.record_refusal(
            MALFORMED, f"a {message.__name__} message was ignored: {problems}"
        )

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a call is rejected. It is made again."""
        self.context.record_refusal("CallRefused", f"{summary}: {problem}")

    def call_accepted(self, summary: str) -> None:
        """Do nothing: the event of a rejected call is kept."""

    async def before_next_call(self, delay: timedelta) -> None:
        await workflow.sleep(delay, summary=NEXT_CALL)

    # Queries

    @workflow.query
    def inventory(self) -> list[dict[str, Any]]:
        """Return a row for each object."""
        return shown.inventory_of(self.state, self.calls.keys)

    @workflow.query
    def progress(self) -> dict[str, Any]:
        """Return the phase, the problems, the running work and a row for each object."""
        return shown.progress_of(self.state, self.calls.keys)

    @workflow.query
    def plan(self) -> dict[str, Any]:
        """Return the planned changes."""
        return shown.plan_of(self.state)

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Return the cluster with its progress and events."""
        return {
            "kind": self.kind,
            "metadata": {"name": self.context.cluster, "uid": self.context.uid},
            "status": {
                **shown.progress_of(self.state, self.calls.keys),
                "leftovers": [each.wire() for each in self.state.leftovers],
                "events": [
                    event.model_dump(mode="json", by_alias=True)
                    for event in self.state.events
                ],
            },
        }
