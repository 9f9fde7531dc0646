"""Remove the serving stack step by step.

Each step waits until its objects are deleted. Each attempt at a step has a time limit,
so that a condition can name the remaining objects and the reason. The wait itself has
no limit. Only `force` gives up a step, and the remaining objects are listed.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.render.objects.manifest import Json, RenderOwner
from activities.render.stack import components, objects
from activities.render.stack.removal import Removal, RemovalStep
from activities.stack.activities import StackActivities
from api_types.base import ID_MAX
from api_types.messages.cluster_work import (
    Connection,
    RemainingObject,
    TeardownStepResult,
)
from api_types.messages.entities import ForceFinalizer
from api_types.messages.stack import (
    ITEMS_MAX,
    AwaitNoRoutes,
    ListLoadBalancers,
    LoadBalancers,
    PurgedDefinitions,
    PurgeDefinitions,
    RemovedFinalizer,
    RemoveFinalizer,
    RemoveStackObjects,
    UninstallRelease,
)
from api_types.payloads.limits import shortened
from api_types.pins import apiversions
from api_types.resources.serving_stack import ServingStackSpec
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.inference_cluster.spec import connection_of, is_managed
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.stack.plan import PREFLIGHT, may_be_installed
from workflows.inference_cluster.stack_state import RemovalProgress
from workflows.inference_cluster.state import REASON_BYTES_MAX, ClusterState

REMOVE = "remove"
FINALIZER = "finalizer"
# The controllers of these finalizers delete resources outside the cluster.
LEAKING = ("service.kubernetes.io/load-balancer-cleanup",)
FINALIZERS_MAX = 8
# After this time, an object that is held only by a finalizer is reported as stuck.
STUCK_AFTER = timedelta(minutes=5)
_FINALIZER = "finalizer"
_NAMED_MAX = 3
# For a release: kinds that must have no objects left, and DRA drivers that must have no
# allocated claims left.
_SERVED = {
    components.LEADER_WORKER_SET.key: [
        f"{apiversions.LEADER_WORKER_SET}/LeaderWorkerSet"
    ]
}
_DRIVERS = {components.DRA_DRIVER.key: [components.GPU_DRIVER]}


class StackRemoval:
    """Runs the steps of the removal, in order."""

    def __init__(
        self, context: EntityContext[ClusterState], calls: BackgroundCalls
    ) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls

    @property
    def _progress(self) -> RemovalProgress:
        return self._state.stack.removal

    def update(self) -> bool:
        """Start the next step if it is due. Return True when nothing is left to do."""
        if self._calls.running(PREFLIGHT) and not self._state.forced:
            # The preflight may find that the stack belongs to this cluster. Then it is
            # removed.
            return False
        connection = connection_of(self._context.name, self._state)
        progress = self._progress
        if (
            self._state.stack.plan is None
            or not is_managed(self._state)
            or connection is None
            or progress.ended
            or (progress.looking and not self._state.stack.plan.found)
        ):
            return True
        self._context.set_condition(
            "BackendReady", FALSE, "Uninstalling", "the cluster is being deleted"
        )
        progress.since = progress.since or self._context.moment().isoformat()
        if self._state.forced:
            self._give_up()
            return progress.ended
        self._show()
        self._remove_finalizer(connection)
        if self._calls.keys or self._waits():
            return False
        self._attempt(progress.step, connection)
        return False

    def retry(self) -> None:
        self._progress.retry_at = ""

    # Finalizers

    def force_finalizer(self, message: ForceFinalizer) -> None:
        """Remove a finalizer in the next pass.

        The current step must wait for its object.
        """
        found = [
            item
            for item in self._progress.remaining
            if message.object in _spellings(item)
        ]
        held = found[0] if found else None
        problem = self._refusal(message, held)
        if problem or held is None:
            self._context.record_event(
                "Warning",
                "ForceRefused",
                f"finalizer {message.finalizer} of {message.object}: {problem}",
            )
            return
        self._progress.finalizers = [
            *self._progress.finalizers,
            message.model_copy(update={"object": held.id}),
        ]
        self._context.mark_changed()

    def _refusal(self, message: ForceFinalizer, held: RemainingObject | None) -> str:
        if held is None or message.finalizer not in held.why:
            return (
                "the removal of the stack does not wait for it; "
                f"`modelplane describe ic/{self._context.name} -o json` lists the "
                "objects that it waits for"
            )
        if message.finalizer in LEAKING and not message.accept_leak:
            return (
                "a load balancer outside the cluster may remain and cost money: "
                "wait for its controller, or accept that with `--accept-leak`"
            )
        if len(self._progress.finalizers) < FINALIZERS_MAX:
            return ""
        return "too many finalizers are already being removed; try again later"

    def _remove_finalizer(self, connection: Connection) -> None:
        if not self._progress.finalizers or self._calls.running(FINALIZER):
            return
        asked = self._progress.finalizers[0]
        order = RemoveFinalizer(
            connection=connection,
            cluster_uid=self._state.uid,
            object=asked.object,
            finalizer=asked.finalizer,
        )
        summary = f"{self._context.name}: remove finalizer {asked.finalizer}"
        options = activity_options.on_cluster(
            activity_options.STACK_STEP, summary, connection.task_queue
        )

        def removed(result: RemovedFinalizer) -> None:
            self._finish(asked, "" if result.removed else result.why)

        self._calls.start(
            FINALIZER,
            lambda: workflow.execute_activity_method(
                StackActivities.remove_finalizer, order, **options
            ),
            removed,
            lambda failure: self._finish(asked, failure.message),
        )

    def _finish(self, asked: ForceFinalizer, problem: str) -> None:
        """Record the result of a requested finalizer removal.

        A failure is not retried.
        """
        self._progress.finalizers = [
            each for each in self._progress.finalizers if each != asked
        ]
        finalizer = f"finalizer {asked.finalizer} of {asked.object}"
        user = asked.by or "unknown"
        if problem:
            self._context.record_event(
                "Warning",
                "FinalizerKept",
                f"{finalizer} was not removed as requested by {user}: {problem}",
            )
        else:
            self._context.record_event(
                "Warning",
                "FinalizerRemoved",
                f"{user} removed {finalizer}: {asked.reason or 'no reason given'}",
            )

    def _waits(self) -> bool:
        return self._context.waits_until(self._progress.retry_at)

    # One step

    def _attempt(self, step: RemovalStep, connection: Connection) -> None:
        of_stack: dict[str, Any] = {
            "connection": connection,
            "cluster_uid": self._state.uid,
        }
        wait = int(backoff.poll_timeout(self._progress.attempts).total_seconds())
        match step.action:
            case Removal.ROUTES:
                self._start(
                    StackActivities.await_no_routes,
                    AwaitNoRoutes(wait_seconds=wait, **of_stack),
                    self._attempted,
                )
            case Removal.OBJECTS:
                spec = self._state.stack.plan.spec if self._state.stack.plan else {}
                order = RemoveStackObjects(
                    spec=spec,
                    group=step.target,
                    wait_seconds=wait,
                    skipped=self._progress.skipped,
                    **of_stack,
                )
                self._start(
                    StackActivities.remove_stack_objects, order, self._attempted
                )
            case Removal.RELEASE:
                self._start(
                    StackActivities.helm_uninstall,
                    self._uninstall(step.target, connection, wait),
                    self._attempted,
                )
            case Removal.DEFINITIONS:
                releases = (
                    list(self._state.stack.plan.releases.values())
                    if self._state.stack.plan
                    else []
                )
                purge = PurgeDefinitions(
                    releases=releases,
                    wait_seconds=wait,
                    skipped=self._progress.skipped,
                    **of_stack,
                )
                self._start(StackActivities.purge_definitions, purge, self._purged)
            case _:
                self._start(
                    StackActivities.list_load_balancers,
                    ListLoadBalancers(**of_stack),
                    self._listed,
                )

    def _uninstall(
        self, component: str, connection: Connection, wait_seconds: int
    ) -> UninstallRelease:
        known = self._state.stack.releases.get(component)
        pin = components.BY_KEY[component].pin
        return UninstallRelease(
            connection=connection,
            cluster_uid=self._state.uid,
            name=pin.release,
            namespace=pin.namespace,
            workloads=known.workloads if known else [],
            unused_kinds=_SERVED.get(component, []),
            claim_drivers=_DRIVERS.get(component, []),
            wait_seconds=wait_seconds,
        )

    def _start(
        self, activity: Callable[..., Any], order: Any, done: Callable[[Any], None]
    ) -> None:
        queue = order.connection.task_queue
        summary = f"{self._context.name}: {self._progress.step.title}"
        options = activity_options.on_cluster(
            activity_options.STACK_STEP, summary, queue
        )
        number = self._progress.number

        def recorded(result: Any) -> None:
            if self._progress.number == number:
                done(result)

        def failed(failure: Failure) -> None:
            if self._progress.number == number:
                self._failed(failure)

        self._calls.start(
            REMOVE,
            lambda: workflow.execute_activity_method(activity, order, **options),
            recorded,
            failed,
        )

    def _attempted(self, result: TeardownStepResult) -> None:
        for skipped in result.skipped:
            self._context.record_event("Warning", "NotOwned", f"not deleted: {skipped}")
        if not result.remaining:
            self._complete()
            return
        self._progress.attempts += 1
        self._progress.remaining, self._progress.failure = result.remaining, NO_FAILURE
        self._context.mark_changed()

    def _purged(self, result: PurgedDefinitions) -> None:
        """List the definitions that stay. The user asked to delete all of them."""
        if not result.remaining:
            for kept in result.kept:
                self._context.record_event(
                    "Warning", "DefinitionKept", f"{kept.name} stays: {kept.why}"
                )
            place = self._context.name
            self._state.add_left_behind(
                [
                    LeftBehind(
                        kind=kept.kind,
                        name=kept.name,
                        location=place,
                        reason=shortened(kept.why, REASON_BYTES_MAX),
                    )
                    for kept in result.kept
                ]
            )
        self._attempted(result)

    def _listed(self, found: LoadBalancers) -> None:
        """Report load balancers of other owners, which stay on an Existing cluster."""
        if found.services:
            more = f" and {found.more} more" if found.more else ""
            message = (
                "Services of other owners with a load balancer stay on the cluster: "
                f"{', '.join(found.services)}{more}"
            )
            self._context.record_event("Warning", "LoadBalancersRemaining", message)
        self._complete()

    def _failed(self, failure: Failure) -> None:
        self._progress.failure = failure
        self._progress.retry_at = (
            self._context.moment() + backoff_after(failure, self._progress.attempts)
        ).isoformat()
        self._progress.attempts += 1
        self._context.mark_changed()

    def _complete(self) -> None:
        step = self._progress.step
        if step.action is Removal.RELEASE:
            self._state.stack.releases.pop(step.target, None)
        self._progress.complete(self._context.moment().isoformat())
        self._context.mark_changed()

    # Condition

    def _show(self) -> None:
        progress = self._progress
        step, count = progress.step, len(progress.steps)
        parts = [f"stack {step.code}, step {progress.number} of {count}: {step.title}"]
        if progress.failure.message:
            parts.append(f"retrying: {progress.failure.message}")
        named = ", ".join(map(str, progress.remaining[:_NAMED_MAX]))
        more = len(progress.remaining) - _NAMED_MAX
        if named and more > 0:
            named += f" and {more} more"
        if named:
            parts.append(f"waits for {named}")
        self._context.set_condition("Deleting", FALSE, self._reason(), "; ".join(parts))

    def _reason(self) -> str:
        progress = self._progress
        if progress.failure.type:
            return progress.failure.type
        began = datetime.fromisoformat(progress.since)
        held = any(_FINALIZER in item.why for item in progress.remaining)
        return (
            "FinalizerStuck"
            if held and self._context.moment() - began >= STUCK_AFTER
            else "Uninstalling"
        )

    # Force

    def _give_up(self) -> None:
        """Give up the current step or all steps, and list the remaining objects."""
        scope, progress = self._state.forced, self._progress
        self._calls.stop_all()
        while not progress.ended:
            self._list_left_behind(progress.step)
            progress.complete(self._context.moment().isoformat())
            if scope == "step":
                self._state.forced = ""
                break
        self._context.mark_changed()

    def _list_left_behind(self, step: RemovalStep) -> None:
        progress = self._progress
        reason = f"the removal of the stack was forced: {step.title}"
        place = self._context.name
        found = [
            LeftBehind(
                kind=item.kind,
                name=item.name,
                namespace=item.namespace,
                location=place,
                reason=shortened(
                    f"{reason}; {item.why}".rstrip("; "), REASON_BYTES_MAX
                ),
            )
            for item in progress.remaining
        ]
        # The cluster decides the names and number of the objects, but an order accepts
        # only this many IDs of this length.
        ids = [item.id for item in progress.remaining if len(item.id) <= ID_MAX]
        skipped = list(dict.fromkeys([*progress.skipped, *ids]))
        progress.skipped = skipped[-ITEMS_MAX:]
        installed = []
        is_installed = may_be_installed(self._state.stack, step.target)
        if step.action is Removal.RELEASE and is_installed:
            pin = components.BY_KEY[step.target].pin
            installed = [("HelmRelease", pin.namespace, pin.release)]
        if step.action is Removal.OBJECTS and is_installed and not found:
            installed = self._objects_of(step.target)
        for kind, namespace, name in installed:
            left = LeftBehind(
                kind=kind,
                namespace=namespace,
                name=name,
                location=place,
                reason=reason,
            )
            found.append(left)
        self._state.add_left_behind(found)

    def _objects_of(self, group: str) -> list[tuple[str, str, str]]:
        """Return kinds, namespaces and names of the objects of a group.

        Custom resource definitions are not read from their files.
        """
        plan = self._state.stack.plan
        if group == objects.CRDS or plan is None:
            return [(objects.CRD[1], "", name) for name in objects.INFERENCE_CRDS]
        owner = RenderOwner(
            self._context.kind, "", self._context.name, self._state.uid, generation=0
        )
        try:
            spec = ServingStackSpec.model_validate(plan.spec)
        except ValueError:
            # Another version wrote the plan. A forced removal has to end nevertheless.
            return [("objects", "", group)]
        manifests = [item.manifest for item in objects.group(group, spec, owner)]
        return [_identity_of(manifest) for manifest in manifests]


def _identity_of(manifest: Json) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _spellings(item: RemainingObject) -> tuple[str, ...]:
    return item.id, "/".join(filter(None, (item.kind, item.namespace, item.name)))
