"""InferenceGateway: the only gateway on the control cluster, which all services share.

It installs the gateway, or uses an existing one (annotation `modelplane.ai/stack:
external`), and watches the control cluster. It reports to services and endpoints
whether objects can be applied there, and the address of the gateway. While the control
cluster does not answer, all objects stay, and the gateway continues to serve requests.
"""

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.routing.activities import RoutingActivities
from activities.stack.activities import StackActivities
from api_types import labels
from api_types.digests import report_digest
from api_types.errors import NoControlCluster
from api_types.messages.delivery import EntityRef
from api_types.messages.gateway_work import (
    ControlObserved,
    InstallStep,
    WatchGateway,
)
from api_types.messages.routing import GatewayChanged, GatewayUse
from api_types.messages.scheduling import Resync
from api_types.messages.signals import (
    INFERENCE_GATEWAY,
    GatewayUserSignals,
    InferenceGatewaySignals,
    ModelEndpointSignals,
    ModelServiceSignals,
)
from api_types.names import workflow_id
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.calls.sending import broadcast, send_all
from workflows.entity.conditions import FALSE, TRUE, is_true
from workflows.entity.entity import Entity
from workflows.entity.failures import NO_FAILURE, Failure, failure_of
from workflows.entity.handles import handles
from workflows.entity.registering.registrations import drop_ended, is_newest
from workflows.entity.start import check_only_id, read_carried
from workflows.inference_gateway.state import GatewayState
from workflows.inference_gateway.watch import GatewayWatch

# The intervals of the checks of an installation step: at first, after a while, and in a
# repair that does not help.
STEP_FIRST = timedelta(seconds=5)
STEP_LATER = timedelta(seconds=30)
STEP_AT_LAST = timedelta(minutes=5)
STEP_CHECKS_FIRST = 24
SERVICES_NAMED = 5
_SERVICE_PREFIX = f"{ModelServiceSignals.kind.lower()}/"


@workflow.defn(name="InferenceGateway")
class InferenceGatewayWorkflow(Entity[GatewayState]):
    """Workflow id inferencegateway/default.

    It ends when the gateway is deleted, no service uses it and its installation is
    removed.
    """

    kind = "InferenceGateway"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, GatewayState) or GatewayState())
        check_only_id(self.kind, INFERENCE_GATEWAY.workflow_id)
        self.watch = GatewayWatch(self.context)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the gateway is deleted and its installation is removed."""
        del arguments
        await self.run_until_deleted()

    # Messages

    @handles(InferenceGatewaySignals.GATEWAY_USED)
    def gateway_used(self, message: GatewayUse) -> None:
        """Record whether a service or endpoint has objects on the control cluster."""
        user = workflow_id(message.kind, message.namespace, message.name)
        if not is_newest(self.state.registrations, user, message.uid, message.sequence):
            return
        others = [each for each in self.state.users if each != user]
        self.state.users = sorted([*others, user]) if message.used else others
        drop_ended(self.state.registrations, self.state.users)
        if message.used and user not in self.state.unanswered:
            self.state.unanswered.append(user)
        self.context.mark_changed()

    @handles(InferenceGatewaySignals.CONTROL_OBSERVED)
    def control_observed(self, message: ControlObserved) -> None:
        """Store the gateway's state that the watch observed."""
        seen, order = message.gateway, message.order
        if (
            message.owner_uid != self.state.uid
            or seen is None
            or not self.state.observed_version.accepts(order, self.state.uid)
        ):
            return
        before = self.state.observed
        self.state.observed_version = self.state.observed_version.advanced(order)
        if seen.reachable and before is not None and not before.reachable:
            # The objects on the cluster may differ from the applied ones.
            self.state.connects += 1
            self.context.record_event(
                "Normal", "Connected", "the control cluster answers again"
            )
        if not seen.reachable and (before is None or before.reachable):
            self.context.record_event(
                "Warning", "ClusterUnreachable", f"the control cluster: {seen.error}"
            )
        # The last known address stays valid while the control cluster does not answer.
        kept: dict[str, Any] = (
            {"address": before.address} if before and not seen.reachable else {}
        )
        known = before.timeouts if before else None
        if seen.timeouts is None:
            # A restarted watch has not read the class yet.
            kept["timeouts"] = known
        self.state.observed = seen.model_copy(update=kept)
        self.context.mark_changed()

    @handles(InferenceGatewaySignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report to all users again."""
        del message
        self.state.reported = ""
        self.context.requeue()

    # Hooks of the entity

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Make the next attempt at once: a new spec or annotation may help."""
        del new_generation
        self.on_retry_requested()

    def on_retry_requested(self) -> None:
        self.state.retry_at = ""

    def status(self) -> dict[str, Any]:
        """Return the address."""
        return {"address": self.state.address} if self.state.address else {}

    # One pass

    async def reconcile(self) -> bool:
        """Install missing parts, connect, watch, and report to users."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        self._note_lost_watch()
        if not self._waits() and await self.install() and await self.connect():
            self.watch.ensure_running()
        self.conclude()
        await self.report_changes()
        self.state.observed_generation = self.state.generation
        return False

    def _note_lost_watch(self) -> None:
        if failure := self.watch.take_failure():
            self.state.connected = False
            self._record_failure(failure_of(failure))

    @property
    def is_external(self) -> bool:
        """Return whether the gateway was installed by others."""
        return self.state.annotations.get(labels.STACK) == "external"

    async def install(self) -> bool:
        """Bring the installation in line with the spec, step by step.

        Return False while a step is not complete.
        """
        if self.is_external:
            return True
        wanted = report_digest([self.state.chart_version, self.state.address_pool])
        if self.state.installed == wanted:
            return True
        for step in self.state.unwanted_steps:
            if not await self._step_is_done(step, remove=True):
                return False
            self.state.taken_steps.remove(step)
        for step in self.state.steps:
            if step not in self.state.taken_steps:
                self.state.taken_steps.append(step)
            if not await self._step_is_done(step):
                return False
        self.state.installed, self.state.waiting_step, self.state.attempts = (
            wanted,
            "",
            0,
        )
        self.context.record_event(
            "Normal", "Installed", f"{self.state.controller} ready, composing Gateway"
        )
        return True

    async def _step_is_done(self, step: InstallStep, *, remove: bool = False) -> bool:
        order = self.state.install_order(step, remove=remove)
        summary = f"{'remove' if remove else 'install'} {step} on the control cluster"
        try:
            result = await workflow.execute_activity_method(
                StackActivities.run_install_step,
                order,
                **activity_options.on_cluster(activity_options.STACK_STEP, summary),
            )
        except ActivityError as error:
            self._record_failure(failure_of(error))
            return False
        self.state.failure = NO_FAILURE
        if result.done:
            return True
        self.state.waiting_step = f"{step}: {result.message}"
        self.state.attempts += 1
        pause = self._pause_of_step()
        self.state.retry_at = (self.context.moment() + pause).isoformat()
        self.context.requeue_after(pause)
        return False

    def _pause_of_step(self) -> timedelta:
        later = self.state.attempts - STEP_CHECKS_FIRST
        if later < 0:
            return STEP_FIRST
        # A repair may never succeed, and each check repeats all steps, including a Helm
        # release.
        return (
            min(STEP_LATER * 2 ** min(later, 8), STEP_AT_LAST)
            if self.state.repairs
            else STEP_LATER
        )

    async def connect(self) -> bool:
        """Connect to the control cluster if necessary; return False if it fails."""
        if self.state.connected:
            return True
        order = WatchGateway(uid=self.state.uid, number=self.state.watches)
        options = activity_options.on_cluster(
            activity_options.CONNECT, "connect to the control cluster"
        )
        try:
            facts = await workflow.execute_activity_method(
                RoutingActivities.connect_gateway, order, **options
            )
        except ActivityError as error:
            self._record_failure(failure_of(error))
            return False
        self.state.connected, self.state.kubernetes_version = (
            True,
            facts.kubernetes_version,
        )
        self.state.denied_cidrs = facts.denied_cidrs
        self.state.connects += 1
        self.state.failure, self.state.attempts = NO_FAILURE, 0
        self.context.record_event(
            "Normal",
            "Connected",
            f"control cluster: Kubernetes {facts.kubernetes_version}",
        )
        return True

    def _waits(self) -> bool:
        if self.context.waits_until(self.state.retry_at):
            return True
        self.state.retry_at = ""
        return False

    def _record_failure(self, failure: Failure) -> None:
        if failure != self.state.failure:
            self.context.record_event("Warning", failure.type, failure.message)
        self.state.failure = failure
        pause = backoff.missing(self.state.attempts)
        self.state.attempts += 1
        self.state.retry_at = (self.context.moment() + pause).isoformat()
        self.context.requeue_after(pause)

    # Conditions

    def conclude(self) -> None:
        """Set the conditions from the state."""
        problem = self._controller_problem()
        if problem:
            self.context.set_condition("ControllerReady", FALSE, "Installing", problem)
        else:
            self.context.set_condition(
                "ControllerReady", TRUE, "ControllerHealthy", self._version_warning()
            )
        if problem or self.state.observed is None:
            self.context.set_condition(
                "Ready",
                FALSE,
                "Installing",
                problem or "the gateway has not been observed yet",
            )
        elif not self.state.observed.reachable:
            self.context.set_condition(
                "Ready", FALSE, "ClusterUnreachable", self.state.observed.error
            )
        elif not self.state.observed.accepted:
            self._repair()
            self.context.set_condition(
                "Ready", FALSE, "Installing", self.state.observed.message
            )
        else:
            self.state.repairs, self.state.repair_at = 0, ""
            self.context.set_condition(
                "Ready", TRUE, "Available", self.state.observed.message
            )

    def _controller_problem(self) -> str:
        if self.state.failure.type == NoControlCluster.__name__:
            return self.state.failure.message
        if self.state.failure.type:
            return f"{self.state.failure.type}: {self.state.failure.message}"
        if not self.is_external and not self.state.installed:
            return self.state.waiting_step or "installing"
        return "" if self.state.connected else "connecting"

    def _version_warning(self) -> str:
        if self.state.isolates_backends:
            return ""
        return (
            f"chart {self.state.chart_version} cannot separate services with a shared "
            "endpoint: only the oldest of these services routes it; use a newer chart"
        )

    def _repair(self) -> None:
        """Repair an installation that others changed or deleted after it was complete.

        The intervals grow while repairs do not help.
        """
        if self.is_external:
            return
        if is_true(self.state.conditions, "Ready"):
            self.state.installed = ""
            self.context.requeue_after(STEP_FIRST)
        elif self.state.installed:
            self._repair_when_due()

    def _repair_when_due(self) -> None:
        """Repair objects that were lost during an outage, or before acceptance.

        Such a loss could not be observed. The intervals grow with each repair.
        """
        now = self.context.moment()
        self.state.repair_at = (
            self.state.repair_at
            or (now + backoff.after_retries(self.state.repairs)).isoformat()
        )
        due = datetime.fromisoformat(self.state.repair_at)
        if due > now:
            self.context.requeue_at(due)
            return
        self.state.repairs, self.state.repair_at = self.state.repairs + 1, ""
        self.state.installed = ""
        self.context.requeue()

    # Reports

    async def report_changes(self) -> None:
        """Report changes to all users, and the present state to new users."""
        changed = self._report()
        digest = report_digest(changed.wire())
        if digest == self.state.reported:
            await self._send(self.state.unanswered, changed)
            return
        first = not self.state.reported
        self.state.reported = digest
        if first:
            announced = GatewayUserSignals.GATEWAY_CHANGED.broadcast(
                self._numbered(changed), ModelServiceSignals, ModelEndpointSignals
            )
            await broadcast(
                announced,
                "report to all services and endpoints that the gateway exists",
            )
            # Visibility does not list the newest services yet, so the broadcast missed
            # them.
            if self.state.unanswered:
                await self._send(self.state.unanswered, changed)
            else:
                self.state.unanswered = []
        else:
            await self._send(self.state.users, changed)

    def _report(self) -> GatewayChanged:
        seen, controller = self.state.observed, self._controller_problem()
        if self.state.reachable and self.state.address:
            problem = ""
        elif self.state.reachable:
            message = seen.message if seen else ""
            problem = message or "InferenceGateway default has no address yet"
        elif self.state.connected and seen:
            problem = f"the control cluster does not answer: {seen.error}"
        elif self.state.failure.type == NoControlCluster.__name__:
            problem = controller
        else:
            problem = f"InferenceGateway default: {controller}"
        return GatewayChanged(
            uid=self.state.uid,
            sequence=0,
            connected=self.state.reachable,
            connects=self.state.connects,
            address=self.state.address,
            problem=problem,
            isolates_backends=self.state.isolates_backends,
            denied_cidrs=self.state.denied_cidrs,
            timeouts=self.state.observed.timeouts if self.state.observed else None,
            backend=self.state.backend,
        )

    def _numbered(self, changed: GatewayChanged) -> GatewayChanged:
        return changed.model_copy(update={"sequence": self.context.next_registration()})

    async def _send(self, users: list[str], changed: GatewayChanged) -> None:
        if not users:
            return
        users, self.state.unanswered = (
            list(users),
            [user for user in self.state.unanswered if user not in users],
        )
        message = self._numbered(changed)
        requests = [
            GatewayUserSignals.GATEWAY_CHANGED.request(
                EntityRef[GatewayUserSignals](user), message
            )
            for user in users
        ]
        missing = await send_all(
            requests, f"report the gateway to {len(users)} services and endpoints"
        )
        # A terminated user could not unregister. It registers again when it is applied
        # again.
        self.state.users = [user for user in self.state.users if user not in missing]

    # Teardown

    async def tear_down(self) -> bool:
        """Wait for users, remove the installation, and report.

        Return True when the gateway is gone.
        """
        self.context.set_condition("Ready", FALSE, "Deleting")
        services = [
            user.removeprefix(_SERVICE_PREFIX)
            for user in self.state.users
            if user.startswith(_SERVICE_PREFIX)
        ]
        if services and not self.state.forced:
            named = ", ".join(services[:SERVICES_NAMED])
            self.context.set_condition(
                "Deleting",
                FALSE,
                "BlockedByServices",
                f"{len(services)} ModelServices use it: {named}; delete them first",
            )
            # The services serve until they are deleted, so their routes stay watched,
            # and they learn when the control cluster answers again.
            self._note_lost_watch()
            may_serve = self.state.connects or self.state.reset
            if may_serve and not self._waits() and await self.connect():
                self.watch.ensure_running()
            await self.report_changes()
            return False
        self.watch.stop()
        if not self.is_external and not await self._uninstalled():
            return False
        self.state.connected = False
        gone = self._report().model_copy(
            update={"present": False, "problem": "", "address": ""}
        )
        await self._send(self.state.users, gone)
        return True

    async def _uninstalled(self) -> bool:
        if self._waits() and not self.state.forced:
            return False
        for step in self.state.removal_steps:
            if await self._step_is_done(step, remove=True):
                continue
            if (
                self.state.failure.type == NoControlCluster.__name__
                and not self.state.connects
            ):
                # Nothing was ever installed.
                return True
            if self.state.forced:
                cause = self.state.failure.message or self.state.waiting_step
                left = LeftBehind(
                    kind="installation",
                    name=step,
                    location="control cluster",
                    reason=f"the teardown was forced; {cause}",
                )
                self.state.add_left_behind([left])
                self.context.record_event(
                    "Warning", "LeftBehind", f"{step} may remain on the control cluster"
                )
                continue
            failure = self.state.failure
            message = (
                f"{failure.type}: {failure.message}"
                if failure.type
                else self.state.waiting_step
            )
            self.context.set_condition("Deleting", FALSE, "InProgress", message)
            return False
        return True
