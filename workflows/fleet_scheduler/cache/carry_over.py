"""The local activities that read the whole cache of the scheduler: to pack it for the next run, and to recount the ledger.

Either takes seconds with 100,000 replicas, and workflow code may not block for so long. They run in a thread of the workflow's own
process and read the live cache, while the workflow does nothing but store what arrives.
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
from workflows.fleet_scheduler.cache.state import ReceivedSignal, SchedulerState, SecondPayload, Takeover

# Answers are an optimisation: a request whose answer was dropped is decided again, and gets the placements that it has.
ANSWERS_CHARACTERS_MAX = 300_000
# Differences that a recount names at most, and what each may take: any one of them is a bug.
DIFFERENCES_MAX = 100
DIFFERENCE_BYTES_MAX = 1_000
# After a takeover, how long clusters that do not answer delay the announcement of the epoch.
ANNOUNCE_AFTER_MS = 60_000
# What of the carried extras their senders can be asked for again: requests, by deployment.
WAITING_REQUESTS = ("unplaced", "withheld")
# What a text takes in a list beside itself; base85 has no character that JSON escapes.
_QUOTES = 3


class CacheVersion(Message):
    """The cache of one run at one version."""

    run_id: str
    version: int


class PackPage(CacheVersion):
    """One page of the packed cache."""

    page: int = 0


class PackedFleet(Message):
    """The packed cache: parts of the fleet, what is carried beside it, the answers. `too_large`: it does not fit and has to be rebuilt.

    It comes in `pages`, each within a payload. Those of one packing have the same `digest`.
    """

    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    answers: str = ""
    too_large: bool = False
    pages: int = 1
    digest: str = ""


# Packing takes seconds, and each further page is asked for right after the one before it. Weak, as in `cache_registry`.
_PACKED: WeakKeyDictionary[cache_registry.RegisteredCache, list[PackedFleet]] = WeakKeyDictionary()


@activity.defn(name="pack_books")
def pack_cache(wanted: PackPage) -> PackedFleet:
    """Pack the cache, and give one page of it.

    Raises:
        StaleSnapshot: the cache of that run is not in this process, or not at that version.

    """
    cache = cache_registry.find(wanted.run_id, wanted.version)
    if wanted.page == 0 or cache not in _PACKED:
        _PACKED[cache] = _pages(cache)
    return _PACKED[cache][wanted.page]


def _pages(cache: cache_registry.RegisteredCache) -> list[PackedFleet]:
    carried_extras = cache.carried_extras()
    answers = newest_answers(carried_extras.pop("answers"))
    parts = [pack_bytes(part) for part in snapshot.dump(cache.fleet)]
    room = min(limits.LIST_BYTES_MAX, limits.CARRIED_BYTES_MAX - sum(map(len, parts))) - len(answers)
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
    return [page.model_copy(update={"pages": len(pages), "digest": digest}) for page in pages]


def _packed_within(room: int, extras: dict[str, Any]) -> str:
    """Pack what is carried beside the fleet, without requests that have no room; their deployments are asked for them again.

    Of the namespace whose requests take most the largest is left out, until the rest fits. So the requests of one tenant neither have all
    entities read anew with each run, nor take the place of another tenant's. May give more than there is room for: all else is needed.
    """
    packed = pack(extras)
    if len(packed) <= room:
        return packed
    sizes = {(group, owner): len(pack(place)) for group in WAITING_REQUESTS for owner, place in extras[group].items()}
    totals = Counter[str]()
    by_namespace: dict[str, list[tuple[int, str, str]]] = {}
    for (group, owner), size in sizes.items():
        totals[_namespace(owner)] += size
        by_namespace.setdefault(_namespace(owner), []).append((size, owner, group))
    for requests in by_namespace.values():
        requests.sort()
    extras = {**extras, **{group: dict(extras[group]) for group in WAITING_REQUESTS}, "resyncs": list(extras["resyncs"])}
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
    """Put the pages of a packed cache together; one that a worker of another version packed anew does not belong to the others."""
    first = pages[0]
    if any(page.too_large or page.digest != first.digest for page in pages):
        return PackedFleet(too_large=True)
    return first.model_copy(update={"fleet": [part for page in pages for part in page.fleet]})


def in_payloads(state: SchedulerState) -> tuple[SchedulerState, SecondPayload]:
    """Give what is carried as two payloads; the second one is empty where the state has room for all."""
    fleet, moved, room = list(state.fleet), list[str](), limits.PAYLOAD_BYTES_MAX - wire_size(state)
    while room < 0 and fleet:
        moved.insert(0, fleet.pop())
        room += len(moved[0]) + _QUOTES
    here, there = (state.arrived, "") if room >= 0 else ("", state.arrived)
    return state.model_copy(update={"fleet": fleet, "arrived": here}), SecondPayload(fleet=moved, arrived=there)


def taken_over(lost: SchedulerState, arrived: Sequence[ReceivedSignal], now: int) -> SchedulerState | None:
    """Give what a scheduler begins with that takes over the state of one that was lost, with the messages that itself got meanwhile.

    None if that is too much to be carried. `now` in ms.
    """
    messages = [*(unpack(lost.arrived) if lost.arrived else ()), *arrived]
    following = lost.model_copy(
        update={
            "arrived": pack(messages) if messages else "",
            "epoch": max(lost.epoch + 1, now),
            "takeover": Takeover(predecessor=lost.epoch, announce_at=now + ANNOUNCE_AFTER_MS),
            "untold": [],
            "phase": "",
        }
    )
    return following if fits(following) else None


def fits(state: SchedulerState) -> bool:
    """Tell whether a state can be carried to the next run."""
    sizes = [wire_size(payload) for payload in in_payloads(state)]
    return max(sizes) <= limits.PAYLOAD_BYTES_MAX and sum(sizes) <= limits.CARRIED_BYTES_MAX


@activity.defn(name="audit_books")
def audit_ledger(wanted: CacheVersion) -> list[str]:
    """Recount the ledger from its entries and name every difference.

    Raises:
        StaleSnapshot: the cache of that run is not in this process, or not at that version.

    """
    differences = cache_registry.find(wanted.run_id, wanted.version).fleet.audit()
    shown = [shortened(difference, DIFFERENCE_BYTES_MAX) for difference in differences[:DIFFERENCES_MAX]]
    return [*shown, f"and {left} more"] if (left := len(differences) - len(shown)) else shown


def newest_answers(answers: dict[str, dict[str, Any]]) -> str:
    """Pack as many of the newest answers as fit."""
    kept = list(answers.items())
    while len(packed := pack(dict(kept))) > ANSWERS_CHARACTERS_MAX:
        kept = kept[len(kept) // 2 + 1 :]
    return packed
