"""Ask Kubernetes itself, from Python.

The oracle is a small Go program over the real DRA selector compiler, `resource.ParseQuantity` and the semver library that
Kubernetes uses. It is built once per content of its sources into the user's cache folder and then asked over pipes. A machine
that cannot build it fails these tests: without the oracle nothing proves that a match here is a match there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scheduler.model.devices import DeviceEntry
from testbed.programs.install import cache_folder

SOURCES = Path(__file__).parent
KUBERNETES_LIBRARY = "k8s.io/dynamic-resource-allocation"

Json = dict[str, Any]


def library_version() -> str:
    """Version of the DRA library the oracle is built from."""
    for line in (SOURCES / "go.mod").read_text().splitlines():
        if KUBERNETES_LIBRARY in line:
            return line.split()[1]
    raise AssertionError(f"go.mod of the oracle does not require {KUBERNETES_LIBRARY}")


def build(say: Callable[[str], None] = print) -> Path:
    """Build the oracle, or find the one built before; `say` takes progress."""
    digest = hashlib.sha256(b"\0".join((SOURCES / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))).hexdigest()[:16]
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"oracle-{digest}"
    # Test processes that run side by side build it once.
    with (cache / f"oracle-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            say("building the oracle from Kubernetes' own code, once; this takes minutes")
            unfinished = program.with_suffix(".part")
            done = subprocess.run(
                ["go", "build", "-trimpath", "-o", unfinished, "."], cwd=SOURCES, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"the oracle cannot be built, so agreement with Kubernetes is unproven:\n{done.stderr}"
            unfinished.rename(program)
    return program


def as_json(device: DeviceEntry) -> Json:
    """A device as the oracle reads it."""
    return {
        "driver": device.driver,
        "attributes": {name: {kind: value} for name, kind, value in device.attributes},
        "capacity": dict(device.capacity),
    }


class Oracle:
    """A running oracle; answers come in the order of the questions."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([build()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, question: Json) -> Json:
        """Ask one question: a selector with devices, a quantity or a version."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the oracle died over {question}"
        answer: Json = json.loads(line)
        return answer

    def select(self, selector: str, devices: Iterable[DeviceEntry]) -> Json:
        """What Kubernetes makes of a selector: `error`, or `type`, `max_cost` and one outcome per device."""
        return self.ask({"selector": selector, "devices": [as_json(device) for device in devices]})

    def quantity(self, text: str) -> Json:
        """What Kubernetes reads: `error`, or `nano` as decimal digits."""
        return self.ask({"quantity": text})

    def version(self, text: str, against: str | None = None) -> Json:
        """What Kubernetes reads: `error`, or `type` (its spelling) and `order` against another version."""
        return self.ask({"version": text} if against is None else {"version": text, "against": against})

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
