"""The common part of the entities of an exploration.

Passes, the incomplete task, and continue-as-new.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from api_types.messages.delivery import Signal
from tests.workflows.explorer.world import Node, World
from workflows.entity.context import EntityContext
from workflows.entity.periods import RESYNC

Steps = Iterator[None]
# The server waits at least this long before it retries a lost task.
UNDONE_MS = 10
# The sender of a user's signals.
USER = "user"


def message_of(
    signal: Signal[Any, Any], handler: Callable[[Any], None]
) -> tuple[str, Callable[[Any], None]]:
    return signal.name, lambda payload: handler(signal.parse(payload))


@dataclass
class Task:
    """An incomplete workflow task: the state before it, and the signals since.

    The signals that it sent cannot be taken back.
    """

    before: str
    known_runs: dict[str, int]
    handled: list[tuple[str, Any]] = field(default_factory=list)


class EntityNode(Node):
    """The common part of entities.

    A context, and passes that start when a signal is queued or a timer is due.
    """

    kind: str

    def __init__(self, world: World, workflow_id: str, state: Any) -> None:
        super().__init__(world, workflow_id)
        self.resync_at = world.ms + self.ms(RESYNC)
        self.known_runs: dict[str, int] = {}
        self.task: Task | None = None
        self.renew(state)

    @staticmethod
    def ms(delay: timedelta) -> int:
        return int(delay.total_seconds() * 1000)

    def renew(self, state: Any) -> None:
        """Start a run of the workflow with a state."""
        self.state = state
        self.context: EntityContext[Any] = EntityContext(
            self.kind, state, lambda: None, self.workflow_id, self.world.moment
        )
        self.state.uid = self.state.uid or f"uid-{self.world.random.getrandbits(64):x}"
        self.passing: Steps | None = None
        self.build()

    @abstractmethod
    def build(self) -> None:
        pass

    @abstractmethod
    def reconcile(self) -> Steps:
        """Run one pass; yield wherever another workflow can run."""

    @abstractmethod
    def reports_to(self) -> list[str]:
        """Return the ids of the workflows that this one reports to."""

    def dependents(self) -> list[str]:
        """Return the ids of the workflows that must run because of this one."""
        return []

    @abstractmethod
    def receivers_lost(self, workflow_ids: list[str]) -> None:
        """React to receivers that do not run or were restarted."""

    def resync(self) -> None:
        """Find restarted workflows, as every entity does periodically."""
        running = {each: node.first_run for each, node in self.world.running.items()}
        missing = [
            each
            for each in (*self.reports_to(), *self.dependents())
            if each not in running
        ]
        changed = [
            each
            for each in self.reports_to()
            if each in running and self.known_runs.get(each) != running[each]
        ]
        self.known_runs |= {each: running[each] for each in changed}
        self.receivers_lost([*changed, *missing])

    def is_ready(self) -> bool:
        return (
            self.passing is not None
            or self.context.queued
            or self.wakes_at() <= self.world.ms
        )

    def wakes_at(self) -> int:
        at = self.context.requeue_time
        return (
            self.resync_at
            if at is None
            else min(self.resync_at, int(at.timestamp() * 1000) + 1)
        )

    def handle(self) -> None:
        if self.task is None and self.passing is None:
            self.task = Task(
                self.state.model_dump_json(by_alias=True), dict(self.known_runs)
            )
        if self.task is not None:
            self.task.handled += self.mail
        super().handle()

    def complete_task(self) -> None:
        """Complete the workflow task, as the end of a pass or the start of an activity does.

        The history now has its effects.
        """
        self.task = None

    def undo_task(self) -> None:
        """Lose the workflow task, together with its worker or because a signal voids
        the end of a run.

        It is executed again, with the new signals.
        """
        if self.task is not None:
            self.world.note(f"undo the task of {self.workflow_id}")
            task, self.task = self.task, None
            self.mail.extendleft(reversed(task.handled))
            self.known_runs = task.known_runs
            self.world.ms += UNDONE_MS
            self.renew(type(self.state).model_validate_json(task.before))

    def user(self, act: Callable[[], None]) -> None:
        """Deliver a user's action as a signal."""
        self.mail.append((USER, act))

    def step(self) -> None:
        # An arriving signal voids the last task of a run.
        chances = self.world.chances
        if self.passing is not None and self.world.happens(
            chances.interrupted if self.mail else chances.undone
        ):
            self.undo_task()
        self.handle()
        if self.resync_at <= self.world.ms:
            self.resync_at += self.ms(RESYNC)
            self.resync()
            self.context.requeue()
        if self.passing is None:
            self.context.queued, self.context.requeue_time = False, None
            self.passing = self.reconcile()
        if next(self.passing, self) is self:
            self.passing = None
            self.complete_task()
            if self.world.running.get(self.workflow_id) is self and self.world.happens(
                self.world.chances.continued
            ):
                self.world.note(f"continue as new {self.workflow_id}")
                # A new run starts with a pass.
                self.renew(
                    type(self.state).model_validate_json(
                        self.state.model_dump_json(by_alias=True)
                    )
                )
