"""The local activities that read the whole cache of the scheduler: to pack it for the next run, and to recount the ledger.

Either takes seconds with 100,000 replicas, and workflow code may not block for so long. They run in a thread of the workflow's own
process and read the live cache, while the workflow does nothing but store what arrives.
"""

from typing import Any

from pydantic import Field
from temporalio import activity

from api_types.base import Message
from api_types.packing import pack, pack_bytes
from scheduler import snapshot
from workflows.fleet_scheduler.cache import cache_registry

# A workflow's input may not be larger than 2 MiB in all; the inbox and the server's own data need some of it.
CARRIED_CHARACTERS_MAX = 1_800_000
# Answers are an optimisation: a request whose answer was dropped is decided again, and gets the placements that it has.
ANSWERS_CHARACTERS_MAX = 300_000


class CacheVersion(Message):
    """The cache of one run at one version."""

    run_id: str
    version: int


class PackedFleet(Message):
    """The packed cache: parts of the fleet, what is carried beside it, the answers. `too_large`: it does not fit and has to be rebuilt."""

    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    answers: str = ""
    too_large: bool = False


@activity.defn(name="pack_books")
def pack_cache(wanted: CacheVersion) -> PackedFleet:
    """Pack the cache.

    Raises:
        StaleSnapshot: the cache of that run is not in this process, or not at that version.

    """
    cache = cache_registry.find(wanted.run_id, wanted.version)
    carried_extras = cache.carried_extras()
    answers = newest_answers(carried_extras.pop("answers"))
    fleet = [pack_bytes(part) for part in snapshot.dump(cache.fleet)]
    packed = pack(carried_extras)
    if len(packed) + len(answers) + sum(map(len, fleet)) > CARRIED_CHARACTERS_MAX:
        return PackedFleet(too_large=True)
    return PackedFleet(fleet=fleet, carried_extras=packed, answers=answers)


@activity.defn(name="audit_books")
def audit_ledger(wanted: CacheVersion) -> list[str]:
    """Recount the ledger from its entries and name every difference.

    Raises:
        StaleSnapshot: the cache of that run is not in this process, or not at that version.

    """
    return cache_registry.find(wanted.run_id, wanted.version).fleet.audit()


def newest_answers(answers: dict[str, dict[str, Any]]) -> str:
    """Pack as many of the newest answers as fit."""
    kept = list(answers.items())
    while len(packed := pack(dict(kept))) > ANSWERS_CHARACTERS_MAX:
        kept = kept[len(kept) // 2 + 1 :]
    return packed
