"""One case of a fuzz: an input for a target, run within its limits of time and memory, and judged."""

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
# Far above what counts as a finding, so that a bomb is a MemoryError here and no end of the machine.
_ADDRESS_SPACE_ABOVE = 3 << 30
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Shown:
    """What the author of an input gets to see: errors, which are bounded, and other output."""

    error: str = ""
    output: str = ""


@dataclass(frozen=True)
class Target:
    """A reader of input. `run` gives what is shown and raises nothing; `secret` is a text in its inputs that nothing shown may contain."""

    name: str
    run: Callable[[str], Shown]
    secret: str = ""


@dataclass(frozen=True)
class Finding:
    """What an input broke. Findings of one signature have one cause."""

    signature: str
    detail: str
    text: str


@dataclass(frozen=True)
class Run:
    """What a case took: CPU time, and memory beyond what the process had before it."""

    seconds: float
    memory_mib: float


class TooSlow(BaseException):
    """The time of a case is over. No `except Exception` of the product catches it."""


def run_case(target: Target, text: str) -> tuple[Finding | None, Run]:
    """Run an input; gives what it broke, and what it took."""
    _forget_peak()
    before, started = _memory_mib("VmRSS"), process_time()
    try:
        with _time_limit():
            shown = target.run(text)
        found = _judged(target, shown)
    except TooSlow:
        found = ("too slow", f"more than {SECONDS_MAX:g} s of CPU time\n{traceback.format_exc()}")
    except BaseException as error:  # noqa: BLE001 - every exception is a finding, those that end a program too
        found = (f"{type(error).__name__} {_place(error)}", traceback.format_exc())
    run = Run(seconds=process_time() - started, memory_mib=max(0.0, _memory_mib("VmHWM") - before))
    if found is None and run.memory_mib > MEMORY_MIB_MAX:
        found = ("memory", f"{run.memory_mib:.0f} MiB more than before")
    return (Finding(*found, text) if found else None), run


def limit_memory() -> None:
    """Bound the memory of this process."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_SPACE_ABOVE, resource.RLIM_INFINITY))


def _memory_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def _forget_peak() -> None:
    # The peak of the process is then that of the case, and not of what made its input.
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
    # Again and again: the first one may be swallowed where no exception can be raised, such as in a destructor.
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _place(error: BaseException) -> str:
    """Name the last line of the project that an exception went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(_ROOT))]
    own = [frame for frame in frames if "/tests/" not in frame.filename] or frames
    return f"{Path(own[-1].filename).relative_to(_ROOT)}:{own[-1].lineno}" if own else str(sys.exc_info()[0])
