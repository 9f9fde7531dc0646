"""How far a replica's teardown has come: pure readings over the order in `activities/render/objects/teardown.py`."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from activities.render.objects.teardown import STEPS, TeardownStep, step_of
from api_types.messages.cluster_work import AppliedObject, RemainingObject
from api_types.resources.status import LeftBehind

# `nothing there`: the inventory has nothing of it. `given up`: by somebody's word. `abandoned`: there was no way to the cluster any more.
Outcome = Literal["done", "nothing there", "given up", "abandoned"]

# A condition names so many of the objects that are waited for, and counts the rest.
_NAMED_MAX = 3
_SHOWN_MAX = 20


class TeardownProgress(BaseModel):
    """The step at hand and what became of those before it.

    Attributes:
        number: of the step at hand, as in `STEPS`; `since`: when it began.
        looks: how often it was tried without coming to its end.
        waiting: what the last look found still there; `trouble`: type and message of the last failure, empty if it was none.
        taken: what became of earlier steps, by number.
        given_up: ids of objects for which nobody waits any more.

    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    number: int = 1
    since: str = ""
    looks: int = 0
    waiting: list[RemainingObject] = Field(default_factory=list)
    trouble: tuple[str, str] = ("", "")
    taken: dict[str, Outcome] = Field(default_factory=dict)
    given_up: list[str] = Field(default_factory=list)

    @property
    def step(self) -> TeardownStep:
        """The step at hand."""
        return STEPS[self.number - 1]

    def found_waiting(self, remaining: Sequence[RemainingObject]) -> None:
        """Note what a look found still there."""
        self.looks += 1
        self.waiting, self.trouble = list(remaining), ("", "")

    def failed(self, kind: str, message: str) -> None:
        """Note why a look saw nothing."""
        self.looks += 1
        self.trouble = (kind, message)

    def close(self, outcome: Outcome, now: str) -> None:
        """End the step at hand and begin the next one."""
        self.taken[str(self.number)] = outcome
        self.number, self.since = self.number + 1, now
        self.looks, self.waiting, self.trouble = 0, [], ("", "")

    # --- words --------------------------------------------------------------------------------------------------------------------

    def reason(self) -> str:
        """Give the reason of the condition `Deleting`."""
        return self.trouble[0] or "TearingDown"

    def message(self) -> str:
        """Say which step is at hand, and what it waits for."""
        said = f"step {self.number} of {len(STEPS)}: {self.step.title}"
        if self.trouble[1]:
            return f"{said}; tried again: {self.trouble[1]}"
        return f"{said}; waits until gone: {named(self.waiting)}" if self.waiting else said

    def state_of(self, step: TeardownStep) -> str:
        """Say how a step stands."""
        if step.number == self.number:
            return "waiting" if self.looks else "now"
        return self.taken.get(str(step.number), "to come")

    def shown(self) -> dict[str, Any]:
        """Give `status.teardown`."""
        return {
            "step": self.number,
            "since": self.since,
            "steps": [{"number": step.number, "title": step.title, "state": self.state_of(step)} for step in STEPS],
            "waitingFor": [{"object": item.id, "why": item.why} for item in self.waiting[:_SHOWN_MAX]],
            "problem": ": ".join(filter(None, self.trouble)),
        }

    def lines(self) -> list[str]:
        """Give the steps as a Markdown table."""
        rows = [f"| {step.number} | {step.title} | {self.state_of(step)} | {self._words(step)} |" for step in STEPS]
        return ["| Step | | State | Waits for |", "|---|---|---|---|", *rows, ""]

    def _words(self, step: TeardownStep) -> str:
        if step.number != self.number:
            return ""
        return (self.trouble[1] or ", ".join(map(str, self.waiting[:_SHOWN_MAX]))).replace("|", "/")

    # --- what stays ---------------------------------------------------------------------------------------------------------------

    def left_of_step(self, inventory: Sequence[AppliedObject]) -> list[RemainingObject]:
        """Name what the step at hand leaves if it ends now: what was last seen, else what the inventory has of it."""
        if self.waiting:
            return self.waiting
        return [RemainingObject(id=entry.id) for entry in inventory if step_of(entry.key) is self.step]


def named(items: Sequence[RemainingObject]) -> str:
    """Name the first few objects and count the others."""
    more = len(items) - _NAMED_MAX
    return ", ".join(map(str, items[:_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def left_behind(items: Sequence[RemainingObject], cluster: str, why: str) -> list[LeftBehind]:
    """Write down objects that stay on a cluster, and why."""
    found = []
    for item in items:
        *_, kind, namespace, name = item.id.split("/")
        reason = f"{why}; {item.why}" if item.why else why
        found.append(LeftBehind(kind=kind, name=name, namespace=namespace, location=cluster, reason=reason))
    return found
