"""Report the objects of a serving stack that are not in the desired state.

An object gates if it makes its component not ready. Some problems are reported without
gating: one broken node must not take a cluster out of service.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from activities.observe.conditions import condition
from activities.observe.gateway import address_of

Json = Mapping[str, Any]

_EVENTS_SHOWN = 3
# The limit of one event. A condition shows three.
_EVENT_LENGTH_MAX = 300


class Shortfall(NamedTuple):
    """Why an object is not in the desired state, or "" if it is."""

    why: str
    gates: bool = True


READY = Shortfall("")
MISSING = Shortfall("does not exist")
DELETED = Shortfall("is being deleted")


def deployment(item: Json) -> Shortfall:
    """Check a Deployment.

    It is ready if its controller has observed its spec and all copies are updated and
    available.
    """
    desired = _number(item.get("spec"), "replicas", 1)
    found = _counted(item, desired, "updatedReplicas", "availableReplicas", "available")
    # Old pods are deleted when their replacements are available. Until then the
    # available pods may be the old ones.
    status = item.get("status")
    old = _number(status, "replicas") - _number(status, "updatedReplicas")
    if not found.why and old > 0:
        return Shortfall(f"{old} pods of the old version are still there")
    return found


def stateful_set(item: Json) -> Shortfall:
    """Check a StatefulSet.

    It is ready if its controller has observed its spec and all copies are updated and
    ready.
    """
    desired = _number(item.get("spec"), "replicas", 1)
    return _counted(item, desired, "updatedReplicas", "readyReplicas", "ready")


def daemon_set(item: Json) -> Shortfall:
    """Check a DaemonSet.

    One available pod is sufficient. No pod is needed if no node accepts one.
    """
    if not _is_current(item):
        return Shortfall("its controller has not seen its spec yet")
    status = item.get("status")
    desired = _number(status, "desiredNumberScheduled")
    available = _number(status, "numberAvailable")
    if desired == 0 or available >= desired:
        return READY
    return Shortfall(f"{available}/{desired} pods are available", gates=available == 0)


def definition(item: Json) -> Shortfall:
    """Check a CustomResourceDefinition.

    It is ready if it is established and its names are accepted. A definition that is
    being deleted is served until it is gone, but counts as not ready.
    """
    if is_being_deleted(item):
        return DELETED
    for kind in ("Established", "NamesAccepted"):
        found = condition(item, kind)
        if not found.is_true:
            return Shortfall(found.text)
    return READY


def is_being_deleted(item: Json) -> bool:
    """Return whether the deletion of an object was requested.

    An apply does not revert the deletion.
    """
    return bool(item["metadata"].get("deletionTimestamp"))


def accepted(item: Json) -> Shortfall:
    """Check a GatewayClass or a Gateway: accepted for its current generation."""
    return Shortfall(condition(item, "Accepted").text)


def address(gateway: Json) -> str:
    """Return the first address of a Gateway, or "" while it has none."""
    return address_of(gateway).value


def warnings(events: Iterable[Json], about: str) -> list[str]:
    """Return the last Warning events about an object, the newest first."""
    found = []
    for event in events:
        involved = (event.get("involvedObject") or {}).get("name")
        if event.get("type") == "Warning" and involved == about:
            text = f"{event.get('reason') or ''}: {event.get('message') or ''}"
            found.append((_time(event), text[:_EVENT_LENGTH_MAX]))
    found.sort(reverse=True)
    return [text for _, text in found[:_EVENTS_SHOWN]]


def established_at(crd: Json) -> datetime | None:
    """Return the time since when a definition is established.

    Returns None if it is not, or its condition has no time.
    """
    found = condition(crd, "Established")
    return read_time(found.since) if found.is_true else None


def started_before(pods: Iterable[Json], moment: datetime) -> bool:
    """Return whether a running pod was started before a moment, or in its second.

    Kubernetes truncates times to seconds.
    """
    started = (
        read_time(str((pod.get("status") or {}).get("startTime") or ""))
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
    )
    return any(each is not None and each <= moment for each in started)


def read_time(text: str) -> datetime | None:
    """Parse a Kubernetes time. Returns None if it is invalid."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    # A time without a zone cannot be compared with others.
    return found if found.tzinfo else None


def _counted(item: Json, desired: int, updated: str, good: str, word: str) -> Shortfall:
    if not _is_current(item):
        return Shortfall("its controller has not seen its spec yet")
    status = item.get("status")
    found = _number(status, updated)
    if found < desired:
        return Shortfall(f"{found}/{desired} pods are updated")
    found = _number(status, good)
    return (
        READY if found >= desired else Shortfall(f"{found}/{desired} pods are {word}")
    )


def _is_current(item: Json) -> bool:
    return _number(item.get("status"), "observedGeneration") >= _number(
        item["metadata"], "generation"
    )


def _number(part: Any, name: str, default: int = 0) -> int:
    found = part.get(name, default) if isinstance(part, Mapping) else default
    return found if isinstance(found, int) else default


def _time(event: Json) -> str:
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return str(next(filter(None, times), ""))
