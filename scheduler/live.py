"""The one live fleet of each FleetScheduler run, findable by the decision activity of the same process.

A local activity always runs in the process of its workflow. Handing the whole ledger over as an argument would put it into history with
every decision; so the workflow registers the object, and the activity looks it up by run id and checks the version before it reads.
"""

from weakref import WeakValueDictionary

from scheduler.fleet import Fleet

# Weak: a fleet goes when its workflow is evicted from the worker's cache.
_FLEETS: WeakValueDictionary[str, Fleet] = WeakValueDictionary()


def register(run_id: str, fleet: Fleet) -> None:
    """Make a fleet findable; the newest instance of a run wins, since a replay builds a new one."""
    _FLEETS[run_id] = fleet


def find(run_id: str, version: int) -> Fleet | None:
    """Give the fleet of a run, if it is here at exactly this version."""
    fleet = _FLEETS.get(run_id)
    return fleet if fleet is not None and fleet.version == version else None
