"""Simulated clusters that record which replicas have objects on them."""

from dataclasses import dataclass, field

from temporalio import activity

from activities.render.objects.teardown import ENGINES
from api_types.messages.cluster_work import (
    Applied,
    ApplyReplica,
    RunTeardownStep,
    TeardownStepResult,
)
from tests.workflows.environment.simulated_control import SimulatedControl


@dataclass(frozen=True)
class Held:
    """A replica with objects on a cluster, and the image of its engine."""

    namespace: str
    name: str
    cluster: str
    image: str


@dataclass
class RecordingClusters(SimulatedControl):
    """Record replicas by uid in `held`.

    `twice` has replicas that were applied while another one of their name was on a
    cluster.
    """

    held: dict[str, Held] = field(default_factory=dict)
    twice: list[Held] = field(default_factory=list)

    @activity.defn
    async def apply_replica(self, order: ApplyReplica) -> Applied:
        (member, *_) = order.spec["engines"][0]["members"]
        image = member["template"]["spec"]["containers"][0]["image"]
        applied = Held(order.namespace, order.name, order.connection.cluster, image)
        others = [each for uid, each in self.held.items() if uid != order.uid]
        self.twice += [
            applied
            for each in others
            if (each.namespace, each.name) == (applied.namespace, applied.name)
        ]
        self.held[order.uid] = applied
        return await super().apply_replica(order)

    @activity.defn
    async def teardown_replica_step(self, order: RunTeardownStep) -> TeardownStepResult:
        if order.number == ENGINES:
            self.held.pop(order.uid, None)
        return await super().teardown_replica_step(order)
