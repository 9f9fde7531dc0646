"""Selectors have the outcomes that users expect, and the same ones in Kubernetes.

`@` stands for the attributes of the driver's domain and `#` for its capacity. Each row is evaluated
here and by the real DRA compiler. A row whose outcomes differ on purpose has its reason in
`only_here`.
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
    """A selector and its outcome, by default on a device of Hopper architecture."""

    story: str
    selector: str
    # True, False, "error" (does not match and says why) or "refused" (does not compile).
    expect: bool | str
    device: DeviceEntry = HOPPER
    # Why the outcome in Kubernetes differs, if it does.
    only_here: str = ""

    @property
    def text(self) -> str:
        """Return the selector with full paths."""
        return self.selector.replace(
            "@", 'device.attributes["gpu.nvidia.com"]'
        ).replace("#", 'device.capacity["gpu.nvidia.com"]')


TRUE = {
    "asInteger": [
        'quantity("50k").asInteger() == 50000',
        'quantity("-49980").asInteger() == -49980',
    ],
    "isInteger": [
        'quantity("50").isInteger()',
        'quantity("50000000G").isInteger()',
    ],
    "sums": [
        'quantity("50k").add(20).sub(quantity("100k")).sub(-50000).asInteger() == 20'
    ],
    "sign and approximate float": [
        'sign(quantity("-3")) == -1',
        'sign(quantity("0")) == 0',
        'sign(quantity("2Gi")) == 1',
        'quantity("50.703k").asApproximateFloat() == 50703.0',
    ],
    "the driver": ['device.driver == "gpu.nvidia.com"'],
    "a string attribute": [
        '@.architecture == "Hopper"',
        '@["architecture"] == "Hopper"',
        '@.architecture in ["Hopper", "Blackwell"]',
        '@.architecture.startsWith("Hop")',
        '@.architecture.matches("^Hop")',
    ],
    "a capacity": [
        '#.memory.compareTo(quantity("141Gi")) >= 0',
        '#.memory == quantity("144384Mi")',
    ],
    "a version": [
        '@.cc.isGreaterThan(semver("8.9.0"))',
        '@.cc.isGreaterThan(semver("8.9", true))',
    ],
    "a conjunction": ["@.cc.major() >= 9 && @.idx >= 3 && @.idx % 2 == 1"],
    "a bool attribute alone": ["@.mig", "!@.ecc"],
    "another domain": [
        'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"'
    ],
    "missing keys": [
        '"gpu.nvidia.com" in device.attributes',
        'device.attributes["other.com"].size() == 0',
        "!has(@.nope)",
    ],
    "absorbed errors": ['@.nope == "x" || true', 'true || @.nope == "x"'],
    "a bool is no number": ["@.mig != 1"],
    "values of different types are unequal": [
        '@.idx != "3"',
        '!(@.idx == "3")',
        "@.architecture != 5",
    ],
    "a version against text: unequal by Kubernetes' own quirk": ['@.cc != "9.0.0"'],
    "numbers compare across types": [
        "@.idx > 2.5",
        "@.idx == 3.0",
        "1 < 1.5",
    ],
    "optional values": [
        "@.?idx.orValue(0) == 3",
        "@.?nope.orValue(0) == 0",
        '@[?"nope"].or(@.?idx).value() == 3',
        "@.?idx.optMap(i, i > 2).orValue(false)",
        "[?@.?idx, ?@.?nope].size() == 1",
        "!device.attributes.?other.x.hasValue()",
    ],
    "two variables": [
        'device.attributes.exists(d, ids, d == "gpu.nvidia.com" && "idx" in ids)',
        "[1, 2].all(i, v, v == i + 1)",
        '{"a": 1}.transformMap(k, v, v + 1) == {"a": 2}',
    ],
    "networks": [
        'ip("10.0.0.1").isGlobalUnicast()',
        'cidr("10.0.0.0/8").containsIP("10.1.2.3")',
        'isURL("https://example.com")',
        'url("https://example.com").getHost() == "example.com"',
    ],
    "strings and lists": [
        '"%d".format([1]) == "1"',
        "[2, 1].sort() == [1, 2]",
        'timestamp("2026-01-01T00:00:00Z").getFullYear() == 2026',
        "!device.allowMultipleAllocations",
        '@.architecture.lowerAscii() == "hopper"',
        '"a,b".split(",") == ["a", "b"]',
        '@.architecture.indexOf("p") == 2',
        "[1, 2, 3].sum() == 6",
        "cel.bind(x, 1, x == 1)",
        '@.architecture.find("p+") == "pp"',
        "sets.contains([1, 2], [1])",
    ],
    "depth": [
        "(" * 200 + "true" + ")" * 200,
        " && ".join(["true"] * 800),
        "!" * 150 + "true",
    ],
    "absorbed arithmetic": ["1 / 0 == 1 || true"],
    "a loop over domains": ['device.attributes.exists(d, d == "gpu.nvidia.com")'],
}

FALSE = {
    "isInteger": [
        'quantity("0.5").isInteger()',
        'quantity("9999999999999999999999999999999999999G").isInteger()',
        # Kubernetes looks at the form, not at the value.
        'quantity("1.5Gi").isInteger()',
        'quantity("1000m").isInteger()',
        'quantity("7Ei").isInteger()',
        '#.memory.compareTo(quantity("1.5Gi")) < 0 || #.memory.isInteger()',
    ],
    "another driver": ['device.driver == "gpu.amd.com"'],
    "a capacity": ['#.memory.isGreaterThan(quantity("141Gi"))'],
    "a version": ['@.cc.isGreaterThan(semver("9.0.0"))'],
    "a bool attribute alone": ["@.ecc"],
    "missing keys": [
        '"other.com" in device.attributes',
        '"nope" in @',
        '"x" in device.attributes["other.com"]',
        "has(@.nope)",
        'has(@.nope) && @.nope == "x"',
    ],
    "absorbed errors": ['@.nope == "x" && false', 'false && @.nope == "x"'],
    "a bool is no number": ["@.mig == 1"],
}

ERROR = {
    "asInteger": [
        'quantity("500m").asInteger() == 0',
        'quantity("1500m").asInteger() == 1',
        'quantity("9223372036854775807").add(1).asInteger() > 0',
    ],
    "a version with two parts": ['@.cc.isGreaterThan(semver("8.9"))'],
    "not under the driver's domain": ['@.pcieRoot == "pci0"'],
    "missing keys": ['@.nope == "x"', '@.nope != "x"', '!(@.nope == "x")'],
    "nothing absorbs it": ['device.driver == "other" || @.nope == "x"'],
    "an error as condition": ['@.nope == "x" ? true : true'],
    "an attribute that is no bool": ["@.idx", "@.architecture"],
    "two kinds": ['@.cc.isGreaterThan(quantity("8"))'],
    "a version against text": [
        '!(@.cc == "9.0.0")',
        '@.cc == "9.0.0"',
        '!(@.cc in ["9.0.0"])',
    ],
    "arithmetic": ["1 / 0 == 1", "9223372036854775807 + 1 > 0"],
    "the result of add is no equal of anything on the right": [
        '#.memory == quantity("70Gi").add(quantity("71Gi"))'
    ],
}

REFUSED = {
    "no bool": ["1", '"x"', '"true"', "null", "device.driver", "dyn(true)"],
    "unknown names": [
        '@.cc.isGreterThan(semver("8.9.0"))',
        "nosuch(1)",
        "nosuchvar",
        "true || nosuch(1)",
        "device.count == 8",
    ],
    "wrong types": [
        '#.memory >= quantity("80Gi")',
        '#.memory.compareTo("80Gi") >= 0',
        '@.cc.isGreaterThan("8.9.0")',
        '#.memory != "141Gi"',
    ],
    "wrong call forms": [
        "has()",
        "has(@.idx, @.cc)",
        'quantity("1").sign() == 1',
        'isGreaterThan(#.memory, quantity("1"))',
        'has(device.attributes["x"])',
    ],
    "syntax": [
        "not ) valid (",
        "true &&",
        "@.idx = 3",
        "",
        " ",
        '"open',
        '"\\d" == "d"',
        "1 +",
        "!-1 == 1 ? 1",
    ],
    "too deep": [
        "(" * 400 + "true" + ")" * 400,
        "+".join(["1"] * 400) + " > 0",
    ],
    "constants that cannot be made": [
        'int("x") == 1 || true',
        'duration("x") == duration("1s")',
        '@.architecture.matches("(")',
        '"a".find("[") == ""',
    ],
    "mixed literals": [
        "[1, 'a'].size() == 2",
        "[@.idx, 1].size() == 2",
        '{"a": 1, "b": "x"}.size() == 2',
    ],
    "loops over one attribute": ["@.idx.exists(x, true)"],
}

ONLY_HERE = {
    "messages: they describe no property of a device": [
        "google.protobuf.Int64Value{value: 1} == 1",
    ],
    "authorizer: a selector has none": ["true || dyn(5).allowed()"],
    "length: the compiler does not check what the API server stores": [
        "true" + " " * 10_237
    ],
}

CASES = [
    *(
        Case(story, selector, expect=True)
        for story, selectors in TRUE.items()
        for selector in selectors
    ),
    *(
        Case(story, selector, expect=False)
        for story, selectors in FALSE.items()
        for selector in selectors
    ),
    *(
        Case(story, selector, "error")
        for story, selectors in ERROR.items()
        for selector in selectors
    ),
    *(
        Case(story, selector, "refused")
        for story, selectors in REFUSED.items()
        for selector in selectors
    ),
    *(
        Case(why.split(":")[0], selector, "refused", only_here=why)
        for why, selectors in ONLY_HERE.items()
        for selector in selectors
    ),
    *(
        Case(
            "with a malformed version the whole device is malformed",
            selector,
            "error",
            DEVICES["two-part version"],
        )
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


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.story}: {case.selector[:60]}"
)
def test_a_selector_has_one_outcome_here_and_in_kubernetes(
    case: Case, oracle: Oracle
) -> None:
    assert _ours(case) == case.expect
    if case.only_here:
        assert _theirs(case, oracle) != case.expect, (
            f"{case.only_here!r} is no difference any more"
        )
    else:
        assert _theirs(case, oracle) == case.expect


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        pytest.param(
            'device.attributes["x"].cc.isGreterThan(semver("1.0.0"))',
            "did you mean isGreaterThan",
            id="a typo",
        ),
        pytest.param(
            "device.count == 8",
            "device has no field count",
            id="a field that devices do not have",
        ),
        pytest.param(
            'device.attributes["x"].model.includes("a")',
            "function includes cannot be used: attributes with lists of values",
            id="a function of a later version",
        ),
        pytest.param(
            "math.greatest(1, 2) == 2",
            "function math.greatest cannot be used: it belongs to a CEL library",
            id="a library that selectors do not have",
        ),
        pytest.param(
            "[1].all(i, i, true)",
            "i is already the first variable of all",
            id="two variables of one name",
        ),
        pytest.param(
            '"%d".format(["a"]) == ""',
            "%d does not take a string",
            id="an argument of a format",
        ),
        pytest.param(
            "[?@.idx].size() == 1".replace("@", 'device.attributes["x"]'),
            "must be known to be optional",
            id="an optional element of unknown type",
        ),
        pytest.param(
            'device.capacity["x"].memory >= quantity("1Gi")',
            "compare with isGreaterThan",
            id="ordering quantities",
        ),
        pytest.param(
            'quantity("1").sign() == 1',
            "must be called as sign(x, ...)",
            id="a member call of a global function",
        ),
        pytest.param(
            "device.driver",
            "a selector must return a bool, and this one returns a string",
            id="no bool",
        ),
        pytest.param("true &&\n  )", "line 2, column 3", id="the place is named"),
    ],
)
def test_a_refusal_names_the_problem(selector: str, says: str) -> None:
    assert says in (check_selector(selector) or "nothing is wrong")


def test_a_usable_selector_has_no_problem() -> None:
    assert check_selector('device.driver == "gpu.nvidia.com"') is None


def _nested(count: int) -> str:
    numbers = str(list(range(count)))
    return f"{numbers}.all(x, {numbers}.all(y, {numbers}.all(z, x + y + z >= 0)))"


def test_an_expensive_selector_is_refused_by_the_fleets_own_limit(
    oracle: Oracle,
) -> None:
    """The fleet allows less than Kubernetes, and no setting allows more than Kubernetes."""
    assert compile_selector(_nested(10)).match(HOPPER) == Match(matched=True)
    estimate = oracle.select(_nested(40), [])["max_cost"]
    with pytest.raises(
        SelectorError, match=f"may cost {estimate} units, 20000 are allowed"
    ):
        compile_selector(_nested(40))
    assert (
        compile_selector(_nested(40), max_cost=KUBERNETES_COST_MAX).cost_estimate
        == estimate
    )
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
    assert check_selector(selector) is not None
    assert compile_selector(selector, lenient_calls=True).match(HOPPER).matched
    with pytest.raises(SelectorError):
        compile_selector("nosuch(1)", lenient_calls=True)
