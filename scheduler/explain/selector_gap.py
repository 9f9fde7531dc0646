"""Why the devices of a pool do not match: the selector, and the closest device."""

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
        name: name of the request.
        selector: number of the selector, from 1.
        text: text of the selector.
        device: name of the closest entry of the pool's class.
        unmet: the failed comparisons of the selector; empty if the selector does not
            consist of comparisons.
        differences: number of failed comparisons, and of failed selectors without
            comparisons, in the whole request.
        distance: how far its values are from the bounds; it ranks devices with equal
            differences.

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
        """Return how the closest device differs, or "" if that is unknown."""
        parts = [_unmet_text(unmet) for unmet in self.unmet[:_UNMET_SHOWN]]
        if not parts:
            return ""
        more = len(self.unmet) - len(parts)
        tail = f" and {more} more" if more > 0 else ""
        return f"closest device {self.device}: {', '.join(parts)}{tail}"

    @staticmethod
    def near(unmet: Unmet) -> list[str]:
        """Return the names that a device has instead of a missing one, sorted."""
        return by_nearness(unmet.name, unmet.names)[:_NAMES_SHOWN]


class _Question:
    """Cache key of a member's request and a pool's devices."""

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


def selector_gap(
    need: MemberNeed, request: str, devices: DeviceSet
) -> SelectorGap | None:
    """Explain why no device of a pool satisfies a request.

    Return None if a device satisfies it, or if no device can be read.
    """
    return _answer(_Question(need, request, devices))[0]


# The result is wrapped in a tuple, because the cache does not store None.
@bounded_cache(lambda question: selectors_length(question.need.requests))
def _answer(question: _Question) -> tuple[SelectorGap | None]:
    return (_closest(question.need, question.request, question.devices.entries),)


def _closest(
    need: MemberNeed, request: str, entries: Sequence[DeviceEntry]
) -> SelectorGap | None:
    i = next((i for i, known in enumerate(need.requests) if known.name == request), -1)
    readable = [entry for entry in entries if not device_problem(entry)]
    if i < 0 or not readable:
        return None
    for entry in readable:
        if all(selector.match(entry).matched for selector in need.selectors[i]):
            return None
    rules = need.rules
    best: tuple[tuple[int, int, int], SelectorGap] | None = None
    for position, entry in enumerate(readable):
        failed = [
            n
            for n, selector in enumerate(need.selectors[i])
            if not selector.match(entry).matched
        ]
        texts = [need.selectors[i][n].text for n in failed]
        found = [
            unmet_comparisons(
                text, entry, lenient_calls=rules.lenient_calls, max_cost=rules.max_cost
            )
            for text in texts
        ]
        # A selector that does not consist of comparisons counts as one difference.
        differences = sum(max(1, len(unmet)) for unmet in found)
        distance = sum(sum(map(_missing, row)) for row in found)
        rank = (differences, distance, position)
        if best is None or rank < best[0]:
            gap = SelectorGap(
                i,
                request,
                failed[0] + 1,
                texts[0],
                entry.name,
                found[0],
                differences,
                distance,
            )
            best = (rank, gap)
    return best[1] if best else None


def _missing(unmet: Unmet) -> int:
    """Return the distance of a value from its bound; a missing name is the farthest."""
    if unmet.names:
        return 1 << 200
    try:
        return abs(
            parse_quantity(unmet.wants.rsplit(" ", 1)[-1]) - parse_quantity(unmet.has)
        )
    except ValueError:
        return 0


def _unmet_text(unmet: Unmet) -> str:
    if unmet.has:
        return f"{unmet.name} is {unmet.has}, wanted {unmet.wants}"
    if not unmet.names:
        return f"has no {unmet.name}, wanted {unmet.wants}"
    names = SelectorGap.near(unmet)
    rest = len(unmet.names) - len(names)
    more = f" and {rest} more" if rest > 0 else ""
    return f"has no {unmet.name}, only {', '.join(names)}{more}"
