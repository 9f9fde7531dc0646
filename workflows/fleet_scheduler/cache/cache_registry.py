"""The cache of each FleetScheduler run in this process, for its local activities.

A local activity always runs in the process of its workflow. An argument with the whole
ledger would add it to the history with every decision. So the workflow registers its
cache, and the activity finds it by run id and checks the version before it reads.
"""

from typing import Any, Protocol
from weakref import WeakValueDictionary

from api_types.errors import StaleSnapshot
from scheduler import Fleet


class RegisteredCache(Protocol):
    """The cache of a run: the live fleet, and the rest of the carried state."""

    fleet: Fleet

    def carried_extras(self) -> dict[str, Any]:
        """Return the carried state without the fleet as a JSON tree.

        It does not change while an activity runs.
        """
        ...


# The dictionary is weak: an entry disappears when its workflow is evicted from the
# worker's cache.
_CACHES: WeakValueDictionary[str, RegisteredCache] = WeakValueDictionary()


def register(run_id: str, cache: RegisteredCache) -> None:
    """Register a cache.

    The newest instance of a run wins, since a replay builds a new one.
    """
    _CACHES[run_id] = cache


def find(run_id: str, version: int) -> RegisteredCache:
    """Return the cache of a run.

    Raises StaleSnapshot if this process does not have it at exactly this version.
    """
    cache = _CACHES.get(run_id)
    if cache is None or cache.fleet.version != version:
        raise StaleSnapshot(
            f"the cache of run {run_id} at version {version} is not in this process"
        )
    return cache
