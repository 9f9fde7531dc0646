"""The InferenceCluster of an exploration."""

from typing import Any

from api_types import names
from api_types.clock import timestamp
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster
from api_types.messages.scheduling import Forget, ReportCluster
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    FleetSchedulerSignals,
    InferenceClusterSignals,
)
from api_types.messages.versions import MessageVersion
from tests.workflows.explorer.entity_node import EntityNode, Steps, message_of
from tests.workflows.explorer.world import World
from workflows.entity.conditions import TRUE
from workflows.inference_cluster.reports import replica_report, scheduler_report
from workflows.inference_cluster.state import ClusterState

DEVICE = {
    "name": "gpu",
    "claim": "DRA",
    "driver": "gpu.nvidia.com",
    "deviceClassName": "gpu.nvidia.com",
    "count": 8,
}


class ClusterNode(EntityNode):
    """A connected InferenceCluster.

    It reports itself, and ends when the scheduler has no replica there.
    """

    kind = "InferenceCluster"

    def undo_task(self) -> None:
        """Do nothing: the real workflow keeps more than this node's state."""

    def __init__(
        self, world: World, name: str, pools: dict[str, int], **metadata: Any
    ) -> None:
        self.pools, self.gone = dict(pools), False
        state = ClusterState(
            generation=1,
            connected_generation=1,
            facts=ClusterFacts(
                kubernetes_version="1.35",
                gateway_address="10.0.0.1",
                withdraw_after_seconds=300,
            ),
            observed=ObservedCluster(reachable=True, gateway_address="10.0.0.1"),
            creation_timestamp=timestamp(world.moment()),
            **metadata,
        )
        super().__init__(world, names.workflow_id(self.kind, "", name), state)
        self.show()

    def build(self) -> None:
        signals = InferenceClusterSignals
        self.receivers = dict(
            [
                message_of(signals.OCCUPIED, self._occupied),
                message_of(signals.RESYNC, self._resync),
            ]
        )

    def show(self) -> None:
        """Write the pools and readiness to the state."""
        existing = {"secretRef": {"name": "c"}}
        node_pools = [
            {"name": pool, "className": "h100", "nodeCount": count}
            for pool, count in self.pools.items()
        ]
        self.state.spec = {
            "cluster": {"source": "Existing", "existing": existing},
            "nodePools": node_pools,
        }
        self.state.pools = [
            {"name": pool, "nodes": count, "devices": [DEVICE]}
            for pool, count in self.pools.items()
        ]
        self.context.set_condition("Ready", TRUE, "Available")
        for pool, count in self.pools.items():
            self.world.clusters.set_nodes((self.context.name, pool), count)
        self.state.scheduler_digest = ""
        self.context.requeue()

    def delete(self) -> None:
        self.state.deletion_timestamp = (
            self.state.deletion_timestamp or self.context.now()
        )
        self.state.scheduler_digest = ""
        self.context.requeue()

    def has_reported(self, known: MessageVersion) -> bool:
        """Return whether the newest report is the known one."""
        return bool(self.state.scheduler_digest) and (known.uid, known.sequence) == (
            self.state.uid,
            self.state.sequence,
        )

    def memo(self) -> Any:
        return replica_report(self.context.name, self.state).wire()

    def reports_to(self) -> list[str]:
        return [FLEET_SCHEDULER.workflow_id]

    def receivers_lost(self, workflow_ids: list[str]) -> None:
        if workflow_ids:
            self.state.scheduler_digest = ""

    def account(self) -> Any:
        return self._report().wire()

    def _report(self) -> ReportCluster:
        seen = self.world.clusters.watched(self.context.name, self.world.ms)
        self.state.observed = ObservedCluster(
            reachable=True, gateway_address="10.0.0.1", replicas=seen
        )
        return scheduler_report(self.context.name, self.state, gone=self.gone)

    def _occupied(self, message: Any) -> None:
        if message.uid == self.state.uid and message.sequence == self.state.sequence:
            self.state.occupied = message.replicas
            self.context.requeue()

    def _resync(self, message: Any) -> None:
        self.state.epoch = max(self.state.epoch, message.epoch if message else 0)
        self.state.scheduler_digest = ""
        self.context.requeue()

    def reconcile(self) -> Steps:
        if not self.state.scheduler_digest:
            self.state.scheduler_digest, self.state.sequence, self.state.occupied = (
                "sent",
                self.state.sequence + 1,
                None,
            )
            report = self._report()
            yield
            self.world.send(
                [FleetSchedulerSignals.REPORT_CLUSTER.request(FLEET_SCHEDULER, report)]
            )
            yield
        if self.state.deleting and self.state.occupied == []:
            forget = Forget(kind=self.kind, name=self.context.name, uid=self.state.uid)
            self.gone = True
            self.world.send(
                [FleetSchedulerSignals.FORGET.request(FLEET_SCHEDULER, forget)]
            )
            yield
            self.world.end(self)
