"""The local activities that look at all of the scheduler's books: to pack them for its next run, and to recount them.

Either takes seconds with 100,000 replicas, and workflow code may not block for so long. They run in a thread of the workflow's own
process and read the live books, while the workflow does nothing but note what arrives.
"""

from typing import Any

from pydantic import Field
from temporalio import activity

from api_types.base import Message
from api_types.errors import StaleSnapshot
from scheduler import registry, snapshot
from workflows.fleet_scheduler.packing import pack, pack_bytes

# A workflow's input may not be larger than 2 MiB in all; the inbox and the server's own words need some of it.
CARRIED_CHARACTERS_MAX = 1_800_000
# Answers are a convenience: a request whose answer was dropped is decided again, and gets the places that it has.
ANSWERS_CHARACTERS_MAX = 300_000


class CacheOrder(Message):
    """Look at the books of one run at one version."""

    run_id: str
    version: int


class PackedFleet(Message):
    """The packed books: parts of the fleet, what goes beside it, the answers. `too_large`: they do not fit and have to be rebuilt."""

    fleet: list[str] = Field(default_factory=list)
    carried_extras: str = ""
    answers: str = ""
    too_large: bool = False


@activity.defn(name="pack_books")
def pack_books(order: CacheOrder) -> PackedFleet:
    """Pack the books.

    Raises:
        StaleSnapshot: the books of that run and version are not in this process (any more).

    """
    keeper = _keeper(order)
    carried_extras = keeper.carried_extras()
    answers = newest_answers(carried_extras.pop("answers"))
    fleet = [pack_bytes(part) for part in snapshot.dump(keeper.fleet)]
    packed = pack(carried_extras)
    if len(packed) + len(answers) + sum(map(len, fleet)) > CARRIED_CHARACTERS_MAX:
        return PackedFleet(too_large=True)
    return PackedFleet(fleet=fleet, carried_extras=packed, answers=answers)


@activity.defn(name="audit_books")
def audit_books(order: CacheOrder) -> list[str]:
    """Recount the ledger from its entries and name every difference.

    Raises:
        StaleSnapshot: the books of that run and version are not in this process (any more).

    """
    return _keeper(order).fleet.audit()


def _keeper(order: CacheOrder) -> registry.RegisteredCache:
    keeper = registry.find(order.run_id, order.version)
    if keeper is None:
        raise StaleSnapshot(f"the books of run {order.run_id} at version {order.version} are not in this process")
    return keeper


def newest_answers(answers: dict[str, dict[str, Any]]) -> str:
    """Pack as many of the newest answers as fit."""
    kept = list(answers.items())
    while len(packed := pack(dict(kept))) > ANSWERS_CHARACTERS_MAX:
        kept = kept[len(kept) // 2 + 1 :]
    return packed
