"""How the supervisor and other processes speak of processes: through small files.

`processes/<name>.json` says what shall run, `run/<name>.json` what does. A pid alone proves nothing, since the kernel reuses it; the
start time beside it, as the kernel counts it, tells the two apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.documents import read_json, write_json

SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class ProcessSpec:
    """One process to be kept running."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to what the supervisor itself was started with."""
    stage: int = 0
    """Processes of a higher stage are ended before those of a lower one, so that no process loses its database first."""
    stop_signal: int | None = None
    """Set when it shall end: the signal to end it with."""


@dataclass(frozen=True)
class Identity:
    """One process, not its namesake: `started` is in clock ticks since boot."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Whether this very process still runs; one that merely was not collected by its parent does not."""
        return start_time(self.pid) == self.started


class ProcessFiles:
    """The two folders of a testbed's home."""

    def __init__(self, home: Path) -> None:
        self.wanted = home / "processes"
        self.actual = home / "run"

    def want(self, spec: ProcessSpec) -> None:
        """Write down that a process shall run; the supervisor reads it on SIGHUP."""
        write_json(self.wanted / f"{spec.name}.json", asdict(spec))

    def specs(self) -> dict[str, ProcessSpec]:
        """Everything that shall run."""
        found = {path.stem: read_json(path) for path in sorted(self.wanted.glob("*.json"))}
        return {name: ProcessSpec(**document) for name, document in found.items() if document is not None}

    def forget(self, name: str) -> None:
        """Drop what is noted about a process, wanted and actual."""
        (self.wanted / f"{name}.json").unlink(missing_ok=True)
        (self.actual / f"{name}.json").unlink(missing_ok=True)

    def note(self, name: str, identity: Identity, starts: int = 1) -> None:
        """Note which process carries this name, and how often one was started in a row without living long."""
        write_json(self.actual / f"{name}.json", asdict(identity) | {"starts": starts})

    def starts(self, name: str) -> int:
        """How often a process was started since it last lived long; 0 when it never was."""
        return int((read_json(self.actual / f"{name}.json") or {}).get("starts", 0))

    def identity(self, name: str) -> Identity | None:
        """Answer the process that carries this name, if it is alive."""
        document = read_json(self.actual / f"{name}.json")
        identity = None if document is None else Identity(document["pid"], document["started"])
        return identity if identity and identity.alive() else None


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none or only its exit code is left."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may itself hold spaces and brackets.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])
