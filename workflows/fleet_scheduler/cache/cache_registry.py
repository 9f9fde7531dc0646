"""The cache of each FleetScheduler run in this process, found by its own local activities.

A local activity always runs in the process of its workflow. Handing over the whole ledger as an argument would write it into history with
every decision; so the workflow registers its cache, and the activity finds it by run id and checks the version before it reads.
"""

from typing import Any, Protocol
from weakref import WeakValueDictionary

from api_types.errors import StaleSnapshot
from scheduler import Fleet


class RegisteredCache(Protocol):
    """The cache of a run: the live fleet, and what has to be carried over beside it."""

    fleet: Fleet

    def carried_extras(self) -> dict[str, Any]:
        """Give what is not in the fleet, as a JSON tree; it does not change while an activity runs."""
        ...


# Weak: an entry disappears when its workflow is evicted from the worker's cache.
_CACHES: WeakValueDictionary[str, RegisteredCache] = WeakValueDictionary()


def register(run_id: str, cache: RegisteredCache) -> None:
    """Make a cache findable; the newest instance of a run wins, since a replay builds a new one."""
    _CACHES[run_id] = cache


def find(run_id: str, version: int) -> RegisteredCache:
    """Give the cache of a run. Raises StaleSnapshot if it is not in this process, or its fleet not at exactly this version."""
    cache = _CACHES.get(run_id)
    if cache is None or cache.fleet.version != version:
        raise StaleSnapshot(f"the cache of run {run_id} at version {version} is not in this process")
    return cache
