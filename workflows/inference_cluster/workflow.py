"""InferenceCluster: one GPU cluster of the fleet, from the first contact to the last replica that leaves it.

It resolves the classes of its pools, connects, watches, and publishes to the scheduler what may be placed here. A cluster that does not
answer keeps everything it has: contact lost stops new placements, never running models.
"""

import asyncio
import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.clusters.activities import ClusterActivities
from activities.messaging import CONNECTION_MEMO, EntityClient
from api_types import labels, names, queues
from api_types.errors import error_message, error_type
from api_types.messages.caches import CacheSite
from api_types.messages.cluster_work import ClusterFacts, Connect, Connection, WatchCluster
from api_types.messages.delivery import Broadcast
from api_types.messages.entities import ClusterChanged, Delete, Forget, Occupied, ReportCluster, Resync
from api_types.messages.observations import Observed, ObservedCluster
from api_types.resources.status import LeftBehind
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE, TRUE
from workflows.inference_cluster.caches import ClusterCaches, WithCaches
from workflows.inference_cluster.classes import ClusterClasses, WithClasses
from workflows.inference_cluster.status import Known, backend_verdict, cluster_verdict, drivers, ready_verdict

# Visibility lags behind the start of a replica, so what replicas must know is told twice.
TELL_AGAIN = timedelta(seconds=2)


class ClusterState(WithCaches, WithClasses):
    """What a cluster carries."""

    facts: ClusterFacts | None = None
    connected_generation: int = 0
    was_ready: bool = False
    failure: tuple[str, str] = ("", "")
    observed: ObservedCluster | None = None
    unreachable_since: str = ""
    sequence: int = 0
    reported: str = ""
    told: str = ""
    tell_again: bool = False
    occupied: list[str] | None = None
    epoch: int = 0


@workflow.defn(name="InferenceCluster")
class InferenceClusterWorkflow(ClusterCaches[ClusterState], ClusterClasses[ClusterState]):
    """One cluster."""

    kind = "InferenceCluster"

    @workflow.init
    def __init__(self, state: ClusterState | None) -> None:
        super().__init__(state or ClusterState())
        self.watching: asyncio.Task[None] | None = None
        self.watched_as = ("", "")
        self.retry_at: datetime | None = None
        self.gone = False
        self.remembered = ""

    @workflow.run
    async def run(self, state: ClusterState | None) -> None:
        """Live until torn down."""
        del state
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @workflow.signal
    def observed(self, order: Any) -> None:
        """Note what the observer saw."""
        message = self.read(Observed, order)
        if message is None or message.owner_uid != self.state.uid or message.cluster is None:
            return
        self.state.observed = message.cluster
        if message.cluster.reachable:
            self.state.unreachable_since = ""
        elif not self.state.unreachable_since:
            self.state.unreachable_since = self.now()
            self.event("Warning", "Unreachable", message.cluster.error)
        self.requeue()

    @workflow.signal
    def occupied(self, order: Any) -> None:
        """Note what the ledger still holds here, while this cluster is being deleted."""
        message = self.read(Occupied, order)
        if message and message.sequence == self.state.sequence:
            self.state.occupied = message.replicas
            self.touch()

    def repeat_reports(self) -> None:
        """Report to the scheduler again with the next pass."""
        self.state.reported = ""

    @workflow.signal
    def resync(self, order: Any = None) -> None:
        """Report again to a scheduler that lost its state."""
        message = self.read(Resync, order) if order is not None else None
        if message is None or message.epoch > self.state.epoch:
            self.state.epoch = message.epoch if message else self.state.epoch
            self.repeat_reports()
            self.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what the scheduler keeps of a cluster."""
        return self.report().wire()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Resolve classes, connect, judge, publish, watch."""
        if self.state.deleted:
            return await self.tear_down()
        if self.state.spec is None:
            self.remember()
            return False
        await self.follow_classes()
        self.publish_pools()
        await self.connect()
        self.keep_watching()
        self.judge()
        await self.report_changes()
        self.state.observed_generation = self.state.generation
        return False

    def connection(self) -> Connection | None:
        """Give the reference to the credentials; None for a cluster that is not brought along."""
        source = (self.state.spec or {}).get("cluster", {})
        if source.get("source") != "Existing":
            return None
        ref = source["existing"]["secretRef"]
        queue = self.state.annotations.get(labels.TASK_QUEUE, queues.CLUSTERS)
        return Connection(
            cluster=self.name, namespace=labels.SYSTEM_NAMESPACE, name=ref["name"], key=ref.get("key", "kubeconfig"), task_queue=queue
        )

    async def connect(self) -> None:
        """Make contact once per generation, and again after a failure when it is time."""
        connection = self.connection()
        if connection is None or self.state.connected_generation == self.state.generation:
            return
        if self.retry_at and workflow.now() < self.retry_at:
            self.requeue_after(self.retry_at - workflow.now())
            return
        self.await_contact()
        try:
            facts = await self.unless(
                lambda: bool(self.state.deleted),
                workflow.execute_activity_method(
                    ClusterActivities.connect_cluster,
                    Connect(connection=connection),
                    **activity_options.remote(activity_options.CLUSTER_CALL, f"connect to {self.name}", connection.task_queue),
                ),
            )
        except ActivityError as error:
            self.state.failure = (error_type(error) or "ClusterUnreachable", error_message(error))
            self.event("Warning", self.state.failure[0], self.state.failure[1])
            pause = backoff.transient(self.state.attempts + 2)
            self.state.attempts += 1
            self.retry_at = workflow.now() + pause
            self.requeue_after(pause)
            return
        if facts:
            self.state.facts = facts.model_copy(update=self._declared())
            self.state.failure = ("", "")
            self.state.attempts = 0
            self.state.unreachable_since = ""
            self.state.connected_generation = self.state.generation
            self.stop_watching()
            self.event("Normal", "Connected", f"Kubernetes {facts.kubernetes_version}, DRA {facts.dra_version or 'not served'}")

    def await_contact(self) -> None:
        """Say that the first contact is being made, and show it before the wait."""
        if self.state.facts is None and not self.state.failure[0]:
            self.condition("ClusterReady", FALSE, "Provisioning", "connecting")
            self.condition("BackendReady", FALSE, "WaitingForCluster", "connecting")
            self.condition("Ready", FALSE, "Creating", "connecting")
            self.publish()

    def _declared(self) -> dict[str, Any]:
        """Give the facts that people declare by annotation."""
        marks = self.state.annotations
        cache = (self.state.spec or {}).get("cluster", {}).get("existing", {}).get("cache", {})
        return {
            "routing": marks.get(labels.ROUTING, "pool"),
            "scheduler_type": marks.get(labels.SCHEDULER_TYPE, "none"),
            "mesh_provider": marks.get(labels.MESH_PROVIDER, "none"),
            "storage_class_name": cache.get("storageClassName", ""),
        }

    def on_retry_requested(self) -> None:
        """Forget how long the next attempt was to wait."""
        self.retry_at = None

    def on_spec_changed(self) -> None:
        """A new spec deserves an attempt at once; what people declare by annotation holds from now on."""
        self.retry_at = None
        if self.state.facts:
            self.state.facts = self.state.facts.model_copy(update=self._declared())

    # --- watching -----------------------------------------------------------------------------------------------------------------

    def keep_watching(self) -> None:
        """Have exactly one observer, as soon as there is contact."""
        if self.watching and self.watching.done():
            failed = self.watching.exception() if not self.watching.cancelled() else None
            self.watching = None
            if failed:
                # The observer gives up only on what retrying cannot mend: make contact anew.
                self.state.failure = (error_type(failed) or "ClusterUnreachable", error_message(failed))
                self.state.connected_generation = 0
                self.retry_at = workflow.now() + backoff.transient(self.state.attempts)
                self.requeue()
        connection = self.connection()
        # Annotations make no new generation, and so no new contact: what the observer was told by them may have changed under it.
        declared = (self.state.annotations.get(labels.CAPACITY_ADAPTER, "none"), connection.task_queue if connection else "")
        if self.watching and declared != self.watched_as:
            self.stop_watching()
        if self.watching is None and connection and self.state.connected_generation:
            self.watched_as = declared
            pools = [pool["name"] for pool in (self.state.spec or {}).get("nodePools", ())]
            order = WatchCluster(
                connection=connection,
                cluster_uid=self.state.uid,
                pools=pools,
                capacity_adapter=declared[0],
            )
            self.watching = asyncio.create_task(
                workflow.execute_activity_method(
                    ClusterActivities.watch_cluster,
                    order,
                    **activity_options.remote(activity_options.WATCH, f"watch {self.name}", connection.task_queue),
                )
            )
            self.watching.add_done_callback(self._observer_ended)

    def _observer_ended(self, observer: asyncio.Task[None]) -> None:
        """Ask for a pass. The failure of one that was sent away is read here, or Python would log it as an error that nobody looked at."""
        if not observer.cancelled():
            observer.exception()
        self.requeue()

    def stop_watching(self) -> None:
        """End the observer; another one starts when it is wanted."""
        if self.watching:
            self.watching.cancel()
            self.watching = None

    async def stop_background_tasks(self) -> None:
        """End the observer before this run ends: the next run starts its own."""
        self.stop_watching()

    # --- judging ------------------------------------------------------------------------------------------------------------------

    def gateway(self) -> tuple[str, str]:
        """Give the gateway's address, and why there is none."""
        seen = self.state.observed
        if seen and (seen.gateway_address or seen.gateway_message):
            return seen.gateway_address, seen.gateway_message
        facts = self.state.facts
        return (facts.gateway_address, facts.gateway_message) if facts else ("", "")

    def judge(self) -> None:
        """Write the conditions from what is known."""
        address, message = self.gateway()
        seen = self.state.observed
        known = Known(
            source=(self.state.spec or {})["cluster"]["source"],
            missing_classes=self.missing_classes(),
            failure=self.state.failure,
            in_contact=self.state.facts is not None,
            was_ready=self.state.was_ready,
            silence=f"no answer since {self.state.unreachable_since}: {seen.error}" if seen and not seen.reachable else "",
            gateway_address=address,
            gateway_message=message,
            external_stack=self.state.annotations.get(labels.STACK, "managed") == "external",
        )
        self.condition("ClusterReady", *cluster_verdict(known))
        self.condition("BackendReady", *backend_verdict(known))
        verdict = ready_verdict(known)
        if verdict[0] == TRUE and not self.state.was_ready:
            self.event("Normal", "Ready", f"gateway {address}")
            self.state.was_ready = True
        self.condition("Ready", *verdict)

    # --- telling ------------------------------------------------------------------------------------------------------------------

    def report(self) -> ReportCluster:
        """Say what the scheduler must know: the manifest, with the part of its status that placement reads."""
        whole = self.manifest()
        status = {field: value for field, value in whole["status"].items() if field in ("gateway", "cache", "gpuPools")}
        status["conditions"] = [c for c in whole["status"]["conditions"] if c["type"] == "Ready"]
        if self.state.observed and self.state.observed.capacity:
            status["capacity"] = self.state.observed.capacity.wire()
        metadata = {k: v for k, v in whole["metadata"].items() if k in ("name", "uid", "labels", "annotations", "deletionTimestamp")}
        spec = {field: value for field, value in whole["spec"].items() if field in ("taints", "nodePools")}
        return ReportCluster(
            name=self.name,
            uid=self.state.uid,
            sequence=self.state.sequence,
            epoch=self.state.epoch,
            gone=self.gone,
            manifest={"metadata": metadata, "spec": spec, "status": status},
        )

    def changed(self) -> ClusterChanged:
        """Say what replicas must know."""
        address, message = self.gateway()
        facts = self.state.facts
        since = self.state.unreachable_since
        silent = since != "" and self.silent_for() >= self.withdraw_after()
        return ClusterChanged(
            name=self.name,
            sequence=self.state.sequence,
            present=not self.state.deleted or self.state.occupied is None or bool(self.state.occupied),
            connected=self.state.connected_generation > 0 and not since,
            unreachable_for_seconds=int(self.withdraw_after().total_seconds()) if silent else 0,
            connection=self.connection() if facts else None,
            facts=facts.model_copy(update={"gateway_address": address, "gateway_message": message, "drivers": drivers(self.state.pools)})
            if facts
            else None,
        )

    def site(self) -> CacheSite:
        """Say what caches must know of this cluster."""
        facts = self.state.facts
        return CacheSite(
            name=self.name,
            uid=self.state.uid,
            sequence=self.state.sequence,
            labels=self.state.labels,
            connection=self.connection() if facts else None,
            storage_class_name=facts.storage_class_name if facts else "",
            scheduler_type=facts.scheduler_type if facts else "none",
            present=not self.gone,
            leaving=bool(self.state.deleted),
            attempts_max=facts.cache_attempts_max if facts else 0,
            evict_grace_seconds=facts.cache_evict_grace_seconds if facts else 0,
        )

    def withdraw_after(self) -> timedelta:
        """Give the silence after which the endpoints here are withdrawn (`cluster.unreachableAfter`)."""
        return timedelta(seconds=self.state.facts.withdraw_after_seconds if self.state.facts else 0)

    def silent_for(self) -> timedelta:
        """Give how long the cluster has not answered."""
        return workflow.now() - datetime.fromisoformat(self.state.unreachable_since)

    async def report_changes(self) -> None:
        """Tell the scheduler and the replicas here, each only of what is new to them."""
        self.remember()
        report = self.report()
        digest = _digest(report.manifest)
        if digest != self.state.reported:
            self.state.reported = digest
            self.state.sequence += 1
            await self.tell(names.FLEET_SCHEDULER_ID, "report_cluster", self.report())
        await self.tell_caches()
        if self.state.unreachable_since:
            left = self.withdraw_after() - self.silent_for()
            if left > timedelta():
                self.requeue_after(left)
        changed = self.changed()
        told = _digest(changed.model_copy(update={"sequence": 0}).wire())
        first = not self.state.told
        if told != self.state.told or self.state.tell_again:
            self.state.tell_again = told != self.state.told and not first
            self.state.told = told
            self.state.sequence += 1
            if not first:
                await self._tell_replicas()
            if self.state.tell_again:
                self.requeue_after(TELL_AGAIN)

    def remember(self) -> None:
        """Keep what replicas must know where they read it when they are born, before anybody can place them here."""
        view = self.changed()
        digest = _digest(view.model_copy(update={"sequence": 0}).wire())
        if digest != self.remembered:
            workflow.upsert_memo({CONNECTION_MEMO: view.wire()})
            self.remembered = digest

    async def _tell_replicas(self) -> None:
        await workflow.execute_activity_method(
            EntityClient.broadcast,
            Broadcast(kinds=["ModelReplica"], cluster=self.name, signal="cluster_changed", payload=self.changed().wire()),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"tell the replicas on {self.name} how it is"),
        )

    # --- leaving ------------------------------------------------------------------------------------------------------------------

    def on_delete_requested(self, order: Delete) -> None:
        """Evict what runs here, if the user said so."""
        if order.evict and self.state.spec is not None:
            taint = {"key": labels.MAINTENANCE, "effect": "NoExecute"}
            taints = [t for t in self.state.spec.get("taints", []) if (t["key"], t["effect"]) != (taint["key"], taint["effect"])]
            self.state.spec = {**self.state.spec, "taints": [*taints, taint]}
            self.state.generation += 1

    async def tear_down(self) -> bool:
        """Take no new replica, wait until the ledger holds none here, then go. An Existing cluster itself is left as it is."""
        self.condition("Ready", FALSE, "Deleting", "")
        self.keep_watching()
        digest = _digest(self.report().manifest)
        if digest != self.state.reported:
            self.state.reported = digest
            self.state.occupied = None
            self.state.sequence += 1
            await self.tell(names.FLEET_SCHEDULER_ID, "report_cluster", self.report())
        if (self.state.occupied is None or self.state.occupied) and not self.state.forced:
            held = ", ".join(self.state.occupied or []) or "the scheduler's answer"
            self.condition("Deleting", FALSE, "Occupied", f"waits for {held}; move the replicas away, or delete with --evict")
            return False
        await self.tell_caches()
        if self.state.caches and not self.state.forced:
            held = ", ".join(f"ModelCache {name}" for name in self.state.caches)
            self.condition("Deleting", FALSE, "Occupied", f"waits until {held} took its volumes away")
            return False
        self.state.left_behind = [
            LeftBehind(kind="ModelReplica", name=name, location=self.name, reason="deletion was forced")
            for name in self.state.occupied or []
        ]
        self.state.left_behind += [
            LeftBehind(kind="ModelCache", name=name, location=self.name, reason="deletion was forced") for name in self.state.caches
        ]
        self.stop_watching()
        self.state.occupied = []
        self.remember()
        await self._tell_replicas()
        for name in self.state.wanted:
            await self._want(name, used=False)
        # A closed workflow still answers queries: say so before anybody could ask.
        self.gone = True
        if self.state.caches:
            await self.tell_caches()
        await self.tell(names.FLEET_SCHEDULER_ID, "forget", Forget(kind=self.kind, name=self.name, uid=self.state.uid))
        return True

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def phase(self) -> str:
        """A cluster that was Ready once is Degraded when it is not."""
        phase = super().phase()
        return "Degraded" if phase == "Progressing" and self.state.was_ready else phase

    def status(self) -> dict[str, Any]:
        """Show what the scheduler sees, and where the gateway is."""
        address, _ = self.gateway()
        status: dict[str, Any] = {"namespace": labels.SYSTEM_NAMESPACE}
        if self.state.facts:
            status["providerConfigRef"] = {"name": names.connection_handle(self.name)}
            if self.state.facts.storage_class_name:
                status["cache"] = {"storageClassName": self.state.facts.storage_class_name}
        if address:
            status["gateway"] = {"address": address}
        if self.state.pools:
            status["gpuPools"] = self.state.pools
        if self.state.observed and self.state.observed.nodes:
            status["nodes"] = [pool.wire() for pool in self.state.observed.nodes]
        return status


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
