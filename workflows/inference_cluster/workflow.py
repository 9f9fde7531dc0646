"""InferenceCluster: one GPU cluster of the fleet, from the first connect until the last replica on it is gone.

It follows the classes of its pools, connects, watches, installs the serving stack where that is managed, and publishes to the scheduler
what may be placed here. A cluster that does not answer keeps everything that it has: while it does not answer it takes no new replica, but
running models stay.
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
from api_types.messages.signals import FLEET_SCHEDULER, STACK_UPGRADES, InferenceClusterSignals
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
from workflows.inference_cluster.connecting.connection import ClusterConnection
from workflows.inference_cluster.connecting.worker_wait import WorkerWait
from workflows.inference_cluster.gateway import with_known_gateway
from workflows.inference_cluster.observer import Observer
from workflows.inference_cluster.reporter import Reporter
from workflows.inference_cluster.scheduling import record_scheduling
from workflows.inference_cluster.spec import is_created, is_managed
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.stack.installer import StackInstaller
from workflows.inference_cluster.stack.removal import StackRemoval
from workflows.inference_cluster.stack.shown import shown_stack
from workflows.inference_cluster.stack.turn import StackTurn
from workflows.inference_cluster.stack.verdict import progress_lines
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.status import (
    ClusterView,
    backend_verdict,
    cluster_verdict,
    occupied_message,
    ready_verdict,
    status_fields,
    view_of,
)

# Histories of before install no stack.
STACK_PATCH = "serving-stack"
# In histories of before an upgrade waits for no turn.
TURNS_PATCH = "stack-upgrade-turns"
# In histories of before no cluster is created.
CLOUDS_PATCH = "clusters-at-clouds"
# In histories of before, a cluster without any DRA is Ready.
UNSUPPORTED_PATCH = "clusters-without-dra"


@workflow.defn(name="InferenceCluster")
class InferenceClusterWorkflow(Entity[ClusterState]):
    """Workflow id inferencecluster/<name>; ends when it is deleted and nothing of this project is left on the cluster."""

    kind = "InferenceCluster"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, ClusterState) or ClusterState())
        self.classes = Classes(self.context)
        self.connection = ClusterConnection(self.context)
        self.observer = Observer(self.context)
        self.worker_wait = WorkerWait(self.context)
        self.reporter = Reporter(self.context)
        calls = BackgroundCalls(self.context)
        self.turn = StackTurn(self.context, lambda: workflow.patched(TURNS_PATCH))
        self.cloud = CloudOrders(self.context, calls)
        self.installer = StackInstaller(self.context, calls, self.turn, self.connection.renew)
        self.removal = StackRemoval(self.context, calls)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the cluster is deleted and holds no replica and no volume."""
        del arguments
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @handles(InferenceClusterSignals.CLASS_CHANGED)
    def class_changed(self, message: ClassChanged) -> None:
        """Record a class that is new or different."""
        if message.spec is not None:
            check_spec(InferenceClassSpec, message.spec)
        self.classes.record(message)

    @handles(InferenceClusterSignals.CACHE_STAGED)
    def cache_staged(self, message: CacheOnCluster) -> None:
        """Record that a cache has objects here, or none any more."""
        if not is_newest(self.state.cache_registrations, message.cache, message.uid, message.sequence):
            return
        others = [cache for cache in self.state.caches if cache != message.cache]
        self.state.caches = sorted([*others, message.cache]) if message.staged else others
        drop_ended(self.state.cache_registrations, self.state.caches)
        self.context.mark_changed()

    @handles(InferenceClusterSignals.OBSERVED)
    def observed(self, message: Observed) -> None:
        """Record what the observer reports of the cluster."""
        if message.owner_uid != self.state.uid or message.cluster is None or not self.state.observed_version.accepts(message.order):
            return
        self.state.observed_version = self.state.observed_version.advanced(message.order)
        self.state.observed = with_known_gateway(message.cluster, self.state.observed)
        self.connection.update_found(message.cluster.facts)
        self.state.unwatched_since = ""
        if message.cluster.reachable:
            self.state.unreachable_since = ""
        elif not self.state.unreachable_since:
            silence = timedelta(seconds=message.cluster.silent_seconds)
            self.state.unreachable_since = clock.timestamp(self.context.moment() - silence)
            self.context.record_event("Warning", "Unreachable", message.cluster.error)
        self.context.requeue()

    @handles(InferenceClusterSignals.OCCUPIED)
    def occupied(self, message: Occupied) -> None:
        """Record which replicas the scheduler has here, while this cluster is being deleted."""
        # The uid is empty in what a scheduler sent that did not know it.
        if message.uid not in ("", self.state.uid) or message.sequence != self.state.sequence:
            return
        if self.state.occupied == [] and message.replicas:
            # A late one, or a replica came after the last one. The answer to another report says which.
            self.reporter.repeat()
        self.state.occupied = message.replicas
        self.context.mark_changed()

    @handles(InferenceClusterSignals.UPGRADE_TURN)
    def upgrade_turn(self, message: UpgradeTurn) -> None:
        """Record whether the stack may be upgraded now, and which clusters are before this one."""
        self.turn.answered(message)

    @handles(InferenceClusterSignals.FORCE_FINALIZER)
    def force_finalizer(self, message: ForceFinalizer) -> None:
        """Remove a finalizer of an object that the removal of the stack waits for."""
        if self.accept_request(message.request_id):
            self.removal.force_finalizer(message)

    @handles(InferenceClusterSignals.CLOUD_REPORTED)
    def cloud_reported(self, message: CloudReport) -> None:
        """Record how far the cluster is at its cloud."""
        if self.cloud.reported(message):
            self.connection.update_declared()
            self.context.mark_changed()

    @handles(InferenceClusterSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again: to a scheduler that lost its state, or to all that could not query this cluster."""
        if message is None:
            self.reporter.repeat_to_all()
        # The report carries the greater epoch to a scheduler that has a smaller one.
        if message is None or message.epoch != self.state.epoch:
            self.state.epoch = max(message.epoch, self.state.epoch) if message else self.state.epoch
            self.reporter.repeat()
            self.context.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what the scheduler keeps of a cluster."""
        return self.reporter.for_scheduler().wire()

    @workflow.query
    def upgrade_request(self) -> dict[str, Any] | None:
        """Give what a StackUpgrades that lost its state must know; None if no turn is wanted."""
        found = self.turn.account()
        return found.wire() if found.wanted else None

    @workflow.query
    def cache_site(self) -> dict[str, Any]:
        """Give what a cache must know of a cluster."""
        return self.reporter.for_caches().wire()

    @workflow.query
    def serving_stack(self) -> dict[str, Any]:
        """Give the stack as a ServingStack manifest with status; empty where this project installs none."""
        return shown_stack(self.name, self.state)

    # --- hooks of the entity ------------------------------------------------------------------------------------------------------

    def accept(self, manifest: Manifest, by: str, reason: str) -> None:
        """Store a checked manifest, and who drained, cordoned or uncordoned the cluster with it."""
        before = self.state.spec
        super().accept(manifest, by, reason)
        record_scheduling(self.context, before, by, reason)

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Connect as the manifest now says at once; what annotations declare holds from now on."""
        del new_generation
        self.connection.reset_backoff()
        self.connection.update_declared()
        self.installer.retry()

    def on_retry_requested(self) -> None:
        """Connect at once, and look for missing classes."""
        self.connection.reset_backoff()
        self.classes.retry()
        self.installer.retry()
        self.removal.retry()
        self.cloud.retry_emptying()
        self.state.cloud.retry = is_created(self.state)

    def on_delete_requested(self, order: Delete) -> None:
        """Connect no more; evict what runs here, and delete what charts leave, if the user requested that."""
        self.state.stack.removal.purge |= order.purge_crds
        self.connection.stop()
        self.installer.stop_looking()
        if order.evict and self.state.spec is not None:
            before = self.state.spec
            self.state.spec = with_taint(before)
            self.state.generation += 1
            record_scheduling(self.context, before, order.by, "deletion with --evict")

    def receivers(self) -> list[str]:
        """Name the scheduler, the classes of the pools, and who gives turns if one is wanted."""
        turns = [STACK_UPGRADES.workflow_id] if self.state.stack.turn.number else []
        return [FLEET_SCHEDULER.workflow_id, *self.classes.registered_at(), *turns, *self.cloud.receivers]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report to a scheduler that was started anew; register with classes that were."""
        if FLEET_SCHEDULER.workflow_id in workflow_ids:
            self.reporter.repeat()
        if STACK_UPGRADES.workflow_id in workflow_ids:
            self.turn.repeat()
        if self.cloud.receiver.workflow_id in workflow_ids:
            self.cloud.repeat()
        self.classes.register_again(workflow_ids)

    async def stop_background_tasks(self) -> None:
        """Stop the observer and what is waited for; the next run starts its own."""
        self.connection.stop()
        self.observer.stop()
        self.worker_wait.stop()
        await self.installer.stop()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Follow classes, connect, watch, set conditions, report."""
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
        self.update_conditions()
        await self.reporter.report_all()
        self.state.observed_generation = self.state.generation
        return False

    async def order_cloud(self) -> None:
        """Have the cluster created, and kept as it is wanted."""
        if not is_created(self.state) or not workflow.patched(CLOUDS_PATCH):
            return
        await self.cloud.follow()
        await self.cloud.retry()

    def watch(self) -> None:
        """Keep one observer running while the cluster is connected."""
        if failure := self.observer.take_failure():
            # The observer fails only with what retrying does not fix, or because no worker takes it: connect again.
            self.connection.lose(failure)
        self.worker_wait.update()
        self.observer.ensure_running()

    def update_stack(self) -> None:
        """Install the stack of a cluster that runs, and keep it as planned; while the cluster does not answer nothing new is begun."""
        if is_managed(self.state) and not (self._is_running() and workflow.patched(STACK_PATCH)):
            self.turn.follow(running=False)
            return
        self.installer.update()

    def _is_running(self) -> bool:
        return self.state.facts is not None and cluster_verdict(self._view()).status == TRUE

    def _view(self) -> ClusterView:
        view = view_of(self.state)
        if view.cloud is not None and not workflow.patched(CLOUDS_PATCH):
            view = view._replace(cloud=None)
        return view._replace(unsupported="") if view.unsupported and not workflow.patched(UNSUPPORTED_PATCH) else view

    def update_conditions(self) -> None:
        """Set the conditions from what is known."""
        view = self._view()
        ready = ready_verdict(view)
        self.context.set_condition("ClusterReady", *cluster_verdict(view))
        self.context.set_condition("BackendReady", *backend_verdict(view))
        if ready.status == TRUE and not self.state.was_ready:
            self.context.record_event("Normal", "Ready", f"gateway {view.gateway.address}")
            self.state.was_ready = True
        self.context.set_condition("Ready", *ready)

    # --- teardown -----------------------------------------------------------------------------------------------------------------

    async def tear_down(self) -> bool:
        """Take no new replica, wait until replicas and caches are gone, remove the stack, then all that is at a cloud.

        An Existing cluster itself is left as it is.
        """
        self.context.set_condition("Ready", FALSE, "Deleting", "")
        # A pass that ran when the deletion was requested may have begun another look, for days.
        self.installer.stop_looking()
        if not self.state.cloud.deleted:
            self.watch()
        self.turn.give_back()
        await self.turn.report()
        await self._release_what_is_gone()
        if self._waits_for_replicas():
            await self.reporter.keep_replicas_informed()
        await self.reporter.report_to_scheduler()
        if not self.state.stack.removal.begun and not await self._is_empty():
            return False
        skips = is_created(self.state) and (self.cloud.skips_cluster or self.state.cloud.gone)
        if not skips and not self.removal.update():
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
        """Have replicas end without a cluster that does not exist any more, as its cloud says, while the rest at the cloud is deleted."""
        is_new = is_created(self.state) and self.cloud.note_gone()
        if not self.state.cloud.gone or self.state.occupied == []:
            return
        await self.reporter.keep_replicas_informed()
        if is_new:
            await self.reporter.report_gone()

    def _waits_for_replicas(self) -> bool:
        given_up = self.state.forced or self.state.cloud.gone or self.state.stack.removal.begun
        return not given_up and (self.state.occupied is None or bool(self.state.occupied))

    async def _is_empty(self) -> bool:
        """Wait until replicas and caches are gone, with the control plane if need be, or are given up."""
        waits = not (self.state.forced or self.state.cloud.gone)
        if self._waits_for_replicas():
            self.context.set_condition("Deleting", FALSE, "Occupied", occupied_message(self.name, self.state))
            return False
        await self.reporter.report_to_caches()
        if waits and self.state.caches:
            holders = ", ".join(f"ModelCache {name}" for name in self.state.caches)
            self.context.set_condition("Deleting", FALSE, "Occupied", f"waits until {holders} removed its volumes")
            return False
        if not self.state.cloud.gone:
            self.leave_behind("deletion was forced")
        self.state.stack.removal.begun = True
        if self.state.forced == "step" and (self.state.stack.plan is not None or is_created(self.state)):
            # It was for this wait, and the steps of the stack and of the cloud are others.
            self.state.forced = ""
        return True

    async def _cloud_is_gone(self) -> bool:
        """Have the cluster deleted, once nothing on it holds anything at its cloud."""
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
        """Take from a manifest how the cluster is to be deleted."""
        found = annotations_while_deleting(manifest)
        if not found or found.items() <= self.state.annotations.items():
            return False
        self.state.annotations = {**self.state.annotations, **found}
        self.context.record_event("Normal", "MetadataChanged", f"while it is being deleted: {', '.join(sorted(found))}")
        return True

    def leave_behind(self, reason: str) -> None:
        """List what stays on the cluster after a forced deletion."""
        held = [("ModelReplica", name) for name in self.state.occupied or []] + [("ModelCache", name) for name in self.state.caches]
        self.state.add_left_behind([LeftBehind(kind=kind, name=name, location=self.name, reason=reason) for kind, name in held])

    # --- status -------------------------------------------------------------------------------------------------------------------

    def phase(self) -> str:
        """A cluster that was Ready once is Degraded when it is not."""
        phase = super().phase()
        return "Degraded" if phase == "Progressing" and self.state.was_ready else phase

    def details(self) -> list[str]:
        """Show the stack that is managed."""
        return progress_lines(self.state.stack)

    def status(self) -> dict[str, Any]:
        """Show what the scheduler sees, and where the gateway is."""
        return status_fields(self.name, self.state)
