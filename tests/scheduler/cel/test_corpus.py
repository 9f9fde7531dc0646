"""Recorded selectors: verdict, estimate and cost are those of Kubernetes.

`tests/oracle/record.py` makes the record in `tests/data/cel_corpus.json`, which names the library.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cel import compile_selector
from scheduler.cel.errors import Aborted
from scheduler.cel.runtime.device import CelDevice, read_device
from scheduler.cel.runtime.machine import run
from tests.oracle.client import KUBERNETES_LIBRARY, Oracle, as_json, library_version
from tests.scheduler.cel.devices import DEVICES
from tests.scheduler.cel.differences import (
    DIFFERENCES,
    KUBERNETES_COST_MAX,
    disagreement,
    explains,
    kubernetes_outcomes,
    verdicts_of,
)
from tests.scheduler.cel.evaluation import evaluated

CORPUS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "cel_corpus.json").read_text(encoding="utf-8")
)
ROWS: list[dict[str, Any]] = CORPUS["rows"]
ALL_DEVICES = list(DEVICES.values())


def _recorded(row: dict[str, Any]) -> list[bool | str]:
    if "refused" in row:
        return ["refused"] * len(DEVICES)
    return [row["devices"][name][0] for name in DEVICES]


def test_the_corpus_is_large_and_from_the_library_the_oracle_uses() -> None:
    assert len(ROWS) >= 400
    assert CORPUS["library"] == f"{KUBERNETES_LIBRARY} {library_version()}"
    assert CORPUS["devices"] == {
        name: as_json(device) for name, device in DEVICES.items()
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["selector"][:70])
def test_verdict_estimate_and_cost_of_every_recorded_selector_are_those_of_kubernetes(
    row: dict[str, Any],
) -> None:
    text = row["selector"]
    verdicts = verdicts_of(text, ALL_DEVICES)
    wrong = [
        disagreement(text, *each)
        for each in zip(ALL_DEVICES, verdicts, _recorded(row), strict=True)
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))
    if "estimate" not in row or verdicts[0].outcome == "refused":
        return
    for name, device in DEVICES.items():
        outcome, cost = row["devices"][name]
        # After an error Kubernetes may skip arguments that are evaluated here, so only finished
        # evaluations cost the same.
        if outcome == "error" or cost is None or " || true" in text:
            continue
        found = evaluated(text, device)
        assert found.estimate == row["estimate"]
        assert found.cost in (cost, None), name


def test_kubernetes_still_gives_the_recorded_outcomes(oracle: Oracle) -> None:
    stale = [
        row["selector"]
        for row in ROWS
        if kubernetes_outcomes(
            oracle.select(row["selector"], ALL_DEVICES), len(ALL_DEVICES)
        )
        != _recorded(row)
    ]
    assert not stale


def test_every_listed_difference_occurs() -> None:
    """The list names no difference that no recorded selector shows."""
    met = set()
    for row in ROWS:
        for verdict, in_kubernetes in zip(
            verdicts_of(row["selector"], ALL_DEVICES), _recorded(row), strict=True
        ):
            if verdict.outcome != in_kubernetes and (
                difference := explains(verdict.reason)
            ):
                met.add(difference.why)
    assert met == {each.why for each in DIFFERENCES}


def test_no_selector_of_the_corpus_is_evaluated_without_a_limit() -> None:
    """One unit too few stops an evaluation."""
    dear = next(row for row in ROWS if row.get("estimate", 0) > 5_000)
    selector = compile_selector(dear["selector"], max_cost=KUBERNETES_COST_MAX)
    device = read_device(DEVICES["hopper"])
    assert isinstance(device, CelDevice)
    cost = run(selector._program, device.value(), KUBERNETES_COST_MAX).cost
    with pytest.raises(Aborted, match="CostExceeded"):
        run(selector._program, device.value(), cost - 1)
