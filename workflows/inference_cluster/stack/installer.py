"""How an InferenceCluster installs its stack, keeps it as planned, and upgrades it: the steps of the plan, as soon as each may be taken.

Steps run beside the reconcile loop, several at once where the plan allows it. One activity looks at the cluster all the time and reports
differences only: what it finds missing is applied again, and a plan that the workers' settings no longer make is replaced.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.render.stack.install import ALL_READY, BY_NUMBER, Action, Step
from activities.stack.activities import StackActivities
from api_types.messages.cluster_work import Connection
from api_types.messages.stack import (
    ApplyChartCrds,
    ApplyStackObjects,
    CheckStack,
    EnsuredRelease,
    EnsureRelease,
    InstalledRelease,
    PreflightStack,
    StackApplied,
    StackOrder,
    StackPlan,
    StackSeen,
)
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure, backoff_after
from workflows.inference_cluster.gateway import gateway_of
from workflows.inference_cluster.spec import connection_of, is_managed
from workflows.inference_cluster.stack.calls import BackgroundCalls
from workflows.inference_cluster.stack.plan import (
    CHECK,
    PREFLIGHT,
    RESTART,
    awaits_readiness,
    begin_plan,
    complete_idle_steps,
    coverage,
    covers,
    is_carried_out,
    is_installed,
    is_planned,
    is_upgrading,
    missing_targets,
    open_stages,
    open_steps,
    reopen,
    steps_of,
)
from workflows.inference_cluster.stack.turn import StackTurn
from workflows.inference_cluster.stack_state import StackState
from workflows.inference_cluster.state import ClusterState

# While something is installed, at first and when it takes longer than usual; and of a complete stack, where a difference must last.
POLL_SECONDS, LATE_POLL_SECONDS, COMPLETE_POLL_SECONDS = 5, 30, 300
CONFIRM_SECONDS = 15
# A look ends with what it reports, or with its worker; an hourly one would cost an idle cluster half of its history.
LOOK_SECONDS = 7 * 24 * 3600
# A helm that is stopped leaves a release pending, which is recovered only minutes later; so its end is waited for.
END_OF_STEPS = timedelta(minutes=6)
# In histories of before each repair waited longer than the last one, however long ago that was.
REPAIRS_PATCH = "forget-old-stack-repairs"


class StackInstaller:
    """Takes the steps of the plan; those of an upgrade in its turn.

    `reconnect` has the cluster connected anew, so that what it serves now is known.
    """

    def __init__(
        self, context: EntityContext[ClusterState], calls: BackgroundCalls, turn: StackTurn, reconnect: Callable[[], None]
    ) -> None:
        self._context = context
        self._turn = turn
        self._reconnect = reconnect
        self._state = context.state
        self._calls = calls
        # What the running look covers, and how often it looks.
        self._look: tuple[dict[str, int], int] = ({}, 0)

    @property
    def _stack(self) -> StackState:
        return self._state.stack

    def update(self) -> None:
        """Start what may be started, and look at the cluster; called in every pass of a cluster that is connected."""
        connection = connection_of(self._context.name, self._state)
        if not is_managed(self._state) or connection is None:
            self._calls.stop(CHECK)
            self._turn.give_back()
            return
        self._turn.follow(running=True)
        # What is planned here replaces what is complete; until then it is looked after as it is.
        if self._stack.plan is None or (self._stack.replan and not self._turn.waits):
            self._preflight(connection)
        if self._stack.plan is None:
            return
        self._show_address()
        complete_idle_steps(self._stack, gateway_of(self._state).address)
        self._find_new_kinds()
        self._record_completion()
        self._follow_deadlines()
        self._find_outdated_plan()
        for step in open_steps(self._stack) if not self._is_held() else ():
            if step.action is not Action.READY and is_planned(self._stack, step) and self._may_try(step.key):
                self._take(step, connection)
        if self._stack.seen and self._stack.seen.restart and self._may_try(RESTART):
            order = StackOrder(connection=connection, cluster_uid=self._state.uid)
            self._start(RESTART, StackActivities.restart_ai_gateway, order, self._restarted)
        self._watch(connection)

    def _is_held(self) -> bool:
        """Tell whether an upgrade is under way whose turn is over."""
        return self._turn.waits and is_upgrading(self._stack)

    def retry(self) -> None:
        """Make the next attempt at everything now, and look again."""
        self._stack.retry_at, self._stack.attempts = {}, {}
        self._calls.stop(CHECK)

    def stop_looking(self) -> None:
        """End the look; steps that run go on."""
        self._calls.stop(CHECK)

    async def stop(self) -> None:
        """End the look, and wait for the steps that run: the next run of this workflow takes the others."""
        self._calls.stop(CHECK)
        await self._calls.until_ended(self._calls.keys, END_OF_STEPS)
        self._calls.stop_all()

    # --- the plan -----------------------------------------------------------------------------------------------------------------

    def _preflight(self, connection: Connection) -> None:
        if not self._may_try(PREFLIGHT) or any(key != CHECK for key in self._calls.keys):
            return
        if self._stack.plan is None and PREFLIGHT not in self._stack.failures:
            self._context.record_event("Normal", "ComposingBackend", f"{_source(self._state)} cluster ready, composing backend")
        order = PreflightStack(
            connection=connection,
            cluster_uid=self._state.uid,
            source=_source(self._state),
            installed=[release.name for release in self._stack.releases.values()],
        )

        def planned(plan: StackPlan) -> None:
            before = self._stack.plan
            begin_plan(self._stack, plan, self._context.now())
            if before is not None and before.digest != plan.digest:
                self._context.record_event("Normal", "StackChanged", "another stack is wanted: it is upgraded, one release at a time")
            for reason in plan.kept.values():
                self._context.record_event("Warning", "Rejected", reason)

        self._start(PREFLIGHT, StackActivities.preflight_stack, order, planned)

    def _find_outdated_plan(self) -> None:
        """Have another plan made where an earlier version made this one without a component; workers of the cluster may be older still."""
        stack = self._stack
        if all(is_planned(stack, step) for step in steps_of(stack)):
            stack.repairs.pop(PREFLIGHT, None)
        elif not stack.replan and not self._calls.running(PREFLIGHT):
            attempts = stack.repairs.get(PREFLIGHT, 0)
            stack.replan, stack.repairs[PREFLIGHT] = True, attempts + 1
            stack.retry_at[PREFLIGHT] = (self._context.moment() + backoff.renderer(attempts)).isoformat()
            self._context.requeue()

    def _find_new_kinds(self) -> None:
        """Connect anew when everything is applied: the observer looks for kinds that are new, such as the Gateway, once a minute only."""
        plan = self._stack.plan
        if plan and self._stack.connected_plan != plan.digest and any(step.key == ALL_READY for step in open_steps(self._stack)):
            self._stack.connected_plan = plan.digest
            self._reconnect()

    def _record_completion(self) -> None:
        if not is_carried_out(self._stack) or self._stack.completed_plan == self._stack.planned_at:
            return
        self._stack.completed_plan = self._stack.planned_at
        word = "upgraded" if self._stack.upgrading else "complete"
        self._stack.complete = True
        self._context.record_event("Normal", "StackComplete", f"the serving stack is {word}")

    def _show_address(self) -> None:
        """Record an address that is another one: ModelEndpoints follow it, and firewalls may have to."""
        address = gateway_of(self._state).address
        if address and self._stack.address and address != self._stack.address:
            self._context.record_event("Warning", "GatewayAddressChanged", f"from {self._stack.address} to {address}")
        self._stack.address = address or self._stack.address

    def _follow_deadlines(self) -> None:
        """Note which stages take longer than usual, and come back when the next one does."""
        stages = [stage.number for stage in open_stages(self._stack)]
        kept = {number: since for number, since in self._stack.stages.items() if number in stages}
        self._stack.stages = kept | {number: self._context.moment().isoformat() for number in stages if number not in kept}
        late = []
        for number in stages:
            began, limit = self._stack.stages[number], timedelta(seconds=BY_NUMBER[number].deadline_seconds)
            at = _after(began, limit)
            if at <= self._context.moment():
                late.append(number)
            else:
                self._context.requeue_at(at)
        if late != self._stack.late:
            self._stack.late = late
            self._context.mark_changed()

    # --- steps --------------------------------------------------------------------------------------------------------------------

    def _take(self, step: Step, connection: Connection) -> None:
        plan = self._stack.plan
        of_stack: dict[str, Any] = {"connection": connection, "cluster_uid": self._state.uid}
        if plan is None:
            return
        match step.action:
            case Action.OBJECTS:
                (group,) = step.targets
                objects = ApplyStackObjects(spec=plan.spec, group=group, **of_stack)
                self._start(step.key, StackActivities.apply_stack_objects, objects, self._applied(step.key, group))
            case Action.CRDS:
                changed = [plan.releases[key] for key in step.targets if key not in plan.kept]
                crds = ApplyChartCrds(releases=changed, **of_stack)
                self._start(step.key, StackActivities.apply_chart_crds, crds, self._applied(step.key))
            case _:
                (component,) = step.targets
                rewrite = component in self._stack.rewrites
                release = EnsureRelease(release=plan.releases[component], rewrite=rewrite, **of_stack)
                self._start(step.key, StackActivities.helm_ensure, release, self._ensured(component))

    def _start(self, key: str, activity: Callable[..., Any], order: Any, done: Callable[[Any], None]) -> None:
        queue = order.connection.task_queue
        options = activity_options.on_cluster(activity_options.STACK_STEP, f"{self._context.name}: stack: {key}", queue)
        plan = self._stack.plan.digest if self._stack.plan else ""

        def recorded(result: Any) -> None:
            self._forget_failure(key)
            # What a plan began that was replaced meanwhile says nothing about the next one.
            if key in (PREFLIGHT, RESTART) or (self._stack.plan and self._stack.plan.digest == plan):
                done(result)
            self._context.mark_changed()

        def failed(failure: Failure) -> None:
            attempts = self._stack.attempts.get(key, 0)
            if self._stack.failures.get(key, Failure()).type != failure.type:
                self._context.record_event("Warning", failure.type, f"stack: {key}: {failure.message}")
            self._stack.failures[key] = failure
            self._stack.attempts[key] = attempts + 1
            self._stack.retry_at[key] = (self._context.moment() + backoff_after(failure, attempts)).isoformat()
            self._context.mark_changed()

        self._calls.start(key, lambda: workflow.execute_activity_method(activity, order, **options), recorded, failed)

    def _applied(self, key: str, group: str = "") -> Callable[[StackApplied], None]:
        def done(applied: StackApplied) -> None:
            self._stack.done.append(key)
            self._stack.notes.pop(key, None)
            if applied.notes:
                self._stack.notes[key] = applied.notes
            if group and group not in self._stack.groups:
                self._stack.groups.append(group)

        return done

    def _ensured(self, component: str) -> Callable[[EnsuredRelease], None]:
        def done(ensured: EnsuredRelease) -> None:
            plan = self._stack.plan
            namespace = plan.releases[component].namespace if plan else ""
            self._stack.done.append(component)
            self._stack.rewrites = [each for each in self._stack.rewrites if each != component]
            self._stack.releases[component] = InstalledRelease(
                component=component,
                name=ensured.name,
                namespace=namespace,
                revision=ensured.revision,
                workloads=ensured.workloads,
            )

        return done

    def _restarted(self, restarted: bool) -> None:
        if self._stack.seen:
            self._stack.seen = self._stack.seen.model_copy(update={"restart": False})
        if restarted:
            self._context.record_event("Normal", "Restarted", "the AI gateway, which was started before InferencePools were served")

    def _may_try(self, key: str) -> bool:
        """Tell whether nothing runs under a key and its next attempt is due."""
        if self._calls.running(key):
            return False
        retry_at = self._stack.retry_at.get(key, "")
        if retry_at and self._context.is_future(retry_at):
            self._context.requeue_at(_after(retry_at, timedelta()))
            return False
        return True

    def _forget_failure(self, key: str) -> None:
        for kept in (self._stack.failures, self._stack.attempts, self._stack.retry_at):
            kept.pop(key, None)

    # --- the look -----------------------------------------------------------------------------------------------------------------

    def _watch(self, connection: Connection) -> None:
        """Keep one look running that covers what is waited for."""
        plan = self._stack.plan
        if plan is None or not (awaits_readiness(self._stack) or self._is_held()):
            return
        complete = is_carried_out(self._stack)
        poll = COMPLETE_POLL_SECONDS if complete else LATE_POLL_SECONDS if self._stack.late else POLL_SECONDS
        if self._calls.running(CHECK) and covers(self._look[0], self._stack) and self._look[1] == poll:
            return
        self._calls.stop(CHECK)
        if not self._may_try(CHECK):
            return
        covered = coverage(self._stack)
        seen = self._stack.seen
        order = CheckStack(
            connection=connection,
            cluster_uid=self._state.uid,
            source=_source(self._state),
            spec=plan.spec,
            plan=plan.digest,
            releases=list(self._stack.releases.values()),
            groups=self._stack.groups,
            known=seen.digest if seen and self._stack.covered == covered else "",
            poll_seconds=poll,
            confirm_seconds=CONFIRM_SECONDS if complete else 0,
            max_seconds=LOOK_SECONDS,
        )
        self._look = (covered, poll)
        options = activity_options.on_cluster(activity_options.LONG_WAIT, f"{self._context.name}: look at the stack", connection.task_queue)

        def looked(found: StackSeen) -> None:
            self._forget_failure(CHECK)
            self._record_seen(found, covered)

        def failed(failure: Failure) -> None:
            self._context.record_event("Warning", failure.type, f"stack: {CHECK}: {failure.message}")
            self._stack.attempts[CHECK] = self._stack.attempts.get(CHECK, 0) + 1
            pause = backoff.transient(self._stack.attempts[CHECK])
            self._stack.retry_at[CHECK] = (self._context.moment() + pause).isoformat()

        self._calls.start(
            CHECK, lambda: workflow.execute_activity_method(StackActivities.stack_readiness, order, **options), looked, failed
        )

    def _record_seen(self, found: StackSeen, covered: dict[str, int]) -> None:
        stack = self._stack
        stack.seen, stack.covered = found, covered
        if stack.plan and found.wanted not in ("", stack.plan.digest):
            # Workers of two versions, or with two settings, would have it changed in turn.
            at = _after(stack.planned_at, backoff.renderer(stack.plans))
            stack.replan = True
            if at > self._context.moment():
                stack.retry_at[PREFLIGHT] = at.isoformat()
        if missing := [each for each in missing_targets(found) if is_installed(stack, each, covered)]:
            self._repair(missing)
        self._context.mark_changed()

    def _repair(self, targets: list[str]) -> None:
        """Have what is missing applied again, ever later if it keeps being taken away."""
        now = self._context.moment()
        for target in targets:
            repairs = self._stack.repairs.get(target, 0)
            if repairs and workflow.patched(REPAIRS_PATCH):
                repairs = backoff.recent_repairs(repairs, self._stack.repaired_at.get(target, ""), now)
            self._stack.repairs[target], self._stack.repaired_at[target] = repairs + 1, now.isoformat()
            self._stack.retry_at[target] = (self._context.moment() + backoff.repair(repairs)).isoformat()
        self._context.record_event("Warning", "StackRepaired", f"something is missing and is applied again: {', '.join(targets)}")
        self._stack.rewrites = list(dict.fromkeys([*self._stack.rewrites, *targets]))
        reopen(self._stack, targets)


def _source(state: ClusterState) -> str:
    return str((state.spec or {})["cluster"]["source"])


def _after(moment: str, delay: timedelta) -> datetime:
    return datetime.fromisoformat(moment) + delay
