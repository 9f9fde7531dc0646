"""Kubernetes conditions, read with the one care that they need: an old one says nothing about a new spec."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Condition(NamedTuple):
    """Whether a condition is True for the newest spec, and in words why it is not."""

    holds: bool
    text: str
    since: str = ""


def condition(item: Mapping[str, Any], kind: str) -> Condition:
    """Read one condition of an object's status."""
    return pick((item.get("status") or {}).get("conditions") or [], kind, item["metadata"].get("generation"))


def pick(conditions: Iterable[Mapping[str, Any]], kind: str, generation: int | None = None) -> Condition:
    """Read one condition of a list; with a generation, one that was written for an older spec does not hold."""
    for found in conditions:
        if found.get("type") != kind:
            continue
        since = str(found.get("lastTransitionTime") or "")
        if generation is not None and (found.get("observedGeneration") or generation) < generation:
            return Condition(holds=False, text=f"{kind} is not judged yet for the newest spec", since=since)
        if found.get("status") == "True":
            return Condition(holds=True, text="", since=since)
        reasons = [str(found[part]) for part in ("reason", "message") if found.get(part)]
        return Condition(holds=False, text=": ".join([f"{kind} is {found.get('status', 'Unknown')}", *reasons]), since=since)
    return Condition(holds=False, text=f"{kind} is not reported yet")
