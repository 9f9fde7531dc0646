"""The part of an InferenceCluster's state that describes its serving stack."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from activities.render.stack.removal import RemovalStep, steps_of
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.entities import ForceFinalizer
from api_types.messages.stack import InstalledRelease, StackPlan, StackSeen
from api_types.payloads.packing import Compact
from workflows.entity.failures import NO_FAILURE, Failure


class _StackPart(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )


class RemovalProgress(_StackPart):
    """The progress of the removal of a stack.

    Attributes:
        begun: whether the wait for replicas and caches is over. It does not start again.
        looking: whether the deletion asks for the owner of a stack that no preflight has
            found, or that the last one has refused.
        purge: whether definitions that charts leave behind are deleted too.
        number: the number of the current step, from 1.
        since: when the current step started.
        attempts: the number of attempts at the current step that did not complete it.
        retry_at: when the next attempt may start.
        remaining: the objects that still existed after the last attempt.
        failure: why the last attempt failed.
        skipped: the IDs of objects that the removal no longer waits for.
        finalizers: the finalizers that users asked to remove in this step.

    """

    begun: bool = False
    looking: bool = False
    purge: bool = False
    number: int = 1
    since: str = ""
    attempts: int = 0
    retry_at: str = ""
    remaining: list[RemainingObject] = Field(default_factory=list)
    failure: Failure = NO_FAILURE
    skipped: list[str] = Field(default_factory=list)
    finalizers: list[ForceFinalizer] = Field(default_factory=list)

    @property
    def steps(self) -> tuple[RemovalStep, ...]:
        return steps_of(purge=self.purge)

    @property
    def step(self) -> RemovalStep:
        return self.steps[self.number - 1]

    @property
    def ended(self) -> bool:
        """Whether all steps are complete."""
        return self.number > len(self.steps)

    @property
    def is_running(self) -> bool:
        """Whether the first step has started and the last one is not complete."""
        return bool(self.since) and not self.ended

    def complete(self, now: str) -> None:
        self.number, self.since = self.number + 1, now
        self.attempts, self.retry_at = 0, ""
        self.remaining, self.failure, self.finalizers = [], NO_FAILURE, []


class TurnState(_StackPart):
    """The state of this cluster's turn to upgrade its stack.

    Attributes:
        number: the number of the requested turn. 0 if none is requested.
        granted: whether the stack may be upgraded now.
        holders: the clusters whose upgrades this cluster waits for.
        answer: the number of the newest answer.
        said: the digest of the last request to StackUpgrades. Empty if StackUpgrades knows
            of no request.
        progress: the progress of the upgrade in the last request.
        report_at: the earliest time of the next progress report.

    """

    number: int = 0
    granted: bool = False
    holders: list[str] = Field(default_factory=list)
    answer: int = 0
    said: str = ""
    progress: str = ""
    report_at: str = ""


class StackState(_StackPart):
    """The carried state of a stack.

    Attributes:
        plan: the plan that is installed or being installed. None before the first
            preflight.
        planned_at: when the plan was made.
        plans: the number of plans so far.
        replan: whether a new plan has to be made because the workers' settings changed.
        upgrading: whether the plan upgrades a stack that was complete.
        connected_plan: the digest of the plan that caused the last reconnect.
        completed_plan: the `planned_at` of the last plan that was completed.
        complete: whether any plan was ever completed.
        done: the completed steps of the plan.
        releases: the installed releases, by component.
        groups: the groups of objects that were applied.
        notes: notes for users, by step.
        failures, attempts, retry_at: why steps failed, the number of consecutive failures
            and the time of the next attempt, by step.
        rewrites: components with missing objects although their release is as wanted.
        repairs: how often missing objects of a target were applied again.
        repaired_at: when objects of a target were last found missing.
        stages: when each stage with open steps started.
        late: the stages that take longer than usual.
        seen: the last observation of the stack.
        covered: the targets of that observation, with the revision of each release and the
            plan number of each group.
        address: the last address of the gateway, to notice changes.
        turn: the turn to upgrade, which StackUpgrades grants.
        removal: the progress of the removal.

    """

    plan: Compact[StackPlan | None] = None
    planned_at: str = ""
    plans: int = 0
    replan: bool = False
    upgrading: bool = False
    connected_plan: str = ""
    completed_plan: str = ""
    complete: bool = False
    done: list[str] = Field(default_factory=list)
    releases: dict[str, InstalledRelease] = Field(default_factory=dict)
    groups: list[str] = Field(default_factory=list)
    notes: dict[str, list[str]] = Field(default_factory=dict)
    failures: dict[str, Failure] = Field(default_factory=dict)
    attempts: dict[str, int] = Field(default_factory=dict)
    retry_at: dict[str, str] = Field(default_factory=dict)
    rewrites: list[str] = Field(default_factory=list)
    repairs: dict[str, int] = Field(default_factory=dict)
    repaired_at: dict[str, str] = Field(default_factory=dict)
    stages: dict[str, str] = Field(default_factory=dict)
    late: list[str] = Field(default_factory=list)
    seen: StackSeen | None = None
    covered: dict[str, int] = Field(default_factory=dict)
    address: str = ""
    turn: TurnState = Field(default_factory=TurnState)
    removal: RemovalProgress = Field(default_factory=RemovalProgress)
