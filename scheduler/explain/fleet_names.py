"""Labels and classes that a deployment or a cluster names and the fleet does not have, with the nearest that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from scheduler.explain.near_names import nearest
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay

# Where the classes themselves are not known, those of the pools of so many clusters are.
_CLUSTERS_READ = 200
_POOLS_SHOWN = 3
_LABELS_SHOWN = 5


def label_texts(info: ClusterInfo, wanted: Mapping[str, str]) -> Iterator[str]:
    """Write the labels that a cluster does not have, with what it has instead; of many the first."""
    have = info.view.labels
    missing = [(key, value) for key, value in sorted(wanted.items()) if have.get(key) != value]
    for key, value in missing[:_LABELS_SHOWN]:
        if key in have:
            yield f"{key}={value}, has {have[key]}"
            continue
        near = nearest(key, have)
        yield f"{key}={value}, has {near}={have[near]}" if near else f"{key}={value}"
    if len(missing) > _LABELS_SHOWN:
        yield f"and {len(missing) - _LABELS_SHOWN} more"


def absent_labels(overlay: FleetOverlay, wanted: Mapping[str, str]) -> str:
    """Name the first label that no cluster of the fleet has, with the nearest that one has; "" if each is somewhere."""
    for key, value in sorted(wanted.items()):
        if (key, value) not in overlay.index.labels:
            near = near_label(overlay, key, value)
            return f"no cluster has {key}={value}{nearest_text('='.join(near) if near else '')}"
    return ""


def near_label(overlay: FleetOverlay, key: str, value: str) -> tuple[str, str] | None:
    """Give the label of the fleet that was probably meant by one that no cluster has, None if none is near."""
    values = overlay.index.label_values
    if key in values:
        other = nearest(value, values[key])
        return (key, other) if other else None
    other = nearest(key, values)
    return (other, value) if other and value in values[other] else None


def class_names(overlay: FleetOverlay) -> frozenset[str]:
    """Give the classes that are known to exist: all where the fleet was read with them, else those of published pools."""
    known = overlay.fleet.class_names
    if known is not None:
        return known
    infos = islice(overlay.index.ranked, _CLUSTERS_READ)
    return frozenset(pool.class_name for info in infos for pool in info.pools if pool.class_name and not pool.class_missing)


def class_text(overlay: FleetOverlay, name: str) -> str:
    """Say what is wrong with a class whose pools cannot be used, and which class was probably meant."""
    names = class_names(overlay)
    if name in names:
        return f"InferenceClass {name} has no devices, or its cluster has not read it yet"
    return f"InferenceClass {name} does not exist{nearest_text(nearest(name, names))}"


def unpublished_text(overlay: FleetOverlay, info: ClusterInfo, before: str) -> str:
    """Say why a cluster's node pools are not published, `before` in front; "" if it has none."""
    pools = info.view.unpublished
    parts = [f"pool {pool}: {class_text(overlay, name)}" for pool, name in pools[:_POOLS_SHOWN]]
    rest = len(pools) - len(parts)
    return f"{before}{'; '.join(parts)}{f' and {rest} more pools' if rest > 0 else ''}" if parts else ""


def nearest_text(name: str) -> str:
    """Write the name that was probably meant behind another text, "" without any."""
    return f", nearest: {name}" if name else ""
