"""The taints for drain and cordon in the spec of an InferenceCluster.

`drain` and `delete --evict` add the first taint, which evicts replicas. Plans account
for it. `cordon` adds the second taint, which only keeps new replicas away. As in
Kubernetes, key and effect identify a taint and its value does not: a cluster that has
the taint with another value is already drained, and tolerations of that value apply.
"""

from collections.abc import Mapping
from typing import Any

from api_types import labels

MAINTENANCE = {"key": labels.MAINTENANCE, "effect": "NoExecute"}
CORDON = {"key": labels.MAINTENANCE, "effect": "NoSchedule"}

# The reasons of the condition SchedulingDisabled.
CORDONED, DRAINED = "Cordoned", "Drained"


def is_maintenance(key: str, effect: str) -> bool:
    """Return whether a taint with this key and effect drains a cluster."""
    return (key, effect) == (MAINTENANCE["key"], MAINTENANCE["effect"])


def is_drained(spec: Mapping[str, Any]) -> bool:
    """Return whether the spec has the drain taint."""
    return any(
        is_maintenance(taint.get("key", ""), taint.get("effect", ""))
        for taint in spec.get("taints") or ()
    )


def scheduling_disabled(spec: Mapping[str, Any]) -> str:
    """Return the reason why a cluster accepts no new replicas, or ""."""
    effects = {
        taint.get("effect")
        for taint in spec.get("taints") or ()
        if taint.get("key") == labels.MAINTENANCE
    }
    if MAINTENANCE["effect"] in effects:
        return DRAINED
    return CORDONED if CORDON["effect"] in effects else ""


def with_cordon(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with the cordon taint.

    The spec is unchanged if the cluster is already cordoned or drained.
    """
    return (
        dict(spec)
        if scheduling_disabled(spec)
        else {**spec, "taints": [*(spec.get("taints") or ()), dict(CORDON)]}
    )


def with_taint(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with the drain taint, once. All other taints are kept."""
    return (
        dict(spec)
        if is_drained(spec)
        else {**spec, "taints": [*(spec.get("taints") or ()), dict(MAINTENANCE)]}
    )


def without_taint(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec without the drain and cordon taints.

    All other taints are kept.
    """
    taints = spec.get("taints") or []
    others = [taint for taint in taints if taint.get("key") != labels.MAINTENANCE]
    if len(others) == len(taints):
        return dict(spec)
    changed = {field: value for field, value in spec.items() if field != "taints"}
    if others:
        changed["taints"] = others
    return changed
