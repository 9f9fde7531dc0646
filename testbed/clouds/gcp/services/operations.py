"""Operations: what takes time. They advance when they are read, when their object is read, and when a call is refused because of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.clouds.gcp.calls.errors import CloudError

PENDING, RUNNING, DONE = "PENDING", "RUNNING", "DONE"


def _no_effect() -> CloudError | None:
    return None


@dataclass(eq=False)
class Operation:
    """One operation; `name` is the full name of it, `target` of what it works on, `holds` of the cluster that it keeps others from."""

    name: str
    kind: str
    target: str
    reads_left: int
    finish: Callable[[], CloudError | None] = _no_effect
    """Brings about the effect; an error that it gives is the operation's."""
    holds: str = ""
    state: str = PENDING
    error: CloudError | None = None
    answer: Any = None
    """What a long-running operation answers when it is done, as a protobuf message."""

    @property
    def done(self) -> bool:
        """Whether it ended."""
        return self.state == DONE

    @property
    def short_name(self) -> str:
        """Give the last part of the name."""
        return self.name.rpartition("/")[2]

    def advance(self) -> None:
        """Count one read; with the last one the effect takes place."""
        if self.done:
            return
        self.reads_left -= 1
        if self.reads_left > 0:
            self.state = RUNNING
            return
        self.state = DONE
        self.error = self.finish() or self.error


class Operations:
    """All operations of the project, also those that ended."""

    def __init__(self, reads: int) -> None:
        self._reads = reads
        self._all: dict[str, Operation] = {}

    def start(
        self,
        parent: str,
        kind: str,
        target: str,
        finish: Callable[[], CloudError | None] = _no_effect,
        *,
        holds: str = "",
        answer: Any = None,
        reads: int | None = None,
    ) -> Operation:
        """Begin an operation below `parent`, such as `projects/p/locations/l`."""
        number = len(self._all) + 1
        name = f"{parent}/operations/operation-{number:06d}" if parent else f"operations/acat.p2-{number:06d}"
        operation = Operation(name, kind, target, self._reads if reads is None else reads, finish, holds, answer=answer)
        self._all[name] = operation
        if operation.reads_left <= 0:
            operation.advance()
        return operation

    def get(self, name: str) -> Operation | None:
        """Give an operation by its full name."""
        return self._all.get(name)

    def below(self, parent: str) -> list[Operation]:
        """Give the operations below a parent, oldest first."""
        return [operation for name, operation in self._all.items() if name.startswith(f"{parent}/operations/")]

    def below_locations(self, project: str) -> list[Operation]:
        """Give the operations below all locations of a project, oldest first."""
        return [operation for name, operation in self._all.items() if name.startswith(f"{project}/locations/")]

    def holding(self, cluster: str) -> Operation | None:
        """Give the operation that keeps others from a cluster."""
        return next((each for each in self._all.values() if each.holds == cluster and not each.done), None)

    def running_on(self, target: str) -> Operation | None:
        """Give the newest operation on an object that has not ended."""
        return next((each for each in reversed(self._all.values()) if each.target == target and not each.done), None)

    def advance(self, target: str) -> None:
        """Count one read of an object for what runs on it or holds it."""
        for operation in list(self._all.values()):
            if not operation.done and target in {operation.target, operation.holds}:
                operation.advance()

    def finish(self, target: str) -> None:
        """End at once what runs on an object or holds it."""
        for operation in list(self._all.values()):
            while not operation.done and target in {operation.target, operation.holds}:
                operation.advance()

    def finish_all(self) -> None:
        """End everything that runs."""
        for operation in list(self._all.values()):
            while not operation.done:
                operation.advance()

    def clear(self) -> None:
        """Forget all operations."""
        self._all = {}
