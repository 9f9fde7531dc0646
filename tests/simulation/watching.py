"""Runs the auditors on a world: after its steps, and at rest."""

import asyncio
from typing import TYPE_CHECKING

from tests.simulation import auditors
from tests.simulation.auditors import Finding
from tests.simulation.coverage import Coverage
from tests.simulation.observe import Observer
from tests.simulation.snapshot import Snapshot

if TYPE_CHECKING:
    from tests.simulation.world import Step, World

STEPS_PER_LOOK = 20
"""A look costs as much as several steps, and a violation lasts for many more steps."""
LOOKS_PER_TEXT = 50
SETTLED_WITHIN = 4 * 3600
"""The longest chain of waits of the product: a resync, and back-off after it."""
SETTLING_PAUSE = 600
REST_SECONDS, SHORT_REST_SECONDS = 3 * 3600, 3600
SHORT_WORLD = 10_000
PROMPT_SECONDS = (120, 300)
"""Times since the last fault, before a resync repairs the effect of a lost message."""
IDLE_TASKS, IDLE_SECONDS = 20, 10.0
"""So many tasks of one workflow in so many seconds that only set timers are a busy loop."""
_IDLE_WORK = {"fire_timer", "start_timer", "cancel_timer", "continue_as_new_workflow_execution"}


class Watch:
    """Looks at a world every so many steps. Raises Finding."""

    def __init__(self, world: "World") -> None:
        self.observer = Observer(world)
        self._parts = world.parts
        self.coverage = Coverage()
        self._steps = 0
        self._left_undone: list[set[str]] = []
        self._idle_tasks: dict[str, list[float]] = {}

    def __call__(self, world: "World", step: "Step") -> None:
        """Count a step, and look at every so many steps."""
        if step.kind == "script":
            self.coverage.acted(step.subject)
        if step.kind == "task":
            self._check_idling(step)
        self._steps += 1
        if self._steps % STEPS_PER_LOOK == 0:
            whole = self._steps % (STEPS_PER_LOOK * LOOKS_PER_TEXT) == 0
            self._check(self.observer.look(whole=whole, texts=whole))
        if world.quiet_since is not None:
            self._check_promptness(world.clock.seconds() - world.quiet_since)

    def _check_idling(self, step: "Step") -> None:
        """Find a workflow that waits for a time that is over."""
        if not set(step.detail.replace(" ->", ",").split(", ")) <= _IDLE_WORK:
            self._idle_tasks.pop(step.subject, None)
            return
        times = self._idle_tasks.setdefault(step.subject, [])
        times.append(step.seconds)
        del times[:-IDLE_TASKS]
        if len(times) == IDLE_TASKS and times[-1] - times[0] < IDLE_SECONDS:
            raise Finding([f"{step.subject} wakes up again and again, and does nothing"])

    def _check_promptness(self, quiet_seconds: float) -> None:
        """Look twice soon after the last fault: something is left undone if both looks find it."""
        looks = len(self._left_undone)
        if looks < len(PROMPT_SECONDS) and quiet_seconds >= PROMPT_SECONDS[looks]:
            found = auditors.audit(self.observer.look(whole=True), auditors.PROMPT)
            self._left_undone.append(set(found))
            if looks and (undone := sorted(set.intersection(*self._left_undone))):
                raise Finding(undone)

    def _check(self, seen: Snapshot) -> None:
        self.coverage.saw(seen)
        if found := auditors.audit(seen, auditors.ALWAYS):
            raise Finding(found)

    async def until_settled(self) -> Snapshot:
        """Wait until the auditors find nothing and no pod starts. Raises Finding at the limit.

        A pod that starts changes routes, and the end of a download lets replicas be placed. Some
        engines never start, so these alone are no finding. The deadline of a drain evicts
        replicas.
        """
        for _ in range(SETTLED_WITHIN // SETTLING_PAUSE):
            seen = self.observer.look(whole=True, texts=True)
            self._check(seen)
            found = auditors.audit(seen, auditors.AT_REST)
            drains = any(each.drains for each in seen.deployments)
            if not (found or drains or self._parts.has_starting_pods()):
                return seen
            await asyncio.sleep(SETTLING_PAUSE)
        if found:
            raise Finding(found)
        return seen


async def at_rest(world: "World") -> None:
    """Check that an undisturbed world is sound and stays as it is. Raises Finding.

    A download that ends late lets replicas roll out: only a growth that goes on is a finding.
    """
    watch = next(each for each in world.observers if isinstance(each, Watch))
    before = await watch.until_settled()
    rest_seconds = SHORT_REST_SECONDS if world.horizon < SHORT_WORLD else REST_SECONDS
    grown: list[str] = []
    for _ in range(2):
        await asyncio.sleep(rest_seconds)
        after = await watch.until_settled()
        if found := auditors.compare(before, after, (auditors.nothing_flaps,)):
            raise Finding(found)
        grown = auditors.compare(before, after, (auditors.histories_do_not_grow,))
        if not grown:
            return
        before = after
    raise Finding(grown)
