"""What keeps a member's devices from matching: the selector's own text, and what the closest device has instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api_types.text.quantity import parse_quantity
from scheduler.cel import Unmet, device_problem, unmet_comparisons
from scheduler.cel.bounded_cache import bounded_cache
from scheduler.explain.near_names import by_nearness
from scheduler.hardware.device_matching import MemberNeed, selectors_length
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import DeviceSet

_UNMET_SHOWN = 3
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SelectorGap:
    """The device that comes closest to a request.

    Attributes:
        request: position among the member's requests.
        name: of the request.
        selector: number of the selector, from 1.
        text: the selector.
        device: name of the closest entry of the pool's class.
        unmet: the comparisons of the selector that it does not pass; empty where the selector is not made of comparisons.
        differences: how many comparisons, and selectors that are not made of any, it does not pass in the whole request.
        distance: how far its values are from the bounds, to compare devices with as many differences.

    """

    request: int
    name: str
    selector: int
    text: str
    device: str
    unmet: tuple[Unmet, ...] = ()
    differences: int = 0
    distance: int = 0

    @property
    def detail(self) -> str:
        """Say what the closest device has instead, "" if that is not known."""
        parts = [_unmet_text(unmet) for unmet in self.unmet[:_UNMET_SHOWN]]
        more = len(self.unmet) - len(parts)
        return f"closest device {self.device}: {', '.join(parts)}{f' and {more} more' if more > 0 else ''}" if parts else ""

    @staticmethod
    def near(unmet: Unmet) -> list[str]:
        """Give the names that a device has where it lacks the one that is compared, nearest first."""
        return by_nearness(unmet.name, unmet.names)[:_NAMES_SHOWN]


class _Question:
    """A member's request and the devices of a pool; equal ones have one answer."""

    __slots__ = ("_key", "devices", "need", "request")

    def __init__(self, need: MemberNeed, request: str, devices: DeviceSet) -> None:
        self.need = need
        self.request = request
        self.devices = devices
        self._key = (id(need), request, devices.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def selector_gap(need: MemberNeed, request: str, devices: DeviceSet) -> SelectorGap | None:
    """Explain why no device of a pool satisfies a request; None if a device does, or none can be read."""
    return _answer(_Question(need, request, devices))[0]


# In a tuple, because what is None is not kept.
@bounded_cache(lambda question: selectors_length(question.need.requests))
def _answer(question: _Question) -> tuple[SelectorGap | None]:
    return (_closest(question.need, question.request, question.devices.entries),)


def _closest(need: MemberNeed, request: str, entries: Sequence[DeviceEntry]) -> SelectorGap | None:
    i = next((i for i, known in enumerate(need.requests) if known.name == request), -1)
    readable = [entry for entry in entries if not device_problem(entry)]
    if i < 0 or not readable or any(all(s.match(entry).matched for s in need.selectors[i]) for entry in readable):
        return None
    rules = need.rules
    best: tuple[tuple[int, int, int], SelectorGap] | None = None
    for position, entry in enumerate(readable):
        failed = [n for n, selector in enumerate(need.selectors[i]) if not selector.match(entry).matched]
        texts = [need.selectors[i][n].text for n in failed]
        found = [unmet_comparisons(text, entry, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost) for text in texts]
        # A selector that is not made of comparisons is one thing that differs.
        differences = sum(max(1, len(unmet)) for unmet in found)
        rank = (differences, sum(_missing(unmet) for row in found for unmet in row), position)
        if best is None or rank < best[0]:
            best = rank, SelectorGap(i, request, failed[0] + 1, texts[0], entry.name, found[0], differences, rank[1])
    return best[1] if best else None


def _missing(unmet: Unmet) -> int:
    """Measure how far a value is from its bound: a name that is missing is farthest."""
    if unmet.names:
        return 1 << 200
    try:
        return abs(parse_quantity(unmet.wants.rsplit(" ", 1)[-1]) - parse_quantity(unmet.has))
    except ValueError:
        return 0


def _unmet_text(unmet: Unmet) -> str:
    if unmet.has:
        return f"{unmet.name} is {unmet.has}, wanted {unmet.wants}"
    if not unmet.names:
        return f"has no {unmet.name}, wanted {unmet.wants}"
    names = SelectorGap.near(unmet)
    rest = len(unmet.names) - len(names)
    return f"has no {unmet.name}, only {', '.join(names)}{f' and {rest} more' if rest > 0 else ''}"
