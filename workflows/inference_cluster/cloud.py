"""How an InferenceCluster has its cluster created, kept and deleted: it orders that of a CloudCluster, and follows its reports."""

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.clusters.activities import ClusterActivities
from activities.clusters.emptying import NOT_OURS
from api_types import labels
from api_types.digests import report_digest
from api_types.messages.clouds import CloudDelete, CloudOrder, CloudReport
from api_types.messages.cluster_work import EmptyCluster, TeardownStepResult
from api_types.messages.delivery import EntityRef, MessageT, Signal
from api_types.messages.entities import RetryNow
from api_types.messages.signals import CloudClusterSignals, cloud_cluster
from api_types.payloads.limits import shortened
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.spec import class_names, connection_of, is_created, node_pools
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.state import ClusterState

EMPTY = "empty"
_POOLS_KEPT = 50
# After so long it is offered to go on without the cluster.
_OFFER_AFTER = timedelta(minutes=30)
_NAMED_MAX = 3
_REASON_BYTES_MAX = 600
_YES = "true"
_VOLUME = "PersistentVolume"
_GOING = ("Deleting", "Deleted")


class CloudOrders:
    """Orders of a CloudCluster what the spec says; what it reports is in the state."""

    def __init__(self, context: EntityContext[ClusterState], calls: BackgroundCalls) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls

    @property
    def _link(self) -> CloudLink:
        return self._state.cloud

    @property
    def receiver(self) -> EntityRef[CloudClusterSignals]:
        """Refer to the CloudCluster."""
        return cloud_cluster(self._context.name, self._state.uid)

    # --- while the cluster is wanted ----------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Order what the spec and the classes say, if that is new."""
        wanted = [pool["name"] for pool in node_pools(self._state)]
        self._link.pools = list(dict.fromkeys([*self._link.pools, *wanted]))[-_POOLS_KEPT:]
        order = self._order()
        # What only a CloudCluster that lost its state needs is no reason to order again.
        told = {"account": None, "was_usable": False, "was_ready": False, "removed": None}
        digest = report_digest(order.model_copy(update={"sequence": 0, **told}).wire())
        if digest == self._link.ordered or self._link.missing:
            return
        self._link.ordered = digest
        await self._send(CloudClusterSignals.APPLY, order.model_copy(update={"sequence": self._next_number()}))

    def repeat(self) -> None:
        """Order again with the next pass: the CloudCluster was started anew."""
        self._link.ordered = self._link.deleted = ""

    async def retry(self) -> None:
        """Have everything at the cloud tried again now, if that is wanted."""
        wanted, self._link.retry = self._link.retry, False
        if wanted and self._link.number and not self._link.ended:
            await self._send(CloudClusterSignals.RETRY_NOW, RetryNow(by=self._context.title))

    def _order(self) -> CloudOrder:
        removed = [name for name in self._link.pools if name not in {pool["name"] for pool in node_pools(self._state)}]
        observed = self._state.observed
        # Which pool a replica is on its own cluster knows only as a whole: with none there, no pool has one.
        unused = observed is not None and observed.replicas == [] and not self._state.unwatched_since
        return CloudOrder(
            uid=self._state.uid,
            sequence=0,
            generation=self._state.generation,
            manifest={"metadata": {"name": self._context.name, "uid": self._state.uid}, "spec": self._state.spec or {}},
            classes={name: self._state.classes[name].spec for name in class_names(self._state) if name in self._state.classes},
            removable_pools=removed if unused else [],
            account=self._link.pinned or self._link.account,
            was_usable=self._link.account is not None,
            was_ready=self._link.was_ready,
            removed=self._link.removed or None,
        )

    async def _send(self, signal: Signal[CloudClusterSignals, MessageT], message: MessageT) -> None:
        if not await self._context.signal_recorded(self.receiver, signal, message):
            # It is complete: everything was deleted, or given up.
            self._link.missing = True
        if self._link.missing and not self._state.deleting:
            self._context.record_event("Warning", "CloudClusterGone", "everything at the cloud was deleted or given up; delete the cluster")

    def _next_number(self) -> int:
        self._link.number = self._context.next_number(self._link.number)
        return self._link.number

    def reported(self, report: CloudReport) -> bool:
        """Record a report; False for one that is not newer than the last. What is wrong becomes an event."""
        link = self._link
        if report.uid != self._state.uid:
            self._report_of_another(report)
            return False
        before = link.report
        if before is not None and report.sequence <= before.sequence:
            return False
        link.report = report
        if before is not None and report == before.model_copy(update={"sequence": report.sequence}):
            return False
        link.begun = link.begun or report.objects > 0
        if report.account is not None and report.account.installation:
            link.pinned = link.pinned or report.account
        if report.usable and report.account is not None:
            link.account = report.account
        link.was_ready = link.was_ready or report.ready
        if report.objects and report.phase not in _GOING:
            # One that lost its state knows nothing of them before its first plan.
            link.removed = report.removed or []
        trouble = report.message if report.message != report.waits_for else ""
        if trouble and trouble != link.trouble:
            self._context.record_event("Warning", report.reason or "Provisioning", trouble)
        link.trouble = trouble
        return True

    def _report_of_another(self, report: CloudReport) -> None:
        """Name what an earlier cluster of this name still has at its cloud: nothing but its own CloudCluster looks after that."""
        if report.phase in _GOING:
            return
        theirs = cloud_cluster(self._context.name, report.uid).workflow_id
        text = f"{theirs} keeps {report.objects} objects of an earlier cluster of this name, which cost money: signal `delete` ends that"
        self._context.record_event("Warning", "EarlierCluster", text)

    # --- deletion -----------------------------------------------------------------------------------------------------------------

    def note_gone(self) -> bool:
        """Note once that the cloud says that the control plane does not exist any more, and nothing of what was on it; True then.

        An API server that does not answer says nothing. From here on it counts as gone, whatever is reported while the rest is deleted.
        """
        link = self._link
        if link.gone or link.report is None or not link.report.cluster_gone:
            return False
        link.gone = True
        if not link.deleted:
            # Others deleted it.
            text = "the cloud says that the control plane does not exist any more: what was on it went with it, and is not waited for"
            self._context.record_event("Warning", "ControlPlaneGone", text)
        return True

    @property
    def skips_cluster(self) -> bool:
        """Whether nothing is asked of the cluster itself any more: it is not there, or will not answer."""
        return self._state.annotations.get(labels.SKIP_IN_CLUSTER_TEARDOWN) == _YES or self._abandons

    @property
    def _abandons(self) -> bool:
        return self._state.annotations.get(labels.ABANDON) == _YES

    def empty(self) -> bool:
        """Delete what holds things at the cloud from within the cluster; True when nothing does (or nobody waits for it)."""
        link = self._link
        connection = connection_of(self._context.name, self._state)
        if link.emptied or link.gone or connection is None or self.skips_cluster or self._state.forced:
            self._calls.stop(EMPTY)
            if self._state.forced and not link.emptied:
                self._leave_behind()
                if self._state.forced == "step":
                    # It was for this step.
                    self._state.forced = ""
            link.emptied = True
            return True
        link.emptying_since = link.emptying_since or self._context.moment().isoformat()
        kinds = {item.kind for item in link.remaining}
        if link.failure.type or not kinds:
            self._context.set_condition("Deleting", FALSE, link.failure.type or "EmptyingCluster", self._emptying())
        else:
            held_by_services = "Service" in kinds
            self._context.set_condition(
                "Deleting", FALSE, "LoadBalancersRemaining" if held_by_services else "VolumesRemaining", self._emptying()
            )
        if self._calls.running(EMPTY) or (link.retry_at and self._context.is_future(link.retry_at)):
            if link.retry_at:
                self._context.requeue_at(datetime.fromisoformat(link.retry_at))
            return False
        order = EmptyCluster(connection=connection, wait_seconds=backoff.poll_timeout(link.attempts).total_seconds())
        options = activity_options.on_cluster(
            activity_options.TEARDOWN_STEP, f"{self._context.name}: delete load balancers and volumes", connection.task_queue
        )
        self._calls.start(
            EMPTY,
            lambda: workflow.execute_activity_method(ClusterActivities.empty_cluster, order, **options),
            self._attempted,
            self._failed,
        )
        return False

    def _attempted(self, result: TeardownStepResult) -> None:
        link = self._link
        link.attempts += 1
        link.remaining, link.failure, link.retry_at = result.remaining, NO_FAILURE, ""
        link.emptied = link.nothing_held = not result.remaining
        self._context.mark_changed()

    def _failed(self, failure: Failure) -> None:
        link = self._link
        link.failure = failure
        link.retry_at = (self._context.moment() + backoff_after(failure, link.attempts)).isoformat()
        link.attempts += 1
        self._context.mark_changed()

    def retry_emptying(self) -> None:
        """Make the next attempt to empty the cluster now."""
        self._link.retry_at, self._link.attempts = "", 0

    def _emptying(self) -> str:
        link = self._link
        named = ", ".join(map(str, link.remaining[:_NAMED_MAX]))
        more = len(link.remaining) - _NAMED_MAX
        waits = f"waits until load balancers and volumes are gone{f': {named}' if named else ''}{f' and {more} more' if more > 0 else ''}"
        # A volume without a claim that does not go is one that its driver cannot delete.
        users = NOT_OURS in " ".join(item.why for item in link.remaining) or {item.kind for item in link.remaining} == {_VOLUME}
        force = f"delete what is yours, or `modelplane delete ic/{self._context.name} --force` leaves it" if users else ""
        return "; ".join(filter(None, (waits, link.failure.message, force, self.offer(link.emptying_since))))

    def offer(self, since: str) -> str:
        """Say how to go on without the cluster, if it was waited for long; empty otherwise."""
        if not since or self._context.moment() - datetime.fromisoformat(since) < _OFFER_AFTER:
            return ""
        return f"annotation {labels.SKIP_IN_CLUSTER_TEARDOWN}={_YES} goes on without the cluster, and looks for what is left at the cloud"

    def _leave_behind(self) -> None:
        reason = "the deletion of load balancers and volumes was forced"
        self._state.add_left_behind(
            [
                LeftBehind(
                    kind=item.kind,
                    name=item.name,
                    namespace=item.namespace,
                    location=self._context.name,
                    reason=shortened(f"{reason}; {item.why}".rstrip("; "), _REASON_BYTES_MAX),
                )
                for item in self._link.remaining
            ]
        )

    async def delete(self) -> bool:
        """Have everything at the cloud deleted; True when nothing is left there, or it was given up."""
        link = self._link
        if not link.number:
            return True
        if link.ended:
            self._list_leftovers()
            return True
        known = self._order().model_copy(update={"sequence": link.number}) if link.begun else None
        order = CloudDelete(
            uid=self._state.uid,
            sequence=0,
            skip_cluster=self.skips_cluster or link.gone,
            abandon=self._abandons,
            emptied=link.nothing_held,
            order=known,
        )
        # What the CloudCluster has said itself is no reason to order again.
        digest = report_digest(order.model_copy(update={"order": None, "skip_cluster": self.skips_cluster}).wire())
        if digest != link.deleted:
            link.deleted = digest
            await self._send(CloudClusterSignals.DELETE, order.model_copy(update={"sequence": self._next_number()}))
        said = [link.report.message, link.report.waits_for] if link.report else []
        message = "; ".join(dict.fromkeys(filter(None, said)))
        self._context.set_condition("Deleting", FALSE, "DeletingCloudCluster", message or "waits until everything at the cloud is deleted")
        return link.ended

    def _list_leftovers(self) -> None:
        leftovers = self._link.report.leftovers if self._link.report else []
        if leftovers:
            self._context.record_event("Warning", "LeftAtCloud", f"left at the cloud: {'; '.join(leftovers)}")
        place = self._context.name
        reason = "the cluster was abandoned" if self._abandons else "it is not of this cluster"
        self._state.add_left_behind([LeftBehind(kind="CloudObject", name=each, location=place, reason=reason) for each in leftovers])

    @property
    def receivers(self) -> list[str]:
        """Name the CloudCluster, once it was started."""
        started = is_created(self._state) and self._link.number and not self._link.ended
        return [self.receiver.workflow_id] if started else []


def annotations_while_deleting(manifest: Any) -> dict[str, str]:
    """Give the annotations that are taken from a manifest while its cluster is deleted: those that say how."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    known = found if isinstance(found, dict) else {}
    return {key: str(known[key]) for key in labels.TAKEN_WHILE_DELETING if key in known}
