"""What each FleetScheduler run keeps in this process, findable by its own local activities.

A local activity always runs in the process of its workflow. Handing the whole ledger over as an argument would put it into history with
every decision; so the workflow registers its books, and the activity looks them up by run id and checks the version before it reads.
"""

import gc
from typing import Any, Protocol
from weakref import WeakValueDictionary

from scheduler.fleet.fleet import Fleet


class Keeper(Protocol):
    """Whoever keeps a live fleet, and what has to be carried over beside it."""

    fleet: Fleet

    def carried_extras(self) -> dict[str, Any]:
        """Give what is not in the fleet, as a JSON tree; it does not change while an activity runs."""
        ...


# Weak: books go when their workflow is evicted from the worker's cache.
_KEEPERS: WeakValueDictionary[str, Keeper] = WeakValueDictionary()


def register(run_id: str, keeper: Keeper) -> None:
    """Make books findable; the newest instance of a run wins, since a replay builds a new one."""
    _KEEPERS[run_id] = keeper


def find(run_id: str, version: int) -> Keeper | None:
    """Give the books of a run, if they are here and their fleet is at exactly this version."""
    keeper = _KEEPERS.get(run_id)
    return keeper if keeper is not None and keeper.fleet.version == version else None


def settle() -> None:
    """Leave everything that lives now out of later garbage collections.

    A large fleet is some million objects that live for long; walking them would stop every workflow of the process for half a second.
    """
    gc.freeze()
