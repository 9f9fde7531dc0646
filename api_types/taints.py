"""The taints of a drain and of a cordon, and how they are added to and removed from the spec of an InferenceCluster.

`drain` and `delete --evict` add the first, which evicts, and plans count with it; `cordon` adds the second, which only keeps new replicas
away. As in Kubernetes, key and effect identify a taint and its value does not: a cluster that has the taint with another value is drained
already, and tolerations of that value hold.
"""

from collections.abc import Mapping
from typing import Any

from api_types import labels

MAINTENANCE = {"key": labels.MAINTENANCE, "effect": "NoExecute"}
CORDON = {"key": labels.MAINTENANCE, "effect": "NoSchedule"}

# Why a cluster takes no new replica: the reasons of its condition SchedulingDisabled.
CORDONED, DRAINED = "Cordoned", "Drained"


def is_maintenance(key: str, effect: str) -> bool:
    """Whether a taint of this key and effect is that of a drain."""
    return (key, effect) == (MAINTENANCE["key"], MAINTENANCE["effect"])


def is_drained(spec: Mapping[str, Any]) -> bool:
    """Whether the spec has the taint: from `drain`, or from a deletion with `--evict`."""
    return any(is_maintenance(taint.get("key", ""), taint.get("effect", "")) for taint in spec.get("taints") or ())


def scheduling_disabled(spec: Mapping[str, Any]) -> str:
    """Give why the cluster takes no new replica; empty if it is neither drained nor cordoned."""
    effects = {taint.get("effect") for taint in spec.get("taints") or () if taint.get("key") == labels.MAINTENANCE}
    return DRAINED if MAINTENANCE["effect"] in effects else CORDONED if CORDON["effect"] in effects else ""


def with_cordon(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Give the spec with the taint of a cordon, unless the cluster is cordoned or drained already; all others stay."""
    return dict(spec) if scheduling_disabled(spec) else {**spec, "taints": [*(spec.get("taints") or ()), dict(CORDON)]}


def with_taint(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Give the spec with the taint, once; all others stay."""
    return dict(spec) if is_drained(spec) else {**spec, "taints": [*(spec.get("taints") or ()), dict(MAINTENANCE)]}


def without_taint(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Give the spec without any taint of that key, whatever its effect; all others stay."""
    taints = spec.get("taints") or []
    others = [taint for taint in taints if taint.get("key") != labels.MAINTENANCE]
    if len(others) == len(taints):
        return dict(spec)
    return {**{field: value for field, value in spec.items() if field != "taints"}, **({"taints": others} if others else {})}
