"""Selectors decide what the specification says (cases 19 to 22 and 32 to 60), and Kubernetes says the same.

`@` stands for the attributes of the driver's domain and `#` for its capacity. Each row is evaluated here and by the real DRA
compiler; a row where the two differ on purpose says so in `only_here`.
"""

from dataclasses import dataclass

import pytest

from scheduler.cel import Match, SelectorError, check_selector, compile_selector
from scheduler.model.devices import DeviceEntry
from tests.oracle.client import Oracle
from tests.scheduler.cel.devices import DEVICES, HOPPER

KUBERNETES_COST_MAX = 1_000_000


@dataclass(frozen=True)
class Case:
    """A selector and its outcome on the device of the specification."""

    story: str
    selector: str
    # True, False, "error" (does not match and says why) or "refused" (does not compile).
    expect: bool | str
    device: DeviceEntry = HOPPER
    # Why Kubernetes answers differently, if it does.
    only_here: str = ""

    @property
    def text(self) -> str:
        """The selector written out."""
        return self.selector.replace("@", 'device.attributes["gpu.nvidia.com"]').replace("#", 'device.capacity["gpu.nvidia.com"]')


TRUE = {
    "sch-17-19 asInteger": ['quantity("50k").asInteger() == 50000', 'quantity("-49980").asInteger() == -49980'],
    "sch-17-20 isInteger": ['quantity("50").isInteger()', 'quantity("50000000G").isInteger()'],
    "sch-17-21 sums": ['quantity("50k").add(20).sub(quantity("100k")).sub(-50000).asInteger() == 20'],
    "sch-17-22 sign and approximate float": [
        'sign(quantity("-3")) == -1',
        'sign(quantity("0")) == 0',
        'sign(quantity("2Gi")) == 1',
        'quantity("50.703k").asApproximateFloat() == 50703.0',
    ],
    "sch-17-33 the driver": ['device.driver == "gpu.nvidia.com"'],
    "sch-17-34 a string attribute": [
        '@.architecture == "Hopper"',
        '@["architecture"] == "Hopper"',
        '@.architecture in ["Hopper", "Blackwell"]',
        '@.architecture.startsWith("Hop")',
        '@.architecture.matches("^Hop")',
    ],
    "sch-17-35 a capacity": ['#.memory.compareTo(quantity("141Gi")) >= 0', '#.memory == quantity("144384Mi")'],
    "sch-17-36 a version": ['@.cc.isGreaterThan(semver("8.9.0"))', '@.cc.isGreaterThan(semver("8.9", true))'],
    "sch-17-37 a conjunction": ["@.cc.major() >= 9 && @.idx >= 3 && @.idx % 2 == 1"],
    "sch-17-38 a bool attribute alone": ["@.mig", "!@.ecc"],
    "sch-17-39 another domain": ['device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"'],
    "sch-17-40 missing keys": [
        '"gpu.nvidia.com" in device.attributes',
        'device.attributes["other.com"].size() == 0',
        "!has(@.nope)",
    ],
    "sch-17-41 absorbed errors": ['@.nope == "x" || true', 'true || @.nope == "x"'],
    "sch-17-48 a bool is no number": ["@.mig != 1"],
    "sch-17-49 values of different types are unequal": ['@.idx != "3"', '!(@.idx == "3")', "@.architecture != 5"],
    "sch-17-50 a version against text: unequal by Kubernetes' own quirk": ['@.cc != "9.0.0"'],
    "sch-17-51 numbers compare across types": ["@.idx > 2.5", "@.idx == 3.0", "1 < 1.5"],
    "sch-17-52 strings and lists": [
        '@.architecture.lowerAscii() == "hopper"',
        '"a,b".split(",") == ["a", "b"]',
        '@.architecture.indexOf("p") == 2',
        "[1, 2, 3].sum() == 6",
        "cel.bind(x, 1, x == 1)",
        '@.architecture.find("p+") == "pp"',
        "sets.contains([1, 2], [1])",
    ],
    "sch-17-55 depth": ["(" * 200 + "true" + ")" * 200, " && ".join(["true"] * 800), "!" * 150 + "true"],
    "sch-17-58 absorbed arithmetic": ["1 / 0 == 1 || true"],
    "sch-17-60 a loop over domains": ['device.attributes.exists(d, d == "gpu.nvidia.com")'],
}

FALSE = {
    "sch-17-20 isInteger": [
        'quantity("0.5").isInteger()',
        'quantity("9999999999999999999999999999999999999G").isInteger()',
        # Kubernetes looks at the form, not at the value.
        'quantity("1.5Gi").isInteger()',
        'quantity("1000m").isInteger()',
        'quantity("7Ei").isInteger()',
        '#.memory.compareTo(quantity("1.5Gi")) < 0 || #.memory.isInteger()',
    ],
    "sch-17-33 another driver": ['device.driver == "gpu.amd.com"'],
    "sch-17-35 a capacity": ['#.memory.isGreaterThan(quantity("141Gi"))'],
    "sch-17-36 a version": ['@.cc.isGreaterThan(semver("9.0.0"))'],
    "sch-17-38 a bool attribute alone": ["@.ecc"],
    "sch-17-40 missing keys": [
        '"other.com" in device.attributes',
        '"nope" in @',
        '"x" in device.attributes["other.com"]',
        "has(@.nope)",
        'has(@.nope) && @.nope == "x"',
    ],
    "sch-17-41 absorbed errors": ['@.nope == "x" && false', 'false && @.nope == "x"'],
    "sch-17-48 a bool is no number": ["@.mig == 1"],
}

ERROR = {
    "sch-17-19 asInteger": [
        'quantity("500m").asInteger() == 0',
        'quantity("1500m").asInteger() == 1',
        'quantity("9223372036854775807").add(1).asInteger() > 0',
    ],
    "sch-17-36 a version with two parts": ['@.cc.isGreaterThan(semver("8.9"))'],
    "sch-17-39 not under the driver's domain": ['@.pcieRoot == "pci0"'],
    "sch-17-40 missing keys": ['@.nope == "x"', '@.nope != "x"', '!(@.nope == "x")'],
    "sch-17-41 nothing absorbs it": ['device.driver == "other" || @.nope == "x"'],
    "sch-17-42 an error as condition": ['@.nope == "x" ? true : true'],
    "sch-17-43 an attribute that is no bool": ["@.idx", "@.architecture"],
    "sch-17-47 two kinds": ['@.cc.isGreaterThan(quantity("8"))'],
    "sch-17-50 a version against text": ['!(@.cc == "9.0.0")', '@.cc == "9.0.0"', '!(@.cc in ["9.0.0"])'],
    "sch-17-58 arithmetic": ["1 / 0 == 1", "9223372036854775807 + 1 > 0"],
    "the result of add is no equal of anything on the right": ['#.memory == quantity("70Gi").add(quantity("71Gi"))'],
}

REFUSED = {
    "sch-17-44 no bool": ["1", '"x"', '"true"', "null", "device.driver", "dyn(true)"],
    "sch-17-45 unknown names": [
        '@.cc.isGreterThan(semver("8.9.0"))',
        "nosuch(1)",
        "nosuchvar",
        "true || nosuch(1)",
        "device.count == 8",
    ],
    "sch-17-46 wrong types": [
        '#.memory >= quantity("80Gi")',
        '#.memory.compareTo("80Gi") >= 0',
        '@.cc.isGreaterThan("8.9.0")',
        '#.memory != "141Gi"',
    ],
    "sch-17-46 wrong call forms": [
        "has()",
        "has(@.idx, @.cc)",
        'quantity("1").sign() == 1',
        'isGreaterThan(#.memory, quantity("1"))',
        'has(device.attributes["x"])',
    ],
    "sch-17-54 syntax": ["not ) valid (", "true &&", "@.idx = 3", "", " ", '"open', '"\\d" == "d"', "1 +", "!-1 == 1 ? 1"],
    "sch-17-56 too deep": ["(" * 400 + "true" + ")" * 400, "+".join(["1"] * 400) + " > 0"],
    "constants that cannot be made": [
        'int("x") == 1 || true',
        'duration("x") == duration("1s")',
        '@.architecture.matches("(")',
        '"a".find("[") == ""',
    ],
    "mixed literals": ["[1, 'a'].size() == 2", "[@.idx, 1].size() == 2", '{"a": 1, "b": "x"}.size() == 2'],
    "loops over one attribute": ["@.idx.exists(x, true)"],
}

ONLY_HERE = {
    "tier 3: the fleet scheduler does not evaluate it": [
        'ip("10.0.0.1").isLoopback()',
        'isURL("https://example.com")',
        'url("https://example.com").getHost() == "example.com"',
        "device.attributes[?'x'].hasValue()",
        '"%d".format([1]) == "1"',
        "[1, 2].exists(i, v, v == 2)",
        "[2, 1].sort() == [1, 2]",
        'timestamp("2026-01-01T00:00:00Z").getFullYear() == 2026',
    ],
    "longer than what the API server stores, which the compiler does not check": ["true" + " " * 10_237],
}

CASES = [
    *(Case(story, selector, expect=True) for story, selectors in TRUE.items() for selector in selectors),
    *(Case(story, selector, expect=False) for story, selectors in FALSE.items() for selector in selectors),
    *(Case(story, selector, "error") for story, selectors in ERROR.items() for selector in selectors),
    *(Case(story, selector, "refused") for story, selectors in REFUSED.items() for selector in selectors),
    *(
        Case(f"sch-17-{56 if 'longer' in why else 53} {why.split(':')[0]}", selector, "refused", only_here=why)
        for why, selectors in ONLY_HERE.items()
        for selector in selectors
    ),
    *(
        Case("sch-17-32 with a malformed version the whole device is malformed", selector, "error", DEVICES["two-part version"])
        for selector in ("true", "@.idx == 3", 'device.driver == "gpu.nvidia.com"')
    ),
]


def _ours(case: Case) -> bool | str:
    try:
        verdict = compile_selector(case.text).match(case.device)
    except SelectorError:
        return "refused"
    return "error" if verdict.error else verdict.matched


def _theirs(case: Case, oracle: Oracle) -> bool | str:
    answer = oracle.select(case.text, [case.device])
    if answer.get("error") or answer["max_cost"] > KUBERNETES_COST_MAX:
        return "refused"
    [outcome] = answer["devices"]
    return "error" if outcome.get("error") else bool(outcome["matched"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.story}: {case.selector[:60]}")
def test_a_selector_has_one_outcome_here_and_in_kubernetes(case: Case, oracle: Oracle) -> None:
    assert _ours(case) == case.expect
    if case.only_here:
        assert _theirs(case, oracle) != case.expect, f"{case.only_here!r} is no difference any more"
    else:
        assert _theirs(case, oracle) == case.expect


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        pytest.param('device.attributes["x"].cc.isGreterThan(semver("1.0.0"))', "did you mean isGreaterThan", id="sch-17-45 a typo"),
        pytest.param("device.count == 8", "device has no field count", id="sch-17-45 a field that devices do not have"),
        pytest.param(
            'ip("10.0.0.1").isLoopback()', "function ip is not supported by the fleet scheduler", id="sch-17-53 a tier 3 function"
        ),
        pytest.param("device.?driver == 'x'", "optional syntax", id="sch-17-53 optional syntax"),
        pytest.param(
            "[1].all(i, v, true)", "function all with two variables is not supported by the fleet scheduler", id="sch-17-53 two variables"
        ),
        pytest.param('device.capacity["x"].memory >= quantity("1Gi")', "compare with isGreaterThan", id="sch-17-46 ordering quantities"),
        pytest.param('quantity("1").sign() == 1', "must be called as sign(x, ...)", id="sch-17-46 a member call of a global function"),
        pytest.param("device.driver", "a selector must give a bool, this one gives string", id="sch-17-44 no bool"),
        pytest.param("true &&\n  )", "line 2, column 3", id="sch-17-54 the place is named"),
    ],
)
def test_a_refusal_names_what_is_wrong(selector: str, says: str) -> None:
    assert says in (check_selector(selector) or "nothing is wrong")


def test_a_usable_selector_has_no_problem() -> None:
    assert check_selector('device.driver == "gpu.nvidia.com"') is None


def _nested(count: int) -> str:
    numbers = str(list(range(count)))
    return f"{numbers}.all(x, {numbers}.all(y, {numbers}.all(z, x + y + z >= 0)))"


def test_57_an_expensive_selector_is_refused_by_the_fleets_own_limit(oracle: Oracle) -> None:
    """sch-17-57: the fleet allows less than Kubernetes, and says both numbers; what Kubernetes refuses no setting allows."""
    assert compile_selector(_nested(10)).match(HOPPER) == Match(matched=True)
    estimate = oracle.select(_nested(40), [])["max_cost"]
    with pytest.raises(SelectorError, match=f"may cost {estimate} units, 20000 are allowed"):
        compile_selector(_nested(40))
    assert compile_selector(_nested(40), max_cost=KUBERNETES_COST_MAX).cost_estimate == estimate
    with pytest.raises(SelectorError, match="may cost"):
        compile_selector(_nested(60), max_cost=KUBERNETES_COST_MAX)
    with pytest.raises(ValueError, match="max_cost must be between"):
        compile_selector("true", max_cost=KUBERNETES_COST_MAX + 1)


@pytest.mark.parametrize(
    "selector",
    [
        'quantity("1").sign() == 1',
        'isGreaterThan(quantity("2"), quantity("1"))',
        'major(semver("1.2.3")) == 1',
        'has(device.attributes["gpu.nvidia.com"])',
    ],
)
def test_lenient_calls_accept_either_call_form_and_nothing_else(selector: str) -> None:
    """sch-6.4: the reference's leniency is an option."""
    assert check_selector(selector) is not None
    assert compile_selector(selector, lenient_calls=True).match(HOPPER).matched
    with pytest.raises(SelectorError):
        compile_selector("nosuch(1)", lenient_calls=True)
