"""Evaluate a selector with the limits of Kubernetes, and give its cost too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.cel import Selector, SelectorError, compile_selector
from scheduler.cel.errors import Aborted
from scheduler.cel.runtime.device import CelDevice, read_device
from scheduler.cel.runtime.machine import run
from scheduler.model.devices import DeviceEntry
from tests.scheduler.cel.differences import KUBERNETES_COST_MAX


@dataclass(frozen=True)
class Evaluation:
    """The estimate of a selector, and its outcome and cost for one device.

    Attributes:
        outcome: True, False, "error" or "refused".
        estimate: the highest possible cost, or None if the selector is refused.
        cost: the cost of this evaluation, or None after an error.

    """

    outcome: bool | str
    estimate: int | None = None
    cost: int | None = None


def evaluated(
    text: str, entry: DeviceEntry, *, allow_multiple_allocations: bool = False
) -> Evaluation:
    try:
        selector = compile_selector(text, max_cost=KUBERNETES_COST_MAX)
    except SelectorError:
        return Evaluation("refused")
    estimate = selector.cost_estimate
    try:
        result, cost = _run(selector, entry, allow_multiple_allocations)
    except Aborted:
        return Evaluation("error", estimate)
    if type(result) is not bool:
        return Evaluation("error", estimate)
    return Evaluation(result, estimate, cost)


def _run(
    selector: Selector, entry: DeviceEntry, allow_multiple_allocations: bool
) -> tuple[Any, int]:
    device = read_device(entry)
    assert isinstance(device, CelDevice), device
    value = device.value()
    name = "allowMultipleAllocations"
    value.entries["s", name] = (name, allow_multiple_allocations)
    outcome = run(selector._program, value, KUBERNETES_COST_MAX)
    return outcome.result, outcome.cost
