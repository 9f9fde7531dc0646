"""The progress of a teardown through the order in `activities/render/objects/teardown.py`.

Functions that record an attempt or complete a step change the given state; the others
only read it. There is no I/O and no clock.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from activities.render.objects.teardown import (
    STEPS,
    TeardownStep,
    deletions,
    step_of_number,
)
from api_types.messages.cluster_work import AppliedObject, RemainingObject
from api_types.resources.status import LeftBehind
from workflows.entity.failures import NO_FAILURE, Failure

# `not needed`: the inventory has no object of the step. `skipped`: by `force`.
# `abandoned`: the cluster is unreachable for good.
Outcome = Literal["done", "not needed", "skipped", "abandoned"]

# A condition names this many of the remaining objects, and counts the others.
_NAMED_MAX = 3
_SHOWN_MAX = 20


class TeardownProgress(BaseModel):
    """The current step, and the outcome of earlier ones.

    Attributes:
        number: the current step, as in `STEPS`; `since`: its start.
        drain_until: the end of the time for the last requests; empty before the drain.
        forced_at: the time of a force of all steps, or of the cluster's last answer
            since; else empty.
        attempts: the number of attempts without success.
        waiting: the remaining objects at the last attempt; `failure`: its failure.
        outcomes: the outcomes of earlier steps, by number.
        skipped: ids of objects for which no step waits any more.

    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    number: int = 1
    since: str = ""
    drain_until: str = ""
    forced_at: str = ""
    attempts: int = 0
    waiting: list[RemainingObject] = Field(default_factory=list)
    failure: Failure = NO_FAILURE
    outcomes: dict[str, Outcome] = Field(default_factory=dict)
    skipped: list[str] = Field(default_factory=list)

    @property
    def step(self) -> TeardownStep:
        return step_of_number(self.number)

    def record_remaining(self, remaining: Sequence[RemainingObject]) -> None:
        """Record the remaining objects of an attempt."""
        self.attempts += 1
        self.waiting, self.failure = list(remaining), NO_FAILURE

    def record_failure(self, failure: Failure) -> None:
        """Record the failure of an attempt."""
        self.attempts += 1
        self.failure = failure

    def complete(self, outcome: Outcome, now: str) -> None:
        """End the current step and start the next one."""
        self.outcomes[str(self.number)] = outcome
        self.number, self.since = self.number + 1, now
        self.attempts, self.waiting, self.failure = 0, [], NO_FAILURE

    # Texts

    def reason(self) -> str:
        """Return the reason of the condition `Deleting`."""
        return self.failure.type or "TearingDown"

    def message(self) -> str:
        """Return the current step and the objects that block it."""
        title = f"step {self.number} of {len(STEPS)}: {self.step.title}"
        if self.failure.message:
            return f"{title}; retrying: {self.failure.message}"
        return (
            f"{title}; waiting for deletion of {named(self.waiting)}"
            if self.waiting
            else title
        )

    def state_of(self, step: TeardownStep) -> str:
        """Return the progress of a step."""
        if step.number == self.number:
            return "waiting" if self.attempts else "running"
        return self.outcomes.get(str(step.number), "pending")

    def shown(self) -> dict[str, Any]:
        """Return `status.teardown`."""
        return {
            "step": self.number,
            "since": self.since,
            "steps": [
                {
                    "number": step.number,
                    "title": step.title,
                    "state": self.state_of(step),
                }
                for step in STEPS
            ],
            "waitingFor": [
                {"object": item.id, "why": item.why}
                for item in self.waiting[:_SHOWN_MAX]
            ],
            "problem": ": ".join(filter(None, self.failure)),
        }

    def lines(self) -> list[str]:
        """Return the steps as a Markdown table."""
        rows = [
            f"| {step.number} | {step.title} | {self.state_of(step)} | {self._waits_for(step)} |"
            for step in STEPS
        ]
        return ["| Step | | State | Waits for |", "|---|---|---|---|", *rows, ""]

    def _waits_for(self, step: TeardownStep) -> str:
        if step.number != self.number:
            return ""
        return (
            self.failure.message or ", ".join(map(str, self.waiting[:_SHOWN_MAX]))
        ).replace("|", "/")

    # Objects left behind

    def remaining_of_step(
        self, inventory: Sequence[AppliedObject]
    ) -> list[RemainingObject]:
        """Return the objects that the current step leaves if it ends now.

        These are the objects that it waits for, and the objects of the inventory that
        it deletes after them. Before the first look, they are all of its inventory.
        """
        if self.waiting and self.step.wait_kinds:
            # A step that waits for objects of controllers deletes its own at once.
            return self.waiting
        ids = [entry.id for entry in deletions(self.step, inventory)]
        places = [ids.index(each.id) for each in self.waiting if each.id in ids]
        later = ids[max(places, default=-1) + 1 :]
        return [*self.waiting, *(RemainingObject(id=each) for each in later)]


def named(items: Sequence[RemainingObject]) -> str:
    """Name the first objects and count the others."""
    more = len(items) - _NAMED_MAX
    return ", ".join(map(str, items[:_NAMED_MAX])) + (
        f" and {more} more" if more > 0 else ""
    )


def left_behind(
    items: Sequence[RemainingObject], cluster: str, why: str
) -> list[LeftBehind]:
    """Return objects that stay on a cluster, with the reason."""
    found = []
    for item in items:
        reason = f"{why}; {item.why}" if item.why else why
        found.append(
            LeftBehind(
                kind=item.kind,
                name=item.name,
                namespace=item.namespace,
                location=cluster,
                reason=reason,
            )
        )
    return found
