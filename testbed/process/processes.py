"""The files through which the supervisor and other processes communicate.

`processes/<name>.json` is the desired process, `run/<name>.json` the running one. The
kernel reuses pids, so a file also has the start time of the process in the kernel's
ticks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.documents import read_json, write_json

SUPERVISOR = "supervisor"
OWNER_VARIABLE = "MODELPLANE_TESTBED_OWNER"
"""The variable with the id of the process with which a testbed ends."""


@dataclass(frozen=True)
class ProcessSpec:
    """One process that the supervisor keeps running."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to the supervisor's own environment."""
    stage: int = 0
    """Processes of a higher stage are stopped before processes of a lower one, so that
    no process loses its database first.
    """
    stop_signal: int | None = None
    """The signal that ends the process, or None if the process is to run."""


@dataclass(frozen=True)
class ProcessIdentity:
    """One process.

    `started` is in clock ticks since boot. It distinguishes the process from a later
    one with the same pid.
    """

    pid: int
    started: int

    def alive(self) -> bool:
        """Return whether this process still runs. A zombie does not."""
        return start_time(self.pid) == self.started


class ProcessFiles:
    """The two folders of a testbed's home."""

    def __init__(self, home: Path) -> None:
        self.wanted = home / "processes"
        self.actual = home / "run"

    def want(self, spec: ProcessSpec) -> None:
        """Write a desired process. The supervisor reads it on SIGHUP."""
        write_json(self.wanted / f"{spec.name}.json", asdict(spec))

    def specs(self) -> dict[str, ProcessSpec]:
        """Return all desired processes."""
        found = {
            path.stem: read_json(path) for path in sorted(self.wanted.glob("*.json"))
        }
        return {
            name: ProcessSpec(**document)
            for name, document in found.items()
            if document is not None
        }

    def forget(self, name: str) -> None:
        """Remove both files of a process, desired and running."""
        (self.wanted / f"{name}.json").unlink(missing_ok=True)
        (self.actual / f"{name}.json").unlink(missing_ok=True)

    def note(self, name: str, identity: ProcessIdentity, starts: int = 1) -> None:
        """Record a running process, and how often in a row it has been started."""
        write_json(self.actual / f"{name}.json", asdict(identity) | {"starts": starts})

    def starts(self, name: str) -> int:
        """Return how often a process was started since its last long run, or 0."""
        return int((read_json(self.actual / f"{name}.json") or {}).get("starts", 0))

    def identity(self, name: str) -> ProcessIdentity | None:
        """Return the running process with this name, or None."""
        document = read_json(self.actual / f"{name}.json")
        identity = (
            None
            if document is None
            else ProcessIdentity(document["pid"], document["started"])
        )
        return identity if identity and identity.alive() else None


def start_time(pid: int) -> int | None:
    """Return a process's start in clock ticks since boot, or None if it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may contain spaces and
    # brackets.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])
