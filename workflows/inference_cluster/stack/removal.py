"""How an InferenceCluster removes its stack: step by step, each until what it deletes is really gone (spec 2.11).

One attempt at a step is bounded, so that a condition can say what is still there and what holds it; the wait itself never ends by itself.
Only `force` gives a step up, and then what stays is listed.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.render.objects.manifest import Json, Owner
from activities.render.stack import components, objects
from activities.render.stack.removal import Removal, RemovalStep
from activities.stack.activities import StackActivities
from api_types.base import ID_MAX
from api_types.messages.cluster_work import Connection, RemainingObject, TeardownStepResult
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
from workflows.inference_cluster.state import ClusterState

REMOVE = "remove"
FINALIZER = "finalizer"
# Their controllers delete what is outside the cluster.
LEAKING = ("service.kubernetes.io/load-balancer-cleanup",)
FINALIZERS_MAX = 8
# After so long, an object that only a finalizer holds is called stuck.
STUCK_AFTER = timedelta(minutes=5)
_FINALIZER = "finalizer"
_NAMED_MAX = 3
# Of what is left behind, which is carried for each of hundreds of objects.
_REASON_BYTES_MAX = 600
# Of a release: kinds that it serves and of which no object may be left, and drivers of which no claim may be allocated.
_SERVED = {components.LEADER_WORKER_SET.key: [f"{apiversions.LEADER_WORKER_SET}/LeaderWorkerSet"]}
_DRIVERS = {components.DRA_DRIVER.key: [components.GPU_DRIVER]}


class StackRemoval:
    """Takes the steps of the removal, in order."""

    def __init__(self, context: EntityContext[ClusterState], calls: BackgroundCalls) -> None:
        self._context = context
        self._state = context.state
        self._calls = calls

    @property
    def _progress(self) -> RemovalProgress:
        return self._state.stack.removal

    def update(self) -> bool:
        """Take the next step if it is due; True when nothing is left to do."""
        if self._calls.running(PREFLIGHT) and not self._state.forced:
            # It may find that the stack there belongs to this cluster: then the stack is removed.
            return False
        connection, progress = connection_of(self._context.name, self._state), self._progress
        if self._state.stack.plan is None or not is_managed(self._state) or connection is None or progress.ended:
            return True
        self._context.set_condition("BackendReady", FALSE, "Uninstalling", "the cluster is being deleted")
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
        """Make the next attempt at once."""
        self._progress.retry_at = ""

    # --- finalizers ---------------------------------------------------------------------------------------------------------------

    def force_finalizer(self, message: ForceFinalizer) -> None:
        """Remove a finalizer with the next pass, of an object that the present step waits for."""
        held = next((item for item in self._progress.remaining if message.object in _spellings(item)), None)
        problem = self._refusal(message, held)
        if problem or held is None:
            self._context.record_event("Warning", "ForceRefused", f"finalizer {message.finalizer} of {message.object}: {problem}")
            return
        self._progress.finalizers = [*self._progress.finalizers, message.model_copy(update={"object": held.id})]
        self._context.mark_changed()

    def _refusal(self, message: ForceFinalizer, held: RemainingObject | None) -> str:
        if held is None or message.finalizer not in held.why:
            return "the removal of the stack does not wait for it; `modelplane describe ic/NAME -o json` lists what it waits for"
        if message.finalizer in LEAKING and not message.accept_leak:
            return "without its controller a load balancer outside the cluster may stay, and cost: accept that (`--accept-leak`), or wait"
        return "" if len(self._progress.finalizers) < FINALIZERS_MAX else "others are being removed; ask again"

    def _remove_finalizer(self, connection: Connection) -> None:
        if not self._progress.finalizers or self._calls.running(FINALIZER):
            return
        asked = self._progress.finalizers[0]
        order = RemoveFinalizer(connection=connection, cluster_uid=self._state.uid, object=asked.object, finalizer=asked.finalizer)
        summary = f"{self._context.name}: remove finalizer {asked.finalizer}"
        options = activity_options.on_cluster(activity_options.STACK_STEP, summary, connection.task_queue)

        def removed(result: RemovedFinalizer) -> None:
            self._finish(asked, "" if result.removed else result.why)

        self._calls.start(
            FINALIZER,
            lambda: workflow.execute_activity_method(StackActivities.remove_finalizer, order, **options),
            removed,
            lambda failure: self._finish(asked, failure.message),
        )

    def _finish(self, asked: ForceFinalizer, problem: str) -> None:
        """Record who had it removed and why, or why it was not; whoever wants that tried again asks again."""
        self._progress.finalizers = [each for each in self._progress.finalizers if each != asked]
        what, who = f"finalizer {asked.finalizer} of {asked.object}", asked.by or "unknown"
        if problem:
            self._context.record_event("Warning", "FinalizerKept", f"{what} was not removed, as {who} asked: {problem}")
        else:
            self._context.record_event("Warning", "FinalizerRemoved", f"{who} had {what} removed: {asked.reason or 'no reason given'}")

    def _waits(self) -> bool:
        retry_at = self._progress.retry_at
        if not retry_at or not self._context.is_future(retry_at):
            return False
        self._context.requeue_at(datetime.fromisoformat(retry_at))
        return True

    # --- one step -----------------------------------------------------------------------------------------------------------------

    def _attempt(self, step: RemovalStep, connection: Connection) -> None:
        of_stack: dict[str, Any] = {"connection": connection, "cluster_uid": self._state.uid}
        wait = int(backoff.poll_timeout(self._progress.attempts).total_seconds())
        match step.action:
            case Removal.ROUTES:
                self._start(StackActivities.await_no_routes, AwaitNoRoutes(wait_seconds=wait, **of_stack), self._attempted)
            case Removal.OBJECTS:
                spec = self._state.stack.plan.spec if self._state.stack.plan else {}
                order = RemoveStackObjects(spec=spec, group=step.target, wait_seconds=wait, skipped=self._progress.skipped, **of_stack)
                self._start(StackActivities.remove_stack_objects, order, self._attempted)
            case Removal.RELEASE:
                self._start(StackActivities.helm_uninstall, self._uninstall(step.target, connection, wait), self._attempted)
            case Removal.DEFINITIONS:
                releases = list(self._state.stack.plan.releases.values()) if self._state.stack.plan else []
                purge = PurgeDefinitions(releases=releases, wait_seconds=wait, skipped=self._progress.skipped, **of_stack)
                self._start(StackActivities.purge_definitions, purge, self._purged)
            case _:
                self._start(StackActivities.list_load_balancers, ListLoadBalancers(**of_stack), self._listed)

    def _uninstall(self, component: str, connection: Connection, wait_seconds: int) -> UninstallRelease:
        known, pin = self._state.stack.releases.get(component), components.BY_KEY[component].pin
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

    def _start(self, activity: Callable[..., Any], order: Any, done: Callable[[Any], None]) -> None:
        queue = order.connection.task_queue
        summary = f"{self._context.name}: {self._progress.step.title}"
        options = activity_options.on_cluster(activity_options.STACK_STEP, summary, queue)
        number = self._progress.number

        def recorded(result: Any) -> None:
            if self._progress.number == number:
                done(result)

        def failed(failure: Failure) -> None:
            if self._progress.number == number:
                self._failed(failure)

        self._calls.start(REMOVE, lambda: workflow.execute_activity_method(activity, order, **options), recorded, failed)

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
        """List the definitions that stay: a user who asked for none must know of them."""
        if not result.remaining:
            for kept in result.kept:
                self._context.record_event("Warning", "DefinitionKept", f"{kept.name} stays: {kept.why}")
            place = self._context.name
            self._state.add_left_behind(
                [
                    LeftBehind(kind=kept.kind, name=kept.name, location=place, reason=shortened(kept.why, _REASON_BYTES_MAX))
                    for kept in result.kept
                ]
            )
        self._attempted(result)

    def _listed(self, found: LoadBalancers) -> None:
        """Load balancers of others stay on a cluster that stays, and are reported."""
        if found.services:
            more = f" and {found.more} more" if found.more else ""
            message = f"Services of others with a load balancer stay on the cluster: {', '.join(found.services)}{more}"
            self._context.record_event("Warning", "LoadBalancersRemaining", message)
        self._complete()

    def _failed(self, failure: Failure) -> None:
        self._progress.failure = failure
        self._progress.retry_at = (self._context.moment() + backoff_after(failure, self._progress.attempts)).isoformat()
        self._progress.attempts += 1
        self._context.mark_changed()

    def _complete(self) -> None:
        step = self._progress.step
        if step.action is Removal.RELEASE:
            self._state.stack.releases.pop(step.target, None)
        self._progress.complete(self._context.moment().isoformat())
        self._context.mark_changed()

    # --- what is shown ------------------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        progress = self._progress
        title = f"stack {progress.step.code}, step {progress.number} of {len(progress.steps)}: {progress.step.title}"
        named = ", ".join(map(str, progress.remaining[:_NAMED_MAX]))
        more = len(progress.remaining) - _NAMED_MAX
        waits = f"waits for {named}{f' and {more} more' if more > 0 else ''}" if named else ""
        message = "; ".join(filter(None, (title, progress.failure.message and f"retrying: {progress.failure.message}", waits)))
        self._context.set_condition("Deleting", FALSE, self._reason(), message)

    def _reason(self) -> str:
        progress = self._progress
        if progress.failure.type:
            return progress.failure.type
        began = datetime.fromisoformat(progress.since)
        held = any(_FINALIZER in item.why for item in progress.remaining)
        return "FinalizerStuck" if held and self._context.moment() - began >= STUCK_AFTER else "Uninstalling"

    # --- force --------------------------------------------------------------------------------------------------------------------

    def _give_up(self) -> None:
        """Give up the step that is waited for, or all of them, and list what stays."""
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
        progress, reason = self._progress, f"the removal of the stack was forced: {step.title}"
        place = self._context.name
        found = [
            LeftBehind(
                kind=item.kind,
                name=item.name,
                namespace=item.namespace,
                location=place,
                reason=shortened(f"{reason}; {item.why}".rstrip("; "), _REASON_BYTES_MAX),
            )
            for item in progress.remaining
        ]
        # The cluster chooses names, and how many there are; an order takes the ids of so many.
        skipped = [*progress.skipped, *(item.id for item in progress.remaining if len(item.id) <= ID_MAX)]
        progress.skipped = list(dict.fromkeys(skipped))[-ITEMS_MAX:]
        installed = []
        if step.action is Removal.RELEASE and may_be_installed(self._state.stack, step.target):
            pin = components.BY_KEY[step.target].pin
            installed = [("HelmRelease", pin.namespace, pin.release)]
        if step.action is Removal.OBJECTS and not found and may_be_installed(self._state.stack, step.target):
            installed = self._objects_of(step.target)
        self._state.add_left_behind(
            [
                *found,
                *(
                    LeftBehind(kind=kind, namespace=namespace, name=name, location=place, reason=reason)
                    for kind, namespace, name in installed
                ),
            ]
        )

    def _objects_of(self, group: str) -> list[tuple[str, str, str]]:
        """Return kinds, namespaces and names of the objects of a group, without reading definitions."""
        plan = self._state.stack.plan
        if group == objects.CRDS or plan is None:
            return [(objects.CRD[1], "", name) for name in objects.INFERENCE_CRDS]
        owner = Owner(self._context.kind, "", self._context.name, self._state.uid, generation=0)
        try:
            spec = ServingStackSpec.model_validate(plan.spec)
        except ValueError:
            # Another version has written it. What is forced comes to its end all the same.
            return [("objects", "", group)]
        manifests = [item.manifest for item in objects.group(group, spec, owner)]
        return [_identity_of(manifest) for manifest in manifests]


def _identity_of(manifest: Json) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _spellings(item: RemainingObject) -> tuple[str, ...]:
    return item.id, "/".join(filter(None, (item.kind, item.namespace, item.name)))
