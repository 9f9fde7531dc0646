"""Selectors that cost few units but much time or memory end after their allowed steps."""

import pytest

from scheduler.cel import compile_selector
from scheduler.cel.limits import FLEET_COST_MAX, STEPS_MIN, STEPS_PER_UNIT
from scheduler.cel.runtime import regexes
from scheduler.model.devices import DeviceEntry
from tests.environment.effort import effort_below

STEPS_MAX = STEPS_MIN + STEPS_PER_UNIT * FLEET_COST_MAX
# A device of the largest size that Kubernetes allows.
LARGE = DeviceEntry(
    "gpu",
    "DRA",
    "gpu.nvidia.com",
    "gpu.nvidia.com",
    8,
    attributes=tuple((f"a{n:02}", "string", "x" * 63) for n in range(32)),
    capacity=tuple((f"m{n:02}", "80Gi") for n in range(32)),
)
# The allowed steps take far less effort, and each selector without them far more.
EFFORT_MAX = 200


def ones(count: int) -> str:
    return f"[{','.join(['1'] * count)}]"


def doubled(times: int, step: str, body: str) -> str:
    """Bind x0 to a list, and each following variable to `step` of the variable before."""
    binds = "".join(
        f"cel.bind(x{n + 1}, {step.replace('?', f'x{n}')}, " for n in range(times)
    )
    return f"cel.bind(x0, [1, 1], {binds}{body.replace('?', f'x{times}')}{')' * (times + 1)}"


NAMES = 'device.attributes["gpu.nvidia.com"]'
FREE_TERMS = "&&".join(["true"] * 1500)
ENDLESS = {
    "terms that cost nothing, in a loop": f"{ones(70)}.all(a, {ones(70)}.all(b, {FREE_TERMS}))",
    "a list that doubles": doubled(30, "? + ?", "?.size() == 1"),
    "lists of one list twice, compared": doubled(30, "[?, ?]", "? == ?"),
    "lists of one list twice, compared for a difference": doubled(
        30, "[?, ?]", "? != ?"
    ),
    "lists of one list twice, looked up": doubled(30, "[?, ?]", "? in [?]"),
    "lists of one list twice, as sets": doubled(30, "[?, ?]", "sets.contains(?, ?)"),
    "lists of one list twice, searched": doubled(30, "[?, ?]", "?.indexOf(?[0]) == 1"),
    "a list of unknown depth, added up": doubled(
        30, "[dyn(?), dyn(?)]", "dyn(?).sum() == 1"
    ),
    "a text that grows": f"'{'a' * 5000}'.replace('a', '{'b' * 5000}').size() == 1",
    "patterns made while it runs": f"{NAMES}.all(k, k.matches('\\\\pL{{20}}' + k) || true)",
    "large patterns made while it runs": f"{NAMES}.all(k, k.matches('\\\\pL{{999}}' + k) || true)",
    "a large pattern on a long text": f"'{'a' * 8000}'.matches('(a?.){{200}}x')",
    "occurrences in a long text": (
        f"{ones(90)}.all(x, '{'a' * 900}'.findAll('(a?.){{20}}').size() > 0)"
    ),
    "a list that is flattened": doubled(30, "[dyn(?), dyn(?)]", "?.flatten(40) == []"),
    "membership in a loop": f"{ones(35)}.all(a, {ones(35)}.all(b, !(a in {[*range(5, 500)]})))",
}
# These selectors cost more than 20,000 units, so they need a policy that allows a
# million.
ANY_COST = 1_000_000


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_evaluation_ends_after_so_many_steps(text: str) -> None:
    selector = compile_selector(text, max_cost=ANY_COST)
    selector._cost_max = FLEET_COST_MAX
    with effort_below(EFFORT_MAX):
        verdict = selector._evaluate(LARGE)
    assert not verdict.matched
    assert "CostExceeded" in verdict.error
    assert verdict.work <= FLEET_COST_MAX + STEPS_MAX


def test_work_follows_from_selector_and_device_alone() -> None:
    selector = compile_selector(f"{NAMES}.all(k, k.startsWith('a'))")
    known = selector.match(LARGE)
    assert known.work > 0
    assert known.work == selector.match(LARGE).work == selector._evaluate(LARGE).work


def test_a_plain_selector_is_little_work() -> None:
    assert compile_selector('device.driver == "gpu.nvidia.com"').match(LARGE).work < 20


@pytest.mark.parametrize("pattern", [r"\\pL{999}", r"(a?){500}(a?){500}" * 30])
def test_a_pattern_that_takes_too_much_memory_does_not_compile(pattern: str) -> None:
    regexes.compile_pattern.cache_clear()
    with effort_below(5), pytest.raises(ValueError, match="pattern too large"):
        compile_selector(f"device.driver.matches('{pattern}')")


def test_the_size_of_a_pattern_adds_to_the_cost_of_its_selector() -> None:
    plain, patterned = (
        compile_selector("device.driver.matches('a')"),
        compile_selector("device.driver.matches('[a-z]{900}')"),
    )
    assert plain.cost - plain.cost_estimate < 5
    assert patterned.cost - patterned.cost_estimate > 50


@pytest.mark.slow
def test_all_occurrences_in_a_long_text_are_found_in_one_pass() -> None:
    with effort_below(EFFORT_MAX):
        assert len(regexes.find_all("é" * 100_000, "") or []) == 100_001  # type: ignore[arg-type]
