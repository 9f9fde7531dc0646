"""docs/reference/policy.md: a row for each field of the fleet's policy, with the default and the
values of the code.
"""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from scheduler import InvalidPolicyError, SchedulerOptions, read_policy, write_policy
from scheduler.model.policy import Quota
from scheduler.model.wire import camel
from scheduler.placement.score import PROFILES, WEIGHABLE, WEIGHTED

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "policy.md").read_text()
DEFAULTS = write_policy(SchedulerOptions())
# The defaults of a quota, in words: each leaves something without a limit.
NO_LIMIT = {
    "maxNodes": "no limit",
    "maxDevices": "no limit",
    "matchLabels": "all clusters",
    "className": "all classes",
    "deviceSelector": "all devices",
    "priorityFloor": "none",
}


def table(after: str, columns: int) -> dict[str, list[str]]:
    """The first table behind a text: first column to the others, as written."""
    lines = (
        DOCUMENT.partition(after)[2]
        .partition("\n|")[2]
        .partition("\n\n")[0]
        .splitlines()
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert rows
    assert all(len(row) == columns for row in rows), rows
    return {row[0].strip("`"): row[1:] for row in rows}


def written(default: Any) -> str:
    """A default as the table writes it."""
    if default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_the_table_has_every_field_in_the_order_of_the_code_and_no_other() -> None:
    assert list(table("# The fleet", 4)) == list(DEFAULTS)


@pytest.mark.parametrize("field", DEFAULTS)
def test_default_and_values_of_a_field_are_those_of_the_code(field: str) -> None:
    default, values, meaning = table("# The fleet", 4)[field]
    assert default == written(DEFAULTS[field])
    with pytest.raises(InvalidPolicyError) as refused:
        read_policy({field: "?"})
    assert refused.value.problems == (
        f"{field}: must {values if values.startswith('map ') else f'be {values}'}, got '?'",
    )
    assert meaning


def test_every_profile_is_listed_with_its_functions_in_order() -> None:
    listed = {
        name: re.findall(r"`([^`]+)`", functions)
        for name, (functions,) in table("## Profiles", 2).items()
    }
    assert listed == {
        **{name: list(functions) for name, functions in PROFILES.items()},
        WEIGHTED: ["weights"],
    }


def test_every_scoring_function_is_explained() -> None:
    assert list(table("The sums are compared |\n", 2)) == list(WEIGHABLE)


def test_every_field_of_a_quota_is_listed_with_its_default() -> None:
    listed = {name: default for name, (default, _) in table("## Quotas", 3).items()}
    required = {
        camel(field.name)
        for field in fields(Quota)
        if field.default is MISSING and field.default_factory is MISSING
    }
    assert listed == {
        camel(field.name): "required"
        if camel(field.name) in required
        else NO_LIMIT[camel(field.name)]
        for field in fields(Quota)
    }
