"""Read Kubernetes conditions.

A condition of an older generation does not describe the current spec.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class ObservedCondition(NamedTuple):
    """Whether a condition is True for the current generation, and if not, the reason."""

    is_true: bool
    text: str
    since: str = ""


def condition(item: Mapping[str, Any], kind: str) -> ObservedCondition:
    """Read one condition of an object's status."""
    return find_condition(
        (item.get("status") or {}).get("conditions") or [],
        kind,
        item["metadata"].get("generation"),
    )


def find_condition(
    conditions: Iterable[Mapping[str, Any]], kind: str, generation: int | None = None
) -> ObservedCondition:
    """Return one condition of a list.

    If `generation` is given, a condition of an older generation does not count as True.
    """
    for found in conditions:
        if found.get("type") != kind:
            continue
        since = str(found.get("lastTransitionTime") or "")
        if (
            generation is not None
            and (found.get("observedGeneration") or generation) < generation
        ):
            return ObservedCondition(
                is_true=False,
                text=f"{kind} is not reported yet for the current generation",
                since=since,
            )
        if found.get("status") == "True":
            return ObservedCondition(is_true=True, text="", since=since)
        reasons = [
            str(found[part]) for part in ("reason", "message") if found.get(part)
        ]
        return ObservedCondition(
            is_true=False,
            text=": ".join([f"{kind} is {found.get('status', 'Unknown')}", *reasons]),
            since=since,
        )
    return ObservedCondition(is_true=False, text=f"{kind} is not reported yet")
