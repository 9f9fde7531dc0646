"""The local activities that read the scheduler's whole cache.

They pack it for the next run, and recount the ledger. Each takes seconds with 100,000
replicas, and workflow code must not block for so long. They run in a thread of the
workflow's process and read the live cache, while the workflow only stores messages.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import Field
from temporalio import activity

from api_types.base import Message
from api_types.payloads import limits
from api_types.payloads.limits import shortened, wire_size
from api_types.payloads.packing import pack, pack_bytes, unpack
from scheduler import snapshot
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.state import (
    ReceivedSignal,
    SchedulerState,
    SecondPayload,
    Takeover,
)

# Answers are an optimisation. A request whose answer was dropped is decided again, and
# keeps its placements.
ANSWERS_CHARACTERS_MAX = 300_000
# The number of differences that a recount lists, and the length of each. Any of them is
# a bug.
DIFFERENCES_MAX = 100
DIFFERENCE_BYTES_MAX = 1_000
# After a takeover, unresponsive clusters delay the announcement of the epoch by at most
# this time.
ANNOUNCE_AFTER_MS = 60_000
# The carried extras that their senders can repeat: requests, by deployment.
WAITING_REQUESTS = ("unplaced", "withheld")
# The overhead of a text in a JSON list. Base85 has no character that JSON escapes.
_QUOTES = 3


class CacheVersion(Message):
    run_id: str
    version: int


class PackPage(CacheVersion):
    page: int = 0


class PackedFleet(Message):
    """The packed cache: parts of the fleet, the other carried state, and the answers.

    `too_large` means that the cache does not fit and the next run has to rebuild it.
    The packing has `pages`, each within a payload. The pages of one packing have the
    same `digest`.
    """

    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    answers: str = ""
    too_large: bool = False
    pages: int = 1
    digest: str = ""


# Packing takes seconds, and the next page is requested right after the previous one.
# The dictionary is weak, as in `cache_registry`.
_PACKED: WeakKeyDictionary[cache_registry.RegisteredCache, list[PackedFleet]] = (
    WeakKeyDictionary()
)


@activity.defn(name="pack_books")
def pack_cache(wanted: PackPage) -> PackedFleet:
    """Pack the cache, and return one page.

    Raises:
        StaleSnapshot: this process has no cache of that run at that version.

    """
    cache = cache_registry.find(wanted.run_id, wanted.version)
    if wanted.page == 0 or cache not in _PACKED:
        _PACKED[cache] = _pages(cache)
    return _PACKED[cache][wanted.page]


def _pages(cache: cache_registry.RegisteredCache) -> list[PackedFleet]:
    carried_extras = cache.carried_extras()
    answers = newest_answers(carried_extras.pop("answers"))
    parts = [pack_bytes(part) for part in snapshot.dump(cache.fleet)]
    room = min(
        limits.LIST_BYTES_MAX, limits.CARRIED_BYTES_MAX - sum(map(len, parts))
    ) - len(answers)
    extras = _packed_within(room, carried_extras)
    if len(extras) > room:
        return [PackedFleet(too_large=True)]
    texts = [extras, answers, *parts]
    pages = [PackedFleet(carried_extras=extras, answers=answers)]
    room = limits.LIST_BYTES_MAX - len(extras) - len(answers)
    for part in parts:
        if len(part) + _QUOTES > room:
            pages.append(PackedFleet())
            room = limits.LIST_BYTES_MAX
        pages[-1].fleet.append(part)
        room -= len(part) + _QUOTES
    digest = hashlib.sha256(b"\n".join(text.encode() for text in texts)).hexdigest()
    return [
        page.model_copy(update={"pages": len(pages), "digest": digest})
        for page in pages
    ]


def _packed_within(room: int, extras: dict[str, Any]) -> str:
    """Pack the carried state without the fleet, and without requests that do not fit.

    The deployments of omitted requests repeat them. While the rest does not fit, the
    namespace with the largest total loses its largest request. So the requests of one
    tenant neither cause a rebuild with each run, nor displace those of another tenant.
    The result may exceed the available space, because everything else is necessary.
    """
    packed = pack(extras)
    if len(packed) <= room:
        return packed
    sizes = {
        (group, owner): len(pack(place))
        for group in WAITING_REQUESTS
        for owner, place in extras[group].items()
    }
    totals = Counter[str]()
    by_namespace: dict[str, list[tuple[int, str, str]]] = {}
    for (group, owner), size in sizes.items():
        totals[_namespace(owner)] += size
        by_namespace.setdefault(_namespace(owner), []).append((size, owner, group))
    for requests in by_namespace.values():
        requests.sort()
    extras = {
        **extras,
        **{group: dict(extras[group]) for group in WAITING_REQUESTS},
        "resyncs": list(extras["resyncs"]),
    }
    while len(packed) > room and totals:
        excess = len(packed) - room
        while excess > 0 and totals:
            namespace = max(totals, key=lambda name: (totals[name], name))
            size, owner, group = by_namespace[namespace].pop()
            del extras[group][owner]
            extras["resyncs"].append(owner.split("/"))
            excess -= size
            totals[namespace] -= size
            if not by_namespace[namespace]:
                del totals[namespace]
        packed = pack(extras)
    return packed


def _namespace(owner: str) -> str:
    return owner.partition("/")[0]


def packed_at_once(cache: cache_registry.RegisteredCache) -> PackedFleet:
    """Pack the whole cache, for an answer."""
    return joined(_pages(cache))


def joined(pages: Sequence[PackedFleet]) -> PackedFleet:
    """Join the pages of a packed cache.

    Pages of another packing do not match: a worker of another version has packed the
    cache again.
    """
    first = pages[0]
    if any(page.too_large or page.digest != first.digest for page in pages):
        return PackedFleet(too_large=True)
    return first.model_copy(
        update={"fleet": [part for page in pages for part in page.fleet]}
    )


def in_payloads(state: SchedulerState) -> tuple[SchedulerState, SecondPayload]:
    """Return the carried state as two payloads.

    The second one is empty if everything fits into the first.
    """
    fleet, moved, room = (
        list(state.fleet),
        list[str](),
        limits.PAYLOAD_BYTES_MAX - wire_size(state),
    )
    while room < 0 and fleet:
        moved.insert(0, fleet.pop())
        room += len(moved[0]) + _QUOTES
    here, there = (state.arrived, "") if room >= 0 else ("", state.arrived)
    return state.model_copy(update={"fleet": fleet, "arrived": here}), SecondPayload(
        fleet=moved, arrived=there
    )


def taken_over(
    lost: SchedulerState, arrived: Sequence[ReceivedSignal], now: int
) -> SchedulerState | None:
    """Return the initial state of a scheduler that takes over a lost state.

    It includes the messages that the new scheduler has received. Return None if it is
    too large to be carried. `now` is in milliseconds.
    """
    messages = [*(unpack(lost.arrived) if lost.arrived else ()), *arrived]
    following = lost.model_copy(
        update={
            "arrived": pack(messages) if messages else "",
            "epoch": max(lost.epoch + 1, now),
            "takeover": Takeover(
                predecessor=lost.epoch, announce_at=now + ANNOUNCE_AFTER_MS
            ),
            "untold": [],
            "phase": "",
        }
    )
    return following if fits(following) else None


def fits(state: SchedulerState) -> bool:
    """Return whether a state can be carried to the next run."""
    sizes = [wire_size(payload) for payload in in_payloads(state)]
    return (
        max(sizes) <= limits.PAYLOAD_BYTES_MAX
        and sum(sizes) <= limits.CARRIED_BYTES_MAX
    )


@activity.defn(name="audit_books")
def audit_ledger(wanted: CacheVersion) -> list[str]:
    """Recount the ledger from its entries, and return every difference.

    Raises:
        StaleSnapshot: this process has no cache of that run at that version.

    """
    differences = cache_registry.find(wanted.run_id, wanted.version).fleet.audit()
    shown = [
        shortened(difference, DIFFERENCE_BYTES_MAX)
        for difference in differences[:DIFFERENCES_MAX]
    ]
    return (
        [*shown, f"and {left} more"]
        if (left := len(differences) - len(shown))
        else shown
    )


def newest_answers(answers: dict[str, dict[str, Any]]) -> str:
    """Pack as many of the newest answers as fit."""
    kept = list(answers.items())
    while len(packed := pack(dict(kept))) > ANSWERS_CHARACTERS_MAX:
        kept = kept[len(kept) // 2 + 1 :]
    return packed
