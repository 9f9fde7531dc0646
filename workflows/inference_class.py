"""InferenceClass: a tested recipe for one node shape.

It holds a spec and knows which clusters use it: clusters register, and it reports every change to them. A class in use cannot be deleted.
"""

from typing import Any

from pydantic import Field
from temporalio import workflow

from api_types.messages.delivery import entity
from api_types.messages.entities import ClassChanged, ClassUse
from api_types.messages.scheduling import Forget, ReportClass, Resync
from api_types.messages.signals import FLEET_SCHEDULER, FleetSchedulerSignals, InferenceClassSignals, InferenceClusterSignals
from api_types.messages.versions import Version
from api_types.prices import UNPRICED, price_milli
from workflows.entity.calls.sending import broadcast, send_all
from workflows.entity.conditions import FALSE, TRUE
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.registering.registrations import drop_ended, is_newest
from workflows.entity.start import read_carried
from workflows.entity.state import EntityState


class ClassState(EntityState):
    """What a class carries. Where a field has an alias, that is its name in the JSON of every release so far.

    Attributes:
        clusters: those that use this class. `registrations`: the last one of each cluster.
        reported_generation, reported_price: what was last reported to scheduler and clusters.
        unanswered: clusters that registered and got no report yet.
        epoch: that of the scheduler to which the last report went; `repeat_to_scheduler`: it gets the last report again.

    """

    clusters: list[str] = Field(default_factory=list)
    registrations: dict[str, Version] = Field(default_factory=dict)
    reported_generation: int = Field(default=0, alias="told")
    reported_price: int = Field(default=UNPRICED, alias="toldPrice")
    unanswered: list[str] = Field(default_factory=list, alias="answer")
    epoch: int = 0
    repeat_to_scheduler: bool = False


@workflow.defn(name="InferenceClass")
class InferenceClassWorkflow(Entity[ClassState]):
    """Workflow id inferenceclass/<name>; ends when it is deleted and no cluster uses it."""

    kind = "InferenceClass"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, ClassState) or ClassState())

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the class is deleted and unused."""
        del arguments
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @handles(InferenceClassSignals.CLASS_USED)
    def class_used(self, message: ClassUse) -> None:
        """Record that a cluster uses this class, or no longer does."""
        if not is_newest(self.state.registrations, message.cluster, message.uid, message.sequence):
            return
        others = [cluster for cluster in self.state.clusters if cluster != message.cluster]
        self.state.clusters = sorted([*others, message.cluster]) if message.used else others
        drop_ended(self.state.registrations, self.state.clusters)
        if message.used and message.cluster not in self.state.unanswered:
            self.state.unanswered.append(message.cluster)
        self.context.mark_changed()

    @handles(InferenceClassSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again: to a scheduler that lost its state, or to all."""
        if message is None:
            self.state.reported_generation = min(self.state.reported_generation, self.state.generation - 1)
            self.context.requeue()
        elif message.epoch != self.state.epoch:
            # The report carries the greater epoch to a scheduler that has a smaller one.
            self.state.epoch = max(message.epoch, self.state.epoch)
            self.state.repeat_to_scheduler = True
            self.context.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what the scheduler keeps of a class."""
        return self.report().wire()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    def receivers(self) -> list[str]:
        """Name the scheduler. Clusters find out by themselves whether this class still knows them."""
        return [FLEET_SCHEDULER.workflow_id]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report to a scheduler that was started anew."""
        if workflow_ids:
            self.state.repeat_to_scheduler = True

    async def reconcile(self) -> bool:
        """Report what changed; when deleted, wait until no cluster uses the class."""
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
        """Whether clusters use the class."""
        return bool(self.state.clusters) and not self.state.forced

    async def tear_down(self) -> bool:
        """Wait until no cluster uses the class, then report that to the scheduler. True when it is gone."""
        if self.waits_for_users():
            clusters = ", ".join(self.state.clusters)
            self.context.set_condition("Deleting", FALSE, "InUse", f"used by InferenceCluster {clusters}; remove it from their node pools")
            await self.report_to_clusters(self.state.unanswered)
            return False
        forget = Forget(kind=self.kind, name=self.name, uid=self.state.uid)
        await self.context.signal_recorded(FLEET_SCHEDULER, FleetSchedulerSignals.FORGET, forget)
        return True

    # --- reports ------------------------------------------------------------------------------------------------------------------

    async def report_changes(self) -> None:
        """Report a new generation to all, a new price to clusters, and to those that registered what they do not know yet."""
        new_generation = self.state.reported_generation < self.state.generation
        # The price is an annotation, and annotations make no new generation.
        new_price = self.state.reported_price != self._price()
        self.state.reported_generation = max(self.state.generation, self.state.reported_generation)
        self.state.reported_price = self._price()
        if new_generation or self.state.repeat_to_scheduler:
            self.state.repeat_to_scheduler = False
            await self.context.signal(FLEET_SCHEDULER, FleetSchedulerSignals.REPORT_CLASS, self.report())
        if new_generation and self.state.observed_generation == 0:
            await self.announce()
        else:
            await self.report_to_clusters(self.state.clusters if new_generation or new_price else self.state.unanswered)

    def report(self) -> ReportClass:
        """Give what the scheduler must know."""
        return ReportClass(name=self.name, generation=self.state.generation, epoch=self.state.epoch, spec=self.state.spec)

    async def report_to_clusters(self, clusters: list[str]) -> None:
        """Report the class to some clusters."""
        if not clusters or self.state.spec is None:
            return
        self.state.unanswered = [cluster for cluster in self.state.unanswered if cluster not in clusters]
        report = self._cluster_report()
        refs = [entity(InferenceClusterSignals, "", cluster) for cluster in clusters]
        requests = [InferenceClusterSignals.CLASS_CHANGED.request(ref, report) for ref in refs]
        missing = await send_all(requests, f"report this class to {len(refs)} clusters")
        # One that was terminated could not unregister; it registers again when it is applied again.
        gone = {workflow_id.rpartition("/")[2] for workflow_id in missing}
        self.state.clusters = [cluster for cluster in self.state.clusters if cluster not in gone]

    async def announce(self) -> None:
        """Tell every cluster that this class exists now: one that waits for it could not register before."""
        created = InferenceClusterSignals.CLASS_CHANGED.broadcast(self._cluster_report(), InferenceClusterSignals)
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

    # --- status -------------------------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Show which clusters use the class."""
        return {"clusters": self.state.clusters} if self.state.clusters else {}
