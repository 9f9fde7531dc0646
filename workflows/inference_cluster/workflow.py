"""InferenceCluster: owns one GPU cluster of the fleet.

It follows the classes of its pools, connects, watches, installs a managed serving
stack, and publishes capacity to the scheduler. A cluster that does not answer keeps
everything on it: it gets no new replicas, but running models stay.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from api_types import clock
from api_types.messages.caches import CacheOnCluster
from api_types.messages.clouds import CloudReport
from api_types.messages.entities import ClassChanged, Delete, ForceFinalizer
from api_types.messages.observations import Observed
from api_types.messages.scheduling import Occupied, Resync
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    STACK_UPGRADES,
    InferenceClusterSignals,
)
from api_types.messages.upgrades import UpgradeTurn
from api_types.resources.inference_class import InferenceClassSpec
from api_types.resources.status import LeftBehind
from api_types.taints import with_taint
from api_types.validation.manifests import Manifest
from workflows.entity.conditions import FALSE, TRUE
from workflows.entity.entity import Entity
from workflows.entity.handles import check_spec, handles
from workflows.entity.registering.registrations import drop_ended, is_newest
from workflows.entity.start import read_carried
from workflows.inference_cluster.classes import Classes
from workflows.inference_cluster.cloud import CloudOrders, annotations_while_deleting
from workflows.inference_cluster.cloud_pools import (
    OBJECTS_READY,
    unready_message,
    unready_objects,
    unready_reason,
)
from workflows.inference_cluster.connecting.connection import ClusterConnection
from workflows.inference_cluster.connecting.worker_wait import WorkerWait
from workflows.inference_cluster.gaps import FEATURES_AVAILABLE, MISSING, gaps
from workflows.inference_cluster.gateway import with_known_gateway
from workflows.inference_cluster.observer import Observer
from workflows.inference_cluster.reporter import Reporter
from workflows.inference_cluster.scheduling import record_scheduling
from workflows.inference_cluster.silence import Silence
from workflows.inference_cluster.spec import is_created, is_managed
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.stack.installer import StackInstaller
from workflows.inference_cluster.stack.removal import StackRemoval
from workflows.inference_cluster.stack.shown import shown_stack
from workflows.inference_cluster.stack.turn import StackTurn
from workflows.inference_cluster.stack.verdict import progress_lines
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.status import (
    backend_verdict,
    cluster_verdict,
    occupied_message,
    ready_verdict,
    status_fields,
    view_of,
)

_SEE_DELETING = "the cluster is being deleted: see the condition Deleting"


@workflow.defn(name="InferenceCluster")
class InferenceClusterWorkflow(Entity[ClusterState]):
    """Workflow ID: inferencecluster/<name>.

    It ends when the cluster is deleted and none of Modelplane's objects is left on it.
    """

    kind = "InferenceCluster"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, ClusterState) or ClusterState())
        self.classes = Classes(self.context)
        self.connection = ClusterConnection(self.context)
        self.observer = Observer(self.context)
        self.worker_wait = WorkerWait(self.context)
        self.silence = Silence(self.context)
        self.reporter = Reporter(self.context)
        calls = BackgroundCalls(self.context)
        self.turn = StackTurn(self.context)
        self.cloud = CloudOrders(self.context, calls)
        self.installer = StackInstaller(
            self.context, calls, self.turn, self.connection.renew
        )
        self.removal = StackRemoval(self.context, calls)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the cluster is deleted and has no replicas and volumes."""
        del arguments
        await self.run_until_deleted()

    # Messages

    @handles(InferenceClusterSignals.CLASS_CHANGED)
    def class_changed(self, message: ClassChanged) -> None:
        """Record a new or changed class."""
        if message.spec is not None:
            check_spec(InferenceClassSpec, message.spec)
        self.classes.record(message)

    @handles(InferenceClusterSignals.CACHE_STAGED)
    def cache_staged(self, message: CacheOnCluster) -> None:
        """Record whether a cache has objects on this cluster."""
        if not is_newest(
            self.state.cache_registrations, message.cache, message.uid, message.sequence
        ):
            return
        others = [cache for cache in self.state.caches if cache != message.cache]
        self.state.caches = (
            sorted([*others, message.cache]) if message.staged else others
        )
        drop_ended(self.state.cache_registrations, self.state.caches)
        self.context.mark_changed()

    @handles(InferenceClusterSignals.OBSERVED)
    def observed(self, message: Observed) -> None:
        """Record a report of the observer."""
        if (
            message.owner_uid != self.state.uid
            or message.cluster is None
            or not self.state.observed_version.accepts(message.order)
        ):
            return
        self.state.observed_version = self.state.observed_version.advanced(
            message.order
        )
        self.state.observed = with_known_gateway(message.cluster, self.state.observed)
        self.connection.update_found(message.cluster.facts)
        self.state.unwatched_since = ""
        if message.cluster.reachable:
            self.state.unreachable_since = self.state.unreachable_noticed = ""
        elif not self.state.unreachable_since:
            silence = timedelta(seconds=message.cluster.silent_seconds)
            self.state.unreachable_since = clock.timestamp(
                self.context.moment() - silence
            )
            self.state.unreachable_noticed = self.context.now()
            self.context.record_event("Warning", "Unreachable", message.cluster.error)
        self.context.requeue()

    @handles(InferenceClusterSignals.OCCUPIED)
    def occupied(self, message: Occupied) -> None:
        """Record the replicas that the scheduler has here, during the deletion."""
        # The uid is empty if the scheduler did not know it.
        if (
            message.uid not in ("", self.state.uid)
            or message.sequence != self.state.sequence
        ):
            return
        if self.state.occupied == [] and message.replicas:
            # Either this message is late, or a replica was placed after the last one.
            # The answer to another report decides.
            self.reporter.repeat()
        self.state.occupied = message.replicas
        self.context.mark_changed()

    @handles(InferenceClusterSignals.UPGRADE_TURN)
    def upgrade_turn(self, message: UpgradeTurn) -> None:
        """Record whether the stack may be upgraded now, and which clusters go first."""
        self.turn.answered(message)

    @handles(InferenceClusterSignals.FORCE_FINALIZER)
    def force_finalizer(self, message: ForceFinalizer) -> None:
        """Remove a finalizer of an object that the removal of the stack waits for."""
        if self.accept_request(message.request_id):
            self.removal.force_finalizer(message)

    @handles(InferenceClusterSignals.CLOUD_REPORTED)
    def cloud_reported(self, message: CloudReport) -> None:
        """Record a report of the CloudCluster."""
        if self.cloud.reported(message):
            self.connection.update_declared()
            self.context.mark_changed()

    @handles(InferenceClusterSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again to a scheduler that lost its state.

        Without a message, report to all receivers, because they could not query this
        cluster.
        """
        if message is None:
            self.reporter.repeat_to_all()
        # If the scheduler's epoch is smaller, the report tells it the larger one.
        if message is None or message.epoch != self.state.epoch:
            self.state.epoch = (
                max(message.epoch, self.state.epoch) if message else self.state.epoch
            )
            self.reporter.repeat()
            self.context.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Return the report for the scheduler."""
        return self.reporter.for_scheduler().wire()

    @workflow.query
    def upgrade_request(self) -> dict[str, Any] | None:
        """Return the request for a StackUpgrades that lost its state, or None."""
        found = self.turn.account()
        return found.wire() if found.wanted else None

    @workflow.query
    def cache_site(self, cache: str = "") -> dict[str, Any]:
        """Return the report for caches.

        A new cache gives its name, and learns whether an earlier one has volumes here.
        """
        return self.reporter.for_caches(cache).wire()

    @workflow.query
    def serving_stack(self) -> dict[str, Any]:
        """Return the stack as a ServingStack manifest, or {} if it is not managed."""
        return shown_stack(self.name, self.state)

    # Hooks of the entity

    def accept(self, manifest: Manifest, by: str, reason: str) -> None:
        """Store a validated manifest, and record a changed taint with its author."""
        before = self.state.spec
        super().accept(manifest, by, reason)
        record_scheduling(self.context, before, by, reason)

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Connect again at once, and use the new annotations."""
        del new_generation
        self.connection.reset_backoff()
        self.connection.update_declared()
        self.installer.retry()

    def on_retry_requested(self) -> None:
        """Connect again at once, and search for missing classes."""
        self.connection.reset_backoff()
        self.classes.retry()
        self.installer.retry()
        self.removal.retry()
        self.cloud.retry_emptying()
        self.state.cloud.retry = is_created(self.state)
        # A CloudCluster that was terminated starts with the first signal, which has to
        # be the order.
        self.cloud.repeat()

    def on_delete_requested(self, order: Delete) -> None:
        """Stop connecting.

        Evict replicas and purge definitions if the user requested that.
        """
        self.state.stack.removal.purge |= order.purge_crds
        self.connection.stop()
        self.installer.stop_looking()
        if order.evict and self.state.spec is not None:
            before = self.state.spec
            self.state.spec = with_taint(before)
            self.state.generation += 1
            record_scheduling(self.context, before, order.by, "deletion with --evict")

    def receivers(self) -> list[str]:
        """Return the workflow IDs of all workflows that have to know this cluster."""
        turns = [STACK_UPGRADES.workflow_id] if self.state.stack.turn.number else []
        return [
            FLEET_SCHEDULER.workflow_id,
            *self.classes.registered_at(),
            *turns,
            *self.cloud.receivers,
        ]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report to, and register with, receivers that restarted."""
        if FLEET_SCHEDULER.workflow_id in workflow_ids:
            self.reporter.repeat()
        if STACK_UPGRADES.workflow_id in workflow_ids:
            self.turn.repeat()
        if self.cloud.receiver.workflow_id in workflow_ids:
            self.cloud.repeat()
        self.classes.register_again(workflow_ids)

    async def stop_background_tasks(self) -> None:
        """Stop the observer and all waits. The next run starts its own."""
        self.connection.stop()
        self.observer.stop()
        self.worker_wait.stop()
        await self.installer.stop()

    # One pass

    async def reconcile(self) -> bool:
        """Follow classes, connect, watch, install the stack, update conditions, report."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            self.reporter.update_memo()
            return False
        await self.classes.follow()
        self.classes.publish_pools()
        await self.order_cloud()
        if await self.connection.connect():
            self.observer.stop()
        self.watch()
        self.update_stack()
        await self.turn.report()
        await self.silence.judge()
        self.update_conditions()
        await self.reporter.report_all()
        self.state.observed_generation = self.state.generation
        return False

    async def order_cloud(self) -> None:
        """Order the creation of the cluster, and forward retries."""
        if not is_created(self.state):
            return
        await self.cloud.follow()
        await self.cloud.retry()

    def watch(self) -> None:
        """Keep one observer running while the cluster is connected."""
        if failure := self.observer.take_failure():
            # The observer fails only with errors that a retry does not fix, or because
            # no worker accepts it. So connect again.
            self.connection.lose(failure)
        self.worker_wait.update()
        self.observer.ensure_running(may_start=self.connection.is_watchable())

    def update_stack(self) -> None:
        """Install the stack and keep it as planned.

        Start nothing while the cluster is down.
        """
        if is_managed(self.state) and not self._is_running():
            self.turn.follow(running=False)
            return
        self.installer.update()

    def _is_running(self) -> bool:
        return (
            self.state.facts is not None
            and cluster_verdict(view_of(self.state)).status == TRUE
        )

    def update_conditions(self) -> None:
        view = view_of(self.state)
        ready = ready_verdict(view)
        self.context.set_condition("ClusterReady", *cluster_verdict(view))
        self.context.set_condition("BackendReady", *backend_verdict(view))
        if ready.status == TRUE and not self.state.was_ready:
            self.context.record_event(
                "Normal", "Ready", f"gateway {view.gateway.address}"
            )
            self.state.was_ready = True
        self.context.set_condition("Ready", *ready)
        if found := gaps(self.state):
            self.context.set_condition(
                FEATURES_AVAILABLE, FALSE, MISSING, "; ".join(found)
            )
        else:
            self.context.remove_condition(FEATURES_AVAILABLE)
        if unready := unready_objects(self.state):
            self.context.set_condition(
                OBJECTS_READY, FALSE, unready_reason(unready), unready_message(unready)
            )
        else:
            self.context.remove_condition(OBJECTS_READY)

    # Teardown

    async def tear_down(self) -> bool:
        """Wait for replicas and caches, remove the stack, delete the cloud objects.

        Return True when the teardown is complete. An Existing cluster itself is not
        changed.
        """
        self.context.set_condition("Ready", FALSE, "Deleting", "")
        self._end_conditions()
        # A pass that ran during the deletion request may have started another check of
        # the stack, which can take days.
        self.installer.stop_looking()
        if not self.state.cloud.deleted:
            self.watch()
        self.turn.give_back()
        await self.turn.report()
        await self._release_what_is_gone()
        await self.silence.judge()
        if self._waits_for_replicas():
            await self.reporter.keep_replicas_informed()
        await self.reporter.report_to_scheduler()
        if not self.state.stack.removal.begun and not await self._is_empty():
            return False
        skips = is_created(self.state) and (
            self.cloud.skips_cluster or self.state.cloud.gone
        )
        if not skips and (
            self.installer.looks_before_removal() or not self.removal.update()
        ):
            return False
        if is_created(self.state) and not await self._cloud_is_gone():
            return False
        await self.stop_background_tasks()
        self.state.occupied = []
        self.reporter.update_memo()
        await self.reporter.broadcast_to_replicas()
        await self.classes.unregister_all()
        await self.reporter.report_gone()
        return True

    async def _release_what_is_gone(self) -> None:
        """Release replicas from a cluster that the cloud says is gone.

        The rest of the deletion continues at the cloud.
        """
        is_new = is_created(self.state) and self.cloud.note_gone()
        if not self.state.cloud.gone or self.state.occupied == []:
            return
        await self.reporter.keep_replicas_informed()
        if is_new:
            await self.reporter.report_gone()

    def _waits_for_replicas(self) -> bool:
        given_up = (
            self.state.forced or self.state.cloud.gone or self.state.stack.removal.begun
        )
        return not given_up and (
            self.state.occupied is None or bool(self.state.occupied)
        )

    async def _is_empty(self) -> bool:
        """Return whether the deletion no longer waits for replicas and caches.

        They are gone, or were lost with the control plane, or the deletion was forced.
        """
        waits = not (self.state.forced or self.state.cloud.gone)
        if self._waits_for_replicas():
            self.context.set_condition(
                "Deleting", FALSE, "Occupied", occupied_message(self.name, self.state)
            )
            return False
        await self.reporter.report_to_caches()
        if waits and self.state.caches:
            holders = ", ".join(f"ModelCache {name}" for name in self.state.caches)
            self.context.set_condition(
                "Deleting",
                FALSE,
                "Occupied",
                f"waits until {holders} has deleted its volumes",
            )
            return False
        if not self.state.cloud.gone:
            self.leave_behind("deletion was forced")
        self.state.stack.removal.begun = True
        if self.state.forced == "step" and (
            self.state.stack.plan is not None or is_created(self.state)
        ):
            # A force of scope `step` applies to this wait only. The stack and the cloud
            # have their own steps.
            self.state.forced = ""
        return True

    def _end_conditions(self) -> None:
        """Replace conditions whose next steps no longer apply in a deletion.

        A cluster that works is ready until its deletion at the cloud begins.
        """
        for each in (OBJECTS_READY, FEATURES_AVAILABLE):
            self.context.remove_condition(each)
        if not is_created(self.state):
            return
        link = self.state.cloud
        is_running = cluster_verdict(view_of(self.state)).status == TRUE
        if link.deleted or not (link.was_ready and is_running):
            self.context.set_condition("ClusterReady", FALSE, "Deleting", _SEE_DELETING)
            # The removal of the stack sets this condition while it runs. Two writers in
            # one pass would queue passes without end.
            if not self.state.stack.removal.is_running:
                self.context.set_condition(
                    "BackendReady", FALSE, "Deleting", _SEE_DELETING
                )

    async def _cloud_is_gone(self) -> bool:
        """Delete the cluster at its cloud once nothing on it holds cloud resources.

        Return True when nothing is left there.
        """
        if not self.cloud.empty():
            return False
        self.connection.stop()
        self.observer.stop()
        self.worker_wait.stop()
        gone = await self.cloud.delete()
        if not gone:
            await self.cloud.retry()
        return gone

    def take_while_deleting(self, manifest: Any) -> bool:
        """Apply the annotations that control a running deletion."""
        found = annotations_while_deleting(manifest)
        if not found or found.items() <= self.state.annotations.items():
            return False
        self.state.annotations = {**self.state.annotations, **found}
        self.context.record_event(
            "Normal",
            "MetadataChanged",
            f"changed during the deletion: {', '.join(sorted(found))}",
        )
        return True

    def leave_behind(self, reason: str) -> None:
        """List the replicas and caches that stay after a forced deletion."""
        held = [("ModelReplica", name) for name in self.state.occupied or []] + [
            ("ModelCache", name) for name in self.state.caches
        ]
        self.state.add_left_behind(
            [
                LeftBehind(kind=kind, name=name, location=self.name, reason=reason)
                for kind, name in held
            ]
        )

    # Status

    def phase(self) -> str:
        """Return the phase.

        A cluster that was Ready before is Degraded while it is not.
        """
        phase = super().phase()
        return "Degraded" if phase == "Progressing" and self.state.was_ready else phase

    def details(self) -> list[str]:
        """Return the progress of the managed stack."""
        return progress_lines(self.state.stack)

    def status(self) -> dict[str, Any]:
        """Return the kind's own status fields."""
        return status_fields(self.name, self.state)
