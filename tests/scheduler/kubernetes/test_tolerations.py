"""Tolerations cover taints of clusters as they cover taints of nodes."""

import pytest

from scheduler.kubernetes.tolerations import untolerated
from scheduler.model.inputs import ClusterTaint, ClusterToleration

GPU, NEW = (
    ClusterTaint("gpu", "h200", "NoSchedule"),
    ClusterTaint("new", "", "NoExecute"),
)


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (ClusterToleration("gpu", "Equal", "h200", "NoSchedule"), True),
        (ClusterToleration("gpu", "Equal", "h200", ""), True),
        (ClusterToleration("gpu", "Equal", "h200", "NoExecute"), False),
        (ClusterToleration("gpu", "Equal", "l4", ""), False),
        (ClusterToleration("new", "Equal", "h200", ""), False),
        (ClusterToleration("gpu", "Exists", "", ""), True),
        (ClusterToleration("gpu", "Exists", "", "NoExecute"), False),
        (ClusterToleration("new", "Exists", "", ""), False),
        (ClusterToleration("", "Exists", "", ""), True),
        (ClusterToleration("", "Exists", "", "NoSchedule"), True),
        (ClusterToleration("", "Exists", "", "NoExecute"), False),
        (ClusterToleration("", "Equal", "h200", ""), False),
    ],
)
def test_a_toleration_covers_key_value_and_effect(
    toleration: ClusterToleration, covers: bool
) -> None:
    assert untolerated([GPU], [toleration]) == (None if covers else GPU)


@pytest.mark.parametrize(
    ("taints", "effect", "found"),
    [
        ([], "", None),
        ([GPU, NEW], "", GPU),
        ([NEW, GPU], "", NEW),
        ([GPU, NEW], "NoExecute", NEW),
        ([GPU], "NoExecute", None),
    ],
)
def test_the_first_untolerated_taint_of_an_effect_is_found(
    taints: list[ClusterTaint], effect: str, found: ClusterTaint | None
) -> None:
    other = ClusterToleration("other", "Exists", "", "")
    assert (
        untolerated(taints, [], effect) == untolerated(taints, [other], effect) == found
    )
    either = [
        ClusterToleration("gpu", "Exists", "", ""),
        ClusterToleration("new", "Exists", "", ""),
    ]
    assert untolerated(taints, either, effect) is None
