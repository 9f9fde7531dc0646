"""Tolerations cover taints of clusters as they cover taints of nodes."""

import pytest

from scheduler.kubernetes.tolerations import untolerated
from scheduler.model.inputs import Taint, Toleration

GPU, NEW = Taint("gpu", "h200", "NoSchedule"), Taint("new", "", "NoExecute")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("gpu", "Equal", "h200", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "h200", ""), True),
        (Toleration("gpu", "Equal", "h200", "NoExecute"), False),
        (Toleration("gpu", "Equal", "l4", ""), False),
        (Toleration("new", "Equal", "h200", ""), False),
        (Toleration("gpu", "Exists", "", ""), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("new", "Exists", "", ""), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "h200", ""), False),
    ],
)
def test_a_toleration_covers_key_value_and_effect(toleration: Toleration, covers: bool) -> None:
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
def test_the_first_taint_of_an_effect_that_nothing_covers_is_found(taints: list[Taint], effect: str, found: Taint | None) -> None:
    other = Toleration("other", "Exists", "", "")
    assert untolerated(taints, [], effect) == untolerated(taints, [other], effect) == found
    either = [Toleration("gpu", "Exists", "", ""), Toleration("new", "Exists", "", "")]
    assert untolerated(taints, either, effect) is None
