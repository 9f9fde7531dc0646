"""Judges the facts of a machine: obstacles to `modelplane up`, and their remedies.

Pure: `machine_facts.py` reads the facts.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from client.local.machine_facts import NAMESPACE_PROGRAMS, PROGRAMS, MachineFacts

_GIB = 1 << 30
CORES_MIN = 2
PYTHON_MIN = (3, 11)
# A fleet of two clusters and a worker.
MEMORY_MIN, MEMORY_GOOD = 3 * _GIB, 6 * _GIB
# A fleet's data, and programs that are built from source with their modules.
DISK_MIN, DISK_MIN_BUILD = 2 * _GIB, 12 * _GIB
PORTS_MIN = 60
CLOCK_SECONDS_MAX = 60.0


class Level(StrEnum):
    """How a finding affects `modelplane up`."""

    GOOD = "ok"
    WARNING = "warning"
    PREVENTS = "problem"


class MachineFinding(NamedTuple):
    """A check, its result, and the remedy of a problem."""

    level: Level
    check: str
    result: str
    remedy: str = ""


def diagnose(facts: MachineFacts) -> list[MachineFinding]:
    """Return one finding per check, with all remedies."""
    return [
        _cores(facts),
        _memory(facts),
        *_disk(facts),
        _python(facts),
        _programs(facts),
        _ports(facts),
        _namespaces(facts),
        _registries(facts),
        _clock(facts),
    ]


def _cores(facts: MachineFacts) -> MachineFinding:
    result = f"{facts.cores}"
    if facts.cores >= CORES_MIN:
        return MachineFinding(Level.GOOD, "cores", result)
    return MachineFinding(
        Level.WARNING,
        "cores",
        result,
        f"use a machine with {CORES_MIN} cores, or describe fewer clusters with --fleet",
    )


def _memory(facts: MachineFacts) -> MachineFinding:
    result = f"{facts.memory_bytes / _GIB:.1f} GiB available"
    if facts.memory_bytes >= MEMORY_GOOD:
        return MachineFinding(Level.GOOD, "memory", result)
    level = Level.PREVENTS if facts.memory_bytes < MEMORY_MIN else Level.WARNING
    return MachineFinding(
        level,
        "memory",
        result,
        f"end other programs, or use a machine with {MEMORY_GOOD // _GIB} GiB available",
    )


def _disk(facts: MachineFacts) -> Iterator[MachineFinding]:
    least = DISK_MIN if facts.installed else DISK_MIN_BUILD
    for folder, free in facts.free_bytes.items():
        result = f"{free / _GIB:.1f} GiB free for {folder}"
        if folder in facts.unwritable:
            yield MachineFinding(
                Level.PREVENTS,
                "disk",
                f"{folder} cannot be written",
                "make it writable, or name other folders in MODELPLANE_HOME and "
                "MODELPLANE_PROGRAMS",
            )
        elif free < least:
            yield MachineFinding(
                Level.PREVENTS,
                "disk",
                result,
                f"make room for {least // _GIB} GiB, or name folders on another disk in "
                "MODELPLANE_HOME and MODELPLANE_PROGRAMS",
            )
        else:
            yield MachineFinding(Level.GOOD, "disk", result)


def _python(facts: MachineFacts) -> MachineFinding:
    result = ".".join(map(str, facts.python))
    if facts.python >= PYTHON_MIN:
        return MachineFinding(Level.GOOD, "python", result)
    least = ".".join(map(str, PYTHON_MIN))
    return MachineFinding(
        Level.PREVENTS, "python", result, f"install Python {least} or newer"
    )


def _programs(facts: MachineFacts) -> MachineFinding:
    missing = [name for name in PROGRAMS if name in facts.missing]
    if not missing:
        return MachineFinding(Level.GOOD, "programs", ", ".join(PROGRAMS))
    result = f"missing: {', '.join(missing)}"
    remedy = f"install them, on Debian with `apt-get install {_packages(missing)}`"
    if facts.installed:
        return MachineFinding(
            Level.WARNING,
            "programs",
            f"{result}; the fleet's own programs are installed",
            f"{remedy}, before the next update",
        )
    return MachineFinding(Level.PREVENTS, "programs", result, remedy)


def _packages(names: list[str]) -> str:
    return " ".join("golang-go" if name == "go" else name for name in names)


def _ports(facts: MachineFacts) -> MachineFinding:
    result = f"{facts.ports} of {facts.ports_tried} tried are free on 127.0.0.1"
    if facts.ports >= PORTS_MIN:
        return MachineFinding(Level.GOOD, "ports", result)
    return MachineFinding(
        Level.PREVENTS,
        "ports",
        result,
        "end programs that listen there (`ss -ltnp` lists them)",
    )


def _namespaces(facts: MachineFacts) -> MachineFinding:
    if not facts.namespaces:
        return MachineFinding(Level.GOOD, "network namespace", "possible")
    missing = [name for name in NAMESPACE_PROGRAMS if name in facts.missing]
    remedy = (
        "install util-linux, mount and iproute2"
        if missing
        else "allow user namespaces (`sysctl user.max_user_namespaces`)"
    )
    return MachineFinding(
        Level.WARNING,
        "network namespace",
        facts.namespaces,
        f"{remedy}; without one, no model answers requests",
    )


def _registries(facts: MachineFacts) -> MachineFinding:
    shown = ", ".join(f"{name}={value}" for name, value in facts.registries.items())
    result = shown or "the default ones"
    if not facts.silent:
        return MachineFinding(Level.GOOD, "package registries", result)
    level = Level.WARNING if facts.installed else Level.PREVENTS
    return MachineFinding(
        level,
        "package registries",
        f"{facts.silent} ({result})",
        "set PIP_INDEX_URL, GOPROXY and HTTPS_PROXY for your network",
    )


def _clock(facts: MachineFacts) -> MachineFinding:
    if facts.clock_seconds is None:
        return MachineFinding(
            Level.GOOD, "clock", "not compared, because no server answered"
        )
    ahead = facts.clock_seconds
    direction = "ahead of" if ahead > 0 else "behind"
    result = f"{abs(ahead):.0f} s {direction} the registry's"
    if abs(ahead) <= CLOCK_SECONDS_MAX:
        return MachineFinding(Level.GOOD, "clock", result)
    return MachineFinding(
        Level.PREVENTS,
        "clock",
        result,
        "set the clock (`timedatectl set-ntp true`): certificates would be invalid",
    )
