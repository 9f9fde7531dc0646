"""`modelplane service shift`: the weights of the entries."""

from typing import Any

import pytest

from client.commands.change.service import (
    entry_name,
    read_shares,
    shares_table,
    shifted,
)
from fleet_client.errors import Refused
from tests.client.conftest import Cli


def an_entry(
    weight: int | None = None, name: str = "", **labels: str
) -> dict[str, Any]:
    entry: dict[str, Any] = {"selector": {"matchLabels": labels}}
    return (
        entry
        | ({"weight": weight} if weight is not None else {})
        | ({"name": name} if name else {})
    )


def a_tree(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"endpoints": list(entries)}}


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (an_entry(name="canary", tier="a"), "canary"),
        (
            {
                "selector": {
                    "matchLabels": {
                        "modelplane.ai/deployment": "qwen",
                        "modelplane.ai/cluster": "eu",
                    }
                }
            },
            "qwen",
        ),
        (an_entry(tier="external"), "external"),
        (an_entry(tier="external", region="eu"), ""),
        (an_entry(), ""),
    ],
)
def test_an_entry_has_the_name_of_its_endpoint_or_selector(
    entry: dict[str, Any], name: str
) -> None:
    assert entry_name(entry) == name


def test_weights_are_set_and_others_stay() -> None:
    tree = a_tree(
        an_entry(95, "stable", a="1"),
        an_entry(5, "canary", a="2"),
        an_entry(a="3", b="4"),
    )
    spec = shifted(tree, {"stable": 50, "canary": 50})
    assert [entry.get("weight") for entry in spec["endpoints"]] == [50, 50, None]
    assert tree["spec"]["endpoints"][0]["weight"] == 95, "what was read is not changed"


def test_all_unknown_entries_are_listed_with_the_existing_ones() -> None:
    tree = a_tree(
        an_entry(1, tier="a"), an_entry(1, zone="a"), an_entry(1, "canary", a="2")
    )
    with pytest.raises(Refused) as refused:
        shifted(tree, {"a": 1, "canry": 2})
    assert refused.value.details == (
        "a: 2 entries have this name; set spec.endpoints[].name",
        "canry: no entry has this name, did you mean canary?",
    )
    assert refused.value.next_step == "the entries are a, a, canary"


def test_shares_are_read() -> None:
    assert read_shares(["stable=90%", "canary=10"]) == {"stable": 90, "canary": 10}
    with pytest.raises(Refused) as refused:
        read_shares(["stable", "canary=-1", "a=0", "b=1000001", "=5", "c=1", "c=2"])
    assert len(refused.value.details) == 6


def test_a_table_shows_shares_before_and_after() -> None:
    lines = shares_table(
        [an_entry(95, "stable"), an_entry(5, "canary")],
        [an_entry(50, "stable"), an_entry(50, "canary")],
    )
    assert [line.split() for line in lines] == [
        ["ENTRY", "PRIORITY", "BEFORE", "AFTER"],
        ["stable", "0", "95", "(95.0%)", "50", "(50.0%)"],
        ["canary", "0", "5", "(5.0%)", "50", "(50.0%)"],
    ]


def test_a_share_is_one_among_entries_of_the_same_priority() -> None:
    entries = [
        an_entry(90, "stable"),
        an_entry(10, "canary"),
        {**an_entry(1, "spill-over"), "priority": 1},
    ]
    rows = [line.split() for line in shares_table(entries, entries)]
    assert [row[3] for row in rows[1:]] == ["(90.0%)", "(10.0%)", "(100.0%)"]


@pytest.mark.usefixtures("nowhere")
def test_bad_shares_are_rejected_before_any_request(cli: Cli) -> None:
    result = cli("service", "shift", "qwen", "a=x", "b=0")
    assert result.code == 2
    assert "a=x" in result.err
    assert "b: the weight must be between 1 and 1000000" in result.err
