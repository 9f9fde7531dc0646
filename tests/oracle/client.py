"""A client of the oracle, which asks the code of Kubernetes.

The oracle is a small Go program with the real DRA selector compiler,
`resource.ParseQuantity`, and the semver library of Kubernetes. It is built once per
content of its sources into the user's cache folder and answers over pipes. A machine
that cannot build it fails these tests, because only the oracle proves that a match here
is a match in Kubernetes.
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
# The estimate above which the API server refuses a selector.
COST_MAX = 1_000_000


def library_version() -> str:
    """Return the version of the DRA library that the oracle is built from."""
    for line in (SOURCES / "go.mod").read_text().splitlines():
        if KUBERNETES_LIBRARY in line:
            return line.split()[1]
    raise AssertionError(f"go.mod of the oracle does not require {KUBERNETES_LIBRARY}")


def build(say: Callable[[str], None] = print) -> Path:
    """Build the oracle, unless it was built before; `say` receives progress."""
    digest = hashlib.sha256(
        b"\0".join(
            (SOURCES / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")
        )
    ).hexdigest()[:16]
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"oracle-{digest}"
    # Test processes that run at the same time build it once.
    with (cache / f"oracle-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            say(
                "building the oracle from Kubernetes' own code, once; this takes minutes"
            )
            unfinished = program.with_suffix(".part")
            done = subprocess.run(
                ["go", "build", "-trimpath", "-o", unfinished, "."],
                cwd=SOURCES,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (
                "the oracle cannot be built, so agreement with Kubernetes is unproven:\n"
                f"{done.stderr}"
            )
            unfinished.rename(program)
    return program


def as_json(device: DeviceEntry) -> Json:
    """Return a device in the form that the oracle reads."""
    return {
        "driver": device.driver,
        "attributes": {name: {kind: value} for name, kind, value in device.attributes},
        "capacity": dict(device.capacity),
    }


class Oracle:
    """A running oracle, which answers questions in their order."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [build()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

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
        """Compile a selector in Kubernetes and evaluate it for devices.

        Returns:
            `error`, or `type`, `max_cost` and one outcome per device. There are no outcomes if
            the estimate is above the limit: the API server does not store such a selector, and
            nothing bounds the memory that its evaluation takes.

        """
        compiled = self.ask({"selector": selector})
        if compiled.get("error") or compiled["max_cost"] > COST_MAX:
            return compiled
        asked = [as_json(device) for device in devices]
        return self.ask({"selector": selector, "devices": asked})

    def quantity(self, text: str) -> Json:
        """Return the answer of Kubernetes: `error`, or `nano` as decimal digits."""
        return self.ask({"quantity": text})

    def version(self, text: str, against: str | None = None) -> Json:
        """Return the answer of Kubernetes:

        `error`, or `type` (its spelling) and `order`.
        """
        return self.ask(
            {"version": text}
            if against is None
            else {"version": text, "against": against}
        )

    def close(self) -> None:
        """Stop the oracle."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
