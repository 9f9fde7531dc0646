"""How far a replica's teardown is, over the order in `activities/render/objects/teardown.py`.

What records an attempt or completes a step changes the given state; all else only reads it. No I/O, no clock.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from activities.render.objects.teardown import STEPS, TeardownStep, step_of, step_of_number
from api_types.messages.cluster_work import AppliedObject, RemainingObject
from api_types.resources.status import LeftBehind
from workflows.entity.failures import NO_FAILURE, Failure

# `not needed`: the inventory has no object of the step. `skipped`: by `force`. `abandoned`: the cluster could not be reached any more.
Outcome = Literal["done", "not needed", "skipped", "abandoned"]

# What earlier versions wrote into carried state.
_OLD_OUTCOMES = {"nothing there": "not needed", "given up": "skipped"}

# A condition names so many of the remaining objects, and counts the others.
_NAMED_MAX = 3
_SHOWN_MAX = 20


class TeardownProgress(BaseModel):
    """The current step, and the outcome of those before it.

    Attributes:
        number: of the current step, as in `STEPS`; `since`: when it started.
        drain_until: when the last requests have had their time; empty before the drain.
        forced_at: when all that remains was forced, or when the cluster last answered after that; empty if it was not forced.
        attempts: how often it was tried without being completed.
        waiting: what the last attempt found still there; `failure`: of the last attempt.
        outcomes: of earlier steps, by number.
        skipped: ids of objects that are no longer waited for.

    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    number: int = 1
    since: str = ""
    drain_until: str = ""
    forced_at: str = ""
    attempts: int = Field(default=0, alias="looks")
    waiting: list[RemainingObject] = Field(default_factory=list)
    failure: Failure = Field(default=NO_FAILURE, alias="trouble")
    outcomes: dict[str, Outcome] = Field(default_factory=dict, alias="taken")
    skipped: list[str] = Field(default_factory=list, alias="givenUp")

    @field_validator("outcomes", mode="before")
    @classmethod
    def _rename_outcomes(cls, value: dict[str, str]) -> dict[str, str]:
        return {number: _OLD_OUTCOMES.get(outcome, outcome) for number, outcome in value.items()}

    @property
    def step(self) -> TeardownStep:
        """The current step."""
        return step_of_number(self.number)

    def record_remaining(self, remaining: Sequence[RemainingObject]) -> None:
        """Record what an attempt found still there."""
        self.attempts += 1
        self.waiting, self.failure = list(remaining), NO_FAILURE

    def record_failure(self, failure: Failure) -> None:
        """Record why an attempt failed."""
        self.attempts += 1
        self.failure = failure

    def complete(self, outcome: Outcome, now: str) -> None:
        """End the current step and start the next one."""
        self.outcomes[str(self.number)] = outcome
        self.number, self.since = self.number + 1, now
        self.attempts, self.waiting, self.failure = 0, [], NO_FAILURE

    # --- texts --------------------------------------------------------------------------------------------------------------------

    def reason(self) -> str:
        """Give the reason of the condition `Deleting`."""
        return self.failure.type or "TearingDown"

    def message(self) -> str:
        """Say which step is current, and what it waits for."""
        title = f"step {self.number} of {len(STEPS)}: {self.step.title}"
        if self.failure.message:
            return f"{title}; retrying: {self.failure.message}"
        return f"{title}; waiting for deletion of {named(self.waiting)}" if self.waiting else title

    def state_of(self, step: TeardownStep) -> str:
        """Say how far a step is."""
        if step.number == self.number:
            return "waiting" if self.attempts else "running"
        return self.outcomes.get(str(step.number), "pending")

    def shown(self) -> dict[str, Any]:
        """Give `status.teardown`."""
        return {
            "step": self.number,
            "since": self.since,
            "steps": [{"number": step.number, "title": step.title, "state": self.state_of(step)} for step in STEPS],
            "waitingFor": [{"object": item.id, "why": item.why} for item in self.waiting[:_SHOWN_MAX]],
            "problem": ": ".join(filter(None, self.failure)),
        }

    def lines(self) -> list[str]:
        """Give the steps as a Markdown table."""
        rows = [f"| {step.number} | {step.title} | {self.state_of(step)} | {self._waits_for(step)} |" for step in STEPS]
        return ["| Step | | State | Waits for |", "|---|---|---|---|", *rows, ""]

    def _waits_for(self, step: TeardownStep) -> str:
        if step.number != self.number:
            return ""
        return (self.failure.message or ", ".join(map(str, self.waiting[:_SHOWN_MAX]))).replace("|", "/")

    # --- what is left behind ------------------------------------------------------------------------------------------------------

    def remaining_of_step(self, inventory: Sequence[AppliedObject]) -> list[RemainingObject]:
        """Name what the current step leaves if it ends now: what was last observed, else what the inventory has of it."""
        if self.waiting:
            return self.waiting
        return [RemainingObject(id=entry.id) for entry in inventory if step_of(entry.key) is self.step]


def named(items: Sequence[RemainingObject]) -> str:
    """Name the first few objects and count the others."""
    more = len(items) - _NAMED_MAX
    return ", ".join(map(str, items[:_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def left_behind(items: Sequence[RemainingObject], cluster: str, why: str) -> list[LeftBehind]:
    """List objects that stay on a cluster, and why."""
    found = []
    for item in items:
        reason = f"{why}; {item.why}" if item.why else why
        found.append(LeftBehind(kind=item.kind, name=item.name, namespace=item.namespace, location=cluster, reason=reason))
    return found
