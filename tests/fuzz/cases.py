"""One case of a fuzz: an input for a target, run with limits on time and memory."""

import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from api_types.text.printable import escaped

SECONDS_MAX = 5.0
MEMORY_MIB_MAX = 300
ERROR_BYTES_MAX = 64 * 1024
# Far above the threshold of a finding: a bomb raises MemoryError instead of exhausting
# the machine.
_ADDRESS_SPACE_ABOVE = 3 << 30
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Shown:
    """The output for the author of an input: bounded errors, and other output."""

    error: str = ""
    output: str = ""


@dataclass(frozen=True)
class Target:
    """A reader of input.

    `run` returns its output and raises nothing.

    `secret` is a text in its inputs that may not appear in the output.
    """

    name: str
    run: Callable[[str], Shown]
    secret: str = ""


@dataclass(frozen=True)
class Finding:
    """A failure caused by an input. Findings with the same signature have one cause."""

    signature: str
    detail: str
    text: str


@dataclass(frozen=True)
class Run:
    """The cost of a case: CPU time, and memory in addition to the process's own."""

    seconds: float
    memory_mib: float


class TooSlow(BaseException):
    """The time of a case is over. No `except Exception` of the product catches it."""


def run_case(target: Target, text: str) -> tuple[Finding | None, Run]:
    """Run an input; return its finding and its cost."""
    _forget_peak()
    before, started = _memory_mib("VmRSS"), process_time()
    try:
        with _time_limit():
            shown = target.run(text)
        found = _judged(target, shown)
    except TooSlow:
        found = (
            "too slow",
            f"more than {SECONDS_MAX:g} s of CPU time\n{traceback.format_exc()}",
        )
    except BaseException as error:  # noqa: BLE001 - every exception is a finding
        found = (f"{type(error).__name__} {_place(error)}", traceback.format_exc())
    run = Run(
        seconds=process_time() - started,
        memory_mib=max(0.0, _memory_mib("VmHWM") - before),
    )
    if found is None and run.memory_mib > MEMORY_MIB_MAX:
        found = ("memory", f"{run.memory_mib:.0f} MiB more than before")
    return (Finding(*found, text) if found else None), run


def limit_memory() -> None:
    """Limit the memory of this process."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(
        resource.RLIMIT_AS, (size + _ADDRESS_SPACE_ABOVE, resource.RLIM_INFINITY)
    )


def _memory_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return (
        next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
        / 1024
    )


def _forget_peak() -> None:
    # Reset the peak of the process, so that it excludes the creation of the input.
    Path("/proc/self/clear_refs").write_text("5")


def _judged(target: Target, shown: Shown) -> tuple[str, str] | None:
    size = len(shown.error.encode(errors="surrogatepass"))
    if size > ERROR_BYTES_MAX:
        return "long error", f"{size} bytes: {shown.error[:500]}"
    for what, text in (("error", shown.error), ("output", shown.output)):
        if escaped(text, "\n\t") != text:
            return f"control characters in the {what}", ascii(text[:2000])
        if target.secret and target.secret in text:
            return f"a secret in the {what}", text[:2000]
        if "internal error" in text:
            return f"internal error in the {what}", text[:2000]
    return None


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    # Repeat the signal: Python may swallow the first exception, for instance in a
    # destructor.
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _place(error: BaseException) -> str:
    """Return the last line of the project in the traceback of an exception."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(str(_ROOT))
    ]
    own = [frame for frame in frames if "/tests/" not in frame.filename] or frames
    return (
        f"{Path(own[-1].filename).relative_to(_ROOT)}:{own[-1].lineno}"
        if own
        else str(sys.exc_info()[0])
    )
