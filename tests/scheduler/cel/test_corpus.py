"""Hundreds of recorded selectors: verdict, estimate and cost are those of Kubernetes, and the record is still true.

The record in `tests/data/cel_corpus.json` was made by the oracle and names the library; `tests/oracle/record.py` makes it anew.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cel import compile_selector
from scheduler.cel.errors import Aborted
from scheduler.cel.runtime.device import Device, read_device
from scheduler.cel.runtime.machine import run
from scheduler.model.devices import DeviceEntry
from tests.oracle.client import KUBERNETES_LIBRARY, Oracle, as_json, library_version
from tests.scheduler.cel.devices import DEVICES
from tests.scheduler.cel.differences import DIFFERENCES, KUBERNETES_COST_MAX, disagreement, explains, kubernetes_outcomes, verdicts_of

CORPUS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "cel_corpus.json").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = CORPUS["rows"]
ALL_DEVICES = list(DEVICES.values())


def _recorded(row: dict[str, Any]) -> list[bool | str]:
    if "refused" in row:
        return ["refused"] * len(DEVICES)
    return [row["devices"][name][0] for name in DEVICES]


def test_the_corpus_is_large_and_from_the_library_the_oracle_uses() -> None:
    assert len(ROWS) >= 400
    assert CORPUS["library"] == f"{KUBERNETES_LIBRARY} {library_version()}"
    assert CORPUS["devices"] == {name: as_json(device) for name, device in DEVICES.items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["selector"][:70])
def test_verdict_estimate_and_cost_of_every_recorded_selector_are_those_of_kubernetes(row: dict[str, Any]) -> None:
    text = row["selector"]
    verdicts = verdicts_of(text, ALL_DEVICES)
    wrong = [disagreement(text, *each) for each in zip(ALL_DEVICES, verdicts, _recorded(row), strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
    if "estimate" not in row or verdicts[0].outcome == "refused":
        return
    assert compile_selector(text, max_cost=KUBERNETES_COST_MAX).cost_estimate == row["estimate"]
    for name, device in DEVICES.items():
        outcome, cost = row["devices"][name]
        # After an error Kubernetes may skip arguments that are evaluated here, so only finished evaluations cost the same.
        if outcome != "error" and cost is not None and " || true" not in text:
            assert _spent(text, device) == cost, name


def _spent(text: str, entry: DeviceEntry) -> int:
    selector = compile_selector(text, max_cost=KUBERNETES_COST_MAX)
    device = read_device(entry)
    assert isinstance(device, Device)
    return run(selector._program, device.value(), KUBERNETES_COST_MAX).cost


def test_the_record_is_still_what_kubernetes_says(oracle: Oracle) -> None:
    stale = [
        row["selector"]
        for row in ROWS
        if kubernetes_outcomes(oracle.select(row["selector"], ALL_DEVICES), len(ALL_DEVICES)) != _recorded(row)
    ]
    assert not stale


def test_every_listed_difference_is_a_real_one() -> None:
    """A difference that no recorded selector shows any more must leave the list."""
    met = set()
    for row in ROWS:
        for verdict, in_kubernetes in zip(verdicts_of(row["selector"], ALL_DEVICES), _recorded(row), strict=True):
            if verdict.outcome != in_kubernetes and (difference := explains(verdict.reason)):
                met.add(difference.why)
    assert met == {each.why for each in DIFFERENCES}


def test_no_selector_of_the_corpus_is_evaluated_without_a_limit() -> None:
    """Whatever is written, one unit too few stops it."""
    dear = next(row for row in ROWS if row.get("estimate", 0) > 5_000)
    selector = compile_selector(dear["selector"], max_cost=KUBERNETES_COST_MAX)
    device = read_device(DEVICES["hopper"])
    assert isinstance(device, Device)
    cost = run(selector._program, device.value(), KUBERNETES_COST_MAX).cost
    with pytest.raises(Aborted, match="CostExceeded"):
        run(selector._program, device.value(), cost - 1)
