"""The test cases of Kubernetes' own selector compiler have the same results and estimates here.

They are those of `compile_test.go` in k8s.io/dynamic-resource-allocation/cel v0.35.
"""

from dataclasses import dataclass

import pytest

from scheduler.cel import check_selector
from scheduler.model.devices import DeviceEntry
from tests.oracle.client import Oracle, as_json
from tests.scheduler.cel.devices import device
from tests.scheduler.cel.evaluation import evaluated

EXAMPLE = "dra.example.com"
_NO_DRIVER = device(driver="")
_PLAIN = device(driver=EXAMPLE)
_NAME = {
    "bool": device({"name": ("bool", True)}, driver=EXAMPLE),
    "int": device({"name": ("int", 1)}, driver=EXAMPLE),
    "string": device({"name": ("string", "fish")}, driver=EXAMPLE),
    "version": device({"name": ("version", "1.0.0")}, driver=EXAMPLE),
    "capacity": device(capacity={"name": "1Mi"}, driver=EXAMPLE),
}
_ALL_KINDS = device(
    {
        "bool": ("bool", True),
        "int": ("int", 1),
        "string": ("string", "fish"),
        "version": ("version", "1.0.0"),
    },
    {"quantity": "1Mi"},
    driver=EXAMPLE,
)
_FLAGS = device(dict.fromkeys("abc", ("bool", True)), driver=EXAMPLE)
_SERVICES = device({"services": ("string", "some_example_value")}, driver=EXAMPLE)
_MEMORY = device(capacity={"memory": "1Mi"}, driver=EXAMPLE)
_MANY_NAMES = device(
    {
        f"{EXAMPLE}/{'x' * (32 - len(suffix))}{suffix}": ("string", "abc")
        for suffix in (f"-{number}" for number in range(32))
    },
    driver=EXAMPLE,
)

_A = 'device.attributes["dra.example.com"]'
_C = 'device.capacity["dra.example.com"]'
_TEN = str(list(range(1, 11)))
_ALL = " && ".join(
    [
        f'{_C}.quantity.isGreaterThan(quantity("1Ki"))',
        f"{_A}.bool",
        f"{_A}.int > 0",
        f'{_A}.string == "fish"',
        f'{_A}.version.isGreaterThan(semver("0.0.1"))',
        f'{_C}["quantity"].isGreaterThan(quantity("1Ki"))',
        f'{_A}["bool"]',
        f'{_A}["int"] > 0',
        f'{_A}["string"] == "fish"',
        f'{_A}["version"].isGreaterThan(semver("0.0.1"))',
    ]
)
_EXPENSIVE = "int('1'.find('[0-9]*')) < 100"
for _variable in ("z5", "z4", "z3", "z2", "z", "y", "x"):
    _EXPENSIVE = f"{_TEN}.all({_variable}, {_EXPENSIVE})"


@dataclass(frozen=True)
class Case:
    """A case of Kubernetes' table: its name, input, outcome and estimate.

    The outcome is "match", "no match", "error" or "refused".
    """

    name: str
    selector: str
    outcome: str
    estimate: int | None = None
    device: DeviceEntry = _NO_DRIVER
    allow_multiple_allocations: bool = False


CASES = [
    Case("true", "true", "match", 0),
    Case("false", "false", "no match", 0),
    Case("syntax-error", "?!", "refused"),
    Case("type-error", "1", "refused"),
    Case(
        "runtime-error-lookup-identifier",
        'device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))',
        "error",
        6,
    ),
    Case(
        "runtime-error-lookup-map",
        'device.attributes["no-such-domain"]["noSuchAttr"]'
        '.isGreaterThan(quantity("0"))',
        "error",
        6,
    ),
    Case(
        "domain-check-negative", '"no-such-domain" in device.attributes', "no match", 3
    ),
    Case(
        "domain-check-positive",
        '"dra.example.com" in device.attributes',
        "match",
        3,
        device({f"{EXAMPLE}/something": ("bool", True)}, driver=""),
    ),
    Case("empty-driver-name", 'device.driver == ""', "match", 2),
    Case("real-driver-name", f'device.driver == "{EXAMPLE}"', "match", 4, _PLAIN),
    Case("driver-name-qualifier", f"{_A}.name", "match", 4, _NAME["bool"]),
    Case(
        "driver-name-qualifier-map-lookup", f'{_A}["name"]', "match", 4, _NAME["bool"]
    ),
    Case("bind", f"cel.bind(dra, {_A}, dra.name)", "match", 15, _NAME["bool"]),
    Case(
        "qualified-attribute-name",
        'device.attributes["other.example.com"].name',
        "match",
        4,
        device({"other.example.com/name": ("bool", True)}, driver=EXAMPLE),
    ),
    Case("bool", f"{_A}.name", "match", 4, _NAME["bool"]),
    Case("int", f"{_A}.name > 0", "match", 5, _NAME["int"]),
    Case("string", f'{_A}.name == "fish"', "match", 5, _NAME["string"]),
    Case(
        "version",
        f'{_A}.name.isGreaterThan(semver("0.0.1"))',
        "match",
        6,
        _NAME["version"],
    ),
    Case(
        "version_v",
        f'{_A}.name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)',
        "match",
        7,
        _NAME["version"],
    ),
    Case(
        "quantity",
        f'{_C}.name.isGreaterThan(quantity("1Ki"))',
        "match",
        6,
        _NAME["capacity"],
    ),
    Case(
        "check-positive",
        f'"name" in {_C} && {_C}.name.isGreaterThan(quantity("1Ki"))',
        "match",
        10,
        _NAME["capacity"],
    ),
    Case(
        "check-negative",
        f'!("name" in {_C}) || {_C}.name.isGreaterThan(quantity("1Ki"))',
        "match",
        11,
    ),
    Case("all", _ALL, "match", 52, _ALL_KINDS),
    Case("many", f"{_A}.a && {_A}.b && {_A}.c", "match", 12, _FLAGS),
    Case(
        "check_attribute_domains",
        f'device.attributes.exists_one(x, x == "{EXAMPLE}")',
        "match",
        164,
        _SERVICES,
    ),
    Case(
        "check_attribute_ids",
        f'{_A}.exists_one(x, x == "services")',
        "match",
        133,
        _SERVICES,
    ),
    Case(
        "split_attribute",
        f'{_A}.services.split("example").size() >= 2',
        "match",
        19,
        _SERVICES,
    ),
    Case(
        "regexp_attribute",
        f'{_A}.services.matches("[^a]?sym")',
        "match",
        18,
        device({"services": ("string", "asymetric")}, driver=EXAMPLE),
    ),
    Case(
        "check_capacity_domains",
        f'device.capacity.exists_one(x, x == "{EXAMPLE}")',
        "match",
        164,
        _MEMORY,
    ),
    Case(
        "check_capacity_ids",
        f'{_C}.exists_one(x, x == "memory")',
        "match",
        133,
        _MEMORY,
    ),
    # Kubernetes evaluates it up to the limit; the API server refuses it by its estimate.
    Case("expensive", _EXPENSIVE, "refused", None, _MANY_NAMES),
    Case(
        "allow_multiple_allocations",
        "device.allowMultipleAllocations == true",
        "match",
        3,
        _PLAIN,
        allow_multiple_allocations=True,
    ),
    Case(
        "allow_multiple_allocations_default",
        "device.allowMultipleAllocations == false",
        "match",
        3,
        _PLAIN,
    ),
]


def _word(outcome: bool | str) -> str:
    if isinstance(outcome, bool):
        return "match" if outcome else "no match"
    return outcome


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_has_the_result_and_estimate_of_kubernetes(case: Case) -> None:
    found = evaluated(
        case.selector,
        case.device,
        allow_multiple_allocations=case.allow_multiple_allocations,
    )
    assert (_word(found.outcome), found.estimate) == (case.outcome, case.estimate)
    if found.cost is not None:
        assert case.estimate is not None
        assert found.cost <= case.estimate


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_oracle_confirms_each_case(case: Case, oracle: Oracle) -> None:
    asked = {
        **as_json(case.device),
        "allowMultipleAllocations": case.allow_multiple_allocations,
    }
    answer = oracle.ask({"selector": case.selector, "devices": [asked]})
    if case.name == "expensive":
        assert answer["max_cost"] == 85_555_551
        assert "cost limit exceeded" in answer["devices"][0]["error"]
        return
    if answer.get("error"):
        assert case.outcome == "refused"
        return
    [device_answer] = answer["devices"]
    outcome = "error" if device_answer.get("error") else device_answer["matched"]
    assert (_word(outcome), answer["max_cost"]) == (case.outcome, case.estimate)


def test_multiple_allocations_need_a_feature_gate_in_kubernetes(oracle: Oracle) -> None:
    """A cluster without the gate refuses the claim, so the docs name it."""
    selector = "device.allowMultipleAllocations == false"
    refused = oracle.ask({"selector": selector, "without_consumable_capacity": True})
    assert "undefined field 'allowMultipleAllocations'" in refused["error"]
    assert check_selector(selector) is None
