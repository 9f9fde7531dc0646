"""The taints of GPU nodes that engine pods tolerate.

Rendering pods and counting nodes use the same rule: a node on which engine pods cannot
run must not count as free, and a node on which they can run must not count as occupied.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from activities.render.objects.manifest import Json

_BY_DEFAULT = ("nvidia.com/gpu",)
_OF_DRIVERS = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gaudi.intel.com": "habana.ai/gaudi",
    "tpu.google.com": "google.com/tpu",
}
_EFFECT = "NoSchedule"
_BLOCKING = frozenset({_EFFECT, "NoExecute"})


def toleration_keys(
    configured: Iterable[str], drivers: Iterable[str], resources: Iterable[str]
) -> tuple[str, ...]:
    """Return the taint keys that pods with these devices tolerate.

    The devices are claimed through `drivers` or requested as extended `resources`.
    `configured` is the setting `workloads.tolerationKeys`.
    """
    taints = [_OF_DRIVERS[driver] for driver in drivers if driver in _OF_DRIVERS]
    taints += [resource for resource in resources if resource in _OF_DRIVERS.values()]
    return tuple(dict.fromkeys([*(tuple(configured) or _BY_DEFAULT), *taints]))


def tolerations(keys: Iterable[str]) -> list[Json]:
    return [{"key": key, "operator": "Exists", "effect": _EFFECT} for key in keys]


def keeps_pods_away(
    taint: Mapping[str, Any],
    keys: Collection[str],
    granted: Iterable[Mapping[str, Any]] = (),
) -> bool:
    """Return whether a taint keeps a pod off a node.

    The pod tolerates `keys` and the tolerations that a `podPolicy` has granted.
    """
    effect = taint.get("effect")
    if effect not in _BLOCKING or (effect == _EFFECT and taint.get("key") in keys):
        return False
    return not any(_covers(toleration, taint) for toleration in granted)


def _covers(granted: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if granted["key"] != taint.get("key") or granted.get("effect") not in (
        None,
        taint.get("effect"),
    ):
        return False
    return granted.get("operator") != "Equal" or granted.get("value") == taint.get(
        "value"
    )
