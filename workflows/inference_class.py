"""InferenceClass: a tested recipe for one node shape.

It holds a spec and knows the clusters that use it. Clusters register, and the class
reports every change to them. A class in use cannot be deleted.
"""

from typing import Any

from pydantic import Field
from temporalio import workflow

from api_types.messages.delivery import entity
from api_types.messages.entities import ClassChanged, ClassUse
from api_types.messages.scheduling import Forget, ReportClass, Resync
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    FleetSchedulerSignals,
    InferenceClassSignals,
    InferenceClusterSignals,
)
from api_types.messages.versions import MessageVersion
from api_types.prices import UNPRICED, price_milli
from workflows.entity.calls.sending import broadcast, send_all
from workflows.entity.conditions import FALSE, TRUE
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.registering.registrations import drop_ended, is_newest
from workflows.entity.start import read_carried
from workflows.entity.state import EntityState


class ClassState(EntityState):
    """The state of a class.

    Attributes:
        clusters: the clusters that use this class.
        registrations: the last registration of each cluster.
        reported_generation, reported_price: the values in the last report to scheduler
            and clusters.
        unanswered: clusters that registered and received no report yet.
        epoch: the epoch of the scheduler that received the last report.
        repeat_to_scheduler: whether the scheduler receives the last report again.

    """

    clusters: list[str] = Field(default_factory=list)
    registrations: dict[str, MessageVersion] = Field(default_factory=dict)
    reported_generation: int = 0
    reported_price: int = UNPRICED
    unanswered: list[str] = Field(default_factory=list)
    epoch: int = 0
    repeat_to_scheduler: bool = False


@workflow.defn(name="InferenceClass")
class InferenceClassWorkflow(Entity[ClassState]):
    """Workflow id inferenceclass/<name>.

    It ends when the class is deleted and no cluster uses it.
    """

    kind = "InferenceClass"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, ClassState) or ClassState())

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the class is deleted and unused."""
        del arguments
        await self.run_until_deleted()

    # Messages

    @handles(InferenceClassSignals.CLASS_USED)
    def class_used(self, message: ClassUse) -> None:
        """Record whether a cluster uses this class."""
        if not is_newest(
            self.state.registrations, message.cluster, message.uid, message.sequence
        ):
            return
        others = [
            cluster for cluster in self.state.clusters if cluster != message.cluster
        ]
        self.state.clusters = (
            sorted([*others, message.cluster]) if message.used else others
        )
        drop_ended(self.state.registrations, self.state.clusters)
        if message.used and message.cluster not in self.state.unanswered:
            self.state.unanswered.append(message.cluster)
        self.context.mark_changed()

    @handles(InferenceClassSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again: to a scheduler that lost its state, or to all receivers."""
        if message is None:
            self.state.reported_generation = min(
                self.state.reported_generation, self.state.generation - 1
            )
            self.context.requeue()
        elif message.epoch != self.state.epoch:
            # The report carries the greater epoch to a scheduler that has a smaller one.
            self.state.epoch = max(message.epoch, self.state.epoch)
            self.state.repeat_to_scheduler = True
            self.context.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Return the account of this class for the scheduler."""
        return self.report().wire()

    # One pass

    def receivers(self) -> list[str]:
        """Return the scheduler.

        Clusters check by themselves whether this class knows them.
        """
        return [FLEET_SCHEDULER.workflow_id]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report to a restarted scheduler."""
        if workflow_ids:
            self.state.repeat_to_scheduler = True

    def on_resync(self) -> None:
        """Find clusters that ended without unregistering, if they hold up the deletion."""
        if self.state.deleting:
            self.state.unanswered = list(self.state.clusters)

    async def reconcile(self) -> bool:
        """Report changes. During a deletion, wait until no cluster uses the class."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        await self.report_changes()
        self.state.observed_generation = self.state.generation
        self.context.set_condition("Accepted", TRUE, "Available")
        self.context.set_condition("Ready", TRUE, "Available")
        return False

    def waits_for_users(self) -> bool:
        """Return whether clusters use the class."""
        return bool(self.state.clusters) and not self.state.forced

    async def tear_down(self) -> bool:
        """Wait until no cluster uses the class, then report the deletion.

        Return True when the class is gone. Until then, its users get changes that were
        made just before the deletion, and new users get an answer.
        """
        if self.waits_for_users():
            await self.report_changes()
        if self.waits_for_users():
            clusters = ", ".join(self.state.clusters)
            self.context.set_condition(
                "Deleting",
                FALSE,
                "InUse",
                f"used by InferenceCluster {clusters}; remove it from their node pools",
            )
            return False
        forget = Forget(kind=self.kind, name=self.name, uid=self.state.uid)
        await self.context.signal_recorded(
            FLEET_SCHEDULER, FleetSchedulerSignals.FORGET, forget
        )
        return True

    # Reports

    async def report_changes(self) -> None:
        """Report a new generation or price, and answer new clusters.

        All receivers get a new generation, and clusters get a new price.
        """
        new_generation = self.state.reported_generation < self.state.generation
        # The price is an annotation, and annotations make no new generation.
        new_price = self.state.reported_price != self._price()
        self.state.reported_generation = max(
            self.state.generation, self.state.reported_generation
        )
        self.state.reported_price = self._price()
        if new_generation or self.state.repeat_to_scheduler:
            self.state.repeat_to_scheduler = False
            await self.context.signal(
                FLEET_SCHEDULER, FleetSchedulerSignals.REPORT_CLASS, self.report()
            )
        if new_generation and self.state.observed_generation == 0:
            await self.announce()
        else:
            await self.report_to_clusters(
                self.state.clusters
                if new_generation or new_price
                else self.state.unanswered
            )

    def report(self) -> ReportClass:
        """Return the report for the scheduler."""
        return ReportClass(
            name=self.name,
            generation=self.state.generation,
            epoch=self.state.epoch,
            spec=self.state.spec,
        )

    async def report_to_clusters(self, clusters: list[str]) -> None:
        if not clusters or self.state.spec is None:
            return
        self.state.unanswered = [
            cluster for cluster in self.state.unanswered if cluster not in clusters
        ]
        report = self._cluster_report()
        refs = [entity(InferenceClusterSignals, "", cluster) for cluster in clusters]
        requests = [
            InferenceClusterSignals.CLASS_CHANGED.request(ref, report) for ref in refs
        ]
        missing = await send_all(requests, f"report this class to {len(refs)} clusters")
        # A terminated cluster could not unregister. It registers again when it is
        # applied again.
        gone = {workflow_id.rpartition("/")[2] for workflow_id in missing}
        self.state.clusters = [
            cluster for cluster in self.state.clusters if cluster not in gone
        ]

    async def announce(self) -> None:
        """Report to every cluster that this class exists now.

        A cluster that waits for it could not register before.
        """
        created = InferenceClusterSignals.CLASS_CHANGED.broadcast(
            self._cluster_report(), InferenceClusterSignals
        )
        await broadcast(created, "report to all clusters that this class exists")

    def _cluster_report(self) -> ClassChanged:
        return ClassChanged(
            name=self.name,
            uid=self.state.uid,
            generation=self.state.generation,
            sequence=self.context.next_registration(),
            spec=self.state.spec,
            price_milli=self._price(),
        )

    def _price(self) -> int:
        return price_milli(self.state.annotations)

    # Status

    def status(self) -> dict[str, Any]:
        """Return the clusters that use the class."""
        return {"clusters": self.state.clusters} if self.state.clusters else {}
