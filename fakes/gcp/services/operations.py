"""Operations.

They advance when they or their object are read, and when a call is refused because of
them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fakes.gcp.calls.errors import CloudError

PENDING, RUNNING, DONE = "PENDING", "RUNNING", "DONE"


def _no_effect() -> CloudError | None:
    return None


@dataclass(eq=False)
class Operation:
    """One operation.

    `name` is its full name, `target` its object, and `holds` its cluster, if it has one.
    """

    name: str
    kind: str
    target: str
    reads_left: int
    finish: Callable[[], CloudError | None] = _no_effect
    """The effect. An error that it returns is the operation's."""
    holds: str = ""
    state: str = PENDING
    error: CloudError | None = None
    answer: Any = None
    """The result of a long-running operation, as a protobuf message."""

    @property
    def done(self) -> bool:
        """Whether it ended."""
        return self.state == DONE

    @property
    def short_name(self) -> str:
        """Return the last part of the name."""
        return self.name.rpartition("/")[2]

    def advance(self) -> None:
        """Count one read. The last one applies the effect."""
        if self.done:
            return
        self.reads_left -= 1
        if self.reads_left > 0:
            self.state = RUNNING
            return
        self.state = DONE
        self.error = self.finish() or self.error


class Operations:
    """All operations of the project, including ended ones."""

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
        """Start an operation below `parent`, such as `projects/p/locations/l`."""
        number = len(self._all) + 1
        name = (
            f"{parent}/operations/operation-{number:06d}"
            if parent
            else f"operations/acat.p2-{number:06d}"
        )
        operation = Operation(
            name,
            kind,
            target,
            self._reads if reads is None else reads,
            finish,
            holds,
            answer=answer,
        )
        self._all[name] = operation
        if operation.reads_left <= 0:
            operation.advance()
        return operation

    def get(self, name: str) -> Operation | None:
        """Return an operation by its full name."""
        return self._all.get(name)

    def below(self, parent: str) -> list[Operation]:
        """Return the operations below a parent, oldest first."""
        return [
            operation
            for name, operation in self._all.items()
            if name.startswith(f"{parent}/operations/")
        ]

    def below_locations(self, project: str) -> list[Operation]:
        """Return the operations below all locations of a project, oldest first."""
        return [
            operation
            for name, operation in self._all.items()
            if name.startswith(f"{project}/locations/")
        ]

    def on_cluster(self, cluster: str) -> list[Operation]:
        """Return the running operations on a cluster and its pools."""
        return [
            each
            for each in self._all.values()
            if each.holds == cluster and not each.done
        ]

    def running_on(self, target: str) -> Operation | None:
        """Return the newest running operation on an object."""
        return next(
            (
                each
                for each in reversed(self._all.values())
                if each.target == target and not each.done
            ),
            None,
        )

    def advance(self, target: str) -> None:
        """Count one read of an object for its running operations."""
        for operation in list(self._all.values()):
            if not operation.done and target in {operation.target, operation.holds}:
                operation.advance()

    def finish(self, target: str) -> None:
        """End the operations of an object at once."""
        for operation in list(self._all.values()):
            while not operation.done and target in {operation.target, operation.holds}:
                operation.advance()

    def finish_all(self) -> None:
        """End all operations."""
        for operation in list(self._all.values()):
            while not operation.done:
                operation.advance()

    def clear(self) -> None:
        """Forget all operations."""
        self._all = {}
