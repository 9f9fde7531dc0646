"""Taints and tolerations of clusters, matched as Kubernetes matches those of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.model.inputs import ClusterTaint, ClusterToleration


def tolerates(toleration: ClusterToleration, taint: ClusterTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def untolerated(
    taints: Sequence[ClusterTaint],
    tolerations: Sequence[ClusterToleration],
    effect: str = "",
) -> ClusterTaint | None:
    """Return the first taint that no toleration covers, optionally of one effect only."""
    for taint in taints:
        if effect and taint.effect != effect:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
