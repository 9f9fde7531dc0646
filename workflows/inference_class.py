"""InferenceClass: a tested recipe for one node shape.

It holds a spec and knows who uses it: clusters register, and hear of every change. A class in use cannot go.
"""

from typing import Any

from pydantic import Field
from temporalio import workflow

from activities.messaging import EntityClient
from api_types import names
from api_types.messages.delivery import Broadcast, SignalBatch, SignalRequest
from api_types.messages.entities import ClassChanged, ClassUse, Forget, ReportClass, Resync
from api_types.prices import UNPRICED, price_milli
from workflows.entity import activity_options
from workflows.entity.conditions import FALSE, TRUE
from workflows.entity.entity import Entity
from workflows.entity.state import EntityState


class ClassState(EntityState):
    """What a class carries: its users, and what they and the scheduler were last told."""

    clusters: list[str] = Field(default_factory=list)
    told: int = 0
    told_price: int = UNPRICED
    answer: list[str] = Field(default_factory=list)
    epoch: int = 0


@workflow.defn(name="InferenceClass")
class InferenceClassWorkflow(Entity[ClassState]):
    """One class of nodes."""

    kind = "InferenceClass"

    @workflow.init
    def __init__(self, state: ClassState | None) -> None:
        super().__init__(state or ClassState())

    @workflow.run
    async def run(self, state: ClassState | None) -> None:
        """Live until deleted and unused."""
        del state
        await self.run_until_deleted()

    @workflow.signal
    def class_wanted(self, order: Any) -> None:
        """Note that a cluster uses this class, or no longer does."""
        message = self.read(ClassUse, order)
        if message is None:
            return
        others = [cluster for cluster in self.state.clusters if cluster != message.cluster]
        self.state.clusters = sorted([*others, message.cluster]) if message.used else others
        if message.used and message.cluster not in self.state.answer:
            self.state.answer.append(message.cluster)
        self.touch()

    def repeat_reports(self) -> None:
        """Report to the scheduler again with the next pass."""
        self.state.told = min(self.state.told, self.state.generation - 1)

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
        """Give what the scheduler keeps of a class."""
        return self.report().wire()

    def report(self) -> ReportClass:
        """Say what the scheduler must know."""
        return ReportClass(name=self.name, generation=self.state.generation, spec=self.state.spec)

    async def reconcile(self) -> bool:
        """Tell scheduler and clusters what changed; go when nobody uses it."""
        if self.state.deleted:
            if self.state.clusters and not self.state.forced:
                self.condition("Deleting", FALSE, "InUse", f"used by {', '.join(self.state.clusters)}; remove it from their node pools")
                await self._answer(self.state.answer)
                return False
            await self.tell(names.FLEET_SCHEDULER_ID, "forget", Forget(kind=self.kind, name=self.name, uid=self.state.uid))
            return True
        if self.state.spec is None:
            return False
        first = self.state.observed_generation == 0
        # The price is an annotation, and annotations make no new generation.
        repriced = self.state.told_price != self._price()
        self.state.told_price = self._price()
        if self.state.told < self.state.generation:
            self.state.told = self.state.generation
            await self.tell(names.FLEET_SCHEDULER_ID, "report_class", self.report())
            if first:
                await self._announce()
            else:
                await self._answer(self.state.clusters)
        else:
            await self._answer(self.state.clusters if repriced else self.state.answer)
        self.state.observed_generation = self.state.generation
        self.condition("Accepted", TRUE, "Available")
        self.condition("Ready", TRUE, "Available")
        return False

    def _price(self) -> int:
        return price_milli(self.state.annotations)

    def _changed(self) -> ClassChanged:
        return ClassChanged(
            name=self.name, uid=self.state.uid, generation=self.state.generation, spec=self.state.spec, price_milli=self._price()
        )

    async def _answer(self, clusters: list[str]) -> None:
        if not clusters or self.state.spec is None:
            return
        self.state.answer = [cluster for cluster in self.state.answer if cluster not in clusters]
        payload = self._changed().wire()
        tells = [
            SignalRequest(workflow_id=names.workflow_id("InferenceCluster", "", cluster), signal="class_changed", payload=payload)
            for cluster in clusters
        ]
        await workflow.execute_activity_method(
            EntityClient.tell_many,
            SignalBatch(signals=tells),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"tell {len(tells)} clusters of this class"),
        )

    async def _announce(self) -> None:
        """Tell every cluster that this class exists now: one may have waited for it, for what is missing takes no registration."""
        await workflow.execute_activity_method(
            EntityClient.broadcast,
            Broadcast(kinds=["InferenceCluster"], signal="class_changed", payload=self._changed().wire()),
            **activity_options.remote(activity_options.ENTITY_BATCH, "tell all clusters that this class exists"),
        )

    def status(self) -> dict[str, Any]:
        """Show who uses the class."""
        return {"clusters": self.state.clusters} if self.state.clusters else {}
