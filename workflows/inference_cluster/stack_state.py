"""What an InferenceCluster knows of the serving stack that it installs."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from activities.render.stack.removal import RemovalStep, steps_of
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.entities import ForceFinalizer
from api_types.messages.stack import InstalledRelease, StackPlan, StackSeen
from api_types.payloads.packing import Compact
from workflows.entity.failures import NO_FAILURE, Failure


class _Carried(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")


class RemovalProgress(_Carried):
    """How far the removal of a stack is.

    Attributes:
        begun: whether replicas and caches are gone, or were given up: they are not waited for again.
        purge: whether definitions that charts leave are deleted too.
        number: of the current step, from 1; `since`: when it started.
        attempts: how often it was tried without being completed; `retry_at`: when it is tried again.
        remaining: what the last attempt found still there; `failure`: of the last attempt.
        skipped: ids of objects that are no longer waited for. `finalizers`: what operators asked to remove, in this step.

    """

    begun: bool = False
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
        """All steps."""
        return steps_of(purge=self.purge)

    @property
    def step(self) -> RemovalStep:
        """The current step."""
        return self.steps[self.number - 1]

    @property
    def ended(self) -> bool:
        """Whether there is no step left."""
        return self.number > len(self.steps)

    def complete(self, now: str) -> None:
        """End the current step and start the next one."""
        self.number, self.since = self.number + 1, now
        self.attempts, self.retry_at, self.remaining, self.failure, self.finalizers = 0, "", [], NO_FAILURE, []


class TurnState(_Carried):
    """The turn to upgrade that a cluster wants or has.

    Attributes:
        number: of the turn that is wanted; 0 if none is.
        granted: whether the stack may be upgraded now. `holders`: the clusters that upgrade, for which this one waits.
        answer: number of the newest answer.
        said: digest of what StackUpgrades was told last, empty if it knows of no turn. `progress`: how far the upgrade was then.
        report_at: before then no progress is reported.

    """

    number: int = 0
    granted: bool = False
    holders: list[str] = Field(default_factory=list)
    answer: int = 0
    said: str = ""
    progress: str = ""
    report_at: str = ""


class StackState(_Carried):
    """What is carried of a stack.

    Attributes:
        plan: what is installed, or is being installed; None before the first preflight. `planned_at`: since when.
        plans: how many plans there were. `replan`: another one has to be made, because settings of the workers changed.
        upgrading: whether the plan follows another one, which was installed.
        connected_plan: the digest of the plan that was applied when the cluster was last connected because of it.
        completed_plan: when the plan was made that was last carried out to its end.
        complete: whether some plan was carried out to its end.
        done: the steps of the plan that are complete.
        releases: what was installed, by component. `groups`: the groups of objects that were applied.
        notes: what users should know, by step.
        failures, attempts, retry_at: of steps that failed: why, how often in a row, and when they are tried again.
        rewrites: components of which something is missing on the cluster although their release is as wanted.
        repairs: how often something of a target was found missing and was applied again; `repaired_at` when that was last found.
        stages: since when each stage has open steps. `late`: stages that take longer than usual.
        seen: what was seen last; `covered`: of which targets, with the revision of each release and the number of the plan of each group.
        address: the last address of the gateway, to tell when it changes.
        turn: that to upgrade, which StackUpgrades gives.
        removal: how far the removal is.

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
