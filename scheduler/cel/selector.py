"""A compiled selector and its verdict on a device.

Results are cached: a text is compiled once per process, and a text and a device content are evaluated once, however many
clusters publish that device. The engine is only loaded when the first selector is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from scheduler.cel.bounded_cache import bounded_cache
from scheduler.cel.errors import Aborted, EvalError, SelectorError
from scheduler.cel.limits import FLEET_COST_MAX, INSTRUCTIONS_PER_UNIT, KUBERNETES_COST_MAX, TEXT_BYTES_MAX

if TYPE_CHECKING:
    from scheduler.cel.runtime.instructions import Program
    from scheduler.model.devices import DeviceEntry

# Verdicts kept per selector. A large fleet has hundreds of classes, not hundreds of thousands.
_VERDICTS_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Match:
    """The verdict on one device.

    Attributes:
        matched: whether the selector is true for it.
        error: why it could not be evaluated, or empty. An error never matches.
        work: cost units and steps of the evaluation, at most 0.2 µs each. They follow from selector and device alone.

    """

    matched: bool
    error: str = ""
    work: int = field(default=0, compare=False)


Result = TypeVar("Result")


def with_enough_stack(work: Callable[[], Result]) -> Result:
    """Run `work`; if the caller left too little of Python's stack, run it again in a thread with a stack of its own.

    The walks of this package do not recurse, but types and values may be nested a few hundred levels. The outcome of a selector
    must not depend on its caller.
    """
    try:
        return work()
    except RecursionError:
        with ThreadPoolExecutor(max_workers=1) as fresh:
            return fresh.submit(work).result()


class Selector:
    """A selector that may be used; made by `compile_selector` only.

    Attributes:
        text: the CEL expression.
        cost_estimate: the most that one evaluation should cost, in CEL cost units.
        cost: that and what its patterns cost to compile, which Kubernetes does not count.

    """

    __slots__ = ("_cost_max", "_program", "_verdicts", "cost", "cost_estimate", "text")

    def __init__(self, text: str, program: Program, cost_estimate: int, cost_max: int) -> None:
        self.text = text
        self.cost_estimate = cost_estimate
        self.cost = cost_estimate + program.pattern_size // INSTRUCTIONS_PER_UNIT
        self._program = program
        self._cost_max = cost_max
        self._verdicts: dict[str, Match] = {}

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def match(self, device: DeviceEntry) -> Match:
        """Whether the selector is true for a device.

        Never raises: what cannot be evaluated does not match, and the verdict says why.
        """
        digest = device.selector_digest
        verdict = self._verdicts.get(digest)
        if verdict is None:
            if len(self._verdicts) >= _VERDICTS_KEPT:
                self._verdicts.clear()
            try:
                verdict = self._evaluate(device)
            except Exception as bug:  # noqa: BLE001 - one bad selector must not stop decisions for the whole fleet; the error is shown
                # Not kept: what went wrong may be about this moment, and not about the selector.
                return Match(matched=False, error=_internal(bug))
            self._verdicts[digest] = verdict
        return verdict

    def _evaluate(self, device: DeviceEntry) -> Match:
        from scheduler.cel.runtime.device import read_device  # noqa: PLC0415 - the engine is loaded with the first selector, not before
        from scheduler.cel.runtime.machine import run  # noqa: PLC0415

        seen = read_device(device)
        if isinstance(seen, EvalError):
            return Match(matched=False, error=seen.reason)
        try:
            result, cost, steps = with_enough_stack(lambda: run(self._program, seen.value(), self._cost_max))
        except Aborted as stopped:
            return Match(matched=False, error=str(stopped), work=stopped.work)
        work = cost + steps
        if type(result) is bool:
            return Match(matched=result, work=work)
        error = result.reason if isinstance(result, EvalError) else f"the selector gave {type(result).__name__} instead of a bool"
        return Match(matched=False, error=error, work=work)


def compile_selector(text: str, *, lenient_calls: bool = False, max_cost: int = FLEET_COST_MAX) -> Selector:
    """Compile a device selector.

    Args:
        text: a CEL expression over `device`, at most 10 KiB of UTF-8.
        lenient_calls: also accept member calls for global functions and the other way round.
        max_cost: CEL cost units one evaluation may take, at most 1,000,000.

    Returns:
        The selector; the same object for the same arguments.

    Raises:
        SelectorError: the workload cluster would refuse it, or it could cost more than `max_cost`.
        ValueError: `max_cost` is out of range.

    """
    if not 0 < max_cost <= KUBERNETES_COST_MAX:
        raise ValueError(f"max_cost must be between 1 and {KUBERNETES_COST_MAX}, got {max_cost}")
    try:
        compiled = with_enough_stack(lambda: _compile(text, lenient_calls, max_cost))
    except RecursionError:
        raise
    except Exception as bug:
        # Not kept: what went wrong may be about this moment, and not about the text.
        raise SelectorError(_internal(bug)) from bug
    if isinstance(compiled, SelectorError):
        # A new exception each time: a cached one would collect the tracebacks of every caller.
        raise SelectorError(compiled.problem, line=compiled.line, column=compiled.column)
    return compiled


@bounded_cache(lambda text, _lenient_calls, _max_cost: len(text))
def _compile(text: str, lenient_calls: bool, max_cost: int) -> Selector | SelectorError:
    """Compile once; refusals are cached like successes."""
    from scheduler.cel.checking.checker import Checker  # noqa: PLC0415 - lark and the grammar take a quarter of a second to load
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
            raise SelectorError(f"the selector may cost {cost} units, {max_cost} are allowed; simplify it")  # noqa: TRY301
    except SelectorError as refusal:
        return refusal
    return Selector(text, program, cost, max_cost)


def _internal(bug: Exception) -> str:
    return f"internal error: {type(bug).__name__}: {bug}"


def _check_text(text: str) -> None:
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise SelectorError(f"character {error.start + 1} of the selector is half of a surrogate pair, which is no text") from error
    if length > TEXT_BYTES_MAX:
        raise SelectorError(f"the selector has {length} bytes, {TEXT_BYTES_MAX} are allowed")


def check_selector(text: str) -> str | None:
    """Check a selector the way admission does.

    Returns:
        The problem, or None if the selector can be used.

    """
    try:
        compile_selector(text)
    except SelectorError as refusal:
        return str(refusal)
    return None


def selector_cost(text: str) -> int:
    """Give what a selector may cost, its patterns included; 0 if it does not compile."""
    try:
        return compile_selector(text).cost
    except SelectorError:
        return 0
