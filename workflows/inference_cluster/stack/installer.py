"""Install the serving stack of a cluster, keep it as planned, and upgrade it.

Steps run in the background of the reconcile loop as soon as their needs are complete.
One activity checks the cluster all the time and reports only differences. Missing
objects are applied again, and a plan that does not match the workers' settings is
replaced.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.render.stack.install import ALL_READY, BY_NUMBER, Action, Step
from activities.stack.activities import StackActivities
from api_types.errors import NameConflict
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
from api_types.payloads.limits import shortened
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure, backoff_after
from workflows.inference_cluster.gateway import gateway_of
from workflows.inference_cluster.spec import (
    connection_of,
    is_managed,
    is_only_planned,
)
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
from workflows.inference_cluster.state import REASON_BYTES_MAX, ClusterState

# The poll intervals of a check: during an installation, in a late stage, and for a
# complete stack. A difference on a complete stack must last for CONFIRM_SECONDS.
POLL_SECONDS, LATE_POLL_SECONDS, COMPLETE_POLL_SECONDS = 5, 30, 300
CONFIRM_SECONDS = 15
# A check ends when it reports or when its worker stops. An hourly check would cost an
# idle cluster half of its history.
LOOK_SECONDS = 7 * 24 * 3600
# A helm process that is killed leaves a pending release, which is recovered only
# minutes later. So the workflow waits for its end.
END_OF_STEPS = timedelta(minutes=6)


class StackInstaller:
    """Runs the steps of the plan.

    An upgrade waits for its turn. `reconnect` makes the cluster connect again, to
    discover the kinds that it serves now.
    """

    def __init__(
        self,
        context: EntityContext[ClusterState],
        calls: BackgroundCalls,
        turn: StackTurn,
        reconnect: Callable[[], None],
    ) -> None:
        self._context = context
        self._turn = turn
        self._reconnect = reconnect
        self._state = context.state
        self._calls = calls
        # The coverage of the running check, and how often it polls.
        self._look: tuple[dict[str, int], int] = ({}, 0)

    @property
    def _stack(self) -> StackState:
        return self._state.stack

    def update(self) -> None:
        """Start all steps and checks that may start.

        Each pass of a connected cluster calls it.
        """
        connection = connection_of(self._context.name, self._state)
        if not is_managed(self._state) or connection is None:
            self._calls.stop(CHECK)
            self._turn.give_back()
            return
        self._turn.follow(running=True)
        # A new plan replaces a complete one. Until then the complete stack is kept as
        # planned.
        if self._stack.plan is None or (self._stack.replan and not self._turn.waits):
            self._preflight(connection)
        if self._stack.plan is None or is_only_planned(self._state):
            self._calls.stop(CHECK)
            return
        self._show_address()
        complete_idle_steps(self._stack, gateway_of(self._state).address)
        self._find_new_kinds()
        self._record_completion()
        self._follow_deadlines()
        self._find_outdated_plan()
        steps = [] if self._is_held() else open_steps(self._stack)
        for step in steps:
            has_work = step.action is not Action.READY
            if has_work and is_planned(self._stack, step) and self._may_try(step.key):
                self._take(step, connection)
        if self._stack.seen and self._stack.seen.restart and self._may_try(RESTART):
            order = StackOrder(connection=connection, cluster_uid=self._state.uid)
            self._start(
                RESTART, StackActivities.restart_ai_gateway, order, self._restarted
            )
        self._watch(connection)

    def _is_held(self) -> bool:
        """Return whether an upgrade has started and its turn is over."""
        return self._turn.waits and is_upgrading(self._stack)

    def retry(self) -> None:
        """Make the next attempt at all steps now, and restart the check.

        Parts that others installed may be gone, so a stack that uses them is planned
        again.
        """
        self._stack.retry_at, self._stack.attempts = {}, {}
        plan = self._stack.plan
        if plan and (plan.adopted or is_only_planned(self._state)):
            self._stack.replan = True
        self._calls.stop(CHECK)

    def stop_looking(self) -> None:
        """Stop the check. Running steps continue."""
        self._calls.stop(CHECK)

    async def stop(self) -> None:
        """Stop the check and wait for the running steps.

        The next run starts the others.
        """
        self._calls.stop(CHECK)
        await self._calls.until_ended(self._calls.keys, END_OF_STEPS)
        self._calls.stop_all()

    # Plan

    def _preflight(self, connection: Connection) -> None:
        if not self._may_try(PREFLIGHT) or any(
            key != CHECK for key in self._calls.keys
        ):
            return
        if (
            self._stack.plan is None
            and PREFLIGHT not in self._stack.failures
            and not self._stack.removal.looking
        ):
            self._context.record_event(
                "Normal",
                "ComposingBackend",
                f"{_source(self._state)} cluster ready, composing backend",
            )
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
                self._context.record_event(
                    "Normal",
                    "StackChanged",
                    "the wanted stack changed: upgrading one release at a time",
                )
            for key, reason in plan.kept.items():
                if key in plan.adopted:
                    self._context.record_event("Normal", "Adopted", reason)
                else:
                    self._context.record_event("Warning", "Rejected", reason)
            if plan.left:
                text = f"the stack leaves alone: {', '.join(plan.left)}"
                self._context.record_event("Normal", "LeftAlone", text)

        self._start(PREFLIGHT, StackActivities.preflight_stack, order, planned)

    def looks_before_removal(self) -> bool:
        """Return True until a refused stack is known to be of another owner.

        A user may have given the stack to this cluster after the last preflight. The
        preflight then makes the plan by which the stack is removed.

        The same holds for a cluster that is deleted before its first preflight.

        A cluster that was reset does not know the stack that it has installed, which
        carries its former uid. It waits until an administrator gives the stack to it,
        or until the deletion is forced.
        """
        stack, connection = self._stack, connection_of(self._context.name, self._state)
        has_connected = self._state.facts is not None or self._state.reset
        if (
            stack.plan is not None
            or connection is None
            or not has_connected
            or not is_managed(self._state)
        ):
            return False
        failure = stack.failures.get(PREFLIGHT)
        refused = failure is not None and failure.type == NameConflict.__name__
        is_answered = refused and stack.removal.looking and not self._state.reset
        if is_answered or self._state.forced:
            self._list_unremoved(failure.message if failure is not None else "")
            return False
        if not stack.removal.looking:
            stack.removal.looking = True
            self._forget_failure(PREFLIGHT)
        elif failure is not None:
            self._context.set_condition(
                "Deleting", FALSE, failure.type, f"preflight: {failure.message}"
            )
        self._preflight(connection)
        return True

    def _list_unremoved(self, problem: str) -> None:
        """List the stack that may stay on the cluster."""
        name = self._context.name
        why = problem or "the deletion was forced before its owner was known"
        reason = shortened(f"not removed: {why}", REASON_BYTES_MAX)
        left = LeftBehind(kind="stack", name=name, location=name, reason=reason)
        if left not in self._state.left_behind:
            self._state.add_left_behind([left])
            self._context.record_event(
                "Warning", "LeftBehind", f"a serving stack may remain: {reason}"
            )

    def _find_outdated_plan(self) -> None:
        """Make a new plan if an earlier version made this one without a component.

        The workers of the cluster may be older still, so the attempts have a backoff.
        """
        stack = self._stack
        if all(is_planned(stack, step) for step in steps_of(stack)):
            stack.repairs.pop(PREFLIGHT, None)
        elif not stack.replan and not self._calls.running(PREFLIGHT):
            attempts = stack.repairs.get(PREFLIGHT, 0)
            stack.replan, stack.repairs[PREFLIGHT] = True, attempts + 1
            stack.retry_at[PREFLIGHT] = (
                self._context.moment() + backoff.renderer(attempts)
            ).isoformat()
            self._context.requeue()

    def _find_new_kinds(self) -> None:
        """Connect again once all objects are applied.

        The observer itself looks for new kinds, such as the Gateway, only once a
        minute.
        """
        plan = self._stack.plan
        if (
            plan
            and self._stack.connected_plan != plan.digest
            and any(step.key == ALL_READY for step in open_steps(self._stack))
        ):
            self._stack.connected_plan = plan.digest
            self._reconnect()

    def _record_completion(self) -> None:
        if (
            not is_carried_out(self._stack)
            or self._stack.completed_plan == self._stack.planned_at
        ):
            return
        self._stack.completed_plan = self._stack.planned_at
        word = "upgraded" if self._stack.upgrading else "complete"
        self._stack.complete = True
        self._context.record_event(
            "Normal", "StackComplete", f"the serving stack is {word}"
        )

    def _show_address(self) -> None:
        """Record a change of the address: ModelEndpoints and firewalls depend on it."""
        address = gateway_of(self._state).address
        if address and self._stack.address and address != self._stack.address:
            self._context.record_event(
                "Warning",
                "GatewayAddressChanged",
                f"from {self._stack.address} to {address}",
            )
        self._stack.address = address or self._stack.address

    def _follow_deadlines(self) -> None:
        """Update the late stages, and requeue for the next deadline."""
        stages = [stage.number for stage in open_stages(self._stack)]
        kept = {
            number: since
            for number, since in self._stack.stages.items()
            if number in stages
        }
        self._stack.stages = kept | {
            number: self._context.moment().isoformat()
            for number in stages
            if number not in kept
        }
        late = []
        for number in stages:
            limit = timedelta(seconds=BY_NUMBER[number].deadline_seconds)
            at = _after(self._stack.stages[number], limit)
            if at <= self._context.moment():
                late.append(number)
            else:
                self._context.requeue_at(at)
        if late != self._stack.late:
            self._stack.late = late
            self._context.mark_changed()

    # Steps

    def _take(self, step: Step, connection: Connection) -> None:
        plan = self._stack.plan
        of_stack: dict[str, Any] = {
            "connection": connection,
            "cluster_uid": self._state.uid,
        }
        if plan is None:
            return
        match step.action:
            case Action.OBJECTS:
                (group,) = step.targets
                objects = ApplyStackObjects(spec=plan.spec, group=group, **of_stack)
                self._start(
                    step.key,
                    StackActivities.apply_stack_objects,
                    objects,
                    self._applied(step.key, group),
                )
            case Action.CRDS:
                changed = [
                    plan.releases[key] for key in step.targets if key not in plan.kept
                ]
                crds = ApplyChartCrds(releases=changed, **of_stack)
                self._start(
                    step.key,
                    StackActivities.apply_chart_crds,
                    crds,
                    self._applied(step.key),
                )
            case _:
                (component,) = step.targets
                rewrite = component in self._stack.rewrites
                release = EnsureRelease(
                    release=plan.releases[component], rewrite=rewrite, **of_stack
                )
                self._start(
                    step.key,
                    StackActivities.helm_ensure,
                    release,
                    self._ensured(component),
                )

    def _start(
        self,
        key: str,
        activity: Callable[..., Any],
        order: Any,
        done: Callable[[Any], None],
    ) -> None:
        queue = order.connection.task_queue
        options = activity_options.on_cluster(
            activity_options.STACK_STEP, f"{self._context.name}: stack: {key}", queue
        )
        plan = self._stack.plan.digest if self._stack.plan else ""

        def recorded(result: Any) -> None:
            self._forget_failure(key)
            # A failed step of a replaced plan says nothing about the new plan.
            if key in (PREFLIGHT, RESTART) or (
                self._stack.plan and self._stack.plan.digest == plan
            ):
                done(result)
            self._context.mark_changed()

        def failed(failure: Failure) -> None:
            attempts = self._stack.attempts.get(key, 0)
            if self._stack.failures.get(key, Failure()).type != failure.type:
                self._context.record_event(
                    "Warning", failure.type, f"stack: {key}: {failure.message}"
                )
            self._stack.failures[key] = failure
            self._stack.attempts[key] = attempts + 1
            self._stack.retry_at[key] = (
                self._context.moment() + backoff_after(failure, attempts)
            ).isoformat()
            self._context.mark_changed()

        self._calls.start(
            key,
            lambda: workflow.execute_activity_method(activity, order, **options),
            recorded,
            failed,
        )

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
            self._stack.rewrites = [
                each for each in self._stack.rewrites if each != component
            ]
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
            self._context.record_event(
                "Normal",
                "Restarted",
                "restarted the AI gateway, because it started before the cluster served "
                "InferencePools",
            )

    def _may_try(self, key: str) -> bool:
        """Return whether no call is running under a key and its next attempt is due."""
        if self._calls.running(key):
            return False
        return not self._context.waits_until(self._stack.retry_at.get(key, ""))

    def _forget_failure(self, key: str) -> None:
        for kept in (self._stack.failures, self._stack.attempts, self._stack.retry_at):
            kept.pop(key, None)

    # Checks

    def _watch(self, connection: Connection) -> None:
        """Keep one check running that covers all targets that steps wait for."""
        plan = self._stack.plan
        if plan is None or not (awaits_readiness(self._stack) or self._is_held()):
            return
        complete = is_carried_out(self._stack)
        if complete:
            poll = COMPLETE_POLL_SECONDS
        else:
            poll = LATE_POLL_SECONDS if self._stack.late else POLL_SECONDS
        if (
            self._calls.running(CHECK)
            and covers(self._look[0], self._stack)
            and self._look[1] == poll
        ):
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
        options = activity_options.on_cluster(
            activity_options.LONG_WAIT,
            f"{self._context.name}: check the stack",
            connection.task_queue,
        )

        def looked(found: StackSeen) -> None:
            self._forget_failure(CHECK)
            self._record_seen(found, covered)

        def failed(failure: Failure) -> None:
            self._context.record_event(
                "Warning", failure.type, f"stack: {CHECK}: {failure.message}"
            )
            self._stack.attempts[CHECK] = self._stack.attempts.get(CHECK, 0) + 1
            pause = backoff.transient(self._stack.attempts[CHECK])
            self._stack.retry_at[CHECK] = (self._context.moment() + pause).isoformat()

        self._calls.start(
            CHECK,
            lambda: workflow.execute_activity_method(
                StackActivities.stack_readiness, order, **options
            ),
            looked,
            failed,
        )

    def _record_seen(self, found: StackSeen, covered: dict[str, int]) -> None:
        stack = self._stack
        stack.seen, stack.covered = found, covered
        if stack.plan and found.wanted not in ("", stack.plan.digest):
            # The backoff prevents workers with different versions or settings from
            # replacing each other's plans continuously.
            at = _after(stack.planned_at, backoff.renderer(stack.plans))
            stack.replan = True
            if at > self._context.moment():
                stack.retry_at[PREFLIGHT] = at.isoformat()
        missing = [
            each
            for each in missing_targets(found)
            if is_installed(stack, each, covered)
        ]
        if missing:
            self._repair(missing)
        self._context.mark_changed()

    def _repair(self, targets: list[str]) -> None:
        """Apply missing objects again, with a longer delay each time."""
        now = self._context.moment()
        for target in targets:
            repairs = self._stack.repairs.get(target, 0)
            if repairs:
                repairs = backoff.recent_repairs(
                    repairs, self._stack.repaired_at.get(target, ""), now
                )
            self._stack.repairs[target] = repairs + 1
            self._stack.repaired_at[target] = now.isoformat()
            self._stack.retry_at[target] = (now + backoff.repair(repairs)).isoformat()
        self._context.record_event(
            "Warning",
            "StackRepaired",
            f"applying missing objects again: {', '.join(targets)}",
        )
        self._stack.rewrites = list(dict.fromkeys([*self._stack.rewrites, *targets]))
        reopen(self._stack, targets)


def _source(state: ClusterState) -> str:
    return str((state.spec or {})["cluster"]["source"])


def _after(moment: str, delay: timedelta) -> datetime:
    return datetime.fromisoformat(moment) + delay
