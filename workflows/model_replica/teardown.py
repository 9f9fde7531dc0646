"""How a ModelReplica leaves its cluster: step by step, each until what it removes is really gone, however long that takes.

A look at a step is bounded, so that a condition can say what is still there and what holds it; the wait itself never ends by itself. Only
somebody's word (`force`) gives a step up, and then what stays on the cluster is listed. Capacity is given back after the last step.
"""

from abc import abstractmethod
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.render.objects.teardown import DRAIN, RELEASE, SWEEP, WITHDRAW
from activities.workloads.activities import WorkloadActivities
from api_types import labels, names
from api_types.errors import error_message, error_type, is_permanent
from api_types.messages.cluster_work import Connection, RemainingObject, TeardownStep, TeardownStepResult
from api_types.messages.entities import Delete, Released
from api_types.resources.status import LeftBehind
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE
from workflows.entity.entity import Entity
from workflows.model_replica.state import ReplicaCarried
from workflows.model_replica.teardown_progress import Outcome, left_behind, named

# Who gave up everything still wants what can go at once to go.
LAST_LOOK = timedelta(seconds=2)


class ReplicaTeardown(Entity[ReplicaCarried]):
    """The part of a replica that takes it off its cluster."""

    def __init__(self, state: ReplicaCarried) -> None:
        super().__init__(state)
        self.gone = False

    @abstractmethod
    async def knows_cluster(self) -> bool:
        """Tell whether there is a way to the cluster; asks for it if that was never done."""

    @abstractmethod
    async def let_go_of_cache(self) -> None:
        """Tell the cache that no pod of ours mounts it any more."""

    @abstractmethod
    async def report(self) -> None:
        """Tell the deployment what changed."""

    @abstractmethod
    async def report_gone(self) -> None:
        """Tell the deployment that nothing is left but what is listed as left behind."""

    def on_retry_requested(self) -> None:
        """Forget how long the next attempt was to wait."""
        self.state.retry_at = ""

    def on_delete_requested(self, order: Delete) -> None:
        """Begin at once, whatever the last apply was waiting for."""
        del order
        self.on_retry_requested()

    async def tear_down(self) -> bool:
        """Take step after step; False while the one at hand has to be looked at again."""
        self.state.serving = False
        for kind in ("ModelReady", "RoutingReady", "Serving", "Ready"):
            self.condition(kind, FALSE, "Deleting", "")
        self.state.teardown.since = self.state.teardown.since or self.now()
        while not self.gone:
            outcome = await self.take_step()
            if outcome is None:
                await self.report()
                return False
            if not self.gone:
                self.state.teardown.close(outcome, self.now())
        return True

    async def take_step(self) -> Outcome | None:
        """Take the step at hand; None if it is not at its end."""
        step = self.state.teardown.step
        if step.number == WITHDRAW:
            await self.report()
            return "done"
        if step.number == DRAIN:
            return await self.drain()
        if step.number == RELEASE:
            return await self.release()
        if not self.has_step():
            return "nothing there"
        if not await self.knows_cluster():
            return await self.wait_for_cluster()
        return await self.leave()

    def has_step(self) -> bool:
        """Tell whether the step at hand may find something: a whole inventory says so, and the sweep always comes after an apply."""
        step, applied = self.state.teardown.step, self.state.applied
        if not self.state.attempted:
            return False
        if not self.state.whole or applied is None or step.number == SWEEP:
            return True
        return any(item.key.startswith(step.inventory_prefixes) for item in applied.inventory)

    # --- steps of our own -----------------------------------------------------------------------------------------------------------

    async def drain(self) -> Outcome:
        """Let the last requests finish; who never served has none."""
        if not self.state.served:
            return "nothing there"
        facts = self.state.cluster.facts if self.state.cluster else None
        seconds = facts.drain_seconds if facts else 0
        self.condition("Deleting", FALSE, "Draining", f"{self.state.teardown.message()}; lets requests finish for {seconds} s")
        self.publish()
        try:
            await workflow.wait_condition(
                lambda: bool(self.state.forced), timeout=timedelta(seconds=seconds), timeout_summary="let requests finish"
            )
        except TimeoutError:
            return "done"
        self.spend_force()
        return "given up"

    async def release(self) -> Outcome:
        """Free the nodes and tell the deployment."""
        # A closed workflow still answers queries: say so before anybody could ask.
        self.gone = True
        await self.let_go_of_cache()
        await self.tell(names.FLEET_SCHEDULER_ID, "released", Released(uid=self.state.uid, name=self.name))
        await self.report_gone()
        return "done"

    # --- steps on the cluster -------------------------------------------------------------------------------------------------------

    async def wait_for_cluster(self) -> Outcome | None:
        """Wait for the way to the cluster: nothing can be removed without it."""
        if self.state.forced:
            return self.abandon("the teardown was forced while the cluster was not connected")
        self.condition(
            "Deleting",
            FALSE,
            "WaitingForCluster",
            f"{self.state.teardown.message()}; InferenceCluster {self.state.birth.cluster} is not connected",
        )
        self.requeue_after(backoff.transient(self.state.attempts))
        return None

    async def leave(self) -> Outcome | None:
        """Look once at the step at hand; None if it is not at its end."""
        progress, known = self.state.teardown, self.state.cluster
        if known is None or not known.present:
            return self.abandon("the InferenceCluster was deleted")
        if self.state.forced and progress.looks:
            return self.give_up()
        if self.state.retry_at and self.is_early(self.state.retry_at):
            return None
        self.state.retry_at = ""
        self.say()
        try:
            done = await self.look()
        except ActivityError as error:
            kind = error_type(error) or "TearingDown"
            progress.failed(kind, error_message(error))
            if self.state.forced == "all":
                return self.abandon("the teardown was forced")
            if self.state.forced:
                return self.give_up()
            pause = backoff.permanent(progress.looks - 1) if is_permanent(kind) else backoff.transient(progress.looks - 1)
            self.state.retry_at = (workflow.now() + pause).isoformat()
            self.requeue_after(pause)
            self.say()
            return None
        if done is None:
            self.requeue()
            return None
        for skipped in done.skipped:
            self.event("Warning", "NotOurs", f"left alone: {skipped}")
        if not done.remaining:
            return "done"
        progress.found_waiting(done.remaining)
        self.say()
        self.requeue()
        return self.give_up() if self.state.forced else None

    async def look(self) -> TeardownStepResult | None:
        """Have the cluster do the step at hand; None if that was cut short because everything is different now."""
        known, applied, progress = self.state.cluster, self.state.applied, self.state.teardown
        if known is None or known.connection is None or known.facts is None:
            raise ValueError("a step was to be taken before the cluster was known")
        patience = LAST_LOOK if self.state.forced == "all" else backoff.poll_timeout(progress.looks)
        order = TeardownStep(
            connection=known.connection,
            facts=known.facts,
            uid=self.state.uid,
            workload_name=names.workload_name(self.namespace, self.name),
            workload_namespace=applied.workload_namespace if applied else self.namespace,
            number=progress.number,
            inventory=applied.inventory if applied else [],
            wait_seconds=patience.total_seconds(),
            given_up=progress.given_up,
        )
        return await self.unless(
            self.cut_short(known.connection),
            workflow.execute_activity_method(
                WorkloadActivities.teardown_replica_step,
                order,
                **activity_options.remote(
                    activity_options.TEARDOWN_STEP, f"{self.name}: {progress.step.title}", known.connection.task_queue
                ),
            ),
        )

    def cut_short(self, connection: Connection) -> Callable[[], bool]:
        """Give the test for what makes a look at the cluster pointless while it runs."""
        forced, looks = self.state.forced, self.state.teardown.looks

        def changed() -> bool:
            known = self.state.cluster
            given_up = self.state.forced != forced and bool(self.state.forced == "all" or looks)
            return given_up or known is None or not known.present or known.connection != connection

        return changed

    def say(self) -> None:
        """Write down which step is at hand and what it waits for."""
        self.condition("Deleting", FALSE, self.state.teardown.reason(), self.state.teardown.message())
        self.publish()

    # --- giving up ------------------------------------------------------------------------------------------------------------------

    def spend_force(self) -> None:
        """An order to give up one step is good for one step."""
        self.state.forced = "" if self.state.forced == "step" else self.state.forced

    def give_up(self) -> Outcome:
        """End the step at hand by somebody's word, and list what stays."""
        progress = self.state.teardown
        left = progress.left_of_step(self.state.applied.inventory if self.state.applied else [])
        progress.given_up += [item.id for item in left]
        self.list_left(left, f"step {progress.number} ({progress.step.title}) was given up")
        self.state.retry_at = ""
        self.spend_force()
        return "given up"

    def abandon(self, why: str) -> Outcome:
        """Give up the step at hand and all others that need the cluster, and list what they would have removed."""
        progress = self.state.teardown
        inventory = self.state.applied.inventory if self.state.applied else []
        left: list[RemainingObject] = []
        while progress.step.number <= SWEEP:
            left += progress.left_of_step(inventory)
            if progress.step.number == SWEEP:
                break
            progress.close("abandoned", self.now())
        self.event("Warning", "Abandoned", why)
        self.list_left(left, why)
        if not self.state.whole:
            # An interrupted apply may have made more than the inventory knows.
            selector = f"{labels.REPLICA}={names.workload_name(self.namespace, self.name)}"
            more = f"{why}; there may be more objects with this label"
            self.state.left_behind.append(
                LeftBehind(kind="label", name=selector, namespace=self.namespace, location=self.state.birth.cluster, reason=more)
            )
        self.state.retry_at, self.state.forced = "", ""
        return "abandoned"

    def list_left(self, left: list[RemainingObject], why: str) -> None:
        """List objects as left behind, each once."""
        known = {(item.kind, item.namespace, item.name) for item in self.state.left_behind}
        found = left_behind(left, self.state.birth.cluster, why)
        self.state.left_behind += [item for item in found if (item.kind, item.namespace, item.name) not in known]
        self.event("Warning", "LeftBehind", f"{why}; on {self.state.birth.cluster} stay: {named(left) or 'nothing known'}")

    # --- showing --------------------------------------------------------------------------------------------------------------------

    def details(self) -> list[str]:
        """List the steps of the teardown in the Temporal UI."""
        return self.state.teardown.lines() if self.state.deleted else super().details()
