"""Record which actions, phases, conditions and events occurred in simulated worlds."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.simulation.snapshot import Snapshot

WORKFLOWS = Path(__file__).parents[2] / "workflows"


class Coverage:
    """Counts the worlds in which each item occurred."""

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self.shown: set[tuple[str, str]] = set()

    def acted(self, action: str) -> None:
        """Count an action of a user or an operator."""
        self.actions[action] += 1

    def saw(self, seen: Snapshot) -> None:
        """Add the phases and reasons of a moment."""
        for found in seen.workflows.values():
            self.shown.update((found.kind, word) for word in found.shown)
            self.shown.add((found.kind, f"status/{found.status}"))


def report(worlds: list[Coverage]) -> Iterator[str]:
    """Write how often each item occurred, then the reasons that did not occur."""
    actions: Counter[str] = Counter()
    shown: Counter[tuple[str, str]] = Counter()
    for each in worlds:
        actions.update(each.actions)
        shown.update(each.shown)
    yield f"{len(worlds)} worlds; actions:"
    yield from (f"  {count:6} {action}" for action, count in actions.most_common())
    yield "shown, in so many worlds:"
    yield from (f"  {count:6} {kind} {word}" for (kind, word), count in sorted(shown.items()))
    reasons = {word.rpartition("/")[2] for _, word in shown}
    missing = sorted(possible_reasons() - reasons)
    yield f"{len(missing)} reasons of the product that no world showed:"
    yield from (f"         {reason}" for reason in missing)


def possible_reasons() -> set[str]:
    """Find the literal reasons of events and conditions in the source of the workflows."""
    found: set[str] = set()
    for path in WORKFLOWS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                found.update(_reasons_of(node))
    return found


def _reasons_of(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "attr", "") or getattr(call.func, "id", "")
    number = {"record_event": 1, "set_condition": 2, "Verdict": 1}.get(name)
    if number is not None and len(call.args) > number:
        reason = call.args[number]
        if isinstance(reason, ast.Constant) and isinstance(reason.value, str):
            yield reason.value
