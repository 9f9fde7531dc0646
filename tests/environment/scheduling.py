"""Which process of pytest-xdist runs which file: few processes have a testbed, and one has none.

A testbed is two API servers with all that belongs to them, and costs processor time also while its tests wait. So the last of three or
more processes takes only files that need none; the others take those that need one first, and fill up with the rest. Such a file says
`mark.testbed`; `tests/conftest.py` refuses one that does not.
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[2]
# The command line's tests have a worker of their own, which the tests of workflows stop: one process has them all, and takes them first.
COMMANDS = "tests/client/commands/"
# The tests of workflows take longest, so they come next: what is short fills the gaps at the end.
FIRST = (COMMANDS, "tests/workflows/model_", "tests/workflows/", "tests/activities/clusters/", "tests/testbed/")
PROCESSES_MIN = 3


@cache
def needs_testbed(file: str) -> bool:
    """Whether a test of a file is marked so."""
    return "mark.testbed" in (ROOT / file).read_text()


def rank(file: str) -> int:
    """Order among files of one sort."""
    return next((place for place, prefix in enumerate(FIRST) if file.startswith(prefix)), len(FIRST))


class TestbedScheduling(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives whole files to processes, by what they need."""

    __test__ = False

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._next_file(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        chosen = self._next_file(node)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    def _next_file(self, node: WorkerController) -> str | None:
        """Choose a file for a process; none when all that is left needs a testbed and it has none."""
        files: list[str] = sorted(self.workqueue, key=rank)
        if self._has_no_testbed(node):
            return next((file for file in files if not needs_testbed(file)), None)
        if node.gateway.id != "gw0":
            files = [file for file in files if not (file.startswith(COMMANDS) and needs_testbed(file))]
        return next((file for file in files if needs_testbed(file)), files[0] if files else None)

    def _has_no_testbed(self, node: WorkerController) -> bool:
        return bool(self.numnodes >= PROCESSES_MIN and node.gateway.id == f"gw{self.numnodes - 1}")
