"""Order the creation and deletion of a cluster from its CloudCluster."""

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.clusters.activities import ClusterActivities
from activities.clusters.emptying import NOT_OURS
from api_types import labels
from api_types.digests import report_digest
from api_types.messages.clouds import (
    CloudDelete,
    CloudOrder,
    CloudReport,
)
from api_types.messages.cluster_work import (
    Connection,
    EmptyCluster,
    TeardownStepResult,
)
from api_types.messages.delivery import EntityRef, MessageT, Signal
from api_types.messages.entities import RetryNow
from api_types.messages.signals import CloudClusterSignals, cloud_cluster
from api_types.payloads.limits import shortened
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE, with_events
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.inference_cluster.cloud_state import GOING, CloudLink
from workflows.inference_cluster.spec import (
    class_names,
    connection_of,
    is_created,
    node_pools,
    reporting_classes,
)
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.state import REASON_BYTES_MAX, ClusterState

EMPTY = "empty"
_POOLS_KEPT = 50
# After this time the condition explains how to continue without the cluster.
_OFFER_AFTER = timedelta(minutes=30)
_NAMED_MAX = 3
_YES = "true"
_VOLUME = "PersistentVolume"


class CloudOrders:
    """Sends orders to the CloudCluster and records its reports."""

    def __init__(
        self, context: EntityContext[ClusterState], calls: BackgroundCalls
    ) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls

    @property
    def _link(self) -> CloudLink:
        return self._state.cloud

    @property
    def receiver(self) -> EntityRef[CloudClusterSignals]:
        return cloud_cluster(self._context.name, self._state.uid)

    # While the cluster is wanted

    async def follow(self) -> None:
        """Send an order if the spec or the classes have changed.

        While the report of an existing class is on the way, send none: the CloudCluster
        would refuse the class's pools, which looks like a problem.
        """
        if reporting_classes(self._state):
            return
        wanted = [pool["name"] for pool in node_pools(self._state)]
        known = list(dict.fromkeys([*self._link.pools, *wanted]))
        self._link.pools = known[-_POOLS_KEPT:]
        order = self._order()
        # A CloudCluster needs these fields only after it lost its state. A change of
        # them alone is no reason for a new order.
        ignored: dict[str, Any] = {
            "sequence": 0,
            "account": None,
            "was_usable": False,
            "was_ready": False,
            "never_ready": [],
            "removed": None,
        }
        digest = report_digest(order.model_copy(update=ignored).wire())
        if digest == self._link.ordered or self._link.missing:
            return
        self._link.ordered = digest
        await self._send(
            CloudClusterSignals.APPLY,
            order.model_copy(update={"sequence": self._next_number()}),
        )

    def repeat(self) -> None:
        """Send the order again in the next pass, because the CloudCluster restarted."""
        self._link.ordered = self._link.deleted = ""

    async def retry(self) -> None:
        """Forward a user's request to retry everything at the cloud."""
        wanted, self._link.retry = self._link.retry, False
        if wanted and self._link.number and not self._link.ended:
            await self._send(
                CloudClusterSignals.RETRY_NOW, RetryNow(by=self._context.title)
            )

    def _order(self) -> CloudOrder:
        wanted = {pool["name"] for pool in node_pools(self._state)}
        removed = [name for name in self._link.pools if name not in wanted]
        observed = self._state.observed
        # The observer reports replicas per cluster and not per pool. Only a cluster
        # without replicas has pools that are known to be unused.
        unused = (
            observed is not None
            and observed.replicas == []
            and not self._state.unwatched_since
        )
        return CloudOrder(
            uid=self._state.uid,
            sequence=0,
            generation=self._state.generation,
            manifest={
                "metadata": {"name": self._context.name, "uid": self._state.uid},
                "spec": self._state.spec or {},
            },
            classes={
                name: self._state.classes[name].spec
                for name in class_names(self._state)
                if name in self._state.classes
            },
            removable_pools=removed if unused else [],
            account=self._link.pinned or self._link.account,
            was_usable=self._link.account is not None,
            was_ready=self._link.was_ready,
            never_ready=[
                each.key
                for each in self._link.states
                if each.key and not each.was_ready
            ],
            removed=self._link.removed or None,
        )

    async def _send(
        self, signal: Signal[CloudClusterSignals, MessageT], message: MessageT
    ) -> None:
        if not await self._context.signal_recorded(self.receiver, signal, message):
            # The CloudCluster has ended because everything was deleted or abandoned.
            self._link.missing = True
        if self._link.missing and not self._state.deleting:
            self._context.record_event(
                "Warning",
                "CloudClusterGone",
                "all cloud objects were deleted or abandoned; delete the cluster",
            )

    def _next_number(self) -> int:
        self._link.number = self._context.next_number(self._link.number)
        return self._link.number

    def reported(self, report: CloudReport) -> bool:
        """Record a report with its events, and return whether it changes anything."""
        link = self._link
        if report.uid != self._state.uid:
            self._report_of_another(report)
            return False
        before = link.report
        if before is not None and report.sequence <= before.sequence:
            return False
        link.events = with_events(link.events, report.events)
        has_events = bool(report.events)
        report = link.report = report.model_copy(update={"events": []})
        if (
            not has_events
            and before is not None
            and report == before.model_copy(update={"sequence": report.sequence})
        ):
            return False
        link.begun = link.begun or report.objects > 0
        if report.account is not None and report.account.installation:
            link.pinned = link.pinned or report.account
        if report.usable and report.account is not None:
            link.account = report.account
        link.was_ready = link.was_ready or report.ready
        if report.objects and report.phase not in GOING:
            # A CloudCluster that lost its state does not know these objects before its
            # first plan.
            link.removed = report.removed or []
            link.states = report.states
        link.trouble = report.message if report.message != report.waits_for else ""
        return True

    def _report_of_another(self, report: CloudReport) -> None:
        """Record that an earlier cluster of this name still has cloud objects.

        Only the earlier cluster's own CloudCluster manages them.
        """
        if report.phase in GOING:
            return
        theirs = cloud_cluster(self._context.name, report.uid).workflow_id
        text = (
            f"{theirs} still has {report.objects} cloud objects of an earlier cluster "
            "of this name, which cost money: send it the signal `delete` to delete them"
        )
        self._context.record_event("Warning", "EarlierCluster", text)

    # Deletion

    def note_gone(self) -> bool:
        """Note that the cloud says that the control plane no longer exists.

        Return True the first time. An API server that does not answer proves nothing.
        After this, the control plane counts as deleted, whatever later reports say.
        """
        link = self._link
        if link.gone or link.report is None or not link.report.cluster_gone:
            return False
        link.gone = True
        if not link.deleted:
            # Somebody else deleted it.
            text = (
                "the cloud says that the control plane no longer exists: "
                "the deletion does not wait for the objects that were on it"
            )
            self._context.record_event("Warning", "ControlPlaneGone", text)
        return True

    @property
    def skips_cluster(self) -> bool:
        """Whether the deletion skips all work inside the cluster."""
        return (
            self._state.annotations.get(labels.SKIP_IN_CLUSTER_TEARDOWN) == _YES
            or self._abandons
        )

    @property
    def _abandons(self) -> bool:
        return self._state.annotations.get(labels.ABANDON) == _YES

    def empty(self) -> bool:
        """Delete the objects inside the cluster that hold cloud resources.

        Return True when none is left, or when the deletion does not wait for them.
        """
        link = self._link
        connection = connection_of(self._context.name, self._state)
        if (
            link.emptied
            or link.gone
            or connection is None
            or self.skips_cluster
            or self._state.forced
        ):
            self._calls.stop(EMPTY)
            if self._state.forced and not link.emptied:
                self._leave_behind()
                if self._state.forced == "step":
                    # A force of scope `step` applies only to this step.
                    self._state.forced = ""
            link.emptied = True
            return True
        link.emptying_since = link.emptying_since or self._context.moment().isoformat()
        self._context.set_condition(
            "Deleting", FALSE, self._emptying_reason(), self._emptying()
        )
        if self._calls.running(EMPTY) or self._context.is_future(link.retry_at):
            if link.retry_at:
                self._context.requeue_at(datetime.fromisoformat(link.retry_at))
            return False
        self._start_emptying(connection)
        return False

    def _start_emptying(self, connection: Connection) -> None:
        wait = backoff.poll_timeout(self._link.attempts)
        order = EmptyCluster(connection=connection, wait_seconds=wait.total_seconds())
        options = activity_options.on_cluster(
            activity_options.TEARDOWN_STEP,
            f"{self._context.name}: delete load balancers and volumes",
            connection.task_queue,
        )
        self._calls.start(
            EMPTY,
            lambda: workflow.execute_activity_method(
                ClusterActivities.empty_cluster, order, **options
            ),
            self._attempted,
            self._failed,
        )

    def _attempted(self, result: TeardownStepResult) -> None:
        link = self._link
        link.attempts += 1
        link.remaining, link.failure, link.retry_at = result.remaining, NO_FAILURE, ""
        link.emptied = link.nothing_held = not result.remaining
        self._context.mark_changed()

    def _failed(self, failure: Failure) -> None:
        link = self._link
        link.failure = failure
        link.retry_at = (
            self._context.moment() + backoff_after(failure, link.attempts)
        ).isoformat()
        link.attempts += 1
        self._context.mark_changed()

    def retry_emptying(self) -> None:
        self._link.retry_at, self._link.attempts = "", 0

    def _emptying_reason(self) -> str:
        kinds = {item.kind for item in self._link.remaining}
        if self._link.failure.type or not kinds:
            return self._link.failure.type or "EmptyingCluster"
        return "LoadBalancersRemaining" if "Service" in kinds else "VolumesRemaining"

    def _emptying(self) -> str:
        link = self._link
        named = ", ".join(map(str, link.remaining[:_NAMED_MAX]))
        more = len(link.remaining) - _NAMED_MAX
        waits = "waits until load balancers and volumes are gone"
        if named:
            waits += f": {named}"
        if more > 0:
            waits += f" and {more} more"
        # A volume without a claim remains if its driver cannot delete it.
        kinds = {item.kind for item in link.remaining}
        reasons = " ".join(item.why for item in link.remaining)
        force = ""
        if NOT_OURS in reasons or kinds == {_VOLUME}:
            force = (
                "delete the objects that are yours, or leave them behind with "
                f"`modelplane delete ic/{self._context.name} --force`"
            )
        offer = self.offer(link.emptying_since)
        return "; ".join(filter(None, (waits, link.failure.message, force, offer)))

    def offer(self, since: str) -> str:
        """Return how to continue without the cluster, or "" before `_OFFER_AFTER`."""
        if (
            not since
            or self._context.moment() - datetime.fromisoformat(since) < _OFFER_AFTER
        ):
            return ""
        return (
            "to continue without the cluster and search the cloud for leftovers, "
            f"set annotation {labels.SKIP_IN_CLUSTER_TEARDOWN}={_YES}"
        )

    def _leave_behind(self) -> None:
        reason = "the deletion of load balancers and volumes was forced"
        self._state.add_left_behind(
            [
                LeftBehind(
                    kind=item.kind,
                    name=item.name,
                    namespace=item.namespace,
                    location=self._context.name,
                    reason=shortened(
                        f"{reason}; {item.why}".rstrip("; "), REASON_BYTES_MAX
                    ),
                )
                for item in self._link.remaining
            ]
        )

    async def delete(self) -> bool:
        """Order the deletion of everything at the cloud.

        Return True when nothing is left there or the rest was abandoned.
        """
        link = self._link
        if not link.number:
            return True
        if link.ended:
            self._list_leftovers()
            return True
        known = (
            self._order().model_copy(update={"sequence": link.number})
            if link.begun
            else None
        )
        order = CloudDelete(
            uid=self._state.uid,
            sequence=0,
            skip_cluster=self.skips_cluster or link.gone,
            abandon=self._abandons,
            emptied=link.nothing_held,
            order=known,
        )
        # These fields repeat the CloudCluster's own reports. A change of them alone is
        # no reason for a new order.
        digest = report_digest(
            order.model_copy(
                update={"order": None, "skip_cluster": self.skips_cluster}
            ).wire()
        )
        if digest != link.deleted:
            link.deleted = digest
            await self._send(
                CloudClusterSignals.DELETE,
                order.model_copy(update={"sequence": self._next_number()}),
            )
        # A report of before the deletion says what the creation waited for.
        report = link.deletion
        said = [report.message, report.waits_for] if report else []
        message = "; ".join(dict.fromkeys(filter(None, said)))
        is_blocked = report is not None and report.reason == "DeletionBlocked"
        self._context.set_condition(
            "Deleting",
            FALSE,
            "DeletionBlocked" if is_blocked else "DeletingCloudCluster",
            message or "waits until all cloud objects are deleted",
        )
        return link.ended

    def _list_leftovers(self) -> None:
        leftovers = self._link.report.leftovers if self._link.report else []
        if leftovers:
            self._context.record_event(
                "Warning", "LeftAtCloud", f"left at the cloud: {'; '.join(leftovers)}"
            )
        place = self._context.name
        reason = (
            "the cluster was abandoned"
            if self._abandons
            else "it does not belong to this cluster"
        )
        self._state.add_left_behind(
            [
                LeftBehind(kind="CloudObject", name=each, location=place, reason=reason)
                for each in leftovers
            ]
        )

    @property
    def receivers(self) -> list[str]:
        """Return the workflow ID of the CloudCluster if it was started."""
        started = is_created(self._state) and self._link.number and not self._link.ended
        return [self.receiver.workflow_id] if started else []


def annotations_while_deleting(manifest: Any) -> dict[str, str]:
    """Return the annotations that still apply while the cluster is being deleted."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    known = found if isinstance(found, dict) else {}
    return {key: str(known[key]) for key in labels.TAKEN_WHILE_DELETING if key in known}
