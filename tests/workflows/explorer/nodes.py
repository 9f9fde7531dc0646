"""The deployments and replicas of an exploration.

Each drives the controller of its workflow as the workflow does, one step at a time.
"""

from collections.abc import Callable
from typing import Any

from activities.messaging.sending import StartResult, started_replicas
from activities.render.objects.teardown import ENGINES, SWEEP
from api_types import names
from api_types.messages.cluster_work import (
    Applied,
    AppliedEngine,
    AppliedObject,
    RemainingObject,
    TeardownStepResult,
)
from api_types.messages.entities import StartedReplicas, StartReplica
from api_types.messages.observations import (
    Observed,
    ObservedObject,
    ObservedReplica,
    ObservedRoute,
    ObservedWorkload,
)
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    ModelDeploymentSignals,
    ModelReplicaSignals,
)
from scheduler import read_entry
from scheduler.hardware.template import charges
from tests.workflows.explorer.cluster_node import ClusterNode
from tests.workflows.explorer.entity_node import USER, EntityNode, Steps, message_of
from tests.workflows.explorer.world import Pod, World
from workflows.entity import admission
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.model_deployment import orders as deployment_orders
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.decisions.account import deployment_account
from workflows.model_deployment.decisions.scaling import (
    record_applied_replicas,
    record_revision,
)
from workflows.model_deployment.state import DeploymentState
from workflows.model_replica import orders as replica_orders
from workflows.model_replica.controller import ModelReplicaController
from workflows.model_replica.decisions.status import account_of
from workflows.model_replica.reducers import messages as replica_messages
from workflows.model_replica.state import ModelReplicaState

OBJECT = "apps/v1/Deployment/ml/engine"


class DeploymentNode(EntityNode):
    kind = "ModelDeployment"

    def __init__(self, world: World, name: str, document: dict[str, Any]) -> None:
        super().__init__(
            world,
            names.workflow_id(self.kind, document["metadata"]["namespace"], name),
            DeploymentState(),
        )
        self.apply(document)

    def build(self) -> None:
        self.controller = DeploymentController(self.context)
        signals = ModelDeploymentSignals
        self.receivers = dict(
            [
                message_of(signals.PLACED, self.controller.placed),
                message_of(signals.EVICT, self.controller.evict),
                message_of(signals.REVOKE, self.controller.revoke),
                message_of(signals.RELEASED, self.controller.released),
                message_of(signals.FORGOTTEN, self.controller.forgotten),
                message_of(
                    signals.REPLICA_CHANGED, self.controller.replicas.record_report
                ),
                message_of(signals.RESYNC, self.controller.resync),
                (USER, lambda act: act()),
            ]
        )

    # Users

    def apply(self, document: dict[str, Any]) -> None:
        """Accept an admitted spec."""
        if self.state.deleting:
            return
        spec = record_applied_replicas(self.state, document["spec"], self.context.now())
        record_revision(self.state, spec, self.context.now())
        if admission.store(self.context, document["metadata"], spec):
            self.controller.start_timing()
            self.context.mark_changed()

    def scale(self, replicas: int) -> None:
        if self.state.spec is not None and not self.state.deleting:
            self.state.spec = {**self.state.spec, "replicas": replicas}
            self.state.generation += 1
            self.context.mark_changed()

    def delete(self, force: str = "") -> None:
        self.state.deletion_timestamp = (
            self.state.deletion_timestamp or self.context.now()
        )
        self.state.forced = force
        self.context.mark_changed()

    # The workflow

    def reports_to(self) -> list[str]:
        return [FLEET_SCHEDULER.workflow_id]

    def dependents(self) -> list[str]:
        return [
            names.workflow_id("ModelReplica", self.context.namespace, replica.name)
            for replica in self.state.started()
        ]

    def receivers_lost(self, workflow_ids: list[str]) -> None:
        self.controller.receivers_lost(workflow_ids)

    def account(self) -> Any:
        return deployment_account(
            self.state, self.context.namespace, self.context.name
        ).wire()

    def reconcile(self) -> Steps:
        if not self.state.adopted:
            listed = [
                each
                for each in self.world.listed(["ModelReplica"])
                if not self.world.happens(self.world.chances.unlisted)
            ]
            own = {
                each: account
                for each in listed
                if (account := self.world.query(each))
                and account["deployment"] == self.context.name
            }
            silent = [
                each
                for each in listed
                if each not in own
                and self.world.running[each].account()["deployment"]
                == self.context.name
            ]
            # The visibility record of a closed run stays: every listing contains it.
            ended = [
                each
                for each in self.world.listed_terminated(
                    "ModelReplica", self.context.name
                )
                if each not in listed
            ]
            yield
            self.controller.replicas.adopt(own)
            self.controller.replicas.record_ended(ended)
            self.controller.replicas.record_unknown(
                [each.rsplit("/", 1)[-1] for each in silent]
            )
            self.controller.replicas.request_resync()
            self.state.adopted = True
        yield from self._carry_out(self.controller.next_orders({}))
        self.controller.conclude()
        if self.controller.is_gone:
            self.world.end(self)

    def _carry_out(self, orders: list[deployment_orders.Order]) -> Steps:
        waiting = list(orders)
        while waiting:
            yield
            order, replicas = waiting.pop(0), self.controller.replicas
            match order:
                case deployment_orders.SendDeploymentSignals(signals, _, recorded):
                    if recorded:
                        self.complete_task()
                    missing = self.world.send(signals)
                    yield
                    replicas.sent(missing)
                case deployment_orders.StartReplicaWorkflows(starts):
                    self.complete_task()
                    result = start_replicas(self.world, starts)
                    if self.world.happens(self.world.chances.repeated):
                        result = start_replicas(self.world, starts)
                    yield
                    waiting += replicas.started(order, result)
                case deployment_orders.ReadReplicaAccounts(unknown, _):
                    ids = [
                        names.workflow_id("ModelReplica", self.context.namespace, name)
                        for name in unknown
                    ]
                    answers = {
                        each: account
                        for each in ids
                        if (account := self.world.query(each)) is not None
                    }
                    silent = [
                        each
                        for each in ids
                        if each not in answers and each in self.world.running
                    ]
                    yield
                    waiting += replicas.accounts_read(order, answers, silent)


def start_replicas(world: World, starts: list[StartReplica]) -> StartedReplicas:
    return started_replicas(starts, [start_replica(world, start) for start in starts])


def start_replica(world: World, start: StartReplica) -> StartResult:
    """Start the workflow of a replica, as `activities.messaging.sending` does."""
    workflow_id = names.workflow_id("ModelReplica", start.namespace, start.name)
    running = world.running.get(workflow_id)
    if isinstance(running, ReplicaNode):
        return StartResult.RUNS if running.state.uid == start.uid else StartResult.TAKEN
    last = world.ended.get(workflow_id)
    if last is not None and (last["uid"] == start.uid) == (
        workflow_id not in world.unfinished
    ):
        return (
            StartResult.COMPLETED
            if last["uid"] == start.uid
            else StartResult.UNFINISHED
        )
    world.start(ReplicaNode(world, workflow_id, start))
    return StartResult.RUNS


class ReplicaNode(EntityNode):
    """A ModelReplica with a cluster that applies, deletes and observes, sometimes
    without effect.
    """

    kind = "ModelReplica"

    def __init__(self, world: World, workflow_id: str, start: StartReplica) -> None:
        state = ModelReplicaState.model_validate({"start": start.wire()})
        self.deployment_id = names.workflow_id(
            "ModelDeployment", start.namespace, start.deployment
        )
        super().__init__(world, workflow_id, state)

    def renew(self, state: Any) -> None:
        self.state = state
        self.context = EntityContext(
            self.kind, state, lambda: None, self.workflow_id, self.world.moment
        )
        self.passing = None
        self.build()

    def build(self) -> None:
        self.controller = ModelReplicaController(self.context)
        signals = ModelReplicaSignals
        self.receivers = dict(
            [
                message_of(
                    signals.SET_TEMPLATE,
                    lambda message: self._changed(
                        replica_messages.set_template(self.state, message)
                    ),
                ),
                message_of(
                    signals.SET_LABELS,
                    lambda message: self._changed(
                        replica_messages.set_labels(self.state, message)
                    ),
                ),
                message_of(signals.CLUSTER_CHANGED, self.controller.cluster_changed),
                message_of(
                    signals.OBSERVED,
                    lambda message: self._changed(
                        replica_messages.observed(self.state, message)
                    ),
                ),
                message_of(signals.RESYNC, lambda _: self._resync()),
                message_of(signals.DELETE, lambda message: self.delete(message.uid)),
                message_of(signals.FORCE, lambda message: self._force(message.scope)),
            ]
        )

    def _changed(self, changed: bool) -> None:
        if changed:
            self.context.mark_changed()

    def delete(self, uid: str = "") -> None:
        """Start the teardown, as the handler of `delete` does."""
        if uid in ("", self.state.uid):
            if not self.state.deleting:
                self.state.deletion_timestamp = self.context.now()
                self.controller.retry()
            self.context.mark_changed()

    def _resync(self) -> None:
        replica_messages.repeat_reports(self.state)
        self.context.requeue()

    def _force(self, scope: str) -> None:
        if self.state.deleting:
            self.state.forced = scope
            self.context.mark_changed()

    # The workflow

    def reports_to(self) -> list[str]:
        return [self.deployment_id]

    def receivers_lost(self, workflow_ids: list[str]) -> None:
        if workflow_ids:
            replica_messages.repeat_reports(self.state)

    def account(self) -> Any:
        return account_of(self.state, gone=self.controller.teardown.gone).wire()

    def reconcile(self) -> Steps:
        if not self.state.deleting:
            yield from self._carry_out(self.controller.apply)
        if self.state.deleting:
            yield from self._carry_out(self.controller.tear_down)
        else:
            self.controller.conclude()
        yield from self._carry_out(self.controller.report)
        if self.controller.teardown.gone:
            self.world.end(self)

    def _carry_out(self, decide: Callable[[], list[replica_orders.Order]]) -> Steps:
        while orders := decide():
            if self.controller.teardown.gone and self.state.left_behind:
                # Objects that a forced teardown left are listed and belong to no
                # workflow any more.
                self.world.clusters.remove(self.state.uid, self.world.ms)
            for order in orders:
                yield
                match order:
                    case replica_orders.SendReplicaSignal(signal, recorded):
                        if recorded:
                            self.complete_task()
                        found = not self.world.send([signal])
                        yield
                        self.controller.reports.sent(order, found=found)
                    case replica_orders.ReadClusterMemo(cluster):
                        cluster_id = names.workflow_id("InferenceCluster", "", cluster)
                        node = self.world.running.get(cluster_id)
                        yield
                        last = self.world.memos.get(cluster_id)
                        if isinstance(
                            node, ClusterNode
                        ) or not self.controller.cluster.last_memo_read(last):
                            self.controller.memo_read(
                                node.memo() if isinstance(node, ClusterNode) else None
                            )
                    case replica_orders.Apply():
                        self.complete_task()
                        yield from self._apply(order)
                    case replica_orders.DeleteObjects():
                        self.complete_task()
                        yield from self._delete(order)
                    case replica_orders.LeaveCache():
                        yield

    # The cluster

    def _apply(self, order: replica_orders.Apply) -> Steps:
        taken = False
        if not self.world.happens(self.world.chances.failed):
            nodes = charges(read_entry(self.state.entry).engines)
            uid, workflow_id, cluster = (
                self.state.uid,
                self.workflow_id,
                order.request.cluster,
            )
            self.world.note(f"apply {uid} on {cluster}")
            used = {(cluster, pool): count for pool, count in nodes.items()}
            taken = not self.world.clusters.apply(
                Pod(uid, workflow_id, self.deployment_id, used, self.world.ms)
            )
        yield
        if self.controller.applying.is_obsolete(order):
            self.controller.applying.cancelled()
        elif taken:
            self.controller.applying.failed(
                Failure("NameConflict", "its objects exist and belong to another uid"),
                "NameConflict",
            )
        elif self.state.uid not in self.world.clusters.pods:
            self.controller.applying.failed(
                Failure("ClusterUnreachable", "the cluster does not answer"),
                "ClusterUnreachable",
            )
        else:
            self.controller.applying.applied(order, applied(self.state.uid))
            self.world.later(self._observe)

    def _observe(self) -> None:
        """Let the cluster's watch report the replica Ready."""
        if (
            self.world.running.get(self.workflow_id) is self
            and self.state.uid in self.world.clusters.pods
        ):
            seen = Observed(
                owner_uid=self.state.uid, digest="d", replica=observed(self.state.uid)
            )
            self.mail.append((ModelReplicaSignals.OBSERVED.name, seen.wire()))

    def _delete(self, order: replica_orders.DeleteObjects) -> Steps:
        teardown, pods = self.controller.teardown, self.world.clusters
        chance = self.world.random.random()
        removed = chance >= 2 * self.world.chances.failed
        if removed and order.request.number in (ENGINES, SWEEP):
            self.world.note(f"removed {self.state.uid}")
            pods.remove(self.state.uid, self.world.ms)
        yield
        if teardown.is_obsolete(order):
            teardown.cancelled()
        elif chance < self.world.chances.failed:
            teardown.attempt_failed(
                Failure("ClusterUnreachable", "the cluster does not answer")
            )
        elif not removed:
            teardown.attempted(
                TeardownStepResult(
                    remaining=[
                        RemainingObject(id=object_id(self.state.uid), why="finalizer")
                    ]
                )
            )
        else:
            teardown.attempted(TeardownStepResult())


# The answers of a cluster


def object_id(uid: str) -> str:
    return f"{OBJECT}-{uid}"


def applied(uid: str) -> Applied:
    item = AppliedObject(key="model-serving-main", id=object_id(uid), digest="d1")
    engine = AppliedEngine(
        name="main",
        kind="Deployment",
        workload_name="engine",
        copies=1,
        template_hash="h",
    )
    return Applied(
        hash="h",
        workload_name="engine",
        workload_namespace="ml",
        inventory=[item],
        engines=[engine],
        routing_surface="service",
    )


def observed(uid: str) -> ObservedReplica:
    workload = ObservedWorkload(
        name="engine",
        kind="Deployment",
        current=True,
        desired=1,
        updated=1,
        ready=1,
        available=1,
        total=1,
        pods_ready=1,
    )
    return ObservedReplica(
        objects=[ObservedObject(id=object_id(uid), digest="d1")],
        workloads=[workload],
        routes=[ObservedRoute(name="engine", accepted=True)],
        endpoints_ready=1,
    )
