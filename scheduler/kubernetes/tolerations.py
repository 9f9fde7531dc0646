"""Taints and tolerations of clusters, matched as Kubernetes matches those of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.model.inputs import Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], effect: str = "") -> Taint | None:
    """Give the first taint, of one effect if given, that no toleration covers."""
    for taint in taints:
        if effect and taint.effect != effect:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
