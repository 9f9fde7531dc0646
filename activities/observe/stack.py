"""What of a serving stack is not as it shall be, one object at a time (spec/stack-and-routing.md 2.7).

An object gates when its component is not ready because of it; what only people should know does not: one broken node must not take a
cluster out of service.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from activities.observe.conditions import condition
from activities.observe.gateway import address_of

Json = Mapping[str, Any]

_EVENTS_SHOWN = 3
# Of one event; a condition shows three.
_EVENT_LENGTH_MAX = 300


class Shortfall(NamedTuple):
    """Why an object is not as it shall be; empty if it is."""

    why: str
    gates: bool = True


READY = Shortfall("")
MISSING = Shortfall("does not exist")
DELETED = Shortfall("is being deleted")


def deployment(item: Json) -> Shortfall:
    """Judge a Deployment: its controller has seen its spec, and all copies are updated and available."""
    desired = _number(item.get("spec"), "replicas", 1)
    found = _counted(item, desired, "updatedReplicas", "availableReplicas", "available")
    # Pods of before go when those that replace them are available; until then the available ones may be just these.
    before = _number(item.get("status"), "replicas") - _number(item.get("status"), "updatedReplicas")
    return Shortfall(f"{before} pods of before the update are still there") if not found.why and before > 0 else found


def stateful_set(item: Json) -> Shortfall:
    """Judge a StatefulSet: its controller has seen its spec, and all copies are updated and ready."""
    desired = _number(item.get("spec"), "replicas", 1)
    return _counted(item, desired, "updatedReplicas", "readyReplicas", "ready")


def daemon_set(item: Json) -> Shortfall:
    """Judge a DaemonSet: one available pod is enough, and where no node takes any, none (cases 26, 27)."""
    if not _is_current(item):
        return Shortfall("its controller has not seen its spec yet")
    status = item.get("status")
    desired, available = _number(status, "desiredNumberScheduled"), _number(status, "numberAvailable")
    if desired == 0 or available >= desired:
        return READY
    return Shortfall(f"{available}/{desired} pods are available", gates=available == 0)


def definition(item: Json) -> Shortfall:
    """Judge a CustomResourceDefinition: established, its names taken, and to stay: one that is being deleted is served until it is gone."""
    if is_being_deleted(item):
        return DELETED
    for kind in ("Established", "NamesAccepted"):
        found = condition(item, kind)
        if not found.is_true:
            return Shortfall(found.text)
    return READY


def is_being_deleted(item: Json) -> bool:
    """Tell whether the deletion of an object was requested; an apply does not take that back."""
    return bool(item["metadata"].get("deletionTimestamp"))


def accepted(item: Json) -> Shortfall:
    """Judge a GatewayClass or a Gateway: accepted for its current generation."""
    return Shortfall(condition(item, "Accepted").text)


def address(gateway: Json) -> str:
    """Give the first address of a Gateway; empty while it has none (case 25)."""
    return address_of(gateway).value


def warnings(events: Iterable[Json], about: str) -> list[str]:
    """Give the last Warning events about an object, the newest first."""
    found = [
        (_time(event), f"{event.get('reason') or ''}: {event.get('message') or ''}"[:_EVENT_LENGTH_MAX])
        for event in events
        if event.get("type") == "Warning" and (event.get("involvedObject") or {}).get("name") == about
    ]
    return [text for _, text in sorted(found, reverse=True)[:_EVENTS_SHOWN]]


def established_at(crd: Json) -> datetime | None:
    """Give since when a definition is established; None while it is not, or if nobody says since when."""
    found = condition(crd, "Established")
    return read_time(found.since) if found.is_true else None


def started_before(pods: Iterable[Json], moment: datetime) -> bool:
    """Tell whether a pod that is not on its way out was started before some moment, or in its second: Kubernetes cuts times to seconds."""
    started = (
        read_time(str((pod.get("status") or {}).get("startTime") or "")) for pod in pods if not pod["metadata"].get("deletionTimestamp")
    )
    return any(each is not None and each <= moment for each in started)


def read_time(text: str) -> datetime | None:
    """Read a time as Kubernetes writes it; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    # One without a zone is no moment, and cannot be compared with others.
    return found if found.tzinfo else None


def _counted(item: Json, desired: int, updated: str, good: str, word: str) -> Shortfall:
    if not _is_current(item):
        return Shortfall("its controller has not seen its spec yet")
    status = item.get("status")
    if (found := _number(status, updated)) < desired:
        return Shortfall(f"{found}/{desired} pods are updated")
    found = _number(status, good)
    return READY if found >= desired else Shortfall(f"{found}/{desired} pods are {word}")


def _is_current(item: Json) -> bool:
    return _number(item.get("status"), "observedGeneration") >= _number(item["metadata"], "generation")


def _number(part: Any, name: str, default: int = 0) -> int:
    found = part.get(name, default) if isinstance(part, Mapping) else default
    return found if isinstance(found, int) else default


def _time(event: Json) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    return str(next(filter(None, times), ""))
