"""The engine caches, never raises, accepts any depth, and is light to import."""

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from scheduler.cel import Match, SelectorError, compile_selector
from scheduler.cel import selector as selector_module
from scheduler.cel.errors import Aborted, EvalError
from scheduler.cel.runtime import machine
from scheduler.cel.runtime.device import read_device
from scheduler.cel.runtime.loops import next_round
from scheduler.cel.runtime.values import MapValue
from scheduler.model.devices import DeviceEntry
from tests.scheduler.cel.devices import DEVICES, HOPPER, device


def test_importing_the_package_loads_no_engine() -> None:
    code = (
        "import sys, scheduler.cel;"
        "names = ('lark', 'celpy', 're2', 'pydantic', 'temporalio');"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_engine_needs_neither_pydantic_nor_temporal() -> None:
    code = (
        "import sys; from scheduler.cel import check_selector; check_selector('true');"
        "print([name for name in ('pydantic', 'temporalio', 'kubernetes') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


class Interrupted(Exception):
    """An exception that may interrupt a thread at any place."""


def test_an_interrupted_evaluation_does_not_count_as_a_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    selector = compile_selector('device.driver == "interrupted.example.com"')

    def interrupted(*_: Any) -> Any:
        raise Interrupted("now")

    with monkeypatch.context() as patched:
        patched.setattr(machine, "run", interrupted)
        assert selector.match(HOPPER) == Match(
            matched=False, error="internal error: Interrupted: now"
        )
    assert selector.match(HOPPER).error == ""


def test_an_interrupted_compilation_does_not_reject_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = 'device.driver == "interrupted-before.example.com"'

    def interrupted(_: str) -> None:
        raise Interrupted("now")

    with monkeypatch.context() as patched:
        patched.setattr(selector_module, "_check_text", interrupted)
        with pytest.raises(SelectorError, match="internal error: Interrupted: now"):
            compile_selector(text)
    assert compile_selector(text).text == text


def test_a_text_is_compiled_once() -> None:
    text = 'device.driver == "once.example.com"'
    assert compile_selector(text) is compile_selector(text)
    assert compile_selector(text) is not compile_selector(text, max_cost=30_000)


def test_a_refusal_is_cached_and_raised_each_time() -> None:
    for _ in range(2):
        with pytest.raises(SelectorError, match="unknown name nosuch"):
            compile_selector("nosuch == 1")


def test_devices_of_equal_content_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compile_selector('device.driver == "counted.example.com"')
    evaluated = []
    evaluate = selector_module.Selector._evaluate

    def counted(self: selector_module.Selector, entry: DeviceEntry) -> Match:
        evaluated.append(entry.name)
        return evaluate(self, entry)

    monkeypatch.setattr(selector_module.Selector, "_evaluate", counted)
    twins = [
        device(name="a"),
        device(name="b"),
        replace(device(name="c"), count=1, device_class="other"),
    ]
    assert {compiled.match(each) for each in twins} == {Match(matched=False)}
    compiled.match(device(name="d", driver="counted.example.com"))
    assert evaluated == ["a", "d"]


@pytest.mark.parametrize("entry", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize(
    "text",
    [
        'device.attributes["x"].y',
        "1 / 0 == 1",
        'device.attributes["gpu.nvidia.com"].idx',
    ],
)
def test_match_never_raises_and_always_says_why(text: str, entry: object) -> None:
    verdict = compile_selector(text).match(entry)  # type: ignore[arg-type]
    assert not verdict.matched
    assert verdict.error


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (
            device({"cc": ("version", "9.0")}),
            "attribute cc: '9.0' is not a semantic version",
        ),
        (device({"idx": ("int", "3")}), "attribute idx: '3' is not a int"),
        (device({"idx": ("int", True)}), "attribute idx: True is not a int"),
        (device({"idx": ("int", 2**63)}), "is not a int"),
        (
            device({"x": ("list", "a")}),
            "an attribute is a string, a version, a bool or a 64-bit int",
        ),
        (
            device(capacity={"memory": "80GB"}),
            "capacity memory: '80GB' is not a Kubernetes quantity",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_device_matches_nothing_and_names_the_field(
    broken: object, says: str
) -> None:
    """A device with a malformed value matches nothing."""
    verdict = compile_selector("true").match(broken)  # type: ignore[arg-type]
    assert not verdict.matched
    assert says in verdict.error


def test_depth_does_not_depend_on_the_callers_own_stack() -> None:
    """A selector may be compiled and evaluated deep in the recursion of a caller."""
    text = "(" * 200 + "1 == 1 && " * 100 + "true" + ")" * 200

    def down(levels: int) -> Match:
        return down(levels - 1) if levels else compile_selector(text).match(HOPPER)

    before = sys.getrecursionlimit()
    assert down(before - 200) == Match(matched=True)
    assert sys.getrecursionlimit() == before


@pytest.mark.slow
@pytest.mark.parametrize("levels", [0, 300, 600, 800])
def test_nested_values_do_not_depend_on_the_callers_own_stack(levels: int) -> None:
    nested = "[" * 200 + "1" + "]" * 200
    text = f"{nested} == {nested} && {levels} >= 0"

    def down(left: int) -> Match:
        return down(left - 1) if left else compile_selector(text).match(HOPPER)

    assert down(levels) == Match(matched=True)


def test_half_a_surrogate_pair_is_rejected() -> None:
    with pytest.raises(SelectorError, match="surrogate"):
        compile_selector('device.driver == "\ud800"')
    broken = device({"text": ("string", "\ud800")})
    assert "attribute text" in compile_selector("true").match(broken).error


def test_threads_may_compile_and_match_at_the_same_time() -> None:
    verdicts: list[bool] = []

    def work(worker: int) -> None:
        for number in range(20):
            compiled = compile_selector(
                f'{number} >= 0 && device.attributes["gpu.nvidia.com"].idx == 3 && {worker} >= 0'
            )
            verdicts.append(compiled.match(HOPPER).matched)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 80


@pytest.mark.timeout(60)  # An engine that backtracks would not end at all.
def test_a_pattern_that_explodes_elsewhere_is_linear_here() -> None:
    """Only RE2 is used, so no user can stall a decision with a regular expression."""
    long = device({"text": ("string", "a" * 5_000)})
    verdict = compile_selector(
        'device.attributes["gpu.nvidia.com"].text.matches("^(a+)+b$")'
    ).match(long)
    assert verdict == Match(matched=False)


def test_evaluations_do_not_see_each_other() -> None:
    """Comparing with a decimal changes a quantity during one evaluation only."""
    changing = compile_selector(
        'device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("1.5Gi"))'
    )
    asking = compile_selector('device.capacity["gpu.nvidia.com"].memory.isInteger()')
    assert changing.match(HOPPER).matched
    assert asking.match(HOPPER).matched


def seen(entry: DeviceEntry) -> MapValue:
    read = read_device(entry)
    assert not isinstance(read, EvalError)
    return read.value()


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 3].all(x, x > 0)",
        'device.driver.contains("gpu")',
        "1 + 2 + 3 > device.attributes.size()",
    ],
)
def test_an_evaluation_ends_when_it_costs_more_than_is_allowed(text: str) -> None:
    program = compile_selector(text)._program
    outcome = machine.run(program, seen(HOPPER), 1_000)
    assert machine.run(program, seen(HOPPER), outcome.cost) == outcome
    with pytest.raises(Aborted, match="CostExceeded"):
        machine.run(program, seen(HOPPER), outcome.cost - 1)


def test_a_loop_ends_in_the_round_that_costs_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = []

    def counted(*arguments: Any) -> tuple[int, int]:
        rounds.append(arguments)
        return next_round(*arguments)

    monkeypatch.setattr(machine, "next_round", counted)
    with pytest.raises(Aborted, match="CostExceeded"):
        machine.run(
            compile_selector(f"[{', '.join(['true'] * 50)}].all(x, x)")._program,
            seen(HOPPER),
            30,
        )
    # The eighth of fifty is the first that costs too much.
    assert len(rounds) == 8


def test_a_loop_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "EVALUATION_SECONDS_MAX", 0.0)
    numbers = list(range(30))
    verdict = compile_selector(f"{numbers}.all(x, {numbers}.all(y, x + y >= 0))").match(
        HOPPER
    )
    assert verdict == Match(
        matched=False, error="the evaluation took longer than 0.0 s"
    )
