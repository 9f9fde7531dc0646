"""A compiled selector and its verdict on a device.

A text is compiled once per process, and evaluated once per content of a device, however
many clusters publish that device. The first selector loads the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from scheduler.cel.bounded_cache import bounded_cache
from scheduler.cel.errors import Aborted, EvalError, SelectorError
from scheduler.cel.limits import (
    FLEET_COST_MAX,
    INSTRUCTIONS_PER_UNIT,
    KUBERNETES_COST_MAX,
    TEXT_BYTES_MAX,
)

if TYPE_CHECKING:
    from scheduler.cel.runtime.instructions import Program
    from scheduler.model.devices import DeviceEntry

# Estimates above this value are based on a value whose size Kubernetes does not know.
UNBOUNDED_COST = 10**15

# Cached verdicts per selector. A large fleet has hundreds of classes, not hundreds of
# thousands.
_VERDICTS_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Match:
    """The verdict on one device.

    Attributes:
        matched: whether the selector is true for the device.
        error: why it could not be evaluated, or empty. An error never matches.
        work: cost units and steps of the evaluation, at most 0.2 µs each. They depend on the
            selector and the device only.

    """

    matched: bool
    error: str = ""
    work: int = field(default=0, compare=False)


Result = TypeVar("Result")


def with_enough_stack(work: Callable[[], Result]) -> Result:
    """Run `work`, in a thread with a new stack if the caller's stack is too deep.

    The tree walks of this package do not recurse, but types and values may be nested a
    few hundred levels. The result of a selector must not depend on its caller.
    """
    try:
        return work()
    except RecursionError:
        with ThreadPoolExecutor(max_workers=1) as fresh:
            return fresh.submit(work).result()


class Selector:
    """A valid selector, created by `compile_selector`.

    Attributes:
        text: the CEL expression.
        cost_estimate: the highest cost of one evaluation, in CEL cost units.
        cost: the estimate plus the cost of compiling its patterns, which Kubernetes does not
            count.

    """

    __slots__ = ("_cost_max", "_program", "_verdicts", "cost", "cost_estimate", "text")

    def __init__(
        self, text: str, program: Program, cost_estimate: int, cost_max: int
    ) -> None:
        self.text = text
        self.cost_estimate = cost_estimate
        self.cost = cost_estimate + program.pattern_size // INSTRUCTIONS_PER_UNIT
        self._program = program
        self._cost_max = cost_max
        self._verdicts: dict[str, Match] = {}

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def match(self, device: DeviceEntry) -> Match:
        """Return whether the selector is true for a device.

        This never raises: a selector that cannot be evaluated does not match, and the
        verdict says why.
        """
        digest = device.selector_digest
        verdict = self._verdicts.get(digest)
        if verdict is None:
            if len(self._verdicts) >= _VERDICTS_KEPT:
                self._verdicts.clear()
            try:
                verdict = self._evaluate(device)
            except Exception as bug:  # noqa: BLE001
                # One bad selector must not stop the decisions for the whole fleet. The
                # verdict is not cached, because the error may be temporary.
                return Match(matched=False, error=_internal(bug))
            self._verdicts[digest] = verdict
        return verdict

    def _evaluate(self, device: DeviceEntry) -> Match:
        # The engine is loaded with the first selector.
        from scheduler.cel.runtime.device import read_device  # noqa: PLC0415
        from scheduler.cel.runtime.machine import run  # noqa: PLC0415

        seen = read_device(device)
        if isinstance(seen, EvalError):
            return Match(matched=False, error=seen.reason)
        try:
            result, cost, steps = with_enough_stack(
                lambda: run(self._program, seen.value(), self._cost_max)
            )
        except Aborted as stopped:
            return Match(matched=False, error=str(stopped), work=stopped.work)
        work = cost + steps
        if type(result) is bool:
            return Match(matched=result, work=work)
        error = (
            result.reason
            if isinstance(result, EvalError)
            else f"the selector gave {type(result).__name__} instead of a bool"
        )
        return Match(matched=False, error=error, work=work)


def compile_selector(
    text: str, *, lenient_calls: bool = False, max_cost: int = FLEET_COST_MAX
) -> Selector:
    """Compile a device selector.

    Args:
        text: a CEL expression over `device`, at most 10 KiB of UTF-8.
        lenient_calls: also accept member calls for global functions and the other way round.
        max_cost: CEL cost units that one evaluation may take, at most 1,000,000.

    Returns:
        The selector; the same object for the same arguments.

    Raises:
        SelectorError: the workload cluster would refuse it, or its cost may exceed `max_cost`.
        ValueError: `max_cost` is out of range.

    """
    if not 0 < max_cost <= KUBERNETES_COST_MAX:
        raise ValueError(
            f"max_cost must be between 1 and {KUBERNETES_COST_MAX}, got {max_cost}"
        )
    try:
        compiled = with_enough_stack(lambda: _compile(text, lenient_calls, max_cost))
    except RecursionError:
        raise
    except Exception as bug:
        # The rejection is not cached, because the error may be temporary.
        raise SelectorError(_internal(bug)) from bug
    if isinstance(compiled, SelectorError):
        # Create a new exception each time, because a cached one would collect the
        # tracebacks of all callers.
        raise SelectorError(
            compiled.problem, line=compiled.line, column=compiled.column
        )
    return compiled


@bounded_cache(lambda text, _lenient_calls, _max_cost: len(text))
def _compile(text: str, lenient_calls: bool, max_cost: int) -> Selector | SelectorError:
    """Compile once. Rejections are cached like results."""
    # lark and the grammar take a quarter of a second to load.
    from scheduler.cel.checking.checker import Checker  # noqa: PLC0415
    from scheduler.cel.cost.estimate import estimate_cost  # noqa: PLC0415
    from scheduler.cel.program import Compiler  # noqa: PLC0415
    from scheduler.cel.syntax.parser import parse  # noqa: PLC0415

    try:
        _check_text(text)
        root = parse(text)
        Checker(text, lenient_calls=lenient_calls).check(root)
        program = Compiler(text).compile(root)
        cost = estimate_cost(root)
        if cost > max_cost:
            raise SelectorError(_too_expensive(cost, max_cost))  # noqa: TRY301
    except SelectorError as refusal:
        return refusal
    return Selector(text, program, cost, max_cost)


def _too_expensive(cost: int, max_cost: int) -> str:
    if cost < UNBOUNDED_COST:
        return (
            f"the selector may cost {cost} units, {max_cost} are allowed; "
            "shorten its loops, lists and patterns"
        )
    return (
        "the cost of the selector has no bound, because it reads a value of unknown size, "
        "such as the text of .?name; use has() instead"
    )


def _internal(bug: Exception) -> str:
    return f"internal error: {type(bug).__name__}: {bug}"


def _check_text(text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise SelectorError(
            f"character {error.start + 1} of the selector is half of a surrogate pair; "
            "write the whole character"
        ) from error
    if length > TEXT_BYTES_MAX:
        raise SelectorError(
            f"the selector has {length} bytes, {TEXT_BYTES_MAX} are allowed"
        )


def check_selector(text: str) -> str | None:
    """Check a selector as admission does.

    Returns:
        The problem, or None if the selector can be used.

    """
    try:
        compile_selector(text)
    except SelectorError as refusal:
        return str(refusal)
    return None


def selector_cost(text: str) -> int:
    """Return the highest cost of a selector with its patterns, or 0 if it is invalid."""
    try:
        return compile_selector(text).cost
    except SelectorError:
        return 0
