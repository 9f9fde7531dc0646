"""The maintenance policy of a GKE cluster.

The release channel upgrades control plane and nodes on its own. A pool of GPUs loses
machines meanwhile, so upgrades happen in a window. Exclusions of other users stay: ours
have a prefix.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from activities.clouds.desired.graph import Parameters
from api_types.resources.inference_cluster import GkeCluster
from api_types.resources.parts.gke_maintenance import (
    GkeMaintenanceExclusion,
    GkeMaintenanceWindow,
)

OUR_EXCLUSION = "modelplane-"
"""Begins the names of exclusions that a manifest describes."""

_WEEKEND = GkeMaintenanceWindow(
    start_time="03:00", hours=8, days=["Saturday", "Sunday"]
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# The window began on a Monday in the past, so it applies from the start.
_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)
# GKE requires so many hours in every 32 days, which have each weekday four times.
_LEAST_HOURS, _WEEKS = 48, 4
_SCOPES = {
    "NoUpgrades": "NO_UPGRADES",
    "NoMinorUpgrades": "NO_MINOR_UPGRADES",
    "NoMinorOrNodeUpgrades": "NO_MINOR_OR_NODE_UPGRADES",
}
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def maintenance_policy(gke: GkeCluster) -> Parameters:
    """Return the policy in the form of GKE's API."""
    window = _window(gke)
    days = _days(window)
    hour, _, minute = window.start_time.partition(":")
    first = _MONDAY + timedelta(days=days[0], hours=int(hour), minutes=int(minute))
    times = {
        "start_time": first.strftime(_FORMAT),
        "end_time": (first + timedelta(hours=window.hours)).strftime(_FORMAT),
    }
    by_day = ",".join(_DAYS[day][:2].upper() for day in days)
    recurrence = (
        "FREQ=DAILY" if len(days) == len(_DAYS) else f"FREQ=WEEKLY;BYDAY={by_day}"
    )
    exclusions: Parameters = {
        f"{OUR_EXCLUSION}{each.name}": {
            "start_time": each.start,
            "end_time": each.end,
            "maintenance_exclusion_options": {"scope": _SCOPES[each.scope]},
        }
        for each in _exclusions(gke)
    }
    recurring: Parameters = {"window": times, "recurrence": recurrence}
    return {
        "window": {
            "recurring_window": recurring,
            **({"maintenance_exclusions": exclusions} if exclusions else {}),
        }
    }


def maintenance_problems(gke: GkeCluster) -> Iterator[str]:
    """Return the reasons for which GKE would reject the policy."""
    window = _window(gke)
    hours = window.hours * len(_days(window)) * _WEEKS
    if hours < _LEAST_HOURS:
        yield (
            f"maintenance.window has {hours} hours in 32 days, and GKE requires "
            f"{_LEAST_HOURS}: add days or hours"
        )
    for each in _exclusions(gke):
        start, end = _parsed(each.start), _parsed(each.end)
        at = f"maintenance.exclusions {each.name}"
        if start is None or end is None:
            yield f"{at}: {each.start} or {each.end} is no date; correct it"
        elif end <= start:
            yield f"{at}: end {each.end} is not after start {each.start}; correct it"


def _window(gke: GkeCluster) -> GkeMaintenanceWindow:
    given = gke.maintenance.window if gke.maintenance else None
    return given or _WEEKEND


def _exclusions(gke: GkeCluster) -> list[GkeMaintenanceExclusion]:
    return (gke.maintenance.exclusions if gke.maintenance else None) or []


def _days(window: GkeMaintenanceWindow) -> list[int]:
    return sorted({_DAYS.index(day) for day in window.days or _DAYS})


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
