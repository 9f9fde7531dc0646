"""Which process of pytest-xdist runs which file: three processes have a testbed, and the others have none.

A testbed is two API servers with all that belongs to them. It takes a minute of processor time to start and costs some also while its tests
wait, so no more are started than two processors can serve: with two they are idle for half of the time. The processes that have one
take the files that need it first, and fill up with the rest.
Which files these are, the processes that collect the tests know (`remember`): those with a test that asks for it.
"""

from collections.abc import Iterable
from functools import cached_property

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

TESTBEDS = 3
# The command line's tests have a worker of their own, which the tests of workflows stop: one process takes them first, and any other only
# when it has no test of workflows left.
COMMANDS = "tests/client/commands/"
# What takes long comes first, each for a minute or more, and what is short fills the gaps at the end.
FIRST = (
    COMMANDS,
    "tests/workflows/model_deployment/test_rollouts.py",
    "tests/workflows/model_deployment/test_upgrades.py",
    "tests/workflows/model_cache/test_lifecycle.py",
    "tests/workflows/model_replica/test_topologies.py",
    "tests/workflows/fleet_scheduler/rebuild/test_lost_scheduler.py",
    "tests/workflows/fleet_scheduler/test_race.py",
    "tests/workflows/histories/",
    "tests/workflows/test_end_to_end.py",
    "tests/workflows/test_created_clusters.py",
    "tests/workflows/faults/",
    "tests/secrecy/test_key_rotation_of_a_fleet.py",
    "tests/secrecy/test_whole_run.py",
    "tests/workflows/explorer/",
    "tests/scheduler/laws/",
    "tests/client/planning/test_offline_agreement.py",
    "tests/workflows/model_",
    "tests/client/follow/test_lost_workers.py",
    "tests/worker/",
    "tests/testbed/",
    "tests/workflows/",
    "tests/activities/clusters/",
    "tests/scheduler/cel/test_fuzz.py",
    "tests/activities/",
)
# A process runs a test only when it knows the one after it.
KNOWN_AHEAD = 2
_REMEMBERED = "modelplane/files-on-testbeds"


def remember(config: pytest.Config, files: Iterable[str]) -> None:
    """Note the files with a test that needs a testbed, for the process that gives files to others. One process is enough to tell it."""
    if config.workerinput["workerid"] == "gw0" and config.cache:  # type: ignore[attr-defined]  # set by pytest-xdist
        config.cache.set(_REMEMBERED, sorted(set(files)))


def rank(file: str) -> int:
    """Order among files of one sort."""
    return next((place for place, prefix in enumerate(FIRST) if file.startswith(prefix)), len(FIRST))


class TestbedScheduling(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives whole files to processes, by what they need."""

    __test__ = False

    @cached_property
    def _on_testbed(self) -> frozenset[str]:
        """The files that need a testbed. Were they not known, each process would start one when it needs it."""
        cache = self.config.cache
        return frozenset(cache.get(_REMEMBERED, []) if cache else [])

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down:
            return
        if self._next_file(node) is None:
            node.shutdown()
        elif self._pending_of(self.assigned_work[node]) < KNOWN_AHEAD:
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        chosen = self._next_file(node)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    def _next_file(self, node: WorkerController) -> str | None:
        """Choose a file for a process; none when nothing is left, or only what needs a testbed and it has none."""
        files: list[str] = sorted(self.workqueue, key=rank)
        if not self._has_testbed(node):
            return next((file for file in files if file not in self._on_testbed), None)
        if node.gateway.id != "gw0":
            files.sort(key=lambda file: file.startswith(COMMANDS))
        return next((file for file in files if file in self._on_testbed), files[0] if files else None)

    def _has_testbed(self, node: WorkerController) -> bool:
        return node.gateway.id in {f"gw{number}" for number in range(TESTBEDS)}
