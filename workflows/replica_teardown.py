"""How a ModelReplica leaves its cluster: step by step, each until what it removes is really gone, however long that takes.

Capacity is given back only after the last step. A wait never ends by itself: a condition says what it waits for, and only somebody's word
(`force`) gives a step up; what stays on the cluster then is listed.
"""

from abc import abstractmethod
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.render.teardown import STEPS, SWEEP
from activities.render.teardown import TeardownStep as Step
from activities.workloads import WorkloadActivities
from api_types import names
from api_types.errors import error_message, error_type
from api_types.messages import Released, TeardownStep
from api_types.status import LeftBehind
from workflows import options
from workflows.entity import Entity
from workflows.replica_state import ReplicaCarried
from workflows.status import FALSE

CLUSTER_STEPS = [step for step in STEPS if step.on_cluster]


class ReplicaTeardown(Entity[ReplicaCarried]):
    """The part of a replica that takes it off its cluster."""

    def __init__(self, state: ReplicaCarried) -> None:
        super().__init__(state)
        self.gone = False

    @abstractmethod
    async def knows_cluster(self) -> bool:
        """Tell whether there is a way to the cluster; asks for it if that was never done."""

    @abstractmethod
    async def report(self) -> None:
        """Tell the deployment what changed."""

    @abstractmethod
    async def report_gone(self) -> None:
        """Tell the deployment that nothing is left."""

    async def tear_down(self) -> bool:
        """Leave in order, each step until it is really gone; then free the nodes and tell the deployment."""
        self.state.serving = False
        self.condition("Serving", FALSE, "Deleting", "")
        self.condition("Ready", FALSE, "Deleting", "")
        await self.report()
        if self.state.attempted and not await self.knows_cluster_for_leaving():
            return False
        if self.state.served and not self.state.drained and not self.state.forced:
            await self.drain()
        while self.state.attempted and self.state.step < len(CLUSTER_STEPS):
            if self.has_step(CLUSTER_STEPS[self.state.step]):
                await self.leave_step(self.state.step)
            self.state.step += 1
        # A closed workflow still answers queries: say so before anybody could ask.
        self.gone = True
        await self.tell(names.FLEET_SCHEDULER_ID, "released", Released(uid=self.state.uid, name=self.name))
        await self.report_gone()
        return True

    def has_step(self, step: Step) -> bool:
        """Tell whether a step may find something: an inventory that is known to be whole says so, and the sweep comes always."""
        if not self.state.whole or self.state.applied is None or step.number == SWEEP:
            return True
        return any(item.key.startswith(step.inventory_prefixes) for item in self.state.applied.inventory)

    async def knows_cluster_for_leaving(self) -> bool:
        """Wait for the way to the cluster; without a cluster record nothing can be removed, and that is said."""
        if await self.knows_cluster():
            if self.state.cluster and not self.state.cluster.present:
                self.abandon("the InferenceCluster was deleted")
            return True
        self.condition("Deleting", FALSE, "WaitingForCluster", f"InferenceCluster {self.state.birth.cluster} is not connected")
        if self.state.forced:
            self.abandon("forced while the cluster was not connected")
            return True
        self.look_again(options.soon(self.state.attempts))
        return False

    def abandon(self, why: str) -> None:
        """Give up all steps that need the cluster and list what stays there."""
        self.event("Warning", "Abandoned", why)
        self.leave_behind(why)
        self.state.attempted = False

    def leave_behind(self, why: str) -> None:
        """List the inventory as left behind."""
        known = {(item.kind, item.name) for item in self.state.left_behind}
        for item in self.state.applied.inventory if self.state.applied else ():
            *_, kind, namespace, name = item.id.split("/")
            if (kind, name) not in known:
                left = LeftBehind(kind=kind, name=name, namespace=namespace, location=self.state.birth.cluster, reason=why)
                self.state.left_behind.append(left)

    async def drain(self) -> None:
        """Let the last requests finish."""
        facts = self.state.cluster.facts if self.state.cluster else None
        seconds = facts.drain_seconds if facts else 0
        self.condition("Deleting", FALSE, "Draining", f"lets requests finish for {seconds} s")
        self.publish()
        try:
            await workflow.wait_condition(
                lambda: bool(self.state.forced), timeout=timedelta(seconds=seconds), timeout_summary="let requests finish"
            )
        except TimeoutError:
            self.state.drained = True

    async def leave_step(self, number: int) -> None:
        """Do one step of the teardown until what it removes is gone, or until somebody gives it up."""
        known, title = self.state.cluster, CLUSTER_STEPS[number].title
        if known is None or known.connection is None or known.facts is None or self.state.forced == "all":
            self.leave_behind("the teardown was forced")
            return
        self.condition("Deleting", FALSE, "TearingDown", f"step {number + 1} of {len(CLUSTER_STEPS)}: {title}")
        self.publish()
        step = TeardownStep(
            connection=known.connection,
            facts=known.facts,
            uid=self.state.uid,
            workload_name=names.workload_name(self.namespace, self.name),
            workload_namespace=self.state.applied.workload_namespace if self.state.applied else self.namespace,
            number=CLUSTER_STEPS[number].number,
            inventory=self.state.applied.inventory if self.state.applied else [],
        )
        attempt = 0
        while True:
            try:
                done = await self.unless(
                    lambda: bool(self.state.forced),
                    workflow.execute_activity_method(
                        WorkloadActivities.teardown_replica_step,
                        step,
                        **options.remote(options.UNTIL_GONE, f"{self.name}: {title}", known.connection.task_queue),
                    ),
                )
            except ActivityError as error:
                self.condition("Deleting", FALSE, error_type(error) or "TearingDown", f"{title}: {error_message(error)}")
                self.publish()
                try:
                    await workflow.wait_condition(lambda: bool(self.state.forced), timeout=options.soon(attempt))
                except TimeoutError:
                    attempt += 1
                    continue
                done = None
            if done is None:
                self.leave_behind(f"step '{title}' was given up")
                self.state.forced = "" if self.state.forced == "step" else self.state.forced
                return
            for skipped in done.skipped:
                self.event("Warning", "NotOurs", f"left alone: {skipped}")
            return
