"""docs/reference/selectors.md: every function that a device selector may call, and no other."""

import re
from pathlib import Path

from scheduler.cel.checking.declarations import DEVICE_FIELDS, FUNCTIONS
from scheduler.cel.limits import FLEET_COST_MAX, NESTING_MAX, TEXT_BYTES_MAX

DOCUMENT = (
    Path(__file__).parents[2] / "docs" / "reference" / "selectors.md"
).read_text()
FUNCTION_TABLE = DOCUMENT.partition("## Functions")[2].partition("\nKubernetes has")[0]
# Macros are no functions, and so no declarations.
MACROS = {
    "all",
    "cel.bind",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "has",
    "map",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
}
NAME = re.compile(r"`([A-Za-z][A-Za-z0-9_.]*)(?:\([^`]*\))?`")


def test_the_table_has_every_function_and_macro() -> None:
    documented = set(NAME.findall(FUNCTION_TABLE)) - {"x.y", "in"}
    called = {name for name in FUNCTIONS if not re.search(r"^[_@!-]|@", name)}
    assert documented == called | MACROS


def test_the_table_has_every_field_of_a_device() -> None:
    rows = DOCUMENT.partition("## The device")[2].partition("\n\nAn unknown")[0]
    assert set(re.findall(r"\| `device\.([A-Za-z]+)", rows)) == set(DEVICE_FIELDS)


def test_the_limits_are_those_of_the_code() -> None:
    limits = DOCUMENT.partition("## Limits")[2]
    for limit in (TEXT_BYTES_MAX, NESTING_MAX, FLEET_COST_MAX):
        assert f"{limit:,}" in limits
