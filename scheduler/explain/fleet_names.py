"""Labels and classes that the fleet does not have, with the nearest known names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from scheduler.explain.near_names import nearest
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay

# If the classes themselves are unknown, the pools of this many clusters are read.
_CLUSTERS_READ = 200
_POOLS_SHOWN = 3
_LABELS_SHOWN = 5


def label_texts(info: ClusterInfo, wanted: Mapping[str, str]) -> Iterator[str]:
    """Write the labels that a cluster lacks, with its own values, up to a limit."""
    have = info.view.labels
    missing = [
        (key, value) for key, value in sorted(wanted.items()) if have.get(key) != value
    ]
    for key, value in missing[:_LABELS_SHOWN]:
        if key in have:
            yield f"{key}={value}, has {have[key]}"
            continue
        near = nearest(key, have)
        yield f"{key}={value}, has {near}={have[near]}" if near else f"{key}={value}"
    if len(missing) > _LABELS_SHOWN:
        yield f"and {len(missing) - _LABELS_SHOWN} more"


def absent_labels(overlay: FleetOverlay, wanted: Mapping[str, str]) -> str:
    """Return a text for the first label that no cluster of the fleet has, else "".

    The text suggests the nearest existing label.
    """
    for key, value in sorted(wanted.items()):
        if (key, value) not in overlay.index.labels:
            near = "=".join(near_label(overlay, key, value) or ())
            return f"no cluster has {key}={value}{nearest_text(near)}"
    return ""


def near_label(overlay: FleetOverlay, key: str, value: str) -> tuple[str, str] | None:
    """Return the nearest label of the fleet for one that no cluster has, or None."""
    values = overlay.index.label_values
    if key in values:
        other = nearest(value, values[key])
        return (key, other) if other else None
    other = nearest(key, values)
    return (other, value) if other and value in values[other] else None


def class_names(overlay: FleetOverlay) -> frozenset[str]:
    """Return the known classes.

    These are all classes if the fleet was read together with them, else the classes of
    published pools.
    """
    known = overlay.fleet.class_names
    if known is not None:
        return known
    names: set[str] = set()
    for info in islice(overlay.index.ranked, _CLUSTERS_READ):
        names.update(pool.class_name for pool in info.pools if not pool.class_missing)
    return frozenset(names - {""})


def class_text(overlay: FleetOverlay, name: str) -> str:
    """Return why the pools of a class cannot be used, with the nearest class name."""
    names = class_names(overlay)
    if name in names:
        return (
            f"InferenceClass {name} has no devices, or its cluster has not read it yet"
        )
    return f"InferenceClass {name} does not exist{nearest_text(nearest(name, names))}"


def unpublished_text(overlay: FleetOverlay, info: ClusterInfo, before: str) -> str:
    """Return why a cluster's node pools are not published, prefixed with `before`.

    Return "" if every pool is published.
    """
    pools = info.view.unpublished
    parts = [
        f"pool {pool}: {class_text(overlay, name)}"
        for pool, name in pools[:_POOLS_SHOWN]
    ]
    if not parts:
        return ""
    rest = len(pools) - len(parts)
    more = f" and {rest} more pools" if rest > 0 else ""
    return f"{before}{'; '.join(parts)}{more}"


def nearest_text(name: str) -> str:
    """Return ", nearest: NAME", or "" without a name."""
    return f", nearest: {name}" if name else ""
